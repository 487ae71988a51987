"""The serving pointer moves where the gate passes, and nowhere else."""

import itertools
from typing import Any

import pytest

from capibara_assets.domains import Domain
from capibara_assets.evaluation.promotion import moves, promote

PYTHON, SQL = Domain.PYTHON, Domain.SQL


def pointer(verdicts: dict[Domain, str], previous: dict[str, Any] | None = None, edition: str = "1") -> dict[str, Any]:
    decisions = {domain: {"verdict": verdict, "reason": f"because {verdict}"} for domain, verdict in verdicts.items()}
    checkpoints = {domain: f"{domain}-{edition}" for domain in verdicts}
    return promote(decisions, checkpoints, merged=f"merged-{edition}", router=f"router-{edition}", previous=previous)


@pytest.mark.parametrize("verdict", ["reject", "inconclusive"])
def test_at_first_what_does_not_pass_leaves_the_base_serving(verdict: str):
    found = pointer({PYTHON: verdict, SQL: verdict})
    assert found["serving"] == {"experts": {"python": None, "sql": None}, "merged": None, "router": None}
    assert found["domains"]["sql"] == {"verdict": verdict, "reason": f"because {verdict}"}


def test_one_domain_passes_alone():
    found = pointer({PYTHON: "promote", SQL: "reject"})
    assert found["serving"] == {"experts": {"python": "python-1", "sql": None}, "merged": None, "router": "router-1"}
    assert moves(found, None) == ["python"]


def test_the_merged_model_serves_when_every_domain_passes():
    found = pointer({PYTHON: "promote", SQL: "promote"})
    assert found["serving"]["merged"] == "merged-1"


@pytest.mark.parametrize(("first", "second"), itertools.product(["promote", "reject", "inconclusive"], repeat=2))
def test_a_second_round_keeps_or_moves(first: str, second: str):
    before = pointer({PYTHON: first, SQL: "reject"})
    after = pointer({PYTHON: second, SQL: "reject"}, previous=before, edition="2")
    kept = before["serving"]["experts"]["python"]
    assert after["serving"]["experts"]["python"] == ("python-2" if second == "promote" else kept)
    assert moves(after, before) == (["python"] if second == "promote" else [])
    assert after["serving"]["merged"] is None


def test_a_later_failure_keeps_the_merged_model_that_serves():
    before = pointer({PYTHON: "promote", SQL: "promote"})
    after = pointer({PYTHON: "promote", SQL: "inconclusive"}, previous=before, edition="2")
    assert after["serving"]["merged"] == "merged-1"
    assert after["serving"]["experts"] == {"python": "python-2", "sql": "sql-1"}


def test_the_same_checkpoint_promoted_again_has_not_moved():
    before = pointer({PYTHON: "promote"})
    after = pointer({PYTHON: "promote"}, previous=before)
    assert after == before and moves(after, before) == []


def test_a_domain_that_was_not_evaluated_now_keeps_what_serves():
    before = pointer({PYTHON: "promote", SQL: "promote"})
    after = pointer({PYTHON: "reject"}, previous=before, edition="2")
    assert after["serving"]["experts"] == {"python": "python-1", "sql": "sql-1"}
    assert set(after["domains"]) == {"python"}


def test_a_domain_that_arrives_later_joins():
    before = pointer({PYTHON: "promote"})
    after = pointer({PYTHON: "reject", SQL: "promote"}, previous=before, edition="2")
    assert after["serving"]["experts"] == {"python": "python-1", "sql": "sql-2"}


def test_no_evaluation_promotes_nothing():
    assert pointer({})["serving"] == {"experts": {}, "merged": None, "router": None}


def test_the_same_decisions_in_another_order_give_the_same_document():
    one, other = (
        {PYTHON: "promote", SQL: "reject", Domain.API: "promote"},
        {Domain.API: "promote", SQL: "reject", PYTHON: "promote"},
    )
    assert list(pointer(one)["serving"]["experts"]) == list(pointer(other)["serving"]["experts"])

"""The serving pointer moves where the gate passes, and nowhere else."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.evaluation.serving.promotion import NOTHING, moves, promote, promote_manually, roll_back, served

PYTHON, SQL = Domain.PYTHON, Domain.SQL
PASSES = {"verdict": "promote", "reason": "better"}


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


def test_what_was_taken_back_is_not_promoted_again_until_it_is_another():
    first = pointer({PYTHON: "promote", SQL: "promote"})
    second = pointer({PYTHON: "promote", SQL: "promote"}, previous=first, edition="2")
    taken = roll_back(second, first, None, "by ana: worse answers")
    assert taken["serving"] == first["serving"]
    again = pointer({PYTHON: "promote", SQL: "promote"}, previous=taken, edition="2")
    assert again["serving"]["experts"] == first["serving"]["experts"] and again["serving"]["merged"] == "merged-1"
    assert "Not promoted all the same: taken back by ana: worse answers" in again["domains"]["python"]["reason"]
    third = pointer({PYTHON: "promote", SQL: "promote"}, previous=again, edition="3")
    assert third["serving"] == {
        "experts": {"python": "python-3", "sql": "sql-3"},
        "merged": "merged-3",
        "router": "router-3",
    }
    assert set(third["held"]) == {"python", "sql", "merged"}  # for ever


def test_a_domain_goes_back_alone_but_with_the_merged_model():
    first = pointer({PYTHON: "promote", SQL: "promote"})
    second = pointer({PYTHON: "promote", SQL: "promote"}, previous=first, edition="2")
    taken = roll_back(second, first, ["python"], "by ana: why")
    assert taken["serving"]["experts"] == {"python": "python-1", "sql": "sql-2"}
    assert taken["serving"]["merged"] == "merged-1" and taken["serving"]["router"] == "router-2"
    with pytest.raises(InputError, match="nothing to roll back: python"):
        roll_back(taken, first, ["python"], "again")


def test_by_hand_a_held_digest_serves_again_and_stays():
    first = pointer({PYTHON: "promote"})
    taken = roll_back(first, NOTHING, None, "by ana: why")
    assert taken["serving"]["experts"] == {"python": None} and taken["serving"]["router"] is None
    chosen = promote_manually(taken, "python", "python-1", "Promoted by bo: needed")
    assert set(chosen["held"]) == {"merged"}
    assert chosen["domains"]["python"] == {"verdict": "by hand", "reason": "Promoted by bo: needed"}
    kept = pointer({PYTHON: "reject"}, previous=chosen, edition="2")
    assert kept["serving"]["experts"]["python"] == "python-1"


def test_experts_that_come_after_a_way_back_have_a_router():
    taken = roll_back(pointer({PYTHON: "promote"}), NOTHING, None, "by ana: why")
    after = promote({PYTHON: PASSES}, {PYTHON: "python-2"}, merged=None, router="router-1", previous=taken)
    assert after["serving"]["router"] == "router-1"
    by_name = roll_back(after, taken, ["router"], "by ana: it is slow")
    again = promote({PYTHON: PASSES}, {PYTHON: "python-3"}, merged=None, router="router-1", previous=by_name)
    assert again["serving"]["router"] is None and again["serving"]["experts"]["python"] == "python-3"


def test_a_merged_model_that_was_not_judged_does_not_serve():
    assert promote({PYTHON: PASSES}, {PYTHON: "p"}, merged=None, router=None, previous=None)["serving"] == {
        "experts": {"python": "p"},
        "merged": None,
        "router": None,
    }


def test_a_document_of_the_first_version_is_continued():
    old = {"schema_version": 1, "serving": {"experts": {"sql": "s"}, "merged": None, "router": "r"}, "domains": {}}
    found = pointer({PYTHON: "promote"}, previous=old)
    assert found["serving"]["experts"] == {"python": "python-1", "sql": "s"} and found["schema_version"] == 2


DIGESTS = st.sampled_from(["a", "b", "c"])
ROUNDS = st.lists(
    st.dictionaries(st.sampled_from([PYTHON, SQL]), st.tuples(st.sampled_from(["promote", "reject"]), DIGESTS)),
    max_size=6,
)


@given(ROUNDS, st.integers(0, 6))
def test_the_gate_never_brings_back_what_a_person_took_away(rounds: list[dict[Domain, tuple[str, str]]], when: int):
    document: dict[str, Any] = dict(NOTHING)
    taken: set[tuple[str, str]] = set()
    for number, one in enumerate(rounds):
        if number == when and any(served(document).values()):
            before = served(document)
            document = roll_back(document, NOTHING, None, "by hand")
            taken = {(slot, digest) for slot, digest in before.items() if digest is not None}
        decisions = {domain: {"verdict": verdict, "reason": "r"} for domain, (verdict, _) in one.items()}
        checkpoints = {domain: digest for domain, (_, digest) in one.items()}
        document = promote(decisions, checkpoints, merged=None, router=None, previous=document)
        assert not taken & {(slot, digest) for slot, digest in served(document).items() if digest}

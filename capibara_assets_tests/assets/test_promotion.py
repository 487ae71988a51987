"""What is promoted is what was judged; a person overrides the gate with a reason, and goes back in one step."""

from pathlib import Path

import dagster as dg
import pytest

from capibara_assets.assets.inputs import INPUTS, Origin, latest_metadata
from capibara_assets.assets.manual_promotion import (
    ManualPromotion,
    Rollback,
    describe_move,
    promote_manually,
    roll_back,
)
from capibara_assets.assets.promotion import promoted_model
from capibara_assets.automation.jobs import promote_by_hand, rollback
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.evaluation.schema import Decision
from capibara_assets.evaluation.serving.promotion_log import Move, PromotionLog
from capibara_assets.lineage.checkpoints import needed_checkpoints
from capibara_assets.resources import Recipes
from capibara_assets_tests.published import Published, adapter_folder

PYTHON, SQL = Domain.PYTHON, Domain.SQL


@pytest.fixture
def published(instance: dg.DagsterInstance, tmp_path: Path) -> Published:
    made = Published.afresh(instance, tmp_path)
    made.put("merged_checkpoint", documents={"report": {}})
    made.put("expert_router", documents={"report": {}})
    return made


def evaluated(published: Published, domain: Domain, verdict: str, edition: int) -> str:
    """A consensus checkpoint and the evaluation of it; the digest of the checkpoint."""
    checkpoint = published.put("consensus_checkpoint", domain, documents={"certificate": {"edition": edition}})
    published.put(
        "evaluation",
        domain,
        documents={"decision": {"verdict": verdict, "reason": f"{verdict} {edition}"}},
        upstream={f"consensus_checkpoint|{domain}": checkpoint.digest},
    )
    return checkpoint.digest


def promote(published: Published) -> dict:
    resources = {"store": published.store, "recipes": Recipes()}
    result = dg.materialize([promoted_model], instance=published.instance, resources=resources)
    assert result.success
    return published.inputs().artifact("promoted_model").document("promotion")


def test_the_pointer_follows_the_verdicts(published: Published):
    checkpoint = evaluated(published, PYTHON, "promote", 1)
    evaluated(published, SQL, "reject", 1)
    document = promote(published)
    assert document["serving"]["experts"] == {"python": checkpoint, "sql": None}
    assert document["serving"]["merged"] is None and document["domains"]["sql"]["reason"] == "reject 1"


def test_a_checkpoint_that_was_not_evaluated_is_not_promoted(published: Published):
    judged = evaluated(published, PYTHON, "promote", 1)
    later = published.put("consensus_checkpoint", PYTHON, documents={"certificate": {"edition": 2}})
    assert promote(published)["serving"]["experts"]["python"] == judged != later.digest


def test_a_lost_round_keeps_what_serves_and_says_why(published: Published):
    first = evaluated(published, PYTHON, "promote", 1)
    assert promote(published)["serving"]["experts"]["python"] == first
    evaluated(published, PYTHON, "inconclusive", 2)
    document = promote(published)
    assert document["serving"]["experts"]["python"] == first
    assert document["domains"]["python"] == {"verdict": "inconclusive", "reason": "inconclusive 2"}


def test_the_checkpoints_that_serve_are_named_and_needed_as_promoted(published: Published, tmp_path: Path):
    inputs = published.inputs()
    kept = {"adapter": inputs.checkpointed("python/consensus", Origin({}, "base"))}
    tree = adapter_folder(tmp_path / "adapter")
    agreed = published.put(
        "consensus_checkpoint",
        PYTHON,
        documents={"certificate": {"context": {}}},
        trees={"adapter": tree},
        checkpoints=kept,
    )
    published.put(
        "evaluation",
        PYTHON,
        documents={"decision": {"verdict": "promote", "reason": "better"}},
        upstream={f"consensus_checkpoint|{PYTHON}": agreed.digest},
    )
    promote(published)
    [identity] = agreed.checkpoints.values()
    named = latest_metadata(published.instance, "promoted_model")
    assert named["checkpoints"] == {"python/consensus": identity}
    assert needed_checkpoints(published.store.open()) == {identity: "promoted: python/consensus"}


def history(published: Published) -> list[Move]:
    return PromotionLog(published.store.open()).moves()


def serving(published: Published) -> dict:
    return published.inputs().artifact("promoted_model").document("promotion")["serving"]


def by_hand(published: Published, slot: str = "", checkpoint: str = "", reason: str = "needed") -> Move | None:
    wanted = ManualPromotion(slot=slot, checkpoint=checkpoint, reason=reason, by="ana")
    report = published.instance.report_runless_asset_event
    return promote_manually(published.instance, published.store.open(), wanted, report)


def back(published: Published, **wanted: object) -> Move | None:
    report = published.instance.report_runless_asset_event
    return roll_back(published.instance, published.store.open(), Rollback(by="ana", reason="worse", **wanted), report)


def test_the_history_has_the_gates_moves_and_no_more(published: Published):
    first = evaluated(published, PYTHON, "promote", 1)
    promote(published)
    promote(published)
    evaluated(published, PYTHON, "reject", 2)
    promote(published)
    [move] = history(published)
    router = published.inputs().artifact("expert_router").digest
    assert move.moved == {"python": (None, first), "router": (None, router)} and (move.by, move.action) == (
        "gate",
        "gate",
    )


def test_only_the_merged_model_that_was_judged_serves(published: Published):
    judged = published.inputs().artifact("merged_checkpoint").digest
    checkpoint = evaluated(published, PYTHON, "promote", 1)
    upstream = {f"consensus_checkpoint|{PYTHON}": checkpoint, "merged_checkpoint|_": judged}
    decision = {"verdict": "promote", "reason": "better"}
    published.put("evaluation", PYTHON, documents={"decision": decision}, upstream=upstream)
    later = published.put("merged_checkpoint", documents={"report": {"edition": 2}})
    assert promote(published)["serving"]["merged"] == judged != later.digest


def test_back_in_one_step_and_the_gate_leaves_it_there(published: Published):
    first = evaluated(published, PYTHON, "promote", 1)
    promote(published)
    second = evaluated(published, PYTHON, "promote", 2)
    assert promote(published)["serving"]["experts"]["python"] == second
    move = back(published)
    assert move is not None and move.action == "rollback" and move.moved == {"python": (second, first)}
    assert serving(published)["experts"]["python"] == first
    document = promote(published)
    assert document["serving"]["experts"]["python"] == first
    assert "Not promoted all the same: taken back by ana: worse" in document["domains"]["python"]["reason"]
    third = evaluated(published, PYTHON, "promote", 3)
    assert promote(published)["serving"]["experts"]["python"] == third
    assert [move.action for move in history(published)] == ["gate", "gate", "rollback", "gate"]


def test_what_a_person_did_is_the_latest_materialization_and_leaves_the_asset_current(published: Published):
    evaluated(published, PYTHON, "promote", 1)
    promote(published)
    before = latest_metadata(published.instance, "promoted_model")
    back(published)
    after = latest_metadata(published.instance, "promoted_model")
    assert after[INPUTS] == before[INPUTS] and after["digest"] != before["digest"]
    assert after["by"] == "ana (rollback)" and after["moved"] == ["python", "router"]
    assert after["serving"]["experts"] == {"python": None}


def test_a_person_overrides_the_gate_and_says_why(published: Published):
    checkpoint = evaluated(published, PYTHON, "reject", 1)
    other = evaluated(published, SQL, "reject", 1)
    promote(published)
    with pytest.raises(InputError, match="recorded with its reason"):
        by_hand(published, "python", reason=" ")
    move = by_hand(published, "python")
    assert move is not None and move.moved["python"] == (None, checkpoint) and move.moved["router"][1] is not None
    assert (move.by, move.action, move.reason) == ("ana", "promote", "needed")
    assert promote(published)["serving"]["experts"] == {"python": checkpoint, "sql": None}
    assert by_hand(published, "python") is None and describe_move(None) == "nothing moved: that serves already"
    every = by_hand(published)
    assert every is not None and every.moved == {"sql": (None, other)}


def test_a_checkpoint_is_named_by_the_beginning_of_its_digest(published: Published):
    first, second = (evaluated(published, PYTHON, "reject", edition) for edition in (1, 2))
    by_hand(published, checkpoint=first[:10])
    assert serving(published)["experts"]["python"] == first
    by_hand(published, "python")
    assert serving(published)["experts"]["python"] == second
    for named, slot, message in (
        ("zz", "", "names no checkpoints"),
        ("", "sql", "nothing to promote for sql"),
        ("", "s", "'s' is not served: choose one of python, sql"),
    ):
        with pytest.raises(InputError, match=message):
            by_hand(published, slot, named)


def test_back_to_any_number_and_to_the_base(published: Published):
    first = evaluated(published, PYTHON, "promote", 1)
    promote(published)
    for edition in (2, 3):
        evaluated(published, PYTHON, "promote", edition)
        promote(published)
    back(published, to=1)
    assert serving(published)["experts"]["python"] == first
    back(published, to=0)
    assert serving(published) == {"experts": {"python": None}, "merged": None, "router": None}
    with pytest.raises(InputError, match="number 9: there are 0 to 5"):
        back(published, to=9)
    with pytest.raises(InputError, match="is served now"):
        back(published, to=0)


def test_one_click_in_the_ui(published: Published):
    """The jobs as the UI launches them: rollback without any configuration."""
    evaluated(published, PYTHON, "reject", 1)
    config = {"ops": {"promote_against_the_gate": {"config": {"slot": "python", "reason": "asked for"}}}}
    resources = {"store": published.store}
    assert promote_by_hand.execute_in_process(config, instance=published.instance, resources=resources).success
    assert serving(published)["experts"]["python"] is not None
    assert rollback.execute_in_process(instance=published.instance, resources=resources).success
    assert serving(published)["experts"]["python"] is None
    assert [(move.action, move.by) for move in history(published)] == [
        ("promote", "the Dagster UI"),
        ("rollback", "the Dagster UI"),
    ]


def test_domains_that_are_judged_together_are_adjusted_for_their_number(published: Published):
    domains = list(Domain)
    for domain, p_value in zip(domains, (1e-6, 0.02, 0.02, 0.02, 0.02, 0.02), strict=True):
        checkpoint = published.put("consensus_checkpoint", domain, documents={"certificate": {"edition": 1}})
        decision = Decision(
            verdict="promote",
            outcome="adopt",
            reason="better.",
            metric="pass@1",
            arms={},
            gain_over_base=None,
            gain_over_playbook=None,
            p_value=p_value,
        )
        published.put(
            "evaluation",
            domain,
            documents={"decision": decision.model_dump(mode="json")},
            upstream={f"consensus_checkpoint|{domain}": checkpoint.digest},
        )
    document = promote(published)
    served = {domain for domain, digest in document["serving"]["experts"].items() if digest}
    assert served == {domains[0].value}  # five times 0.02 are not significant together
    entry = document["domains"][domains[1].value]
    assert entry["verdict"] == "inconclusive" and "6 domains were judged together" in entry["reason"]

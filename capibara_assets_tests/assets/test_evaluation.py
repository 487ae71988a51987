"""What is promoted is what was judged."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from capibara_assets.assets.evaluation import promoted_model
from capibara_assets.assets.inputs import latest_metadata
from capibara_assets.domains import Domain
from capibara_assets.lineage.checkpoints import needed_checkpoints
from capibara_assets_tests.published import Published, adapter_folder

PYTHON, SQL = Domain.PYTHON, Domain.SQL


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


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
    result = dg.materialize([promoted_model], instance=published.instance, resources={"store": published.store})
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
    kept = {"adapter": inputs.checkpointed("python/consensus", recipe={}, base="base")}
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

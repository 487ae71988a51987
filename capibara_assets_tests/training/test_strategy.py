"""Voters of different strategies in one recipe: trained side by side, and one that fails harms no other."""

from pathlib import Path
from typing import Any

import pytest

from capibara_assets.storage.digests import sha256_file
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.supervisor.run import train_domain
from capibara_assets.training.supervisor.signals import StopSignal
from capibara_assets.training.supervisor.voter_process import FAILED
from capibara_assets.training.supervisor.worker import attempt
from capibara_assets_tests.training.conftest import MakeRequest
from capibara_assets_tests.training.strategy_runs import train

WEIGHTS = "adapter_model.safetensors"

POISONED = {
    "kind": "hierarchical",
    "levels": [{"name": "only", "data": "domain", "epochs": 1, "learning_rate_factor": 1e38}],
}


def specs_of(**strategies: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"name": name, "seed": n, "shard": n, "strategy": strategy}
        for n, (name, strategy) in enumerate(strategies.items())
    ]


def attempted(request: TrainingRequest, voter: int, events: list[dict[str, Any]]) -> int:
    """Train a voter as its process does; the code that this ends with."""
    spec = request.recipe.voters[voter]
    return attempt(request, spec, events.append, StopSignal())


def test_a_voters_process_trains_by_its_strategy_and_says_what_would_fail_again(
    make_request: MakeRequest, tmp_path: Path
) -> None:
    specs = specs_of(poisoned=POISONED, soup={"kind": "soup"})
    request, events = make_request(voters=specs, max_steps=4, max_skipped_steps=0), list[dict[str, Any]]()
    assert attempted(request, 0, events) == FAILED
    assert "NaN or infinity" in events[-1]["error"] and not (request.work / "poisoned" / "result").exists()
    assert attempted(request, 1, events) == 0
    alone = train(make_request(work="alone", voters=specs, max_steps=4, max_skipped_steps=0), voter=1)
    assert sha256_file(alone / WEIGHTS) == sha256_file(request.work / "soup" / "result" / WEIGHTS)


@pytest.mark.extended
def test_strategies_are_mixed_and_a_failing_one_harms_no_other(make_request: MakeRequest) -> None:
    specs = specs_of(poisoned=POISONED, soup={"kind": "soup"}, convexity={"kind": "convexity"})
    request = make_request(voters=specs, max_steps=4, max_skipped_steps=0, parallel=1)
    outcome = train_domain(request, lambda event: None)
    assert outcome.finished == ("convexity", "soup")
    assert "NaN or infinity" in outcome.missing["poisoned"]
    assert outcome.summary["voters"]["soup"]["status"] == "finished"
    # What the soup came to, it comes to where nobody fails
    specs[0]["strategy"] = {"kind": "plain"}
    healthy = make_request(work="healthy", voters=specs, max_steps=4, max_skipped_steps=0)
    alone = train(healthy, voter=1)
    assert sha256_file(alone / WEIGHTS) == sha256_file(outcome.out / "voters" / "soup" / WEIGHTS)

"""Voters of different strategies in one recipe: trained side by side, and one that fails harms no other."""

from typing import Any

from capibara_assets.storage.digests import sha256_file
from capibara_assets.training.supervisor.run import train_domain
from capibara_assets_tests.training.conftest import MakeRequest
from capibara_assets_tests.training.strategy_runs import train

WEIGHTS = "adapter_model.safetensors"

POISONED = {
    "kind": "hierarchical",
    "levels": [{"name": "only", "data": "domain", "epochs": 1, "learning_rate_factor": 1e38}],
}


def test_strategies_are_mixed_and_a_failing_one_harms_no_other(make_request: MakeRequest) -> None:
    strategies: list[dict[str, Any]] = [POISONED, {"kind": "soup"}, {"kind": "convexity"}]
    names = ["poisoned", "soup", "convexity"]
    specs = [
        {"name": name, "seed": n, "shard": n, "strategy": one}
        for n, (name, one) in enumerate(zip(names, strategies, strict=True))
    ]
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

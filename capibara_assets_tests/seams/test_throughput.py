"""A throughput that is asked for decides the plan: the leanest setting that is predicted to reach it, and no other."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from capibara_assets.cli.training.plan import plan

GPUS = ("--model", "qwen3-0.6b", "--hardware", "h100-8", "--examples", "60000")
SLICE = ("--model", "qwen3-0.6b", "--hardware", "tpu-v5e-4", "--examples", "900", "--sequence", "512")


def planned(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(plan, [*arguments, "--json"], catch_exceptions=False)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def asked(base: tuple[str, ...], rate: float, unit: str = "tokens/s per slice") -> tuple[dict[str, Any], Any]:
    document = planned(*base, "--target-throughput", f"{rate:.6g} {unit}")
    (goal,) = [one for one in document["plan"]["throughput_target"] if one["steers"]]
    return document, goal


def memory(document: dict[str, Any]) -> int:
    plan = document["plan"]
    return int((plan.get("memory") or plan["estimates"]["memory_bytes_per_device"])["total"])


@pytest.mark.parametrize("base", [GPUS, SLICE], ids=["h100-8", "v5e-4"])
def test_the_plan_is_the_leanest_that_reaches_the_rate(base: tuple[str, ...]) -> None:
    """From little to more than is possible: memory never falls, and what is more than the best is said to be missed."""
    slowest, goal = asked(base, 1000.0)
    assert goal["plan"] == "predicted to reach it" and goal["predicted"][1] >= 1
    free = planned(*base)
    assert memory(slowest) < memory(free) and "least memory" in json.dumps(slowest["plan"]["reasons"])
    floor = 1000.0 * goal["predicted"][1]  # what the leanest of all does

    faster, goal = asked(base, 1.02 * floor)  # which the leanest of all does not reach
    assert goal["predicted"][1] >= 1 and memory(slowest) < memory(faster) <= memory(free)
    low, middle, high = goal["predicted"]
    assert low < middle < high and f"this plan: {middle:.1%} of it predicted" in goal["arithmetic"]

    peak = 989.4 if base is GPUS else 197.0
    wanted, goal = asked(base, 0.95 * peak, "TFLOP/s per chip")
    assert goal["plan"] == "predicted to miss it" and goal["predicted"][2] < 1
    assert "nearest" in json.dumps(wanted["plan"]["reasons"])
    most = 0.95 * goal["predicted"][1]  # of the peak, by the fastest setting
    _, goal = asked(base, 0.999 * most * peak, "TFLOP/s per chip")
    assert goal["predicted"][1] == pytest.approx(1 / 0.999, rel=1e-3)  # and it is found where it is asked for


def test_a_preset_is_compared_but_not_changed() -> None:
    words = ("--preset", "mistral7b_8xh100", "--examples", "900")
    document, goal = asked(words, 30_000.0)
    assert goal["plan"] == "predicted to reach it" and goal["predicted"][1] > 1
    assert document["plan"]["micro_batch"] == planned(*words)["plan"]["micro_batch"]
    assert asked(words, 200_000.0)[1]["plan"] == "predicted to miss it"

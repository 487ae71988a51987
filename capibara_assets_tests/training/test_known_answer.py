"""Trainings of the base that ships still end where they ended when `known_answer.json` was recorded.

In the environment of the recording to the bit, elsewhere to rounding. A change that is meant to compute something else
raises `LOOP_VERSION` and records anew: `python -m capibara_assets_tests.training.test_known_answer`.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.deployment.locations import resources_root
from capibara_assets.storage.digests import sha256_file
from capibara_assets.training.data.voter_run import Interrupted
from capibara_assets.training.environment import fingerprint, pick_device, settings_on
from capibara_assets.training.request import TrainingRequest
from capibara_assets_tests.training.conftest import request_maker, save_dataset
from capibara_assets_tests.training.strategy_runs import manifest, train, train_stopped, voters

KNOWN = Path(__file__).with_name("known_answer.json")
STRATEGIES: dict[str, dict[str, Any]] = {
    "plain": {"kind": "plain"},
    "private": {
        "kind": "private",
        "trained": "b_only",
        "privacy": {"epsilon": 8.0, "noise_multiplier": 2.0, "clip": 0.5, "seed": 5},
    },
}
LORA = {"rank": 4, "alpha": 8, "dropout": 0.1, "use_rslora": False}


def made(folder: Path, kind: str, work: str) -> TrainingRequest:
    """Eight steps of the base that ships, with dropout."""
    nano, data = resources_root() / "base_models" / "capibara-nano", folder / "examples.parquet"
    make = request_maker(nano, data if data.is_file() else save_dataset(folder), folder)
    return make(work=work, lora=LORA, voters=voters(STRATEGIES[kind]))


def answer(result: Path) -> dict[str, Any]:
    """What a training is held to: every figure of its curve, and the adapter's bytes."""
    found = manifest(result)
    curve: list[dict[str, float]] = json.loads((result / "curve.json").read_text())
    return {
        "curve": curve,
        "best_step": found["best_step"],
        "supervised_tokens": found["supervised_tokens"],
        "adapter": sha256_file(result / "adapter_model.safetensors"),
    }


def environment(request: TrainingRequest) -> dict[str, Any]:
    device = pick_device()
    return fingerprint(device, settings_on(request, device), request.recipe.hardware)


@pytest.mark.resume
@pytest.mark.parametrize(
    ("kind", "halfway"),
    [
        ("plain", False),
        *(pytest.param(kind, True, marks=pytest.mark.extended) for kind in STRATEGIES),
    ],
    ids=["plain", "plain, stopped", "private, stopped"],
)
def test_whole_and_stopped_halfway_it_ends_where_it_ended(tmp_path: Path, kind: str, halfway: bool) -> None:
    request = made(tmp_path, kind, "whole")
    whole = answer(train(request))
    known = json.loads(KNOWN.read_text())
    if known["environment"] == environment(request):
        assert whole == known[kind]
    for key in ("best_step", "supervised_tokens"):
        assert whole[key] == known[kind][key]
    assert len(whole["curve"]) == len(known[kind]["curve"])
    for one, other in zip(whole["curve"], known[kind]["curve"], strict=True):
        assert one == pytest.approx(other, rel=1e-3)
    if halfway:  # on a smaller base, both are stopped in `loop/test_train.py` and `strategies/test_private_sgd.py`
        stopped = train_stopped(made(tmp_path, kind, "stopped"), calls=31, times=1)
        assert answer(stopped) == whole


def test_a_private_one_begins_as_it_began(tmp_path: Path) -> None:
    """Up to its second validation, after three steps with gradients of each example: most of the time is theirs."""
    request, events = made(tmp_path, "private", "whole"), list[dict[str, Any]]()

    def validated() -> dict[int, float]:
        return {event["step"]: event["validation_loss"] for event in events if event["event"] == "validation"}

    def poll() -> None:
        if len(validated()) == 2:
            raise Interrupted

    with pytest.raises(Interrupted):
        train(request, poll, events)
    known = json.loads(KNOWN.read_text())
    expected = {
        one["step"]: one["validation_loss"]
        for one in known["private"]["curve"]
        if one["step"] <= 3 and "validation_loss" in one
    }
    assert validated() == pytest.approx(expected, rel=1e-3) and list(expected) == [0, 3]
    if known["environment"] == environment(request):
        assert validated() == expected


def record() -> None:
    with tempfile.TemporaryDirectory() as name:
        found: dict[str, Any] = {kind: answer(train(made(Path(name), kind, kind))) for kind in STRATEGIES}
        found["environment"] = environment(made(Path(name), "plain", "plain"))
    KNOWN.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    record()

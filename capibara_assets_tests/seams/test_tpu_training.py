"""From a TPU plan to adapters: the slice's voters learn what PyTorch's learn, whatever interrupts them, up to a vote."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.modeling.adapters import read_adapter
from capibara_assets.planning.adapters import adapter_of
from capibara_assets.planning.hardware.targets import find_target
from capibara_assets.planning.models import read_shape
from capibara_assets.planning.recipe import PlanningRecipe
from capibara_assets.planning.tpu.configuration import plan_tpu
from capibara_assets.training.request import TrainingRequest
from capibara_assets_tests.modeling.tiny import save_tiny
from capibara_assets_tests.training.conftest import request_maker, save_dataset

pytest.importorskip("jax")
TARGET = "tpu-v5e-8"
LIKE_A_SLICE = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
VOTER = [{"name": "voter-0", "seed": 0, "shard": 0}]


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory, nano: Path) -> dict[str, TrainingRequest]:
    """The same training twice: by PyTorch, and by the plan of a slice of eight chips."""
    folder = tmp_path_factory.mktemp("tpu")
    tiny = save_tiny(folder / "tiny", tokenizer_of=nano)
    make = request_maker(tiny, save_dataset(folder), folder)
    recipe, target = shipped_recipe("planning", PlanningRecipe), find_target(TARGET)
    statistics = {"examples": 60, "by_split": {"train": 48, "validation": 12}, "tokens": {"p50": 60, "p95": 100}}
    plan = plan_tpu("python", statistics, read_shape(tiny), target, recipe)
    assert plan.method == "lora" and plan.lora is not None
    given: dict[str, Any] = {"voters": VOTER, "lora": {"rank": 2, "alpha": 4, "dropout": 0.0, "use_rslora": False}}
    made = {"torch": make("torch", **given), "slice": make("slice", **given)}
    lora = adapter_of(plan, recipe.level).model_dump(mode="json")
    update = {"tpu": plan.model_dump(mode="json"), "lora": lora | {"modules": made["torch"].lora["modules"]}}
    made["slice"] = made["slice"].model_copy(update=update)
    for request in made.values():
        request.work.mkdir()
    return made


def command(request: TrainingRequest) -> list[str]:
    return [sys.executable, "-m", "capibara_assets.training", "--request", str(request.write())]


def trained(request: TrainingRequest) -> dict[str, Any]:
    """Train a request in a process of its own, as the launcher does; returns the voter's row of the summary."""
    environment = {**os.environ, **LIKE_A_SLICE, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command(request), env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    row: dict[str, Any] = json.loads((request.out / "summary.json").read_text())["voters"]["voter-0"]
    return row | {"printed": done.stdout}


def test_a_slices_voter_learns_what_pytorchs_learns(requests: dict[str, TrainingRequest]) -> None:
    torch, ours = trained(requests["torch"]), trained(requests["slice"])
    for loss in ("base_validation_loss", "validation_loss"):
        assert ours[loss] == pytest.approx(torch[loss], abs=1e-3)
    assert ours["validation_loss"] < ours["base_validation_loss"] - 0.05
    assert (ours["steps"], ours["best_step"]) == (torch["steps"], torch["best_step"])
    assert ours["supervised_tokens"] == torch["supervised_tokens"]
    assert [point["step"] for point in ours["curve"]] == [point["step"] for point in torch["curve"]]
    mine, theirs = (read_adapter(requests[name].out / "voters" / "voter-0") for name in ("slice", "torch"))
    assert mine.config == theirs.config and mine.modules == theirs.modules
    for module, delta in mine.deltas().items():
        assert (delta - theirs.delta(module)).norm() < 0.02 * theirs.delta(module).norm(), module
    assert "compiled its step for cpu" in ours["printed"]

"""From a TPU plan to adapters: a slice's voters learn what PyTorch's learn, killed or not, up to the consensus."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from peft import PeftModel
from transformers import AutoModelForCausalLM

from capibara_assets.assets.inputs import latest_digest
from capibara_assets.cli.graph.instance import open_instance
from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import read_adapter
from capibara_assets.planning.adapters import adapter_of
from capibara_assets.planning.hardware.targets import find_target
from capibara_assets.planning.models import read_shape
from capibara_assets.planning.recipe import PlanningRecipe
from capibara_assets.planning.tpu.configuration import plan_tpu
from capibara_assets.resources import Store
from capibara_assets.storage.store import Artifact, ArtifactStore
from capibara_assets.training.data.voter_run import VoterRun
from capibara_assets.training.monitoring.events import EVENTS, read_events
from capibara_assets.training.plan.preflight import require_ready
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.supervisor.worker import train_by_strategy
from capibara_assets_tests.home import MadeHome
from capibara_assets_tests.home import command as command_of_home
from capibara_assets_tests.late import late
from capibara_assets_tests.modeling.tiny import save_tiny
from capibara_assets_tests.training.conftest import request_maker, save_dataset

late("jax", reason="the extra tpu is not installed")
TARGET = "tpu-v5e-8"
LIKE_A_SLICE = {
    "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8",
    "JAX_PLATFORMS": "cpu",
}
ENVIRONMENT = {**os.environ, **LIKE_A_SLICE, "OMP_NUM_THREADS": "1"}
VOTER = [{"name": "voter-0", "seed": 0, "shard": 0}]


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory, nano: Path) -> dict[str, TrainingRequest]:
    """The same training by PyTorch, by the plan of a slice of eight chips (twice), and by one for a single chip."""
    folder = tmp_path_factory.mktemp("tpu")
    tiny = save_tiny(folder / "tiny", tokenizer_of=nano)
    make = request_maker(tiny, save_dataset(folder), folder)
    recipe, target = shipped_recipe("planning", PlanningRecipe), find_target(TARGET)
    statistics = {"examples": 60, "by_split": {"train": 48, "validation": 12}, "tokens": {"p50": 60, "p95": 100}}
    plan = plan_tpu("python", statistics, read_shape(tiny), target, recipe)
    assert plan.method == "lora" and plan.lora is not None
    given: dict[str, Any] = {"voters": VOTER, "lora": {"rank": 2, "alpha": 4, "dropout": 0.0, "use_rslora": False}}
    made = {name: make(name, **given) for name in ("torch", "slice", "killed", "chip")}
    lora = adapter_of(plan, recipe.level).model_dump(mode="json")
    update = {"tpu": plan.model_dump(mode="json"), "lora": lora | {"modules": made["torch"].lora["modules"]}}
    made["slice"], made["killed"] = (made[name].model_copy(update=update) for name in ("slice", "killed"))
    one = {"mesh": plan.mesh.model_copy(update={"data": 1, "fsdp": 1, "tensor": 1}).model_dump(mode="json")}
    made["chip"] = made["chip"].model_copy(update=update | {"tpu": update["tpu"] | one})
    for request in made.values():
        request.work.mkdir()
    return made


def in_this_process(request: TrainingRequest) -> Path:
    """Train the voter here; returns its result's folder."""
    voter = request.recipe.voters[0]
    return train_by_strategy(VoterRun(request, voter, request.folder(voter), lambda event: None, lambda: None))


def command(request: TrainingRequest) -> list[str]:
    return [sys.executable, "-m", "capibara_assets.training", "--request", str(request.write())]


def trained(request: TrainingRequest) -> Path:
    """Train a request in a process of its own, as the launcher does; returns the voter's folder."""
    done = subprocess.run(command(request), env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert request.tpu is None or "compiled its step for cpu" in done.stdout
    return request.out / "voters" / "voter-0"


def manifest(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return read


def assert_equal(ours: Path, torch: Path) -> None:
    """The same steps on the same examples, losses within 1e-3, and the same change of every weight."""
    mine, theirs = manifest(ours), manifest(torch)
    for loss in ("base_validation_loss", "validation_loss"):
        assert mine[loss] == pytest.approx(theirs[loss], abs=1e-3)
    assert mine["validation_loss"] < mine["base_validation_loss"] - 0.05
    for name in ("steps", "best_step", "supervised_tokens", "trainable_parameters", "examples", "validation_examples"):
        assert mine[name] == theirs[name], name
    steps, rates, losses = zip(*(curve(folder) for folder in (ours, torch)), strict=True)
    assert (
        steps[0] == steps[1] and rates[0] == pytest.approx(rates[1]) and losses[0] == pytest.approx(losses[1], abs=1e-3)
    )
    adapter, other = read_adapter(ours), read_adapter(torch)
    assert adapter.config == other.config and adapter.modules == other.modules
    for module, delta in adapter.deltas().items():
        assert (delta - other.delta(module)).norm() < 0.02 * other.delta(module).norm(), module


def curve(folder: Path) -> tuple[list[int], list[float], list[float]]:
    """Steps, learning rates and losses of a training."""
    points = [point for point in json.loads((folder / "curve.json").read_text()) if "loss" in point]
    return [one["step"] for one in points], [one["learning_rate"] for one in points], [one["loss"] for one in points]


def test_a_chips_voter_learns_what_pytorchs_learns(requests: dict[str, TrainingRequest]) -> None:
    assert_equal(in_this_process(requests["chip"]), in_this_process(requests["torch"]))


@pytest.mark.extended
def test_eight_chips_learn_the_same_and_a_killed_voter_goes_on(requests: dict[str, TrainingRequest]) -> None:
    whole = trained(requests["slice"])
    assert_equal(whole, trained(requests["torch"]))
    request = requests["killed"]
    events = request.folder(request.recipe.voters[0]) / EVENTS
    with subprocess.Popen(command(request), env=ENVIRONMENT) as process:
        while not any(one["event"] == "step" and one["step"] >= 4 for one in read_events(events)):
            assert process.poll() is None
            time.sleep(0.01)
        os.kill(next(one["pid"] for one in read_events(events) if one["event"] == "started"), signal.SIGKILL)
    assert process.returncode == 0
    resumed = next(one for one in read_events(events) if one["event"] == "resumed")
    assert resumed["step"] >= 2
    assert manifest(request.out / "voters" / "voter-0")["digest"] == manifest(whole)["digest"]


@pytest.mark.extended
@pytest.mark.slow
def test_a_run_for_a_slice_reaches_its_consensus(own_home: MadeHome) -> None:
    stages = "lora_config,tpu_config,trained_adapters,consensus_checkpoint"
    wanted = ("run", "--domains", "python", "--target", TARGET, "--select", stages)
    command_of_home(own_home.environment | LIKE_A_SLICE, *wanted)
    store = Store(root=own_home.deployment.store, work=str(own_home.deployment.work)).open()
    voters = newest(store, own_home, "trained_adapters").directory("voters")
    assert all(manifest(voter)["backend"] == "jax" for voter in voters.iterdir())
    assert len(list(voters.iterdir())) == 4
    agreed = newest(store, own_home, "consensus_checkpoint")
    PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(own_home.folder / "base_model"), agreed.directory("adapter")
    )


def newest(store: ArtifactStore, home: MadeHome, name: str) -> Artifact:
    """What the latest run published for `python`."""
    with open_instance(home.deployment) as instance:
        return store.open(name, Domain.PYTHON, latest_digest(instance, name, "python"))


def test_what_jax_lacks_is_refused_before_anything_is_loaded(requests: dict[str, TrainingRequest]) -> None:
    request = requests["slice"]
    lora = request.recipe.model.lora.model_copy(update={"dropout": 0.1})
    model = request.recipe.model.model_copy(update={"lora": lora})
    training = request.recipe.training.model_copy(update={"betas": (0.9, 0.999)})
    recipe = request.recipe.model_copy(update={"model": model, "training": training})
    with pytest.raises(InputError, match=r"no dropout: set model\.lora\.dropout to 0.*betas"):
        require_ready(request.model_copy(update={"recipe": recipe}))

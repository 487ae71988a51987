"""A plan or model with a real fault fails its check, and the stage behind it refuses to read it.

The faults are put into the artifacts of a finished deployment, as a damaged disk, a wrong merge or a careless planner
would leave them; checks, store and command line are the real ones.
"""

import json
import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from capibara_assets.assets.inputs import DIGEST, INPUTS, Inputs, latest_metadata
from capibara_assets.checks.models import MODEL_CHECKS
from capibara_assets.cli.graph.instance import open_instance
from capibara_assets.cli.main import cli
from capibara_assets.definitions import deployment_resources
from capibara_assets.domains import Domain
from capibara_assets.partitions import domains
from capibara_assets.storage.artifact import Artifact
from capibara_assets_tests.home import MadeHome

pytestmark = pytest.mark.slow
CHECKS = {next(iter(check.check_keys)).name: check for check in MODEL_CHECKS}
PYTHON = Domain.PYTHON


def asset_of(check: str) -> str:
    (key,) = CHECKS[check].check_keys
    return key.asset_key.to_user_string()


def partition_of(check: str) -> Domain | None:
    return PYTHON if asset_of(check) in ("lora_config", "tpu_config") else None


@dataclass
class Deployed:
    """A finished deployment of which single artifacts are exchanged."""

    made: MadeHome
    instance: dg.DagsterInstance
    folder: Path

    def artifact(self, name: str, partition: Domain | None) -> Artifact:
        return self._inputs().artifact(name, partition)

    def verdicts(self, names: Collection[str]) -> dict[str, dg.AssetCheckEvaluation]:
        """Run checks as Dagster does, behind materializations that name the present artifacts."""
        found: dict[str, dg.AssetCheckEvaluation] = {}
        for partition in (PYTHON, None):
            if not (own := [name for name in names if partition_of(name) == partition]):
                continue
            result = dg.materialize(
                [*(self._present(asset_of(name), partition) for name in own), *(CHECKS[name] for name in own)],
                partition_key=partition.value if partition else None,
                instance=self.instance,
                resources=deployment_resources(self.made.deployment),
                raise_on_error=False,
            )
            found |= {one.check_name: one for one in result.get_asset_check_evaluations()}
        return found

    def _present(self, asset: str, partition: Domain | None) -> dg.AssetsDefinition:
        metadata = latest_metadata(self.instance, asset, partition)

        @dg.asset(name=asset, partitions_def=domains if partition else None)
        def present() -> dg.MaterializeResult:
            return dg.MaterializeResult(metadata=dict(metadata))

        return present

    def exchange(self, name: str, partition: Domain | None, spoil: Callable[[Path], None]) -> None:
        """Publish the artifact again with what `spoil` does to a copy of its files, from the same inputs."""
        present = self.artifact(name, partition)
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(present.directory(), self.folder)
        spoil(self.folder)
        recorded = latest_metadata(self.instance, name, partition)[INPUTS]
        inputs = self._inputs()
        inputs.upstream, inputs.settings = recorded["upstream"], recorded["settings"]
        inputs.code_version = recorded["code_version"]
        files = [file for file in self.folder.iterdir() if file.suffix == ".json" and file.name != "manifest.json"]
        spoilt = inputs.publish(
            name,
            partition,
            documents={file.stem: json.loads(file.read_text()) for file in files},
            trees={path.name: path for path in self.folder.iterdir() if path.is_dir()},
        )
        metadata: dict[str, Any] = {DIGEST: spoilt.digest, INPUTS: dg.MetadataValue.json(inputs.record())}
        self.instance.report_runless_asset_event(
            dg.AssetMaterialization(name, partition=partition.value if partition else None, metadata=metadata)
        )

    def _inputs(self) -> Inputs:
        return Inputs(self.instance, deployment_resources(self.made.deployment)["store"].open())


@pytest.fixture
def deployed(made: MadeHome, tmp_path: Path) -> Iterator[Deployed]:
    with open_instance(made.deployment) as instance:
        yield Deployed(made, instance, tmp_path / "spoilt")


def edited(name: str, **changes: Any) -> Callable[[Path], None]:
    """Other values in a JSON document."""

    def edit(folder: Path) -> None:
        file = folder / name
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return edit


def with_nan(name: str, tensor: str = "") -> Callable[[Path], None]:
    """One NaN in the first tensor whose name has `tensor` in it."""

    def spoil(folder: Path) -> None:
        tensors = load_file(folder / name)
        first = next(key for key in sorted(tensors) if tensor in key)
        tensors[first] = np.array(tensors[first])
        tensors[first].flat[0] = np.nan
        save_file(tensors, folder / name, {"format": "pt"})

    return spoil


def without(name: str, tensor: str) -> Callable[[Path], None]:
    """A weight file that lacks a tensor."""

    def spoil(folder: Path) -> None:
        tensors = load_file(folder / name)
        save_file({key: value for key, value in tensors.items() if tensor not in key}, folder / name, {"format": "pt"})

    return spoil


MODEL = "model/model.safetensors"
FAULTS = {
    "a batch that does not add up": (
        "lora_plan_fits",
        edited("plan.json", micro_batch=3),
        "do not make up a batch of 8",
    ),
    "layers that the base lacks": ("lora_plan_fits", edited("plan.json", modules=["q_proj", "wq"]), "no layers wq"),
    "a recipe that the trainer refuses": (
        "lora_plan_fits",
        lambda folder: (folder / "files" / "recipe.yaml").write_text("learning_rat: 1\n"),
        "the trainer refuses its recipe",
    ),
    "a mesh of another slice": (
        "tpu_plan_fits",
        edited("plan.json", mesh={"data": 8, "fsdp": 4, "tensor": 1}),
        "has 32 chips a slice, tpu-v5e-64 64",
    ),
    "more memory than there is": ("tpu_plan_fits", edited("plan.json", memory_budget=1000), "may fill"),
    "a configuration that is gone": (
        "tpu_plan_fits",
        lambda folder: (folder / "files" / "jax.yaml").write_text(""),
        "jax.yaml is missing or empty",
    ),
    "a merged model with a NaN": ("merged_model_sound", with_nan(MODEL), "weights hold NaN or infinity"),
    "a merged model that lacks a layer": ("merged_model_sound", without(MODEL, "layers.0.mlp"), "are missing"),
    "a mixture with a NaN in a gate": ("mixture_sound", with_nan(MODEL, "gate.weight"), "hold NaN or infinity"),
    "a router that is no numbers": ("router_sound", with_nan("router/router.safetensors", "coef"), "coefficients hold"),
    "a pointer to what is not in the store": (
        "served_is_there",
        edited("promotion.json", serving={"experts": {"python": "0" * 64}, "merged": None, "router": None}),
        "python cannot be served",
    ),
}


FIRST = {
    "a batch that does not add up",
    "a mesh of another slice",
    "a merged model with a NaN",
    "a mixture with a NaN in a gate",
    "a router that is no numbers",
    "a pointer to what is not in the store",
}
"""One of each check; the others are tried in `make test-all`."""


def test_what_a_run_makes_passes_every_check(own_home: MadeHome):
    with open_instance(own_home.deployment) as instance:
        for check in CHECKS.values():
            (key,) = check.check_keys
            latest = instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
            # A base of random weights is sound; whether its mixture beats its merge, which warns, is chance.
            blocking = next(iter(check.check_specs)).blocking
            assert latest and latest[0].status.value in (("SUCCEEDED",) if blocking else ("SUCCEEDED", "FAILED")), key


@pytest.mark.parametrize(
    "faults",
    [FIRST, *(pytest.param({name}, marks=pytest.mark.extended, id=name) for name in sorted(FAULTS.keys() - FIRST))],
)
def test_a_fault_is_found_and_named(faults: set[str], deployed: Deployed):
    for check, spoil, _ in map(FAULTS.__getitem__, faults):
        deployed.exchange(asset_of(check), partition_of(check), spoil)
    found = deployed.verdicts({FAULTS[name][0] for name in faults})
    for check, _, words in map(FAULTS.__getitem__, faults):
        assert not found[check].passed and found[check].blocking
        assert words in " ".join(found[check].metadata["problems"].value)


@pytest.mark.parametrize(
    ("fault", "stage"),
    [
        ("a merged model with a NaN", "moe_checkpoint"),
        pytest.param("a router that is no numbers", "promoted_model", marks=pytest.mark.extended),
    ],
)
def test_the_next_stage_refuses_it(fault: str, stage: str, deployed: Deployed, capsys: pytest.CaptureFixture[str]):
    check, spoil, _ = FAULTS[fault]
    deployed.exchange(asset_of(check), None, spoil)
    deployed.verdicts([check])
    with pytest.raises(SystemExit):
        cli(["run", "--domains", "python,sql", "--select", stage, "--force"], standalone_mode=False)
    assert f"{asset_of(check)} failed a blocking check" in capsys.readouterr().err

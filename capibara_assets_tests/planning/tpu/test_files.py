"""The files of a plan fit each other: one mesh, one batch, one set of flags, and nothing that a trainer lacks."""

from pathlib import Path

import pytest
import yaml

from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.planning.hardware.targets import find_target
from capibara_assets.planning.models import ModelShape, read_shape
from capibara_assets.planning.recipe import PlanningRecipe
from capibara_assets.planning.tpu.configuration import plan_tpu
from capibara_assets.planning.tpu.files import T5X_REQUIREMENTS, tpu_files, write_files
from capibara_assets.planning.tpu.plan import TpuPlan
from capibara_assets.planning.writers.gin import check_gin, t5x_names
from capibara_assets.planning.writers.jax_config import read_jax_config
from capibara_assets.planning.writers.launch import GKE, QUEUED, RUN
from capibara_assets_tests.planning.shapes import NANO, statistics

RECIPE = shipped_recipe("planning", PlanningRecipe)


def plan(base: ModelShape, target: str = "tpu-v5e-64") -> TpuPlan:
    return plan_tpu("sql", statistics(), base, find_target(target), RECIPE)


@pytest.mark.parametrize("base", [NANO, read_shape("llama2-7b"), read_shape("t5_1_1-large")], ids=lambda s: s.name)
def test_every_trainer_gets_the_plan(base: ModelShape, tmp_path: Path) -> None:
    found = plan(base)
    folder = write_files(tmp_path / "plan", tpu_files(found, find_target("tpu-v5e-64"), RECIPE.tpu))
    config = read_jax_config(folder / "jax.yaml")
    assert (config.mesh, config.sequences, config.sequence) == (found.mesh, found.global_batch, found.sequence)
    assert (config.remat, config.steps, config.model) == (found.remat, found.steps, base)
    assert config.xla_flags == RECIPE.tpu.xla_flags
    check_gin((folder / "t5x.gin").read_text())
    assert (folder / "maxtext.yml").exists() == (base.family == "decoder")
    if base.family == "decoder":
        maxtext = yaml.safe_load((folder / "maxtext.yml").read_text())
        assert maxtext["ici_fsdp_parallelism"] == config.mesh.fsdp
        assert maxtext["max_target_length"] == config.sequence
    assert (folder / RUN).stat().st_mode & 0o111 and (folder / QUEUED).stat().st_mode & 0o111
    mounted = next(yaml.safe_load_all((folder / GKE).read_text()))["data"]
    assert mounted["jax.yaml"] == (folder / "jax.yaml").read_text()


def test_the_same_plan_gives_the_same_files() -> None:
    target = find_target("tpu-v5e-64")
    assert tpu_files(plan(NANO), target, RECIPE.tpu) == tpu_files(plan(NANO), target, RECIPE.tpu)


def test_t5x_is_installed_at_the_commit_that_gin_is_checked_against() -> None:
    files = tpu_files(plan(NANO), find_target("tpu-v5e-64"), RECIPE.tpu)
    assert f"t5x@{t5x_names()['commit']}" in files[T5X_REQUIREMENTS]

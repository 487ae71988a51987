"""TPU plans: meshes that fit, predictions under the peak, files that T5X and MaxText accept, refusals with the sums."""

import itertools
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.errors import InputError
from capibara_assets.planning.accounting import Method, Remat
from capibara_assets.planning.hardware.targets import find_target
from capibara_assets.planning.models import ModelShape, read_shape
from capibara_assets.planning.recipe import LEVELS, PlanningRecipe
from capibara_assets.planning.tpu.configuration import plan_tpu, tpu_plans
from capibara_assets.planning.tpu.plan import TpuPlan
from capibara_assets.planning.writers.gin import check_gin
from capibara_assets.planning.writers.maxtext import check_maxtext
from capibara_assets_tests.planning.shapes import NANO, statistics

RECIPE = shipped_recipe("planning", PlanningRecipe)
SLICES = ["tpu-v4-64", "tpu-v5e-64", "tpu-v6e-64", "tpu-v6e-256"]
WHOLE = RECIPE.model_copy(update={"tpu": RECIPE.tpu.model_copy(update={"method": "full"})})
MODELS = [NANO, read_shape("llama2-7b"), read_shape("llama3.1-8b"), read_shape("t5_1_1-large")]
# Each slice and each model; `make test-all` has each model on each slice.
CHOSEN = {
    ("nano", "tpu-v5e-64"),
    ("llama2-7b", "tpu-v4-64"),
    ("llama3.1-8b", "tpu-v6e-64"),
    ("t5_1_1-large", "tpu-v6e-256"),
}
PLANNED = [
    pytest.param(one, name, marks=() if (one.name, name) in CHOSEN else pytest.mark.extended, id=f"{one.name}-{name}")
    for one in MODELS
    for name in SLICES
]


@cache
def plan(base: ModelShape = NANO, target: str = "tpu-v5e-64", throughput: str | None = None, **figures: Any) -> TpuPlan:
    return plan_tpu("python", statistics(**figures), base, find_target(target), RECIPE, throughput)


@pytest.mark.parametrize(("base", "target"), PLANNED)
def test_plans_are_feasible_and_under_the_peak(base: ModelShape, target: str) -> None:
    result, hardware = plan(base, target), find_target(target)
    assert result.feasible
    assert result.memory["total"] <= result.memory_budget < hardware.usable_bytes
    assert result.mesh.chips == hardware.chips
    assert result.global_batch % result.mesh.batch_shards == 0
    assert result.step_time.low < result.step_time.middle < result.step_time.high
    assert sum(result.step_time.resources.values()) == pytest.approx(result.step_time.middle)
    assert hardware.efficiency is not None
    assert result.share_of_peak[1] <= hardware.efficiency.best + 1e-9
    assert result.tflops_per_chip[0] < result.tflops_per_chip[1] < result.tflops_per_chip[2]
    assert result.front[0].mesh == result.mesh and result.front[0].relative_time == 1
    assert result.xla["status"] == "not compiled"


def test_the_shipped_model_gets_maxtext_and_a_t5_gin_with_the_same_mesh() -> None:
    result = plan()
    assert result.maxtext is not None
    settings_ = yaml.safe_load(result.maxtext)
    assert (
        settings_["ici_fsdp_parallelism"] * settings_["ici_data_parallelism"] * settings_["ici_tensor_parallelism"]
        == 64
    )
    assert settings_["base_emb_dim"] == 256 and settings_["per_device_batch_size"] == result.per_device_batch
    assert result.t5_model == "t5_1_1-small" if result.mesh.tensor <= 2 else "t5_1_1-base"
    assert f"model_parallel_submesh = {result.submesh}" in result.gin
    assert f"BATCH_SIZE = {result.global_batch}" in result.gin


@pytest.mark.parametrize(("base", "target"), PLANNED)
def test_the_files_hold_only_names_that_t5x_and_maxtext_know(base: ModelShape, target: str) -> None:
    result = plan(base, target)
    check_gin(result.gin)
    assert "model_parallel_submesh" in result.gin
    assert "pipeline" not in result.gin
    assert (result.maxtext is None) == (base.family == "t5")
    if result.maxtext is not None:
        check_maxtext(yaml.safe_load(result.maxtext))


def test_same_inputs_same_bytes() -> None:
    assert plan.__wrapped__().model_dump_json() == plan().model_dump_json()


def test_a_plan_survives_json() -> None:
    result = plan(throughput="275")
    assert TpuPlan.model_validate_json(result.model_dump_json()) == result


def test_a_bare_throughput_is_answered_under_each_reading() -> None:
    assert [answer.fits for answer in plan(throughput="275+").throughput_target] == [False, True, True]


def test_275_tflops_a_chip_are_refused_on_v4() -> None:
    with pytest.raises(InputError, match="275 of 275 TFLOP/s peak"):
        plan(target="tpu-v4-64", throughput="275TFLOPs/chip")


def test_what_does_not_fit_is_refused_with_the_sum() -> None:
    with pytest.raises(InputError) as refused:
        plan_tpu("python", statistics(), read_shape("llama3.1-70b"), find_target("tpu-v5e-64"), WHOLE)
    message = str(refused.value)
    for part in (
        "llama3.1-70b (70.6 B parameters)",
        "15.75 GiB usable",
        "GiB optimizer",
        "of all settings",
        "larger slice",
    ):
        assert part in message


def test_an_adapter_is_planned_where_every_weight_does_not_fit() -> None:
    result = plan(read_shape("llama3.1-70b"), "tpu-v5e-64")
    assert result.method is Method.LORA and result.lora is not None
    assert result.trained_parameters == result.shape.lora_parameters(result.lora.rank, result.lora.modules)
    assert result.maxtext is None and "every weight" in result.reasons["maxtext"]
    assert 4 * result.shape.parameters * 0.9 < result.flops_per_token < 5 * result.shape.parameters


def test_memory_pressure_brings_recomputation() -> None:
    relaxed = plan(read_shape("llama2-7b"), "tpu-v6e-64", train=150_000)
    pressed = plan(read_shape("llama3.1-70b"), "tpu-v6e-64", train=150_000)
    order = list(Remat)
    assert order.index(relaxed.remat) < order.index(pressed.remat)
    assert pressed.refused and "does not fit or is not faster" in pressed.reasons["remat"]


def test_small_models_carry_a_caution() -> None:
    assert "lower bounds" in plan().reasons["step_time"]
    assert "lower bounds" not in plan(read_shape("llama2-7b")).reasons["step_time"]


def test_no_price_is_invented() -> None:
    result = plan(target="tpu-v6e-64")
    assert result.usd is None and result.usd_note


def test_cost_follows_from_a_declared_price() -> None:
    target = find_target("tpu-v5e-64")
    priced = target.model_copy(
        update={"price": target.price.model_copy(update={"usd_per_hour": 100.0, "date": "2026-01-01"})}
    )
    result = plan_tpu("python", statistics(), NANO, priced, RECIPE)
    assert result.usd == pytest.approx(tuple(seconds / 36 for seconds in result.seconds))


def test_gpus_are_no_slices() -> None:
    with pytest.raises(InputError, match="h100-8 is no TPU slice"):
        plan(target="h100-8")


def test_the_next_on_the_front_needs_less_memory_and_no_less_time() -> None:
    plans = list(
        itertools.islice(
            tpu_plans("python", statistics(), read_shape("llama2-7b"), find_target("tpu-v6e-64"), RECIPE), 3
        )
    )
    assert len(plans) == 3
    for earlier, later in itertools.pairwise(plans):
        assert later.memory["total"] < earlier.memory["total"]
        assert "place" in later.reasons["mesh"]
    assert [plan.front for plan in plans[1:]] == [plans[0].front] * 2


@pytest.mark.parametrize("levels", [LEVELS[::2], pytest.param(LEVELS, marks=pytest.mark.extended)], ids=["some", "all"])
def test_levels_bound_what_a_plan_may_do(levels: Sequence[Any]) -> None:
    base, target = read_shape("llama2-7b"), find_target("tpu-v6e-64")
    for level in levels:
        recipe = RECIPE.at_level(level)
        result = plan_tpu("python", statistics(), base, target, recipe)
        assert result.level == level and result.remat in recipe.limits.remat
        assert result.memory_budget == int(target.usable_bytes * recipe.limits.headroom)
        assert result.global_batch / result.mesh.batch_shards <= max(1, recipe.limits.micro_batch * result.mesh.tensor)


def test_a_larger_batch_gets_adams_larger_rate_up_to_the_noise_scale() -> None:
    result = plan_tpu("python", statistics(), read_shape("llama3.1-8b"), find_target("tpu-v6e-64"), WHOLE)
    assert RECIPE.tpu.learning_rate <= result.learning_rate <= RECIPE.tpu.learning_rate * 2
    assert result.maxtext is not None
    assert yaml.safe_load(result.maxtext)["learning_rate"] == pytest.approx(result.learning_rate, rel=1e-3)


@given(train=st.integers(1, 200_000), p95=st.floats(10, 50_000), target=st.sampled_from(SLICES))
@settings(max_examples=settings.default.max_examples // 4)  # each is a search
def test_whatever_the_data_the_plan_adds_up(train: int, p95: float, target: str) -> None:
    result = plan(NANO, target, train=train, p95_chars=p95)
    assert result.sequence % 128 == 0 and 128 <= result.sequence <= 2048
    assert result.per_device_batch * find_target(target).chips == result.global_batch
    assert result.steps * result.global_batch * result.examples_per_row >= train
    assert result.packed == (result.examples_per_row > 1)
    assert result.memory["total"] <= result.memory_budget

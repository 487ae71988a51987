"""LoRA plans on a slice: what `lora_config` publishes there is what `tpu_config`'s plan trains."""

import pytest

from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.errors import InputError
from capibara_assets.planning.adapters import adapter_of, plan_adapters
from capibara_assets.planning.hardware.targets import find_target
from capibara_assets.planning.lora.recipe import plan_lora
from capibara_assets.planning.models import read_shape
from capibara_assets.planning.plan_cost import lora_cost, tpu_cost
from capibara_assets.planning.recipe import PlanningRecipe
from capibara_assets.planning.tpu.configuration import plan_tpu
from capibara_assets_tests.planning.shapes import NANO, statistics

RECIPE = shipped_recipe("planning", PlanningRecipe)
SLICE = find_target("tpu-v5e-8")


def test_both_plans_of_a_slice_say_the_same() -> None:
    lora = plan_adapters("sql", statistics(), NANO, SLICE, RECIPE)
    tpu = plan_tpu("sql", statistics(), NANO, SLICE, RECIPE)
    assert tpu.lora is not None
    assert (lora.rank, lora.modules, lora.learning_rate) == (tpu.lora.rank, tpu.lora.modules, tpu.learning_rate)
    assert lora.estimates["optimizer_steps"] == tpu.steps and lora.max_length == tpu.sequence
    assert lora.dropout == 0 and lora.reasons["dropout"]
    assert lora_cost(lora, NANO, SLICE).adapter_raw.seconds == tpu_cost(tpu, SLICE).adapter_raw.seconds


def test_the_adapter_is_the_one_of_other_targets() -> None:
    gpu = plan_lora("sql", statistics(), NANO, find_target("h100-8"), RECIPE)
    tpu = plan_adapters("sql", statistics(), NANO, SLICE, RECIPE)
    assert (tpu.rank, tpu.alpha, tpu.modules, tpu.use_rslora) == (gpu.rank, gpu.alpha, gpu.modules, gpu.use_rslora)
    assert plan_adapters("sql", statistics(), NANO, find_target("h100-8"), RECIPE) == gpu


def test_a_plan_for_every_weight_is_no_adapter() -> None:
    whole = plan_tpu("sql", statistics(), read_shape("t5_1_1-small"), SLICE, RECIPE)
    with pytest.raises(InputError, match=r"tpu\.method: lora"):
        adapter_of(whole, "balanced")

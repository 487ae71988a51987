"""The shipped training recipes as plans: their values exactly, their memory, and what is refused."""

import pytest

from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.errors import InputError
from capibara_assets.planning.hardware.targets import GIB, find_target
from capibara_assets.planning.lora.preset_plans import plan_preset, plan_stated, preset_recipe
from capibara_assets.planning.lora.recipe import LoraPlan
from capibara_assets.planning.models import ModelShape, read_shape
from capibara_assets.planning.recipe import PlanningRecipe
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets_tests.planning.shapes import DENSE_120B

RECIPE = shipped_recipe("planning", PlanningRecipe)
PRESETS = ("20b_qlora", "120b", "mistral7b_8xh100", "mistral7b_cpu")


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_its_recipe_exactly(name: str) -> None:
    recipe, plan = shipped_recipe(name, TrainingRecipe), plan_preset(name, RECIPE, examples=5000)
    lora, training, hardware = recipe.model.lora, recipe.training, recipe.hardware
    assert (plan.rank, plan.alpha, plan.dropout) == (lora.rank, lora.alpha, lora.dropout)
    assert set(plan.modules) == set(lora.modules or (one.name for one in read_shape(plan.model).linear_modules))
    assert plan.quantization == ("nf4" if recipe.model.quantization == "nf4" else "none")
    assert (plan.micro_batch, plan.accumulation) == (training.micro_batch, training.accumulation)
    assert plan.global_batch == training.global_batch == plan.micro_batch * hardware.processes * plan.accumulation
    assert (plan.learning_rate, plan.max_length) == (training.learning_rate, recipe.data.max_length)
    assert plan.zero_stage == (2 if hardware.backend == "zero2" else 0)
    assert plan.precision == hardware.precision
    assert plan.gradient_checkpointing == bool(hardware.gradient_checkpointing)
    assert plan.epochs == (4 if training.epochs == "auto" else training.epochs)
    assert set(plan.reasons) == set(LoraPlan.model_fields) - {
        "domain", "model", "target", "throughput_target", "estimates", "reasons",
    }  # fmt: skip


def planned(
    name: str,
    recipe: PlanningRecipe = RECIPE,
    quantization: str | None = None,
    base: ModelShape | None = None,
    target: str | None = None,
) -> LoraPlan:
    """A preset's plan with another base, quantisation or target, as `capibara plan --preset` makes it."""
    stated, run = preset_recipe(name, recipe, quantization=quantization), recipe.presets[name]
    return plan_stated(stated, recipe, 5000, base or read_shape(run.model), find_target(target or run.target))


def test_every_preset_of_the_specification_is_declared() -> None:
    assert set(RECIPE.presets) == set(PRESETS)


def test_known_adapters() -> None:
    sizes = {name: plan_preset(name, RECIPE, examples=1).estimates["trainable_parameters"] for name in PRESETS}
    assert (sizes["mistral7b_cpu"], sizes["mistral7b_8xh100"]) == (3_407_872, 167_772_160)


@pytest.mark.parametrize("base", [None, DENSE_120B], ids=["123b", "120b"])
def test_120b_is_four_bit_at_about_sixty_gigabytes_a_gpu(base: ModelShape | None) -> None:
    plan = planned("120b", base=base)
    memory = plan.estimates["memory_bytes_per_device"]
    assert 58 < memory["weights"] / GIB < 64
    assert memory["total"] < 70 * GIB


@pytest.mark.parametrize("level", ["conservative", "balanced", "aggressive"])
def test_120b_in_bf16_is_refused_with_the_arithmetic(level: str) -> None:
    with pytest.raises(InputError) as refused:
        planned("120b", RECIPE.at_level(level), quantization="bf16")
    weights = read_shape("mistral-large-123b").parameters * 2 / GIB
    for part in ("held as bf16 does not fit on h100-2", f"{weights:.2f} GiB weights", "78 GiB usable", "ZeRO-2 cuts"):
        assert part in str(refused.value)


def test_twenty_billion_in_four_bits_fit_on_the_arm_server() -> None:
    memory = plan_preset("20b_qlora", RECIPE, examples=5000).estimates["memory_bytes_per_device"]
    assert 10 * GIB < memory["weights"] < 12 * GIB
    with pytest.raises(InputError, match="20b_qlora with its base held as none does not fit on axion-c4a-32"):
        planned("20b_qlora", quantization="none")


def test_eight_gpus_take_hours_not_days() -> None:
    few, many = (plan_preset("mistral7b_8xh100", RECIPE, examples=count) for count in (5000, 50_000))
    assert few.estimates["seconds"][0] < few.estimates["seconds"][1] < many.estimates["seconds"][1]


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InputError, match="no preset '7b'; there are 20b_qlora, 120b"):
        plan_preset("7b", RECIPE, examples=1)
    with pytest.raises(InputError, match="cannot be held as 'int3'"):
        planned("120b", quantization="int3")


def test_other_hardware_and_models_can_be_asked_about() -> None:
    with pytest.raises(InputError, match=r"does not fit on a100-40gb-2: .*38 GiB usable"):
        planned("120b", target="a100-40gb-2")
    assert planned("mistral7b_cpu", base=read_shape("qwen3-0.6b")).model == "qwen3-0.6b"

"""The LoRA recipe: known answers, reasons for everything, and refusals with the arithmetic."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.errors import InputError
from capibara_assets.planning.hardware.targets import GIB, find_target
from capibara_assets.planning.lora.recipe import LoraPlan, plan_lora
from capibara_assets.planning.models import ModelShape, read_shape
from capibara_assets.planning.recipe import PlanningRecipe
from capibara_assets_tests.planning.shapes import DENSE_120B, NANO, statistics

RECIPE = shipped_recipe("planning", PlanningRecipe)


def plan(base: ModelShape = NANO, target: str = "cpu-laptop", **figures: Any) -> LoraPlan:
    return plan_lora("python", statistics(**figures), base, find_target(target), RECIPE)


def test_the_recipe_for_the_shipped_model_on_a_laptop() -> None:
    result = plan()
    assert result.rank == 8
    assert result.alpha == 16
    assert result.modules == ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    assert result.quantization == "none"
    assert result.precision == "auto"
    assert result.zero_stage == 0
    assert not result.gradient_checkpointing
    assert not result.use_rslora
    assert result.max_length == 384  # 900 characters at 2.5 a token are 360 tokens, in steps of 64
    assert result.micro_batch * result.accumulation == result.global_batch == 8
    assert result.epochs == 5
    assert result.learning_rate == 8e-4
    assert result.estimates["trainable_parameters"] == NANO.lora_parameters(8, result.modules)
    assert result.estimates["memory_bytes_per_device"]["total"] < 4 * GIB
    assert result.estimates["seconds"] is None and "measures" in result.estimates["seconds_note"]


def test_every_choice_has_its_reason() -> None:
    result = plan()
    others = {"domain", "model", "target", "throughput_target", "estimates", "reasons"}
    assert set(result.reasons) == set(LoraPlan.model_fields) - others
    assert all(result.reasons.values())


def test_same_inputs_same_bytes() -> None:
    assert plan().model_dump_json() == plan().model_dump_json()


@pytest.mark.parametrize(
    ("examples", "epochs"), [(999, 5), (1000, 4), (9999, 4), (10000, 3), (49999, 3), (50000, 2), (100000, 1)]
)
def test_epochs_are_half_open_by_size(examples: int, epochs: int) -> None:
    assert plan(train=examples).epochs == epochs


def test_more_and_harder_examples_get_a_larger_rank() -> None:
    mistral = read_shape("mistral-7b")
    assert plan(mistral, "h100-8", train=500).rank == 8
    assert plan(mistral, "h100-8", train=5000).rank == 16
    assert plan(mistral, "h100-8", train=5000, difficulty=0.7).rank == 32
    assert plan(mistral, "h100-8", train=500_000).rank == 64
    assert plan(mistral, "h100-8", train=500_000).use_rslora


def test_a_narrow_model_is_held_to_a_small_rank() -> None:
    result = plan(train=500_000, difficulty=0.9)
    assert result.rank == 8
    assert "held to 8" in result.reasons["rank"]


def test_lengths_follow_the_data_up_to_recipe_and_context() -> None:
    assert plan(p95_chars=100).max_length == 128
    assert plan(p95_chars=100_000).max_length == 512
    short = NANO.model_copy(update={"context": 256})
    assert plan(short, p95_chars=100_000).max_length == 256


def test_token_lengths_are_preferred_to_characters() -> None:
    figures = statistics() | {"tokens": {"p95": 200}}
    result = plan_lora("python", figures, NANO, find_target("cpu-laptop"), RECIPE)
    assert result.max_length == 256
    assert "token lengths of the dataset" in result.reasons["max_length"]


def test_mistral_fits_unquantised_on_eight_h100() -> None:
    result = plan(read_shape("mistral-7b"), "h100-8")
    assert result.quantization == "none"
    assert result.precision == "bf16"
    assert result.zero_stage == 2
    assert result.micro_batch * result.accumulation * 8 == result.global_batch
    low, high = result.estimates["seconds"]
    assert 0 < low < high


def test_120b_on_two_h100_is_four_bit_at_about_sixty_gigabytes_a_gpu() -> None:
    result = plan(DENSE_120B, "h100-2")
    assert result.quantization == "nf4"
    assert result.gradient_checkpointing
    weights = result.estimates["memory_bytes_per_device"]["weights"]
    assert 58 < weights / GIB < 64
    # The bf16 form is refused with the sum: ZeRO-2 keeps all weights on each GPU.
    assert "16-bit weights: 221.92 GiB weights" in result.reasons["quantization"]


def test_120b_in_16_bits_only_is_refused_with_the_arithmetic() -> None:
    target = find_target("h100-2").model_copy(update={"quantization": ("none",)})
    with pytest.raises(InputError) as refused:
        plan_lora("sql", statistics(), DENSE_120B, target, RECIPE)
    message = str(refused.value)
    for part in ("does not fit on h100-2", "78 GiB usable", "221.92 GiB weights", "ZeRO-2", "Take a smaller model"):
        assert part in message


def test_a_7b_does_not_fit_on_a_laptop() -> None:
    with pytest.raises(InputError, match=r"does not fit on cpu-laptop: one device has 4 GiB usable"):
        plan(read_shape("mistral-7b"))


def test_levels_limit_recomputation_headroom_and_batch() -> None:
    statistic = statistics(train=50_000, p95_chars=1200)
    mistral, target = read_shape("mistral-7b"), find_target("h100-8")
    plans = {
        level: plan_lora("python", statistic, mistral, target, RECIPE.at_level(level))
        for level in ("conservative", "balanced", "aggressive")
    }
    assert [result.level for result in plans.values()] == list(plans)
    assert plans["conservative"].gradient_checkpointing and not plans["balanced"].gradient_checkpointing
    assert "recomputes every layer" in plans["conservative"].reasons["gradient_checkpointing"]
    assert plans["conservative"].micro_batch <= 4 < plans["aggressive"].micro_batch
    budgets = [result.estimates["memory_budget_bytes"] for result in plans.values()]
    assert budgets == sorted(set(budgets))
    # What limits hardware changes nothing that the data decides.
    assert (
        len({(one.rank, one.epochs, one.max_length, one.learning_rate, one.global_batch) for one in plans.values()})
        == 1
    )


def test_a_level_with_less_room_refuses_first() -> None:
    tight = find_target("h100-2").model_copy(
        update={"memory": find_target("h100-2").memory.model_copy(update={"usable_gib": 76.0})}
    )
    plan_lora("python", statistics(), DENSE_120B, tight, RECIPE.at_level("aggressive"))
    with pytest.raises(InputError, match=r"at 80%; .* Take a smaller model"):
        plan_lora("python", statistics(), DENSE_120B, tight, RECIPE.at_level("conservative"))


def test_domains_are_specialised_with_their_reason() -> None:
    mistral, target = read_shape("mistral-7b"), find_target("h100-8")

    def of(domain: str) -> LoraPlan:
        return plan_lora(domain, statistics(train=5000, p95_chars=2600), mistral, target, RECIPE)

    python, debug, ml, api = of("python"), of("debug"), of("ml"), of("api")
    assert (python.max_length, debug.max_length, ml.max_length, api.max_length) == (512, 768, 1024, 1088)
    assert debug.rank == 2 * python.rank and "traceback" in debug.reasons["rank"]
    assert ml.dropout == 0.1 and "learns by heart" in ml.reasons["dropout"]
    assert "1,030 tokens" in api.reasons["max_length"]


def test_short_examples_are_packed_on_gpus_only() -> None:
    figures = statistics() | {"tokens": {"p50": 100, "p95": 500}}

    def of(target: str, **changed: int) -> LoraPlan:
        tokens = {"p50": 100, "p95": 500} | changed
        return plan_lora("python", figures | {"tokens": tokens}, NANO, find_target(target), RECIPE)

    assert of("h100-2").packing and of("h100-2").packing_length == of("h100-2").max_length == 512
    assert "5.1 examples of median length" in of("h100-2").reasons["packing"]
    assert not of("h100-2", p50=400).packing and of("h100-2", p50=400).packing_length is None
    assert not of("cpu-laptop").packing and "on a CPU" in of("cpu-laptop").reasons["packing"]


def test_tpu_slices_are_not_for_the_pytorch_trainer() -> None:
    with pytest.raises(InputError, match="TPU slice"):
        plan(target="tpu-v5e-64")


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        ({}, "a number 'examples'"),
        ({"examples": 10, "by_split": {"train": 0}, "chars": {"p95": 5}}, "no training examples"),
        ({"examples": 10}, r"neither tokens\.p95 nor chars\.p95"),
        ({"examples": 10, "chars": {"p95": None}}, "a number 'p95'"),
        ({"examples": 10**400, "chars": {"p95": 5}}, r"'examples' is 1000"),
        ({"examples": 10, "by_split": {"train": "many"}}, "a number 'train', got 'many'"),
        ({"examples": 10, "tokens": {"p95": float("nan")}}, "'p95' is nan"),
    ],
)
def test_incomplete_statistics_are_named(figures: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan_lora("python", figures, NANO, find_target("cpu-laptop"), RECIPE)


@given(
    train=st.integers(1, 300_000),
    p95=st.floats(10, 20_000),
    difficulty=st.floats(0, 1),
    target=st.sampled_from(["cpu-laptop", "axion-c4a-32", "h100-2", "h100-8", "h200-1", "a100-16"]),
)
def test_whatever_the_data_the_plan_adds_up(train: int, p95: float, difficulty: float, target: str) -> None:
    result = plan(NANO, target, train=train, p95_chars=p95, difficulty=difficulty)
    hardware = find_target(target)
    assert result.micro_batch * result.accumulation * hardware.chips == result.global_batch
    assert result.estimates["memory_bytes_per_device"]["total"] <= result.estimates["memory_budget_bytes"]
    assert result.max_length % 64 == 0 and 128 <= result.max_length <= 512
    assert result.estimates["optimizer_steps"] == result.estimates["steps_per_epoch"] * result.epochs
    assert result.estimates["steps_per_epoch"] * result.global_batch >= train

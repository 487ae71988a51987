"""Who decides: what a recipe writes, else its plan; and what of the plan yields to the recipe's other choices."""

from typing import Any

import pytest

from capibara_assets.deployment.declarations import declared, shipped_recipe
from capibara_assets.errors import InputError
from capibara_assets.planning.hardware.targets import find_target
from capibara_assets.planning.lora.recipe import plan_lora
from capibara_assets.planning.models import read_shape
from capibara_assets.planning.recipe import PlanningRecipe
from capibara_assets.training.decided import Decision, decide
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets_tests.planning.shapes import NANO, statistics

PLANNING = shipped_recipe("planning", PlanningRecipe)
STRATEGIES = ("convexity", "hierarchical", "huggingface", "incremental_soup", "integrated")


def plan(target: str, voters: int) -> dict[str, Any]:
    base = NANO if target == "cpu-laptop" else read_shape("mistral-7b")
    planned = plan_lora("python", statistics(train=5000), base, find_target(target), PLANNING, voters)
    return planned.model_dump(mode="json")


def recipe(voters: int = 4, strategy: str = "plain", **sections: Any) -> TrainingRecipe:
    values: dict[str, Any] = {
        "name": "test",
        "seed": 1,
        "voters": [{"name": f"v{n}", "seed": n, "shard": n, "strategy": {"kind": strategy}} for n in range(voters)],
        "training": {"evaluate_every": 1},
        "checkpoint": {"every": 1},
    }
    for name, section in sections.items():
        values[name] = values.get(name, {}) | section
    return declared(TrainingRecipe, values, "test")


def decided(own: TrainingRecipe, target: str) -> tuple[TrainingRecipe, dict[str, Decision]]:
    result, run = decide(own, plan(target, len(own.voters)), find_target(target))
    assert run.target == target
    return result, {one.name: one for one in run.decisions}


def test_a_recipe_that_says_nothing_takes_the_plan() -> None:
    result, who = decided(recipe(), "h100-8")
    hardware, document = result.hardware, plan("h100-8", 4)
    assert (hardware.backend, hardware.processes, hardware.precision) == ("single", 1, "bf16")
    assert result.model.quantization == "bf16" and result.training.micro_batch == document["micro_batch"]
    assert {one.by for one in who.values()} == {"plan"} and all(one.reason for one in who.values())

    alone, _ = decided(recipe(voters=1), "h100-8")
    assert (alone.hardware.backend, alone.hardware.processes) == ("zero2", 8)
    assert alone.training.micro_batch == plan("h100-8", 1)["micro_batch"]


def test_what_the_recipe_writes_it_decides_also_where_it_is_the_default() -> None:
    own = recipe(
        model={"quantization": "int8", "lora": {"rank": 4}},
        training={"micro_batch_tokens": 2048},
        hardware={"backend": "ddp", "processes": 2, "precision": "fp32"},
    )
    result, who = decided(own, "h100-8")
    assert result == own
    names = ("hardware.backend", "hardware.processes", "hardware.precision", "model.quantization", "model.lora.rank")
    assert {who[name].by for name in (*names, "training.micro_batch")} == {"recipe"}
    assert who["training.micro_batch"].value == "at most 2048 tokens at once"
    assert who["model.lora.alpha"].by == "plan"


def test_null_leaves_it_to_the_plan() -> None:
    result, who = decided(recipe(voters=1, hardware={"backend": None, "processes": None, "precision": None}), "h100-8")
    assert (result.hardware.backend, result.hardware.processes, result.hardware.precision) == ("zero2", 8, "bf16")
    assert who["hardware.backend"].by == "plan"


def test_a_backend_of_the_recipe_runs_on_the_devices_of_the_plan() -> None:
    result, who = decided(recipe(voters=1, hardware={"backend": "fsdp2"}), "h100-8")
    assert (result.hardware.backend, result.hardware.processes) == ("fsdp2", 8)
    assert (who["hardware.backend"].by, who["hardware.processes"].by) == ("recipe", "plan")
    result, who = decided(recipe(voters=1, hardware={"backend": "single"}), "h100-8")
    assert result.hardware.processes == 1 and who["hardware.processes"].by == "recipe"


@pytest.mark.parametrize(
    ("own", "backend", "why"),
    [
        ({"strategy": "convexity"}, "ddp", "strategy convexity: it changes weights between steps"),
        ({"strategy": "private"}, "single", "strategy private: it clips each example's gradient"),
        ({"training": {"optimizer": "adamw_8bit"}}, "ddp", "zero2 shares out adamw"),
        ({"hardware": {"precision": "fp16"}}, "ddp", "zero2 does not scale losses"),
    ],
)
def test_the_plans_backend_yields_to_what_the_recipe_trains(own: dict[str, Any], backend: str, why: str) -> None:
    result, who = decided(recipe(voters=1, **own), "h100-8")
    assert result.hardware.backend == backend
    assert result.hardware.processes == (1 if backend == "single" else 8)
    assert why in who["hardware.backend"].reason


@pytest.mark.parametrize(
    ("own", "rows"),
    [
        ({}, 16),
        ({"training": {"global_batch": 4}}, 4),
        ({"training": {"global_batch": 12}}, 12),
        ({"data": {"max_length": 2048}}, 2),  # as many tokens at once as 16 of the plan's length
    ],
)
def test_the_plans_rows_fit_the_recipes_batch_and_lengths(own: dict[str, Any], rows: int) -> None:
    document = plan("h100-8", 4)
    assert (document["micro_batch"], document["max_length"]) == (16, 384)
    result, who = decided(recipe(**own), "h100-8")
    assert result.training.micro_batch == rows and who["training.micro_batch"].by == "plan"


def test_a_batch_that_cannot_be_shared_is_cut_by_tokens() -> None:
    result, who = decided(recipe(voters=1, training={"global_batch": 4}), "h100-8")
    assert result.training.micro_batch is None
    assert "cannot be shared evenly by 8 processes" in who["training.micro_batch"].reason


@pytest.mark.parametrize("name", ["training-demo", "training-laptop", *(f"strategies/{name}" for name in STRATEGIES)])
def test_on_the_laptop_the_plan_decides_what_the_shipped_recipes_said_before(name: str) -> None:
    """So that a default run gives the bits that it gave: backend, precision and batches are those of the defaults."""
    own = shipped_recipe(name, TrainingRecipe)
    result, who = decided(own, "cpu-laptop")
    assert result == own
    assert (own.hardware.backend, own.hardware.processes, own.hardware.precision) == ("single", 1, "auto")
    assert own.model.quantization is None and own.training.micro_batch is None
    assert who["hardware.backend"].by == "plan" and who["training.micro_batch"].by == "recipe"


def test_the_full_recipe_leaves_all_of_it_to_the_plan() -> None:
    result, who = decided(shipped_recipe("training-full", TrainingRecipe), "h100-8")
    assert {one.by for one in who.values()} == {"plan"}
    assert result.training.micro_batch == 16


def test_a_plan_for_another_target_is_refused() -> None:
    with pytest.raises(
        InputError, match="planned for h100-8, and the training is for cpu-laptop: materialize lora_conf"
    ):
        decide(recipe(), plan("h100-8", 4), find_target("cpu-laptop"))


def test_parts_that_contradict_each_other_are_named() -> None:
    own = recipe(voters=1, training={"global_batch": 12, "micro_batch": 12})
    with pytest.raises(InputError, match="global_batch 12 is no multiple of micro_batch 12 x processes 8"):
        decided(own, "h100-8")

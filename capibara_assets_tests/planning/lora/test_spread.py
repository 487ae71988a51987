"""Devices of a voter: few where several voters share a target, all for a single one, and what follows from them."""

from dataclasses import replace

import pytest

from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.planning.accounting import DeviceStep, Method, training_memory
from capibara_assets.planning.cost import CostContext
from capibara_assets.planning.hardware.targets import HardwareTarget, find_target
from capibara_assets.planning.lora.recipe import LoraPlan, plan_lora
from capibara_assets.planning.lora.spread import devices_of_a_voter, layout, why_so_many
from capibara_assets.planning.models import read_shape
from capibara_assets.planning.plan_cost import lora_cost
from capibara_assets.planning.recipe import PlanningRecipe
from capibara_assets_tests.planning.shapes import statistics

RECIPE = shipped_recipe("planning", PlanningRecipe)
MISTRAL = read_shape("mistral-7b")


def plan(voters: int, target: HardwareTarget) -> LoraPlan:
    return plan_lora("python", statistics(train=5000), MISTRAL, target, RECIPE, voters)


def squeezed(target: HardwareTarget, below: int) -> HardwareTarget:
    """The target with so little memory that a plan of `below` bytes just does not fit."""
    gib = (below - 1) / RECIPE.headroom / 2**30
    return target.model_copy(update={"memory": target.memory.model_copy(update={"usable_gib": gib})})


def test_a_single_voter_has_all_devices_and_several_share_them() -> None:
    target = find_target("h100-8")
    alone, shared = plan(1, target), plan(4, target)
    assert (alone.devices, alone.zero_stage) == (8, 2)
    assert (shared.devices, shared.zero_stage) == (1, 0)
    assert shared.global_batch == shared.micro_batch * shared.accumulation
    assert "4 of 4 train side by side" in shared.reasons["zero_stage"]
    assert shared.quantization == alone.quantization == "none"
    assert shared.estimates["memory_bytes_per_device"]["total"] <= shared.estimates["memory_budget_bytes"]


def test_a_voter_that_does_not_fit_on_one_device_has_several() -> None:
    target = find_target("h100-8")
    step = DeviceStep(
        sequences=1, sequence=512, weight_bytes=2, compute_bytes=2, method=Method.LORA, lora_rank=64,
        lora_modules=tuple(module.name for module in MISTRAL.linear_modules), layout=layout(8),
    )  # fmt: skip
    on = {devices: training_memory(MISTRAL, replace(step, layout=layout(devices))).total for devices in (1, 2, 4, 8)}
    assert on[1] > on[2] > on[4] > on[8]
    for devices, below in ((1, on[1] + 2), (2, on[1]), (4, on[2]), (8, on[4])):
        tight = squeezed(target, below)
        chosen, memory = devices_of_a_voter(MISTRAL, step, tight, RECIPE.headroom, voters=4)
        assert (chosen, memory.total) == (devices, on[devices])
        said = why_so_many(chosen, memory, tight, voters=4)
        assert f"{8 // devices if devices > 2 else 4} of 4 train side by side" in said or devices == 8


@pytest.mark.parametrize(("voters", "together"), [(1, 1), (4, 4), (16, 8)])
def test_voters_side_by_side_cost_the_time_of_a_round(voters: int, together: int) -> None:
    target = find_target("h100-8")
    planned = plan(voters, target)
    cost = lora_cost(planned, MISTRAL, target, CostContext(voters))
    assert cost.adapter.seconds is not None and cost.domain.seconds is not None
    rounds = -(-voters // together)
    assert cost.domain.seconds[1] == pytest.approx(rounds * cost.adapter.seconds[1])

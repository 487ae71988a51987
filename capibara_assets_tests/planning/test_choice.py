"""The choice of hardware: the first target whose plan fits and keeps the budget, and what may go on after it."""

import pytest

from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.errors import InputError
from capibara_assets.planning.choice import ChosenPlan, choose_plan
from capibara_assets.planning.cost import CostContext
from capibara_assets.planning.hardware.declaration import HardwareTarget, Price
from capibara_assets.planning.hardware.targets import find_target
from capibara_assets.planning.models import ModelShape
from capibara_assets.planning.options import HardwareOptions, Option
from capibara_assets.planning.plan_cost import lora_cost
from capibara_assets.planning.recipe import PlanningRecipe
from capibara_assets_tests.planning.shapes import DENSE_120B, NANO, statistics

RECIPE = shipped_recipe("planning", PlanningRecipe)


def priced(name: str, usd: float) -> HardwareTarget:
    """A target at a price per hour."""
    return find_target(name).model_copy(update={"price": Price(usd_per_hour=usd, date="2026-11-01", note="ours")})


def chosen(
    *targets: HardwareTarget, base: ModelShape = NANO, max_usd: float | None = None, max_hours: float | None = None
) -> ChosenPlan:
    options = HardwareOptions(tuple(map(Option, targets)), max_usd, max_hours)
    return choose_plan("sql", statistics(train=3000), base, options, RECIPE, 4)


def usd_of(target: HardwareTarget) -> float:
    """What a domain is predicted to cost on a target."""
    plan = chosen(target).plan
    usd = lora_cost(plan, NANO, target, CostContext(4)).domain.usd
    assert usd is not None
    return usd[1]


def test_the_preferred_target_is_taken_where_nothing_speaks_against_it() -> None:
    found = chosen(find_target("h100-8"), find_target("h200-1"))
    assert (found.plan.target, found.usable, found.refused) == ("h100-8", ("h100-8", "h200-1"), {})
    assert found.documents()["hardware"]["usable"] == ["h100-8", "h200-1"]


def test_one_target_without_a_budget_is_planned_as_ever() -> None:
    found = chosen(find_target("h100-8"))
    assert set(found.documents()) == {"plan", "cost"}
    assert found.options.setting() == find_target("h100-8")
    with pytest.raises(InputError) as plain:
        chosen(find_target("cpu-laptop"), base=DENSE_120B)
    assert "no hardware of the deployment" not in str(plain.value)


def test_a_target_that_the_model_does_not_fit_is_passed_over_with_the_sums() -> None:
    found = chosen(find_target("cpu-laptop"), find_target("h200-8"), base=DENSE_120B)
    assert found.plan.target == "h200-8" and found.usable == ("h200-8",)
    assert "GiB" in found.refused["cpu-laptop"]


def test_a_target_over_the_budget_is_passed_over_with_the_figures() -> None:
    dear, cheap = priced("h100-8", 80.0), priced("h200-1", 0.001)
    limit = usd_of(dear) / 2
    found = chosen(dear, cheap, max_usd=limit)
    assert found.plan.target == "h200-1"
    assert (
        found.refused["h100-8"].startswith(f"${usd_of(dear):,.2f} [")
        and f"max_usd is {limit:g}" in (found.refused["h100-8"])
    )
    assert chosen(dear, cheap, max_usd=2 * usd_of(dear)).plan.target == "h100-8"


def test_where_no_target_will_do_nothing_is_launched_and_each_reason_is_told() -> None:
    with pytest.raises(InputError) as caught:
        chosen(priced("h100-8", 80.0), priced("h200-1", 80.0), max_usd=1e-9)
    said = str(caught.value)
    assert "h100-8: $" in said and "h200-1: $" in said and "max_usd is 1e-09" in said and "hardware.domains.sql" in said


def test_hours_are_held_like_dollars() -> None:
    with pytest.raises(InputError, match=r"h100-8: .* h \[.*max_hours is 1e-09"):
        chosen(find_target("h100-8"), max_hours=1e-9)
    assert chosen(find_target("cpu-laptop"), max_hours=1e-9).plan.target == "cpu-laptop"  # nothing is predicted there


def test_dollars_without_a_price_cannot_be_held() -> None:
    unpriced = find_target("axion-c4a-32")
    assert unpriced.price.usd_per_hour is None
    with pytest.raises(InputError, match=r"max_usd 5 cannot be kept: axion-c4a-32 has no price"):
        chosen(unpriced, max_usd=5.0)


def test_a_target_that_cannot_train_by_the_plan_is_not_gone_on_with() -> None:
    found = chosen(find_target("h100-8"), find_target("cpu-laptop"), find_target("h100-2"))
    assert found.usable == ("h100-8", "h100-2")
    assert "bf16" in found.refused["cpu-laptop"]
    alone = HardwareOptions((Option(find_target("h100-8")), Option(find_target("h100-2"))))
    one_voter = choose_plan("sql", statistics(train=3000), NANO, alone, RECIPE, 1)
    assert one_voter.plan.devices == 8
    assert one_voter.refused["h100-2"] == "has 2 devices, and a voter planned for h100-8 trains on 8"


def test_what_is_left_of_a_budget_is_counted_in_the_hours_of_each_target() -> None:
    dear, cheap = priced("h100-8", 80.0), priced("h200-1", 4.0)
    options = HardwareOptions((Option(dear), Option(cheap)), max_usd=100.0, max_hours=30.0)
    assert options.hours_left(dear) == pytest.approx(100 / 80)
    assert options.hours_left(cheap, hours=1.0, usd=80.0) == pytest.approx(20 / 4)
    assert options.hours_left(cheap, hours=29.0) == pytest.approx(1.0)
    assert HardwareOptions((Option(dear),)).hours_left(dear) is None


def test_a_plan_for_hardware_that_the_deployment_no_longer_names_is_refused() -> None:
    options = HardwareOptions((Option(find_target("h100-8"), spot=True), Option(find_target("h100-8"))))
    assert options.only(["h100-8"]) == options
    with pytest.raises(InputError, match=r"planned for h200-1, and the deployment trains on h100-8"):
        options.only(["h200-1"])

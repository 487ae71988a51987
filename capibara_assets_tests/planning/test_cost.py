"""Cost: nothing invented without a price, intervals that hold, feedback that learns a target's bias but no noise."""

from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.planning.cost import (
    Cost,
    CostContext,
    PlannedTraining,
    TimedTraining,
    corrected,
    correction,
    measured_rate,
    outcome_of,
    plan_cost,
    priced,
    read_outcomes,
    total,
)
from capibara_assets.planning.hardware.declaration import Price

PRICE = Price(usd_per_hour=36.0, date="2026-01-01", note="a contract")
FREE = Price(usd_per_hour=0.0, date="2026-01-01", note="one's own")
NONE = Price(usd_per_hour=None, date=None, note="list prices differ")


def outcome(ratio: float, target: str = "h100-8") -> TimedTraining:
    return TimedTraining(target=target, model="m", flops=1e15, predicted=(90.0, 100.0, 120.0), measured=100.0 * ratio)


def test_dollars_follow_from_seconds_and_the_dated_price() -> None:
    cost = priced((90.0, 100.0, 200.0), "predicted", PRICE)
    assert cost.usd == pytest.approx((0.9, 1.0, 2.0))
    assert cost.hours == pytest.approx((0.025, 100 / 3600, 200 / 3600))
    assert "2026-01-01" in cost.usd_note


def test_without_a_price_there_are_no_dollars_but_a_reason() -> None:
    cost = priced((1.0, 2.0, 3.0), "predicted", NONE)
    assert cost.usd is None and cost.usd_note == "no price: list prices differ"
    unknown = priced(None, "no peak is declared", PRICE)
    assert unknown.usd is None and "no peak is declared" in unknown.usd_note
    assert priced(None, "no peak is declared", FREE).usd == (0.0, 0.0, 0.0)


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    known = priced((1.0, 2.0, 3.0), "predicted", PRICE)
    assert total([known, known.times(2)]).seconds == (3.0, 6.0, 9.0)
    assert total([known, priced(None, "not measured", PRICE)]).seconds is None


def test_no_runs_no_correction() -> None:
    found = correction([outcome(2.0, "h200-1")], "h100-8")
    assert (found.runs, found.factor) == (0, 1.0)
    assert corrected((1.0, 2.0, 3.0), found) == (1.0, 2.0, 3.0)


@given(st.floats(0.3, 3), st.integers(1, 30))
def test_the_factor_lies_between_one_and_the_ratio_and_nears_it(ratio: float, runs: int) -> None:
    found = correction([outcome(ratio)] * runs, "h100-8")
    low, high = sorted((1.0, ratio))
    assert low - 1e-9 <= found.factor <= high + 1e-9
    more = correction([outcome(ratio)] * (runs + 1), "h100-8")
    assert abs(log(more.factor) - log(ratio)) <= abs(log(found.factor) - log(ratio)) + 1e-12


def test_a_target_that_takes_half_again_as_long_is_learned() -> None:
    one, ten = correction([outcome(1.5)], "h100-8"), correction([outcome(1.5)] * 10, "h100-8")
    assert 1.3 < one.factor < 1.5
    assert ten.factor == pytest.approx(1.5, rel=0.02)


def test_noise_without_bias_moves_little() -> None:
    random = np.random.default_rng(0)
    ratios = np.exp(random.normal(0, 0.3, 12))
    found = correction([outcome(float(ratio)) for ratio in ratios], "h100-8")
    assert abs(log(found.factor)) < abs(float(np.log(ratios).mean()))
    assert found.spread > 0.2


def test_the_corrected_interval_holds_about_eight_of_ten_runs() -> None:
    """Targets with biases from the prior, runs that scatter by 10 %: the known answer of what the factor assumes."""
    random = np.random.default_rng(1)
    held, tried = 0, 2000
    for _ in range(tried):
        bias = random.normal(0, 0.35)
        logs = random.normal(bias, 0.1, 6)
        found = correction([outcome(exp(value)) for value in logs[:5]], "h100-8")
        low, _, high = corrected((90.0, 100.0, 110.0), found)
        held += low <= 100 * exp(logs[5]) <= high
    assert 0.75 <= held / tried <= 0.9


def test_a_machine_without_a_peak_is_predicted_from_its_own_runs() -> None:
    past = [
        TimedTraining(target="cpu-laptop", model="nano", flops=1e12, predicted=None, measured=20.0),
        TimedTraining(target="cpu-laptop", model="nano", flops=2e12, predicted=None, measured=42.0),
        TimedTraining(target="cpu-laptop", model="other", flops=1e12, predicted=None, measured=1.0),
    ]
    rate = measured_rate(past, "cpu-laptop", "nano")
    assert rate is not None and rate[0] == pytest.approx(4.88e10, rel=0.01) and rate[2] == 2
    arguments = {"target": "cpu-laptop", "model": "nano", "predicted": None, "note": "no peak", "price": FREE}
    training = PlannedTraining(flops=5e12, **arguments)  # type: ignore[arg-type]
    plan = plan_cost(training, CostContext(voters=4, outcomes=past))
    assert plan.adapter_raw.seconds is None
    assert plan.adapter.seconds is not None and plan.adapter.seconds[1] == pytest.approx(102.5, rel=0.01)
    assert plan.domain.seconds is not None and plan.domain.seconds[1] == pytest.approx(410, rel=0.01)
    assert plan_cost(training, CostContext(voters=4)).adapter.seconds is None


def test_a_backfill_adds_the_other_domains_plans_and_says_which_are_guessed() -> None:
    other: Cost = priced((10.0, 20.0, 30.0), "predicted", PRICE)
    training = PlannedTraining("h100-8", "m", 1e15, (1.0, 2.0, 3.0), "predicted", PRICE, domain="sql")
    others = {"python": other, "unknown": other}
    plan = plan_cost(training, CostContext(voters=2, others=others, domains=("python", "sql", "ml")))
    assert plan.domain.seconds == (2.0, 4.0, 6.0)
    assert plan.backfill.seconds == (14.0, 28.0, 42.0)
    assert plan.backfill_note == "2 of 3 domains have a plan; ml are taken to be as large as sql"


def test_an_outcome_is_kept_and_read_back_and_strangers_are_passed_over() -> None:
    training = PlannedTraining("h100-8", "m", 1e15, (1.0, 2.0, 3.0), "p", NONE)
    plan = plan_cost(training, CostContext(voters=3, outcomes=[outcome(2.0)]))
    found = outcome_of(plan, {"a": {"seconds": 4.0, "steps": 10}, "b": {"seconds": 6.0, "steps": 12}}, 11)
    assert found is not None
    assert (found.measured, found.ratio, found.predicted_steps, found.measured_steps) == (5.0, 2.5, 11, 11)
    # The ratio is of the raw prediction: a correction of a correction would run away.
    assert found.predicted == (1.0, 2.0, 3.0)
    assert read_outcomes([found.model_dump(mode="json"), {"target": "x"}, None, 3]) == [found]
    assert outcome_of(plan, {}, 11) is None

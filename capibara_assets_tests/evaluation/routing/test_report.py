"""What is said of a router: planted regret, drift that is there and drift that is not, and how fast it answers."""

import numpy as np
import polars as pl
import pytest

from capibara_assets.evaluation.routing.recipe import RouterRecipe
from capibara_assets.evaluation.routing.report import drift, entropy, latency, regret, report
from capibara_assets.evaluation.routing.router import BASE, Router, train_router
from capibara_assets.evaluation.schema import ExampleLoss
from capibara_assets.storage.records import table
from capibara_assets_tests.evaluation.routing.test_router import ASKED, MANY, calibrating


@pytest.fixture(scope="module")
def router() -> Router:
    return train_router(calibrating(*ASKED), list(ASKED), seed=1)


def prompts_of(*names: str, count: int = 40) -> list[str]:
    return [ASKED[name].format(noun) for noun in MANY[:count] for name in names]


def losses(name: str, of: dict[str, float], count: int) -> tuple[pl.DataFrame, dict[str, str]]:
    """A domain's evaluation: every contender has the same loss on each of its examples of ten tokens."""
    rows = [
        ExampleLoss(contender=contender, example_id=f"{name}{i}", group_id=f"g{i}", nll=10 * loss, tokens=10)
        for contender, loss in of.items()
        for i in range(count)
    ]
    return table(ExampleLoss, rows), dict(zip((f"{name}{i}" for i in range(count)), prompts_of(name), strict=False))


def test_a_router_that_picks_the_best_has_no_regret(router: Router):
    domains = {
        "sql": losses("sql", {"base": 3.0, "consensus": 1.0, "expert:python": 2.0, "merged": 1.5}, 20),
        "python": losses("python", {"base": 3.0, "consensus": 1.0, "expert:sql": 2.0, "merged": 1.5}, 20),
    }
    found = regret(router, domains)
    assert found is not None
    assert (found.prompts, found.groups, found.tokens) == (40, 40, 400)
    assert found.routed == found.oracle == found.own_domain == pytest.approx(1.0)
    assert (found.regret, found.regret_low, found.regret_high) == pytest.approx((0, 0, 0))
    assert found.over_merged == pytest.approx(0.5) == found.over_merged_low and found.best_picked == 1.0


def test_a_planted_regret_is_measured(router: Router):
    """The other domain's expert is better by 0.25 on half of the prompts: nobody can know that from the prompt."""
    domains = {
        "sql": losses("sql", {"base": 3.0, "consensus": 1.0, "expert:python": 0.75}, 20),
        "python": losses("python", {"base": 3.0, "consensus": 1.0, "expert:sql": 2.0}, 20),
    }
    found = regret(router, domains)
    assert found is not None and found.merged is None and found.over_merged_low is None
    assert found.regret == pytest.approx(0.125) and found.regret_low < 0.125 < found.regret_high
    assert found.best_picked == 0.5


def test_what_the_router_leaves_to_the_base_has_the_bases_loss(router: Router):
    frame, _ = losses("sql", {"base": 3.0, "consensus": 1.0}, 3)
    found = regret(router, {"sql": (frame, {"sql0": "Wie wird das Wetter?", "sql1": "Und morgen?", "sql2": ""})})
    assert found is not None and found.routed == found.base == pytest.approx(3.0) and found.regret == pytest.approx(2.0)
    assert regret(router, {"sql": (frame, {})}) is None


def test_the_same_mixture_of_prompts_is_no_drift_and_another_is(router: Router):
    same, other = drift(router, prompts_of(*ASKED)), drift(router, prompts_of("sql"))
    assert not same.drifted and same.psi < 0.05 and same.jensen_shannon < 0.02
    assert other.drifted and other.psi > 1 and other.shares["sql"] == 1.0
    strange = drift(router, ["Wie wird das Wetter in Lissabon?"] * 40)
    assert strange.drifted and strange.shares[BASE] == 1.0


def test_a_handful_of_prompts_raises_no_alarm(router: Router):
    assert not any(drift(router, prompts_of(*ASKED)[i : i + 4]).drifted for i in range(0, 60, 4))


def test_the_entropy_of_the_load():
    assert entropy({"a": 0.5, "b": 0.5, BASE: 0.0}) == pytest.approx(1.0)
    assert entropy({"a": 0.25, "b": 0.25, BASE: 0.5}) == pytest.approx(1.0)  # the base is no expert
    assert entropy({"a": 1.0, "b": 0.0, BASE: 0.0}) == 0.0 and entropy({"a": 1.0, BASE: 0.0}) == 1.0


def test_the_report_adds_up(router: Router):
    routes = calibrating(*ASKED)
    found = report(router, routes, RouterRecipe())
    count = found["test_prompts"]
    assert (found["test_accuracy"], found["answered"]) == (1.0, 1.0) and count == 72
    assert sum(sum(row.values()) for row in found["confusion"].values()) == count
    assert sum(one["count"] for one in found["calibration"]) == count
    assert sum(found["load"].values()) == pytest.approx(1.0) and found["ece"] < 0.05
    assert {name: row["prompts"] for name, row in found["by_domain"].items()} == dict.fromkeys(ASKED, 24)
    empty = report(router, routes.filter(pl.col("split") != "test"), RouterRecipe())
    assert empty["test_prompts"] == 0 and "confusion" not in empty


def test_one_prompt_is_answered_in_well_under_a_tenth_of_a_second(router: Router):
    """The bound is generous: the machine may be busy. On an idle one it is a few tenths of a millisecond."""
    found = latency(router, [*prompts_of("sql", count=10), "a long one " * 2_000])
    assert 0 < found.median_ms <= found.p99_ms < 100 and np.isfinite(found.p99_ms)

"""The simulated week: known answers, what has to hold of any week, and docs/scale.md as the bench writes it."""

from dataclasses import replace

import pytest

from benchmarks.graph.scale.bench import COMMAND, DOCUMENT, USD_PER_NODE_HOUR, breaking, figures, tables
from benchmarks.graph.scale.units import Units, read_units
from benchmarks.graph.scale.week import AVERAGES, PARTITIONED, WHOLE, Scenario, rate, simulate

SMALL = Scenario(executions=1e7, agents=100, domains=4, voters=3, days=2, cores=2, nodes=2)


@pytest.fixture(scope="module")
def units() -> Units:
    return read_units()


def test_the_document_has_the_tables_that_the_bench_writes(units: Units) -> None:
    scenario = Scenario()
    written = tables(scenario, units, simulate(scenario, units), USD_PER_NODE_HOUR)
    assert f"<!-- made by `{COMMAND}` -->\n{written}\n<!-- end -->" in DOCUMENT.read_text("utf-8")


def test_every_unit_cost_is_measured_and_says_by_what(units: Units) -> None:
    assert all(unit.value > 0 and unit.unit and unit.source for unit in units.values())


def test_one_voter_alone_takes_what_its_training_and_its_vote_take(units: Units) -> None:
    same = {**units, "train_high": replace(units["train_low"])}
    alone = Scenario(executions=1e6, domains=1, voters=1, days=2, nodes=1, preempted=0)
    week = simulate(alone, same)
    vote = (1 + AVERAGES) * units["shard"].value * units["vote_token"].value
    assert week.latencies == pytest.approx([2 * alone.start + units["train_low"].value + vote] * 2)
    assert week.busy == pytest.approx(sum(week.latencies)) and week.wasted == 0
    assert week.runs == pytest.approx(2 * (PARTITIONED + WHOLE)) and week.preemptions == 0 and week.lag == 0


def test_a_week_is_the_same_again_and_loses_no_adapter(units: Units) -> None:
    often = replace(SMALL, preempted=20.0)
    week, calm = simulate(often, units), simulate(SMALL, units)
    assert week == simulate(often, units)
    assert week.adapters == calm.adapters == SMALL.domains * SMALL.days
    assert week.preemptions > calm.preemptions and week.busy > calm.busy
    work = SMALL.domains * SMALL.days * SMALL.voters * units["train_low"].value
    assert calm.busy > work and 0 < week.wasted < week.busy


def test_more_nodes_are_no_later_and_fewer_cores_let_logs_wait(units: Units) -> None:
    crowded = replace(SMALL, domains=40, nodes=1, preempted=0)
    assert simulate(replace(crowded, nodes=8), units).latency(0.95) <= simulate(crowded, units).latency(0.95)
    enough = SMALL.executions / 86_400 * (1 + SMALL.swing) / rate(units)
    assert simulate(replace(SMALL, cores=int(enough) + 1), units).lag == 0
    scarce = replace(SMALL, executions=SMALL.executions * 40)
    assert simulate(scarce, units).lag > 3600


def test_what_breaks_first_stands_first(units: Units) -> None:
    week = simulate(SMALL, units)
    shares = [share for share, _, _ in breaking(SMALL, units, week)]
    assert shares == sorted(shares)
    figure = figures(SMALL, units, week, 80)
    assert figure["usd_an_adapter"] == pytest.approx(figure["gpu_hours_an_adapter"] * 10, rel=0.02)

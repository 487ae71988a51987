"""`python -m benchmarks scale`: the week, as JSON or as the tables of docs/scale.md."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from benchmarks.consensus.vote.figures import write_between
from benchmarks.graph.scale.units import GPUS, TARGET, Units, read_units, write_units
from benchmarks.graph.scale.week import (
    DAY,
    PARTITIONED,
    WHOLE,
    Scenario,
    Week,
    node_hours,
    rate,
    simulate,
    vote_seconds,
)
from benchmarks.output import print_result
from benchmarks.peers import ROOT

DOCUMENT = ROOT / "docs" / "scale.md"
COMMAND = "python -m benchmarks scale"
USD_PER_NODE_HOUR = 80.0  # the example of docs/running.md: a contract's price belongs there
SHIPPED_CORES, SHIPPED_NODES = 2, 1


@click.command("scale")
@click.option("--executions", default=Scenario.executions, show_default=True, help="A day.")
@click.option("--domains", default=Scenario.domains, show_default=True)
@click.option("--voters", default=Scenario.voters, show_default=True)
@click.option("--cores", default=Scenario.cores, show_default=True, help="That read logs.")
@click.option("--nodes", default=Scenario.nodes, show_default=True, help="Of eight GPUs each.")
@click.option("--days", default=Scenario.days, show_default=True, type=click.IntRange(min=1))
@click.option("--usd", default=USD_PER_NODE_HOUR, show_default=True, help="An hour of a node of eight GPUs.")
@click.option("--measure", is_flag=True, help="Measure the unit costs again, and keep them.")
@click.option("--partitions", type=click.Path(exists=True, path_type=Path), help="With --measure: that bench's JSON.")
@click.option("--write", is_flag=True, help="Write the tables into docs/scale.md.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def scale(usd: float, measure: bool, partitions: Path | None, write: bool, as_json: bool, **sizes: Any) -> None:
    """A week at a billion executions a day, simulated from measured unit costs: bytes, runs, rows, GPU hours."""
    scenario = Scenario(**sizes)
    units = write_units(scenario.voters, partitions) if measure else read_units()
    week = simulate(scenario, units)
    if write:
        write_between(DOCUMENT, COMMAND, tables(scenario, units, week, usd))
    print_result(figures(scenario, units, week, usd), as_json)


def figures(scenario: Scenario, units: Units, week: Week, usd: float) -> dict[str, Any]:
    """What the week comes to; bytes and rows a day, the rest of the whole week."""
    own, runs = {name: unit.value for name, unit in units.items()}, week.runs / scenario.days
    files = scenario.agents * scenario.files
    cores = scenario.executions / DAY / rate(units)
    looks = DAY / _shipped_tick()
    return {
        "gzip_tb_a_day": round(scenario.executions * own["gzip"] / 1e12, 2),
        "raw_tb_a_day": round(scenario.executions * own["raw"] / 1e12, 2),
        "table_tb_a_day": round(scenario.executions * own["table"] / 1e12, 2),
        "cores_mean": round(cores, 1),
        "cores_at_the_peak": round(cores * (1 + scenario.swing), 1),
        "longest_lag_minutes": round(week.lag / 60, 1),
        "files_a_day": files,
        "look_seconds_after_a_week": round(files * scenario.days * own["list"], 1),
        "runs_a_day": round(runs),
        "rows_a_day": round(runs * own["rows"]),
        "event_mb_a_day": round(runs * own["rows"] * own["row"] / 1e6, 1),
        "rows_a_day_a_look_per_tick": round(looks * (WHOLE + PARTITIONED * scenario.domains) * own["rows"]),
        "tick_share": round(own["tick"] / _shipped_tick(), 3),
        "adapters": week.adapters,
        # the consensus has the ranks of all its voters, so their bytes
        "adapter_tb": round(week.adapters * 2 * scenario.voters * own["adapter"] / 1e12, 3),
        "gpu_hours": round(node_hours(week)),
        "gpu_hours_an_adapter": round(node_hours(week) / week.adapters, 2),
        "usd_an_adapter": round(node_hours(week) / GPUS * usd / week.adapters, 2),
        "vote_share": round(vote_seconds(scenario, units) * week.adapters / week.busy, 3),
        "start_share": round(week.starting / week.busy, 3),
        "node_share": round(week.busy / (scenario.nodes * scenario.days * DAY), 3),
        "preemptions": week.preemptions,
        "wasted_share": round(week.wasted / week.busy, 4),
        "adapter_minutes_p50": round(week.latency(0.5) / 60, 1),
        "adapter_minutes_p95": round(week.latency(0.95) / 60, 1),
    }


def breaking(scenario: Scenario, units: Units, week: Week) -> list[tuple[float, str, str]]:
    """What gives way as shipped, the first one first: share of the load that is borne, what, and what to change."""
    from capibara_assets.automation.sensors import SWEEP_SECONDS

    own = {name: unit.value for name, unit in units.items()}
    a_day = {
        "reading": (
            SHIPPED_CORES * rate(units) / (scenario.executions / DAY * (1 + scenario.swing)),
            f"reading logs on {SHIPPED_CORES} cores, at the peak",
            "the map over files and its reduce by sandbox on a cluster (`data.engine: ray`); nothing else of a run"
            " reads every execution",
        ),
        "look": (
            SWEEP_SECONDS / (scenario.agents * scenario.files * scenario.days * own["list"]),
            f"a look at a week's files in the {SWEEP_SECONDS:g} s of a tick (the next tick goes on)",
            "a folder per day, and only the last ones listed; or fewer, larger files",
        ),
        "gpus": (
            SHIPPED_NODES * scenario.days * DAY / week.busy,
            f"training and voting on one {TARGET}",
            "several voters after one another on a host that has started; more hosts; fewer turns a day",
        ),
        "ticks": (
            _shipped_tick() / own["tick"],
            f"a tick over {own['tick_partitions']:,.0f} partitions every {_shipped_tick()} s",
            "a longer CAPIBARA_TICK_SECONDS; old days as partitions that nothing wakes",
        ),
        "turns": (
            1 / (DAY / _shipped_tick()),
            "one turn of every domain a look, where each look finds new files",
            "CAPIBARA_TICK_SECONDS of a day, or one delivery of files a day: a turn is runs, rows and GPU hours",
        ),
    }
    return sorted(a_day.values())


def tables(scenario: Scenario, units: Units, week: Week, usd: float) -> str:
    """The Markdown of docs/scale.md between its markers."""
    return "\n".join(
        [*_units_table(units), "", *_week_table(scenario, units, week, usd), "", *_breaking(scenario, units, week)]
    )


def _units_table(units: Units) -> Iterator[str]:
    yield "| unit cost | figure | measured by |"
    yield "| --- | ---: | --- |"
    for name, unit in units.items():
        yield f"| {name} | {unit.value:,.4g} {unit.unit} | {unit.source} |"


WEEK = {
    "logs a day: gzip, plain, as tables": "{gzip_tb_a_day}, {raw_tb_a_day}, {table_tb_a_day} TB",
    "cores that read them: mean, at the peak": "{cores_mean}, {cores_at_the_peak}",
    "longest wait of logs with {cores} cores": "{longest_lag_minutes} minutes",
    "files a day; a look at a week of them": "{files_a_day:,}; {look_seconds_after_a_week} s",
    "Dagster runs a day, one turn of each domain": "{runs_a_day:,}",
    "rows of the event log a day; their texts": "{rows_a_day:,}; {event_mb_a_day} MB",
    "the same rows where every tick looks, and every look finds files": "{rows_a_day_a_look_per_tick:,}",
    "share of the time that ticks take": "{tick_share:.1%}",
    "adapters agreed on in {days} days; bytes with the voters'": "{adapters:,}; {adapter_tb} TB",
    "GPU hours; of an adapter": "{gpu_hours:,}; {gpu_hours_an_adapter}",
    "share of these that hosts take to start; that the votes take, starts aside": "{start_share:.1%}; {vote_share:.1%}",
    "dollars an adapter, at {usd:g} an hour of eight GPUs": "{usd_an_adapter}",
    "hosts of eight GPUs: busy; taken away; work done twice": "{node_share:.1%} of {nodes}; {preemptions:,} times; "
    "{wasted_share:.2%}",
    "minutes from a domain's turn to its adapter: median, 95 %": "{adapter_minutes_p50}, {adapter_minutes_p95}",
}


def _week_table(scenario: Scenario, units: Units, week: Week, usd: float) -> Iterator[str]:
    known = {**vars(scenario), "usd": usd, **figures(scenario, units, week, usd)}
    yield "| of {executions:,.0f} executions a day, {domains} domains of {voters} voters | figure |".format(**known)
    yield "| --- | ---: |"
    for what, figure in WEEK.items():
        yield f"| {what} | {figure} |".format(**known)


def _breaking(scenario: Scenario, units: Units, week: Week) -> Iterator[str]:
    yield "| bears of the load, as shipped | what | what to change then |"
    yield "| ---: | --- | --- |"
    for share, what, change in breaking(scenario, units, week):
        yield f"| {share:.2g} | {what} | {change} |"


def _shipped_tick() -> int:
    from capibara_assets.automation.prompt import TICK_SECONDS

    return TICK_SECONDS

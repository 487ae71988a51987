"""The bench `replay`: recorded executions run again in the local sandbox: how fast, how many, how often alike."""

import os
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import click

from benchmarks.experience_input import BenchInput, bench_input
from benchmarks.output import print_result


@click.command("replay")
@click.option("--experience", help="Folder of experience; default: ../shared where it is, else what ships.")
@click.option("--most", default=400, show_default=True, help="Executions of each language, lowest digest first.")
@click.option("--times", default=2, show_default=True, help="Runs of each.")
@click.option("--processes", default=os.cpu_count() or 1, show_default=True, help="Sessions at a time.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def replay_command(experience: str | None, most: int, times: int, processes: int, as_json: bool) -> None:
    """Executions replayed per second, the share that can be, agreement with the recorded output, and the isolation."""
    print_result(measure(bench_input(experience, None), most, times, processes), as_json)


def measure(given: BenchInput, most: int, times: int, processes: int) -> dict[str, Any]:
    """The figures; `agreement` is the share of `reexecuted` among what ran, of all and by language."""
    import polars as pl

    from capibara_assets.datasets.kinds.evidence import Evidence
    from capibara_assets.datasets.verification import replays_of
    from capibara_assets.executions.ingest.ingest import read_experience
    from capibara_assets.executions.replay.replay import replay_batch

    executions = read_experience(given.folder, now=datetime.now(UTC)).executions
    nothing = pl.DataFrame()
    evidence = Evidence(executions, nothing, nothing, nothing)
    chosen = executions.sort("record_digest").group_by("language", maintain_order=True).head(most)
    replays = replays_of(evidence, chosen["execution_id"].to_list())
    batch = replay_batch(replays, times=times, processes=processes)
    counts: dict[str, Counter[str]] = {}
    for one, verdict in zip(replays, batch.verdicts, strict=True):
        counts.setdefault(one.language, Counter())[verdict.verified] += 1
    total = sum(counts.values(), Counter())
    ran = batch.summary["ran"]
    return {
        "experience": given.name,
        "executions": len(replays),
        "replayed_per_s": round(ran / batch.summary["seconds"], 1),
        "cpu_ms_per_replay": round(1000 * batch.summary["cpu_seconds"] / max(ran, 1), 1),
        "share_replayed": batch.summary["share_replayed"],
        "agreement": _agreement(total),
        "agreement_by_language": {name: _agreement(found) for name, found in sorted(counts.items())},
        "reasons": batch.summary["reasons"],
        "times": times,
        "processes": processes,
        "seconds": batch.summary["seconds"],
        "isolation": batch.summary["isolation"],
    }


def _agreement(found: Counter[str]) -> float | None:
    ran = found["reexecuted"] + found["unverified"]
    return round(found["reexecuted"] / ran, 4) if ran else None

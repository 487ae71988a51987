"""`metrics.json`: a training's figures step by step, and its totals, computed from the event log alone."""

import csv
import io
from collections.abc import Iterable, Sequence
from statistics import fmean, median
from typing import Any

from capibara_assets.escaping.languages import spreadsheet
from capibara_assets.training.monitoring.logs import RunInfo
from capibara_assets.training.monitoring.views import Event, MetricPoint, current_view, points_of, series_of

METRICS = "metrics.json"


def metrics_of(events: Sequence[Event]) -> dict[str, Any]:
    """The content of `metrics.json`: all figures of the newest run of a log.

    Returns:
        `series`: name → `steps` and `values` of equal length. `totals`: seconds over all attempts, tokens and examples
        of the steps that count, micro-steps, the largest memory; what was never measured is absent.
    """
    view = current_view(events)
    steps = [event for event in view if event["event"] == "step"]
    left_out = {
        kind: [{"step": event["step"], "examples": event["examples"]} for event in view if event["event"] == kind]
        for kind in ("skipped", "rolled_back")
    }
    return {
        "run": view[-1]["run"] if view else None,
        "attempts": max((event["attempt"] for event in view), default=0),
        "steps": max((event["step"] for event in view), default=0),
        "steps_planned": next((event["steps"] for event in reversed(view) if event["event"] == "started"), None),
        "finished": any(event["event"] == "finished" for event in view),
        "totals": _totals(events, view, steps),
        "skipped_steps": left_out["skipped"],
        "rolled_back_steps": left_out["rolled_back"],
        "series": {
            name: {"steps": [step for step, _ in line], "values": [value for _, value in line]}
            for name, line in series_of(points_of(view)).items()
        },
    }


def _totals(events: Sequence[Event], view: Sequence[Event], steps: Sequence[Event]) -> dict[str, float]:
    """Sums and typical values; a key is absent where no step has it."""
    finished = next((event for event in view if event["event"] == "finished"), None)
    totals: dict[str, float] = {"seconds": finished["seconds"] if finished else _elapsed(events, view)}
    for key in ("tokens", "supervised", "samples", "micro_steps"):
        if values := [event[key] for event in steps if key in event]:
            totals[key] = sum(values)
    for key in ("tokens_per_s", "samples_per_s"):
        if values := [event[key] for event in steps if key in event]:
            totals[f"median_{key}"] = median(values)
    if values := [event["memory_mib"] for event in steps if "memory_mib" in event]:
        totals["peak_memory_mib"] = max(values)
    for key in ("cpu_percent", "gpu_percent"):
        if values := [event[key] for event in steps if key in event]:
            totals[f"mean_{key}"] = round(fmean(values), 1)
    return totals


def _elapsed(events: Sequence[Event], view: Sequence[Event]) -> float:
    """Seconds from the first to the last event of each attempt, summed."""
    if not view:
        return 0.0
    times: dict[int, list[float]] = {}
    for event in events:
        if event.get("run") == view[-1]["run"]:
            times.setdefault(event["attempt"], []).append(event["time"])
    return round(sum(max(attempt) - min(attempt) for attempt in times.values()), 3)


def table(runs: Iterable[tuple[RunInfo, Sequence[MetricPoint]]]) -> str:
    """CSV with one row per figure: `run, name, step, time, metric, value`."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["run", "name", "step", "time", "metric", "value"])
    for info, points in runs:
        for point in points:
            for name, value in point.values.items():
                rows.writerow(
                    [*map(spreadsheet, (info.run, info.name)), point.step, point.time, spreadsheet(name), repr(value)]
                )
    return text.getvalue()

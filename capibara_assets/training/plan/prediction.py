"""Prediction against measurement: the plan is saved when a run starts, and compared when it has ended."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from capibara_assets.storage.jsonfiles import write_json_atomic
from capibara_assets.training.monitoring.events import read_events
from capibara_assets.training.plan.schema import TrainingPlan

PLAN = "plan.json"


def keep_plan(work: Path, plan: TrainingPlan) -> None:
    """Write a plan into the run's folder of work, for the comparison at its end.

    A plan with predicted seconds is not overwritten by one without: these may come from a probe.
    """
    kept = read_plan(work)
    if kept is not None and kept["time"]["seconds"] is not None and plan.time.seconds is None:
        return
    work.mkdir(parents=True, exist_ok=True)
    write_json_atomic(work / PLAN, plan.document())


def read_plan(work: Path) -> dict[str, Any] | None:
    """The saved plan's document; None if there is none."""
    file = work / PLAN
    document: dict[str, Any] | None = json.loads(file.read_text("utf-8")) if file.is_file() else None
    return document


def compared(work: Path, logs: Mapping[str, Path], seconds: Mapping[str, float]) -> dict[str, Any]:
    """Predicted and measured seconds, memory and optimizer steps; `error` is measured / predicted - 1.

    Memory is the peak of any voter over what its process held before the base was loaded. None where nothing was
    predicted or measured.

    Args:
        logs: voter -> its event log.
        seconds: voter -> its own seconds, over all attempts.
    """
    plan = read_plan(work)
    events = {name: read_events(file) for name, file in logs.items()}
    held = [mib for log in events.values() if (mib := _memory_mib(log)) is not None]
    done = [max((event["step"] for event in log if event["event"] == "step"), default=0) for log in events.values()]
    order = [voter["name"] for voter in plan["voters"]] if plan else []
    each = dict(zip(order, plan["time"]["each"], strict=True)) if plan and plan["time"]["each"] else {}
    steps = {voter["name"]: voter["steps"] for voter in plan["voters"]} if plan else {}
    return {
        "voter_seconds": _pair(_sum(each, logs), round(sum(seconds.values()), 3)),
        "memory_bytes": _pair(plan["memory"]["parts"]["total"] if plan else None, _most(held)),
        "optimizer_steps": _pair(_sum(steps, logs), sum(done)),
    }


def _sum(of_voter: Mapping[str, float], voters: Collection[str]) -> float | None:
    known = [of_voter[name] for name in voters if name in of_voter]
    return sum(known) if known else None


def _most(held_mib: list[float]) -> int | None:
    return round(max(held_mib) * 2**20) if held_mib else None


def _memory_mib(events: list[dict[str, Any]]) -> float | None:
    """Peak memory of any attempt, less what its process held before the base was loaded."""
    before, most = None, None
    for event in events:
        if event["event"] == "started":
            before = event.get("memory_before_mib")
        elif event["event"] == "step" and before is not None and "memory_mib" in event:
            most = max(most or 0.0, event["memory_mib"] - before)
    return most


def _pair(predicted: float | None, measured: float | None) -> dict[str, float | None]:
    error = round(measured / predicted - 1, 4) if predicted and measured is not None else None
    return {"predicted": predicted, "measured": measured, "error": error}

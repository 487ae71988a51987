"""Trainings of whole requests, each through the supervisor in a process of its own, and their figures."""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.peers import ROOT
from capibara_assets.training.devices import VISIBLE, Gpus
from capibara_assets.training.monitoring.events import read_events
from capibara_assets.training.request import TrainingRequest

WARM = 4  # steps that are not timed
Beside = Callable[[TrainingRequest, "subprocess.Popen[bytes]"], None]


class TrainingFailed(Exception):
    """A training ended with an error."""


class OutOfTime(Exception):
    """The time is over before the training was finished."""


@dataclass(frozen=True)
class Trained:
    """A finished training of one request.

    Attributes:
        summary: the supervisor's.
        events: voter -> its event log.
    """

    request: TrainingRequest
    summary: dict[str, Any]
    events: dict[str, list[dict[str, Any]]]

    def figures(self, voter: str = "voter-0") -> dict[str, Any]:
        """Speed, memory and losses of a voter; on a GPU the memory is what its allocator held at most."""
        steps = [event for event in self.events[voter] if event["event"] == "step"]
        row = self.summary["voters"][voter]
        return {
            "tokens_per_s": round(statistics.median(step["tokens_per_s"] for step in steps[WARM:] or steps)),
            "memory_mib": max(step["memory_mib"] for step in steps),
            "precision": row["precision"],
            "steps": row["steps"],
            "skipped_steps": row["skipped_steps"],
            "base_validation_loss": round(row["base_validation_loss"], 4),
            "validation_loss": round(row["validation_loss"], 4),
        }

    def adapter(self, voter: str = "voter-0") -> bytes:
        """The bytes of a voter's adapter."""
        return (self.request.out / "voters" / voter / "adapter_model.safetensors").read_bytes()


def learnt(figures: Mapping[str, Any]) -> bool:
    """Whether the loss on unseen examples fell; NaN did not fall."""
    return bool(figures["validation_loss"] < figures["base_validation_loss"])


def run_request(
    request: TrainingRequest,
    limit_s: float | None = None,
    gpus: Gpus = (),
    beside: Beside = lambda _request, _process: None,
) -> Trained:
    """Train a request, as the asset does.

    Args:
        limit_s: seconds it may take.
        gpus: that it may use; empty: all.
        beside: called while it runs.

    Raises:
        TrainingFailed: it ended with an error; has the end of its log.
        OutOfTime: it was not finished in time.
    """
    request.work.mkdir(parents=True)
    log = request.work / "log.txt"
    environment = {**os.environ, **({VISIBLE: ",".join(gpus)} if gpus else {})}
    command = [sys.executable, "-m", "capibara_assets.training", "--request", str(request.write())]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT, env=environment)
        try:
            beside(request, process)
            code = process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired as error:
            raise OutOfTime(f"{request.work.name} was not finished after {limit_s:.0f} s") from error
        finally:
            end(process)
    if code:
        said = log.read_text("utf-8", errors="replace").strip()[-600:]
        raise TrainingFailed(f"{request.work.name} ended with {code}: {said}")
    summary = json.loads((request.out / "summary.json").read_text("utf-8"))
    logs = {voter: read_events(request.out / "voters" / voter / "events.jsonl") for voter in summary["finished"]}
    return Trained(request, summary, logs)


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a training that still runs: it saves, or is killed."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

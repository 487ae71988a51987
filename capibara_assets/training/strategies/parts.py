"""Voters that are several trainings: each part in a folder of its own, resumed, never repeated, and one result."""

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from capibara_assets.modeling.adapters import LoraAdapter, read_adapter
from capibara_assets.training.data.order import rank
from capibara_assets.training.data.voter_run import VoterRun
from capibara_assets.training.environment import pick_device, settings_on
from capibara_assets.training.loop.result import RESULT, VoterResult, write_result
from capibara_assets.training.loop.train import train_voter
from capibara_assets.training.monitoring.events import EventLog
from capibara_assets.training.recipe import VoterSpec
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.resume.points import Progress

MANIFEST = "manifest.json"


def part_seed(voter: VoterSpec, *place: object) -> int:
    """The seed of one part of a voter's training, apart from all other parts' and voters'."""
    return int(rank("part", voter.seed, *place)[:8], 16)


@dataclass(frozen=True)
class TrainingPart:
    """One of the trainings that a voter consists of.

    Attributes:
        name: of the part, and of its folder in the voter's.
        request, voter: what it is made from.
        initial: as `VoterRun.initial`.
    """

    name: str
    request: TrainingRequest
    voter: VoterSpec
    initial: Mapping[str, Tensor] | None = None


def train_part(run: VoterRun, part: TrainingPart, log: EventLog) -> dict[str, Any]:
    """Train one part, or go on with it; one that is finished is left as it is.

    Args:
        run: the whole voter's.
        log: the whole voter's, into which the part's events are copied.

    Returns:
        Its manifest.
    """
    manifest = run.folder / part.name / RESULT / MANIFEST

    def listen(event: dict[str, Any]) -> None:
        kind = "part_finished" if event["event"] == "finished" else event["event"]
        log.relay(event | {"event": kind, "part": part.name})

    if not _is_of(manifest, part.request, part.voter):
        own = VoterRun(part.request, part.voter, run.folder / part.name, listen, run.poll, run.ranks, part.initial)
        train_voter(own)
        run.ranks.wait()  # the first process has written the result now
    found: dict[str, Any] = json.loads(manifest.read_text("utf-8"))
    return found


def part_adapter(whole: Path, name: str) -> LoraAdapter:
    """The adapter of a finished part."""
    return read_adapter(whole / name / RESULT)


@dataclass(frozen=True)
class CombinedVoter:
    """A voter put together from its parts.

    Attributes:
        adapter: that is published.
        parts: name (and folder below the voter's) -> manifest.
        curve: validation losses, by steps of all parts together.
        best_step: of the point of the curve that is the adapter's.
        report: the strategy's own figures.
        began: `time.monotonic()` when this attempt began.
        base_loss: validation loss of the base, where the first part did not begin with it.
    """

    adapter: LoraAdapter
    parts: Mapping[str, dict[str, Any]]
    curve: Sequence[dict[str, Any]]
    best_step: int
    report: dict[str, Any]
    began: float
    base_loss: float | None = None

    @property
    def loss(self) -> float:
        """The adapter's validation loss."""
        loss: float = next(one["validation_loss"] for one in reversed(self.curve) if one["step"] == self.best_step)
        return loss

    def progress(self, earlier_s: float) -> Progress:
        """As if all parts had been one training.

        Args:
            earlier_s: seconds that the parts took, over all attempts.
        """
        manifests = list(self.parts.values())
        return Progress(
            step=sum(one["steps"] for one in manifests),
            base_loss=manifests[0]["base_validation_loss"] if self.base_loss is None else self.base_loss,
            best_step=self.best_step,
            best_loss=self.loss,
            tokens=sum(one["supervised_tokens"] for one in manifests),
            skipped=[{"part": name, **one} for name, part in self.parts.items() for one in part["skipped_steps"]],
            rollbacks=[{"part": name, **one} for name, part in self.parts.items() for one in part["rolled_back_steps"]],
            curve=list(self.curve),
            seconds=max(time.monotonic() - self.began, earlier_s),
        )

    def counts(self) -> dict[str, Any]:
        """What the manifest counts."""
        manifests = list(self.parts.values())
        return {
            "validation_loss": self.loss,
            "published": self.report,
            "examples": max(one["examples"] for one in manifests),
            "validation_examples": manifests[0]["validation_examples"],
            "steps": sum(one["steps"] for one in manifests),
            "steps_planned": sum(one["steps_planned"] for one in manifests),
            "examples_left_out": manifests[0]["examples_left_out"],
            "trainable_parameters": manifests[0]["trainable_parameters"],
        }


def write_combined(run: VoterRun, whole: CombinedVoter, log: EventLog) -> Path:
    """The voter's result out of its parts', whose folders are then removed."""
    timings = [json.loads((run.folder / name / RESULT / "timings.json").read_text("utf-8")) for name in whole.parts]
    settings = settings_on(run.request, pick_device())
    progress = whole.progress(sum(one["seconds"] for one in timings))
    log.write("published", progress.step, strategy=run.voter.strategy.kind, **whole.report)
    result = write_result(run, VoterResult(whole.adapter, progress, settings, whole.counts()), log)
    for name in whole.parts:
        shutil.rmtree(run.folder / name.partition("/")[0], ignore_errors=True)
    return result


def _is_of(manifest: Path, request: TrainingRequest, voter: VoterSpec) -> bool:
    """Whether a part's result is there and made from these inputs."""
    if not manifest.is_file():
        return False
    found = json.loads(manifest.read_text("utf-8"))
    return bool(found["input_digest"] == request.input_digest() and found["voter_seed"] == voter.seed)

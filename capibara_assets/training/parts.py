"""Voters that are several trainings: each part in a folder of its own, resumed, never repeated, and one result."""

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from capibara_assets.modeling.adapters import LoraAdapter, read_adapter
from capibara_assets.training.environment import pick_device, settings_on
from capibara_assets.training.events import EventLog
from capibara_assets.training.loop import train_voter
from capibara_assets.training.order import rank
from capibara_assets.training.ranks import Ranks
from capibara_assets.training.recipe import VoterSpec
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.result import RESULT, write_result
from capibara_assets.training.resume import Progress

MANIFEST = "manifest.json"


def part_seed(voter: VoterSpec, *place: object) -> int:
    """The seed of one part of a voter's training, apart from all other parts' and voters'."""
    return int(rank("part", voter.seed, *place)[:8], 16)


def train_part(
    request: TrainingRequest,
    voter: VoterSpec,
    whole: Path,
    name: str,
    log: EventLog,
    poll: Callable[[], None],
    ranks: Ranks,
    initial: Mapping[str, Tensor] | None = None,
) -> dict[str, Any]:
    """Train one part, or go on with it; one that is finished is left as it is.

    Args:
        request, voter: of the part.
        whole: the voter's folder of work.
        name: of the part, and of its folder in there.
        log: the voter's, into which the part's events are copied.
        initial: as `train_voter`.

    Returns:
        Its manifest.
    """
    manifest = whole / name / RESULT / MANIFEST

    def listen(event: dict[str, Any]) -> None:
        kind = "part_finished" if event["event"] == "finished" else event["event"]
        log.relay(event | {"event": kind, "part": name})

    if not _is_of(manifest, request, voter):
        train_voter(request, voter, whole / name, listen, poll, ranks=ranks, initial=initial)
        ranks.wait()  # the first process has written the result now
    found: dict[str, Any] = json.loads(manifest.read_text("utf-8"))
    return found


def part_adapter(whole: Path, name: str) -> LoraAdapter:
    """The adapter of a finished part."""
    return read_adapter(whole / name / RESULT)


def write_whole(
    request: TrainingRequest,
    voter: VoterSpec,
    folder: Path,
    log: EventLog,
    adapter: LoraAdapter,
    parts: Mapping[str, dict[str, Any]],
    curve: Sequence[dict[str, Any]],
    best_step: int,
    report: dict[str, Any],
    began: float,
    base_loss: float | None = None,
) -> Path:
    """The voter's result out of its parts', whose folders are then removed.

    Args:
        parts: name (and folder below the voter's) -> manifest.
        adapter: that is published.
        curve: validation losses, by steps of all parts together.
        best_step: of the point of the curve that is the adapter's.
        report: the strategy's own figures.
        began: `time.monotonic()` when this attempt began.
        base_loss: validation loss of the base, where the first part did not begin with it.
    """
    manifests = list(parts.values())
    earlier = [json.loads((folder / name / RESULT / "timings.json").read_text("utf-8")) for name in parts]
    steps = sum(one["steps"] for one in manifests)
    loss = next(point["validation_loss"] for point in reversed(curve) if point["step"] == best_step)
    device = pick_device()
    settings = settings_on(request, device)
    progress = Progress(
        step=steps,
        base_loss=manifests[0]["base_validation_loss"] if base_loss is None else base_loss,
        best_step=best_step,
        best_loss=loss,
        tokens=sum(one["supervised_tokens"] for one in manifests),
        skipped=[{"part": name, **one} for name, manifest in parts.items() for one in manifest["skipped_steps"]],
        rollbacks=[{"part": name, **one} for name, manifest in parts.items() for one in manifest["rolled_back_steps"]],
        curve=list(curve),
        seconds=max(time.monotonic() - began, sum(one["seconds"] for one in earlier)),
    )
    log.write("published", steps, strategy=voter.strategy.kind, **report)
    result = write_result(
        request,
        voter,
        folder,
        progress,
        adapter,
        settings,
        {
            "validation_loss": loss,
            "published": report,
            "examples": max(one["examples"] for one in manifests),
            "validation_examples": manifests[0]["validation_examples"],
            "steps": steps,
            "steps_planned": sum(one["steps_planned"] for one in manifests),
            "examples_left_out": manifests[0]["examples_left_out"],
            "trainable_parameters": manifests[0]["trainable_parameters"],
        },
        [],
        log,
    )
    for name in parts:
        shutil.rmtree(folder / name.partition("/")[0], ignore_errors=True)
    return result


def _is_of(manifest: Path, request: TrainingRequest, voter: VoterSpec) -> bool:
    """Whether a part's result is there and made from these inputs."""
    if not manifest.is_file():
        return False
    found = json.loads(manifest.read_text("utf-8"))
    return bool(found["input_digest"] == request.input_digest() and found["voter_seed"] == voter.seed)

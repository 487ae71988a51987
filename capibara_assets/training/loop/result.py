"""The result folder of a finished voter: adapter, manifest, curve, log, metrics and timings."""

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from capibara_assets.modeling.adapters import LoraAdapter, write_adapter
from capibara_assets.modeling.files import ADAPTER_WEIGHTS
from capibara_assets.storage.commit import replace_folder
from capibara_assets.storage.digests import sha256_file
from capibara_assets.storage.jsonfiles import write_json_atomic
from capibara_assets.training.data.voter_run import VoterRun
from capibara_assets.training.monitoring.events import EVENTS, EventLog, read_events
from capibara_assets.training.monitoring.metrics import METRICS, metrics_of
from capibara_assets.training.resume.points import Progress
from capibara_assets.training.step.settings import Settings
from capibara_assets.training.strategy import needs_all_domains
from capibara_assets.training.voter_manifest import CHECKPOINTS, CURVE, MANIFEST, RESULT, TIMINGS


@dataclass(frozen=True)
class VoterResult:
    """A finished voter's adapter and figures.

    Attributes:
        adapter: the one to publish.
        counts: further entries of the manifest, by name; `validation_loss` is one of them.
        checkpoints: those kept in the checkpoint store, by step.
        speed: what was measured beside the seconds, for `timings.json`.
    """

    adapter: LoraAdapter
    progress: Progress
    settings: Settings
    counts: Mapping[str, Any]
    checkpoints: Sequence[Mapping[str, Any]] = ()
    speed: Mapping[str, Any] = field(default_factory=dict)


def write_result(run: VoterRun, result: VoterResult, log: EventLog) -> Path:
    """Write a finished voter's result folder, which appears whole; returns it."""
    request, voter, folder = run.request, run.voter, run.folder
    progress, counts = result.progress, result.counts
    staging, target = folder / f".{RESULT}.part", folder / RESULT
    others = {domain.value: one.digest for domain, one in request.further.items()}
    shutil.rmtree(staging, ignore_errors=True)
    write_adapter(result.adapter, staging)
    log.write("finished", progress.step, validation_loss=counts["validation_loss"], seconds=round(progress.seconds, 3))
    shutil.copyfile(folder / EVENTS, staging / EVENTS)
    write_json_atomic(staging / METRICS, metrics_of(read_events(staging / EVENTS)))
    write_json_atomic(staging / CURVE, progress.curve)
    if request.checkpoints:
        write_json_atomic(staging / CHECKPOINTS, list(result.checkpoints))
    write_json_atomic(
        staging / TIMINGS,
        {
            "seconds": round(progress.seconds, 3),
            "cpu_seconds": round(time.process_time(), 3),
            "attempts": log.attempt,
            **result.speed,
        },
    )
    write_json_atomic(
        staging / MANIFEST,
        {
            "voter": voter.name,
            "domain": request.domain,
            "status": "finished",
            "digest": sha256_file(staging / ADAPTER_WEIGHTS),
            "base_digest": request.base_digest,
            "dataset_digest": request.dataset_digest,
            "input_digest": request.input_digest(),
            "seed": request.seed,
            "voter_seed": voter.seed,
            "shard": voter.shard,
            "strategy": voter.strategy.kind,
            "backend": request.recipe.hardware.backend,
            "precision": result.settings.precision,
            "supervised_tokens": progress.tokens,
            "skipped_steps": progress.skipped,
            "rolled_back_steps": progress.rollbacks,
            "extended": progress.extensions,
            "base_validation_loss": progress.base_loss,
            "best_step": progress.best_step,
            **({"further_datasets": others} if needs_all_domains(voter.strategy) else {}),
            **counts,
        },
    )
    replace_folder(staging, target)  # there may be a result of other inputs: one of these inputs would have been reused
    return target

"""Assembles the output of a training: the folders of its finished voters and a summary; can inject declared faults."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save

from capibara_assets.modeling.files import ADAPTER_WEIGHTS
from capibara_assets.storage.commit import copy_folder, replace_folder
from capibara_assets.storage.digests import sha256_file
from capibara_assets.storage.jsonfiles import write_bytes_atomic, write_json_atomic
from capibara_assets.training.devices import Placement
from capibara_assets.training.monitoring.events import EVENTS
from capibara_assets.training.plan.prediction import compared
from capibara_assets.training.recipe import VoterSpec
from capibara_assets.training.request import Fault, TrainingRequest
from capibara_assets.training.voter_manifest import CHECKPOINTS, CURVE, MANIFEST, RESULT, TIMINGS, VoterManifest

# Files whose bytes differ between equal runs (times, speeds, hosts): left out of an artifact's digest.
VOLATILE = (
    "summary.json",
    "launch/request.json",
    "voters/*/events.jsonl",
    "voters/*/metrics.json",
    "voters/*/timings.json",
    "voters/*/checkpoints.json",
)
_SUMMARY_KEYS = (
    "status",
    "fault",
    "digest",
    "steps",
    "examples",
    "validation_examples",
    "trainable_parameters",
    "supervised_tokens",
    "base_validation_loss",
    "validation_loss",
    "best_step",
    "precision",
)  # of a voter's manifest
_FACTORS = {"sign_flip": -3.0, "nan": float("nan"), "norm_100x": 100.0}


def has_result(request: TrainingRequest, voter: VoterSpec) -> bool:
    """Whether a voter's result lies in its folder, whole and made from the request's inputs."""
    return VoterManifest.read(request.folder(voter) / RESULT).is_of(request.input_digest())


def assemble(
    request: TrainingRequest,
    folders: Mapping[str, Path],
    missing: Mapping[str, str],
    seconds: float,
    placement: Placement | None,
) -> dict[str, Any]:
    """Copy finished voters to `request.out`, inject the request's faults, write the summary; `out` appears whole.

    Args:
        folders: finished voter -> its folder of work.
        missing: voter that did not finish -> why.
        seconds: of this attempt.
        placement: of the voters on this machine's devices; None: all were finished before.

    Returns:
        The summary.
    """
    part = request.out.with_name(f".{request.out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    rows = {
        name: _add_voter(part / "voters" / name, folder, request.fault.get(name)) for name, folder in folders.items()
    }
    summary = {
        "domain": request.domain,
        "input_digest": request.input_digest(),
        "seed": request.seed,
        "tolerated": request.recipe.tolerated,
        "quorum": request.recipe.quorum,
        "finished": sorted(rows),
        "missing": missing,
        "injected": {name: fault for name, fault in request.fault.items() if name in rows},
        "voters": rows,
        "seconds": round(seconds, 3),
        **({"placement": placement.document()} if placement else {}),
        **({"planned": request.planned.model_dump(mode="json")} if request.planned else {}),
        "prediction": compared(
            request.work,
            {name: part / "voters" / name / EVENTS for name in rows},
            {name: row["seconds"] for name, row in rows.items()},
        ),
    }
    write_json_atomic(part / "summary.json", summary)
    replace_folder(part, request.out)
    return summary


def _add_voter(target: Path, folder: Path, fault: Fault | None) -> dict[str, Any]:
    """Copy one voter's result, with its fault injected if it has one; returns its row of the summary."""
    copy_folder(folder / RESULT, target)
    if fault is not None:
        inject(target, fault)
    manifest = VoterManifest.read(target).stated
    timings, curve = (json.loads((target / name).read_text("utf-8")) for name in (TIMINGS, CURVE))
    row: dict[str, Any] = {
        **{key: manifest[key] for key in _SUMMARY_KEYS if key in manifest},
        **timings,
        "skipped_steps": len(manifest["skipped_steps"]),
        "curve": [point for point in curve if "validation_loss" in point],
    }
    if (checkpoints := target / CHECKPOINTS).is_file():
        row["checkpoints"] = json.loads(checkpoints.read_text("utf-8"))
    return row


def inject(folder: Path, fault: Fault) -> None:
    """Damage the adapter in a folder, and state it in its manifest (`status: injected`, `fault`).

    For tests of the consensus, which must exclude such a voter. `sign_flip` multiplies every B by -3, `norm_100x` by
    100, `nan` makes every B NaN; B carries the delta's sign and size, so the delta scale * B @ A changes by the same
    factor.
    """
    tensors = load_file(folder / ADAPTER_WEIGHTS)
    factor = np.float32(_FACTORS[fault])
    damaged = {name: value * factor if ".lora_B." in name else value for name, value in sorted(tensors.items())}
    write_bytes_atomic(folder / ADAPTER_WEIGHTS, save(damaged, metadata={"format": "pt"}))
    injected = {"status": "injected", "fault": fault, "digest": sha256_file(folder / ADAPTER_WEIGHTS)}
    write_json_atomic(folder / MANIFEST, {**VoterManifest.read(folder).stated, **injected})

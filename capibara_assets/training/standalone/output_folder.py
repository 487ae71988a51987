"""The output folder of a standalone training: filled when its voters have finished, described, and verified.

Imports torch only to verify, because the supervisor calls it.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.modeling.files import ADAPTER_CONFIG, ADAPTER_WEIGHTS, check_safetensors, read_safetensors_header
from capibara_assets.storage.digests import sha256_file
from capibara_assets.storage.jsonfiles import parse_json, read_object, sync_folder, write_json_atomic
from capibara_assets.training.monitoring.events import EVENTS, read_events
from capibara_assets.training.recipe import VoterSpec
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.resume.epoch_info import (
    EPOCH_INFO,
    epoch_folder,
    existing_epochs,
    read_epoch_info,
    write_epoch_info,
)
from capibara_assets.training.supervisor.run import TrainingOutcome
from capibara_assets.training.voter_manifest import RESULT, TIMINGS, VoterManifest

TRAINING_INFO = "training_info.json"
# Files that a tokenizer may consist of; copied from the base, so that the folder can be loaded alone.
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "tokenizer.model",
    "spiece.model",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
)
_INSIDE = (TIMINGS, EVENTS)  # summarised in training_info.json; the log is in the folder already
_FROM_MANIFEST = (
    "status",
    "strategy",
    "backend",
    "precision",
    "seed",
    "voter_seed",
    "base_digest",
    "dataset_digest",
    "input_digest",
    "examples",
    "validation_examples",
    "examples_left_out",
    "trainable_parameters",
    "steps",
    "steps_planned",
    "supervised_tokens",
    "base_validation_loss",
    "validation_loss",
    "best_step",
)


@dataclass(frozen=True)
class VerifiedFolder:
    """A voter's output folder that was verified.

    Attributes:
        folder: its path.
        info: its `training_info.json`.
        adapters: paths of adapters that load: the final one (`.`), those of epochs and of resume points.
    """

    folder: Path
    info: dict[str, Any]
    adapters: list[str]


def publish_outputs(request: TrainingRequest, outcome: TrainingOutcome) -> list[VerifiedFolder]:
    """Move finished adapters into the output folder, describe and verify them; repeatable if killed at any point.

    Raises:
        IntegrityError: a file differs from what was written.
    """
    outputs = []
    for voter in (voter for voter in request.recipe.voters if voter.name in outcome.finished):
        folder = request.folder(voter)
        info = _publish_voter(request, voter, outcome.out / "voters" / voter.name, folder)
        outputs.append(VerifiedFolder(folder, info, verify_output(folder)))
    if request.output is not None and len(request.recipe.voters) > 1:
        write_json_atomic(request.output / "summary.json", outcome.summary)
    for output in outputs:
        shutil.rmtree(output.folder / RESULT, ignore_errors=True)
    shutil.rmtree(outcome.out, ignore_errors=True)
    return outputs


def finished_output(request: TrainingRequest) -> list[VerifiedFolder] | None:
    """The verified outputs of exactly this request, if all its voters have finished; else None.

    Raises:
        IntegrityError: an output is damaged.
    """
    outputs = []
    for voter in request.recipe.voters:
        folder = request.folder(voter)
        if not (folder / TRAINING_INFO).is_file():
            return None
        info = read_info(folder)
        if info.get("input_digest") != request.input_digest():
            return None
        outputs.append(VerifiedFolder(folder, info, verify_output(folder)))
    return outputs


def read_info(folder: Path) -> dict[str, Any]:
    """Read `training_info.json`.

    Raises:
        InputError: there is none, or it is no JSON object.
    """
    file = folder / TRAINING_INFO
    if not file.exists():
        raise InputError(f"{file} does not exist: no training has finished in {folder}")
    return read_object(file)


def verify_output(folder: Path) -> list[str]:
    """Verify a finished folder: every file is there and unchanged, and every adapter loads and has the same tensors.

    Returns:
        Paths of the adapters, the final one (`.`) first.

    Raises:
        IntegrityError: names the first file that is missing, has changed, or does not load.
    """
    info = read_info(folder)
    for name, digest in info["files"].items():
        if not (folder / name).is_file():
            raise IntegrityError(f"{folder / name} is missing")
        if sha256_file(folder / name) != digest:
            raise IntegrityError(f"{folder / name} is not as it was written")
    for name in (EVENTS, EPOCH_INFO):
        if not (folder / name).is_file():
            raise IntegrityError(f"{folder / name} is missing")
    rows = read_epoch_info(folder)
    if [row["epoch"] for row in rows] != existing_epochs(folder):
        raise IntegrityError(f"{folder / EPOCH_INFO} lists other epochs than there are folders")
    adapters = [folder, *_checkpoints(folder)]
    expected = _schema(folder)
    for adapter in adapters:
        if not _same_weights(_schema(adapter), expected, cut=info.get("strategy") == "convexity"):
            raise IntegrityError(f"{adapter} holds other weights than the adapter in {folder}")
    _load(adapters)
    return [adapter.relative_to(folder).as_posix() for adapter in adapters]


def _checkpoints(folder: Path) -> list[Path]:
    steps = [path for path in folder.glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdigit()]
    return [epoch_folder(folder, epoch) for epoch in existing_epochs(folder)] + sorted(steps)


def _schema(adapter: Path) -> dict[str, Any]:
    """Names, types and shapes of an adapter's weights."""
    try:
        parse_json((adapter / ADAPTER_CONFIG).read_bytes())
        check_safetensors(adapter / ADAPTER_WEIGHTS)
        header = json.loads(read_safetensors_header(adapter / ADAPTER_WEIGHTS))
    except (OSError, ValueError, InputError) as error:
        raise IntegrityError(f"{adapter} is no adapter that loads: {error}") from error
    return {name: (entry["dtype"], entry["shape"]) for name, entry in header.items() if name != "__metadata__"}


def _same_weights(trained: dict[str, Any], published: dict[str, Any], *, cut: bool) -> bool:
    """Whether two adapters have equal names, types and shapes; `cut`: a published rank may be below the trained one."""
    if not cut or trained.keys() != published.keys():
        return trained == published
    for name, (dtype, shape) in trained.items():
        other_dtype, other = published[name]
        shorter = [(whole, part) for whole, part in zip(shape, other, strict=False) if whole != part]
        if dtype != other_dtype or len(shape) != len(other) or len(shorter) > 1 or any(p > w for w, p in shorter):
            return False
    return True


def _load(adapters: list[Path]) -> None:
    """Read every weight of every adapter."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    for adapter in adapters:
        try:
            tensors = load_file(adapter / ADAPTER_WEIGHTS)
        except (OSError, SafetensorError) as error:
            raise IntegrityError(f"{adapter / ADAPTER_WEIGHTS} does not load: {error}") from error
        for name, value in tensors.items():
            if not bool(torch.isfinite(value).all()):
                raise IntegrityError(f"{adapter / ADAPTER_WEIGHTS}: {name} holds NaN or infinity")


def _publish_voter(request: TrainingRequest, voter: VoterSpec, source: Path, folder: Path) -> dict[str, Any]:
    manifest, timings = VoterManifest.read(source).stated, json.loads((source / TIMINGS).read_bytes())
    published = sorted(path.name for path in source.iterdir() if path.name not in _INSIDE)
    for name in published:
        (source / name).replace(folder / name)
    tokenizer = [name for name in TOKENIZER_FILES if (request.base_model / name).is_file()]
    for name in tokenizer:
        shutil.copyfile(request.base_model / name, folder / name)
    rows = read_epoch_info(folder)
    if not (folder / EPOCH_INFO).is_file():  # it stopped before the first epoch was over
        write_epoch_info(folder, [])
    micro_steps = {
        event["step"]: event["micro_steps"] for event in read_events(folder / EVENTS) if "micro_steps" in event
    }
    info: dict[str, Any] = {
        "name": request.domain,
        "recipe": request.recipe.name,
        "voter": voter.name,
        "base_model": request.base_model.name,
        "epochs": len(rows),
        **{key: manifest[key] for key in _FROM_MANIFEST if key in manifest},
        "micro_steps": sum(micro_steps.values()),
        "skipped_steps": len(manifest["skipped_steps"]),
        "rolled_back_steps": len(manifest["rolled_back_steps"]),
        "minutes": round(timings["seconds"] / 60, 3),
        "attempts": timings["attempts"],
        "started_from": request.start.model_dump(mode="json", exclude={"adapter"}) if request.start else None,
        "settings": request.deciding_recipe(),
        "files": {name: sha256_file(folder / name) for name in (*published, *tokenizer)},
    }
    write_json_atomic(folder / TRAINING_INFO, info)
    sync_folder(folder)
    return info

"""What a finished voter leaves: the adapter of its best validation, its manifest, curve, log and timings."""

import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from peft import get_peft_model_state_dict
from torch import Tensor

from capibara_assets.modeling.adapters import LoraAdapter, write_adapter
from capibara_assets.modeling.base import ADAPTER_WEIGHTS
from capibara_assets.storage.digests import sha256_file
from capibara_assets.storage.jsonfiles import sync_folder, write_json_atomic
from capibara_assets.training.events import EventLog
from capibara_assets.training.recipe import VoterSpec
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.resume import Progress
from capibara_assets.training.settings import Settings

ADAPTER = "default"
CHECKPOINTS = "checkpoints.json"
EVENTS = "events.jsonl"
RESULT = "result"


def adapter_of(adapted: Any, weights: Mapping[str, Tensor], request: TrainingRequest) -> LoraAdapter:
    """These weights, put into the model, as an adapter in PEFT's format."""
    own = dict(adapted.named_parameters())
    with torch.no_grad():
        for name, value in weights.items():
            own[name].copy_(value)
    return current_adapter(adapted, request)


def current_adapter(adapted: Any, request: TrainingRequest) -> LoraAdapter:
    """The model's own weights, not a copy, as an adapter; its config names no path, so it is alike on every machine."""
    config = adapted.peft_config[ADAPTER].to_dict()
    config = {key: sorted(value) if isinstance(value, set) else value for key, value in config.items()}
    config |= {"base_model_name_or_path": request.base_model.name, "inference_mode": True}
    plain = json.loads(json.dumps(config, default=str))
    return LoraAdapter(config=plain, tensors=get_peft_model_state_dict(adapted, adapter_name=ADAPTER))


def write_result(
    request: TrainingRequest,
    voter: VoterSpec,
    folder: Path,
    progress: Progress,
    adapter: LoraAdapter,
    settings: Settings,
    counts: Mapping[str, int],
    checkpoints: list[dict[str, Any]],
    log: EventLog,
) -> Path:
    """Write the finished adapter and what is known of it; the folder appears whole."""
    beside, target = folder / f".{RESULT}.part", folder / RESULT
    shutil.rmtree(beside, ignore_errors=True)
    write_adapter(adapter, beside)
    log.write("finished", progress.step, validation_loss=progress.best_loss, seconds=round(progress.seconds, 3))
    shutil.copyfile(folder / EVENTS, beside / EVENTS)
    write_json_atomic(beside / "curve.json", progress.curve)
    if request.checkpoints:
        write_json_atomic(beside / CHECKPOINTS, checkpoints)
    write_json_atomic(
        beside / "timings.json",
        {"seconds": round(progress.seconds, 3), "cpu_seconds": round(time.process_time(), 3), "attempts": log.attempt},
    )
    write_json_atomic(
        beside / "manifest.json",
        {
            "voter": voter.name,
            "domain": request.domain,
            "status": "finished",
            "digest": sha256_file(beside / ADAPTER_WEIGHTS),
            "base_digest": request.base_digest,
            "dataset_digest": request.dataset_digest,
            "input_digest": request.input_digest(),
            "seed": request.seed,
            "voter_seed": voter.seed,
            "shard": voter.shard,
            "strategy": request.recipe.strategy,
            "precision": settings.precision,
            "supervised_tokens": progress.tokens,
            "skipped_steps": progress.skipped,
            "base_validation_loss": progress.base_loss,
            "validation_loss": progress.best_loss,
            "best_step": progress.best_step,
            **counts,
        },
    )
    sync_folder(beside)
    shutil.rmtree(target, ignore_errors=True)  # of other inputs: a result of these would not be made again
    beside.rename(target)
    sync_folder(folder)
    return target

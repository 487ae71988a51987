"""Drills: damage done on purpose to a finished voter's adapter, to see that the consensus throws it out."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save

from capibara_assets.modeling.files import ADAPTER_WEIGHTS
from capibara_assets.storage.digests import sha256_file
from capibara_assets.storage.jsonfiles import write_bytes_atomic, write_json_atomic
from capibara_assets.training.request import Fault

_FACTORS = {"sign_flip": -3.0, "nan": float("nan"), "norm_100x": 100.0}


def inject(folder: Path, fault: Fault) -> None:
    """Damage the adapter in a folder and say so in its manifest (`status: injected`, `fault`).

    `sign_flip` multiplies every B by -3, `norm_100x` by 100, `nan` makes every B NaN; B carries the delta's sign and
    size, so the delta scale * B @ A changes by the same factor.
    """
    tensors = load_file(folder / ADAPTER_WEIGHTS)
    factor = np.float32(_FACTORS[fault])
    damaged = {name: value * factor if ".lora_B." in name else value for name, value in sorted(tensors.items())}
    write_bytes_atomic(folder / ADAPTER_WEIGHTS, save(damaged, metadata={"format": "pt"}))
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    manifest |= {"status": "injected", "fault": fault, "digest": sha256_file(folder / ADAPTER_WEIGHTS)}
    write_json_atomic(folder / "manifest.json", manifest)

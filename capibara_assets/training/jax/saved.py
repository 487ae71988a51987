"""Resume points: folders of safetensors that appear whole or not at all, checked before they are used."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from capibara_assets.storage.digests import sha256_file
from capibara_assets.storage.jsonfiles import readable_json, sync_folder, write_durable

Arrays = dict[str, np.ndarray]
MANIFEST = "manifest.json"
FILES = ("trained.safetensors", "state.safetensors")
KEPT = 2  # the newest two: one survives a fault of the other


@dataclass(frozen=True)
class JaxResumePoint:
    """A training after `step` steps.

    Attributes:
        key: digest of what decides the run; a point of another run is not used.
    """

    step: int
    key: str
    trained: Arrays
    state: Arrays


def save_point(folder: Path, point: JaxResumePoint) -> Path:
    """Write a point beside its final name, sync, rename; then drop all but the newest two."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    target, staging = folder / f"step-{point.step:09d}", folder / f".part-{uuid4().hex}"
    staging.mkdir()
    try:
        for name, arrays in zip(FILES, (point.trained, point.state), strict=True):
            save_file({key: np.ascontiguousarray(value) for key, value in arrays.items()}, staging / name)
        digests = {name: sha256_file(staging / name) for name in FILES}
        write_durable(staging / MANIFEST, readable_json({"step": point.step, "key": point.key, "sha256": digests}))
        sync_folder(staging)
        if target.exists():
            shutil.rmtree(target)
        staging.rename(target)
        sync_folder(folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    for old in sorted(folder.glob("step-*"))[:-KEPT]:
        shutil.rmtree(old)
    return target


def newest_point(folder: Path, key: str) -> tuple[JaxResumePoint | None, list[str]]:
    """The newest whole point of this run, and why newer ones were passed over."""
    from safetensors.numpy import load_file

    passed: list[str] = []
    for place in sorted(folder.glob("step-*"), reverse=True):
        try:
            manifest: dict[str, Any] = json.loads((place / MANIFEST).read_bytes())
            damaged = [name for name in FILES if sha256_file(place / name) != manifest["sha256"][name]]
            if damaged:
                passed.append(f"{place.name}: {', '.join(damaged)} changed since written")
            elif manifest["key"] != key:
                passed.append(f"{place.name}: of another run (model, data or settings differ)")
            else:
                trained, state = (load_file(place / name) for name in FILES)
                return JaxResumePoint(int(manifest["step"]), key, trained, state), passed
        except (OSError, ValueError, KeyError, TypeError) as error:
            passed.append(f"{place.name}: {error}")
    return None, passed

"""Resume points of the JAX trainer: folders of safetensors that appear atomically and are verified before use."""

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
KEPT = 2  # the newest two, in case one is damaged


@dataclass(frozen=True)
class JaxResumePoint:
    """The state of a training after `step` steps.

    Attributes:
        key: digest of the run's inputs; a point of another run is not used.
        trained: weights by name.
        state: optimizer state by name.
    """

    step: int
    key: str
    trained: Arrays
    state: Arrays


def save_point(folder: Path, point: JaxResumePoint) -> Path:
    """Write a point atomically, then remove all but the newest two; returns its folder."""
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
    """The newest undamaged point of this run, and the reasons why newer ones were skipped."""
    from safetensors.numpy import load_file

    skipped: list[str] = []
    for place in sorted(folder.glob("step-*"), reverse=True):
        try:
            manifest: dict[str, Any] = json.loads((place / MANIFEST).read_bytes())
            damaged = [name for name in FILES if sha256_file(place / name) != manifest["sha256"][name]]
            if damaged:
                skipped.append(f"{place.name}: {', '.join(damaged)} changed since written")
            elif manifest["key"] != key:
                skipped.append(f"{place.name}: of another run (model, data or settings differ)")
            else:
                trained, state = (load_file(place / name) for name in FILES)
                return JaxResumePoint(int(manifest["step"]), key, trained, state), skipped
        except (OSError, ValueError, KeyError, TypeError) as error:
            skipped.append(f"{place.name}: {error}")
    return None, skipped

"""Resume points of the JAX trainer: folders of safetensors that appear atomically and are verified before use."""

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from capibara_assets.storage.commit import replace_folder
from capibara_assets.storage.digests import sha256_file
from capibara_assets.storage.jsonfiles import readable_json, write_durable
from capibara_assets.training.resume.points import Progress

Arrays = dict[str, np.ndarray]
MANIFEST = "manifest.json"
PARTS = ("trained", "state", "best")  # a file each, where not empty
KEPT = 2  # the newest two, in case one is damaged


@dataclass(frozen=True)
class JaxResumePoint:
    """The state of a training after `step` steps.

    Attributes:
        key: digest of the run's inputs; a point of another run is not used.
        trained: weights by name.
        state: optimizer state by name.
        progress: validations, losses, tokens and seconds so far.
        best: weights of the best validation, where they are the ones to publish.
    """

    step: int
    key: str
    trained: Arrays
    state: Arrays
    progress: Progress = field(default_factory=Progress)
    best: Arrays = field(default_factory=dict)


def save_point(folder: Path, point: JaxResumePoint) -> Path:
    """Write a point atomically, then remove all but the newest two; returns its folder."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    target, staging = folder / f"step-{point.step:09d}", folder / f".part-{uuid4().hex}"
    staging.mkdir()
    try:
        for part in PARTS:
            if arrays := getattr(point, part):
                whole = {key: np.ascontiguousarray(value) for key, value in arrays.items()}
                save_file(whole, staging / f"{part}.safetensors")
        digests = {file.name: sha256_file(file) for file in sorted(staging.iterdir())}
        about = {"step": point.step, "key": point.key, "sha256": digests, "progress": vars(point.progress)}
        write_durable(staging / MANIFEST, readable_json(about))
        replace_folder(staging, target)
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
            damaged = [name for name, digest in manifest["sha256"].items() if sha256_file(place / name) != digest]
            if damaged:
                skipped.append(f"{place.name}: {', '.join(damaged)} changed since written")
            elif manifest["key"] != key:
                skipped.append(f"{place.name}: of another run (model, data or settings differ)")
            else:
                files = {part: place / f"{part}.safetensors" for part in PARTS}
                parts = {part: load_file(file) if file.exists() else {} for part, file in files.items()}
                progress = Progress(**manifest["progress"])
                return JaxResumePoint(int(manifest["step"]), key, progress=progress, **parts), skipped
        except (OSError, ValueError, KeyError, TypeError) as error:
            skipped.append(f"{place.name}: {error}")
    return None, skipped

"""Resume points: a folder that appears whole, holds no pickle, and gives the very next step bit for bit.

What is not stored because it is a pure function of (seed, step): the order of examples, the learning rate, and the
random numbers of dropout. So there is no generator state to restore, and nothing drawn in between can disturb it.

They are safetensors files and not checkpoints of a store (docs/decisions/0005 has the figures): nobody else reads them,
they change in every byte, and two points that share pieces would be damaged together.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save
from torch import Tensor

from capibara_assets.errors import InputError
from capibara_assets.storage.digests import canonical_json, sha256_bytes, sha256_file
from capibara_assets.storage.jsonfiles import sync_folder, write_durable

_STATE = "state.json"
_PREFIX = "checkpoint-"
_PARTS = ("weights", "optimizer", "best")


@dataclass
class Progress:
    """How far a voter is, at a step boundary.

    Attributes:
        step: optimizer steps done; also the cursor into the examples' order.
        validated: step of the last validation, -1 before the first.
        base_loss: validation loss before the first step, nats per token.
        best_step, best_loss: of the best validation after at least one step.
        tokens: supervised tokens trained on.
        checkpoints: published to the checkpoint store, by step: `step`, `id`, `validation_loss`.
        skipped: steps left out because of NaN or infinity, with their examples.
        curve: one point per step and validation.
        seconds: spent so far, over all attempts.
    """

    step: int = 0
    validated: int = -1
    base_loss: float | None = None
    best_step: int = 0
    best_loss: float | None = None
    tokens: int = 0
    checkpoints: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)
    curve: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(frozen=True)
class ResumePoint:
    """What `load_point` gives back: progress, and tensors by name (`weights`, `optimizer`, `best`)."""

    progress: Progress
    tensors: dict[str, dict[str, Tensor]]
    fingerprint: dict[str, Any]
    path: Path


@dataclass(frozen=True)
class ResumePoints:
    """The resume points in a voter's folder of work, as something that an `AsyncSaver` saves to.

    Attributes:
        folder: the voter's folder of work.
        inputs: digest that binds the points to base, data, recipe, seed and voter.
        fingerprint: of the environment.
        keep: how many; older ones are dropped.
    """

    folder: Path
    inputs: str
    fingerprint: Mapping[str, Any]
    keep: int

    def save(self, state: Mapping[str, Any], step: int, model_name: str, **_about: Any) -> str:
        """Write a point, drop all but the newest; a kill at any moment leaves the former ones whole.

        Args:
            state: of `state_of`.

        Returns:
            The point's name.
        """
        target = self.folder / f"{_PREFIX}{step:08d}"
        beside = self.folder / f".{target.name}.part"
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        digests = {}
        for part in _PARTS:
            data = save(dict(sorted(state[part].items())))
            write_durable(beside / f"{part}.safetensors", data)
            digests[part] = sha256_bytes(data)
        document = {
            "inputs": self.inputs,
            "fingerprint": dict(self.fingerprint),
            "files": digests,
            "progress": json.loads(state["progress"]),
        }
        write_durable(beside / _STATE, canonical_json(document))
        sync_folder(beside)
        if target.exists():  # the same step again: what is there may be damaged, what is new is not
            shutil.rmtree(target)
        beside.replace(target)
        sync_folder(self.folder)
        for old in _points(self.folder)[self.keep :]:
            shutil.rmtree(old)
        return target.name


def state_of(
    progress: Progress, weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], best: Mapping[str, Tensor]
) -> dict[str, Any]:
    """What a resume point holds; `best` may be empty.

    The progress is text: a saver copies what it is given, and a copy of thousands of small values takes long.
    """
    tensors = {"weights": weights, "optimizer": optimizer, "best": best}
    return {
        "progress": canonical_json(vars(progress)).decode(),
        **{part: {name: value.detach() for name, value in tensors[part].items()} for part in _PARTS},
    }


def load_point(folder: Path, *, inputs: str) -> tuple[ResumePoint | None, list[str]]:
    """The newest whole resume point, and the names of damaged ones passed over on the way.

    Raises:
        InputError: a whole resume point was made from other inputs.
    """
    damaged = []
    for path in _points(folder):
        state = _verified_state(path)
        if state is None:
            damaged.append(path.name)
            continue
        if state["inputs"] != inputs:
            raise InputError(
                f"resume point {path} was made from another base, dataset, recipe or seed: "
                "remove it to start anew, or give the inputs it was made from"
            )
        tensors = {part: load_file(path / f"{part}.safetensors") for part in _PARTS}
        return ResumePoint(Progress(**state["progress"]), tensors, state["fingerprint"], path), damaged
    return None, damaged


def drop_points(folder: Path) -> None:
    """Remove all resume points and half-written ones."""
    for path in [*_points(folder), *folder.glob(f".{_PREFIX}*.part")]:
        shutil.rmtree(path)


def _points(folder: Path) -> list[Path]:
    """Newest first."""
    return sorted(folder.glob(f"{_PREFIX}*"), reverse=True)


def _verified_state(path: Path) -> dict[str, Any] | None:
    """The state of a resume point whose files are all as written; None for a damaged one."""
    try:
        state: dict[str, Any] = json.loads((path / _STATE).read_bytes())
        whole = all(sha256_file(path / f"{part}.safetensors") == digest for part, digest in state["files"].items())
    except (OSError, ValueError, KeyError):
        return None
    return state if whole and set(state["files"]) == set(_PARTS) else None

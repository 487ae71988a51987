"""Resume points: folders without pickles, written atomically, from which training continues bit for bit.

What is not stored because it is a pure function of (seed, step): the order of examples, the learning rate, and the
random numbers of dropout. So there is no generator state to restore, and nothing drawn in between can disturb it.

They are safetensors files and not checkpoints of a store (docs/decisions/0005 has the figures): nobody else reads them,
they change in every byte, and two points that shared pieces would be damaged together.
"""

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save
from torch import Tensor

from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.modeling.files import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from capibara_assets.storage.digests import canonical_json, sha256_bytes, sha256_file
from capibara_assets.storage.jsonfiles import parse_json, readable_json, sync_folder, write_durable, write_json_atomic
from capibara_assets.training.ranks import ALONE, Ranks

_STATE = "state.json"
_ADOPTED = "resumed_from.json"
_PREFIX = "checkpoint-"
_PARTS = (
    "optimizer",
    "best",
    "ema",
    "snapshot_weights",
    "snapshot_optimizer",
    "tactic",
)  # a file each, where not empty
_WEIGHTS = "weights"  # in PEFT's format, so that `PeftModel.from_pretrained` loads any resume point


@dataclass
class Progress:
    """How far a voter is, at a step boundary.

    Attributes:
        step: optimizer steps done; also the cursor into the examples' order.
        validated: step of the last validation, -1 before the first.
        base_loss: validation loss before the first step, nats per token.
        best_step, best_loss: of the best validation after at least one step.
        tokens: supervised tokens trained on.
        epoch_loss, epoch_tokens: of the epoch so far: sum of its tokens' losses, and how many.
        checkpoints: published to the checkpoint store, by step: `step`, `id`, `validation_loss`.
        skipped: steps left out because of NaN or infinity, with their examples.
        rollbacks: steps whose loss was a spike and that went back to a snapshot, with their examples.
        extensions: each time the training was made longer: `from` and `to` so many steps, at `step`.
        watched: where it went on in another environment: at `step`, and what `differs`; None: nowhere.
        curve: one point per step and validation.
        seconds: spent so far, over all attempts.
    """

    step: int = 0
    validated: int = -1
    base_loss: float | None = None
    best_step: int = 0
    best_loss: float | None = None
    tokens: int = 0
    epoch_loss: float = 0.0
    epoch_tokens: int = 0
    checkpoints: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)
    rollbacks: list[dict[str, Any]] = field(default_factory=list)
    extensions: list[dict[str, int]] = field(default_factory=list)
    watched: dict[str, Any] | None = None
    curve: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    def judged(self, loss: float) -> bool:
        """Note the validation loss at this step, nats per token; whether it is the best after at least one step."""
        self.validated = self.step
        if not math.isfinite(loss):
            return False
        self.curve.append({"step": self.step, "validation_loss": loss})
        if self.step == 0:
            self.base_loss = loss
            return False
        if self.best_loss is not None and loss >= self.best_loss:
            return False
        self.best_step, self.best_loss = self.step, loss
        return True


@dataclass(frozen=True)
class ResumePoint:
    """Result of `load_point`: progress, and tensors by name (`weights` by PEFT's, the other parts by ours).

    Attributes:
        length: optimizer steps of each level, as they were planned.
    """

    progress: Progress
    tensors: dict[str, dict[str, Tensor]]
    fingerprint: dict[str, Any]
    length: list[int]
    path: Path

    @property
    def snapshot(self) -> dict[str, dict[str, Tensor]]:
        """The state restored after a loss spike; empty before the first snapshot."""
        weights, optimizer = self.tensors["snapshot_weights"], self.tensors["snapshot_optimizer"]
        return {"weights": weights, "optimizer": optimizer} if weights else {}

    def weights(self, peft_names: Mapping[str, str]) -> dict[str, Tensor]:
        """The trained weights by the model's own names.

        Args:
            peft_names: name of a trained parameter -> its name in PEFT's file.
        """
        saved = self.tensors[_WEIGHTS]
        return {name: saved[theirs] for name, theirs in peft_names.items()}


@dataclass(frozen=True)
class ResumePoints:
    """The resume points in a voter's folder of work, as something that an `AsyncSaver` saves to.

    Attributes:
        folder: the voter's folder of work.
        inputs: digests that bind the points to base, data, recipe, seed and voter.
        fingerprint: of the environment.
        length: optimizer steps of each level.
        keep: how many; older ones are dropped.
    """

    folder: Path
    inputs: Mapping[str, str]
    fingerprint: Mapping[str, Any]
    length: Sequence[int]
    keep: int

    def save(self, state: Mapping[str, Any], step: int, model_name: str, **_about: Any) -> str:
        """Write a point, drop all but the newest; a kill at any moment leaves the former ones whole.

        Args:
            state: of `state_of`.

        Returns:
            The point's name.
        """
        target = self.folder / f"{_PREFIX}{step}"
        beside = self.folder / f".{target.name}.part"
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        files = {ADAPTER_CONFIG: state["adapter_config"].encode(), ADAPTER_WEIGHTS: _tensor_bytes(state[_WEIGHTS])}
        files |= {f"{part}.safetensors": _tensor_bytes(state[part]) for part in _PARTS if state[part]}
        for name, data in files.items():
            write_durable(beside / name, data)
        document = {
            "inputs": dict(self.inputs),
            "fingerprint": dict(self.fingerprint),
            "length": list(self.length),
            "files": {name: sha256_bytes(data) for name, data in files.items()},
            "progress": json.loads(state["progress"]),
        }
        write_durable(beside / _STATE, canonical_json(document))
        sync_folder(beside)
        _put(beside, target)
        for old in [*_points(self.folder)[self.keep :], *_leftovers(self.folder)]:
            shutil.rmtree(old)
        return target.name


def state_of(progress: Progress, adapter: LoraAdapter, **parts: Mapping[str, Tensor]) -> dict[str, Any]:
    """Content of a resume point for the current state.

    The progress is text: a saver copies what it is given, and a copy of thousands of small values takes long.

    Args:
        adapter: the trained weights.
        parts: `optimizer`, `best`, `ema`, `snapshot_weights`, `snapshot_optimizer`, `tactic`; empty where not given.
    """
    if unknown := parts.keys() - set(_PARTS):
        raise ValueError(f"a resume point has no part {', '.join(sorted(unknown))}")
    tensors = {part: parts.get(part, {}) for part in _PARTS} | {_WEIGHTS: adapter.tensors}
    return {
        "progress": canonical_json(vars(progress)).decode(),
        "adapter_config": readable_json(adapter.config).decode(),
        **{part: {name: value.detach() for name, value in named.items()} for part, named in tensors.items()},
    }


def find_point(
    folder: Path, *, inputs: Mapping[str, str], wanted: str | None, ranks: Ranks = ALONE
) -> tuple[ResumePoint | None, list[str]]:
    """The resume point from which a request continues, and the names of damaged points that were skipped.

    Args:
        wanted: None: the newest whole point, or a fresh start. `latest`: the newest whole point, an error where all are
            damaged. Else a folder `checkpoint-<step>`, anywhere: it takes the place of newer points, once; started
            again, the training goes on from the newest of those made since.

    Raises:
        InputError: the point wanted is not there, damaged, or made from other inputs.
    """
    if wanted not in (None, "latest"):
        if ranks.main:
            _adopt(Path(wanted), folder, inputs)
        ranks.wait()
    point, damaged = load_point(folder, inputs=inputs)
    if wanted and damaged and point is None:
        raise InputError(
            f"all resume points in {folder} are damaged ({', '.join(damaged)}): remove them, or leave resume_from out, "
            "to start anew"
        )
    return point, damaged


def require_shared(folder: Path, point: ResumePoint | None, ranks: Ranks) -> None:
    """All processes go on from the same step.

    Raises:
        InputError: they see different resume points: they are on hosts that do not share the folder.
    """
    if not ranks.same(point.progress.step if point else -1):
        raise InputError(
            f"the processes of this voter find different resume points in {folder}: put the work folder on a file "
            "system that all hosts share"
        )


def _adopt(source: Path, folder: Path, inputs: Mapping[str, str]) -> None:
    """Make a resume point the newest of a folder; nothing where that was done before. Raises InputError."""
    marker, about = folder / _ADOPTED, {"path": str(source.resolve())}
    if marker.is_file() and json.loads(marker.read_bytes()) == about and _points(folder):
        return
    state = _verified_state(source)
    if state is None:
        raise InputError(
            f"{source} is no whole resume point (folder checkpoint-<step> with all its files unchanged): name another "
            "one, or latest"
        )
    _require_same(inputs, state["inputs"], source)
    target = folder / f"{_PREFIX}{state['progress']['step']}"
    if source.resolve() != target.resolve():
        beside = folder / f".{target.name}.part"
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        for name in (*state["files"], _STATE):
            write_durable(beside / name, (source / name).read_bytes())
        sync_folder(beside)
        _put(beside, target)
    for newer in _points(folder):
        if newer == target:
            break
        shutil.rmtree(newer)
    write_json_atomic(marker, about)


def load_point(folder: Path, *, inputs: Mapping[str, str]) -> tuple[ResumePoint | None, list[str]]:
    """The newest whole resume point, and the names of damaged ones passed over on the way.

    Raises:
        InputError: a whole resume point was made from other inputs; says which of them differ.
    """
    damaged = []
    for path in _points(folder):
        state = _verified_state(path)
        if state is None:
            damaged.append(path.name)
            continue
        _require_same(inputs, state["inputs"], path)
        tensors = {_WEIGHTS: load_file(path / ADAPTER_WEIGHTS)}
        for part in _PARTS:
            tensors[part] = load_file(path / f"{part}.safetensors") if f"{part}.safetensors" in state["files"] else {}
        return ResumePoint(Progress(**state["progress"]), tensors, state["fingerprint"], state["length"], path), damaged
    return None, damaged


def _require_same(inputs: Mapping[str, str], made_from: Mapping[str, str], path: Path) -> None:
    """Raises InputError: a resume point was made from other inputs; says which."""
    if others := sorted(name for name in made_from.keys() | inputs.keys() if made_from.get(name) != inputs.get(name)):
        raise InputError(
            f"resume point {path} was made from another {', '.join(others)}: "
            "remove it to start anew, or give the inputs it was made from"
        )


def extension(point: ResumePoint, length: Sequence[int]) -> dict[str, int] | None:
    """How a training goes on for longer than its resume point knew: `from` and `to` so many steps, at `step`.

    The order of examples knows no end, and the learning rate is a function of the step and the new total: it rises to
    where the longer schedule has it at this step, without a second warm-up.

    Returns:
        None where the length is the same.

    Raises:
        InputError: it would be shorter, or another level than the last would change.
    """
    before, now = point.length, list(length)
    if now == before:
        return None
    if len(now) != len(before) or now[:-1] != before[:-1] or now[-1] < before[-1]:
        levels = " + ".join(map(str, before)), " + ".join(map(str, now))
        raise InputError(
            f"resume point {point.path} is of a training of {levels[0]} steps, this one would have {levels[1]}: a "
            "training can be made longer (epochs, max_steps, max_tokens), not shorter; remove the point to start anew"
        )
    return {"from": sum(before), "to": sum(now), "step": point.progress.step}


def require_readable(folder: Path, inputs: Mapping[str, str]) -> None:
    """Read back a saved resume point to verify it.

    Raises:
        OSError: there is no whole resume point, or the newest one is damaged.
    """
    point, damaged = load_point(folder, inputs=inputs)
    if point is None or damaged:
        raise OSError(f"the first resume point in {folder} cannot be read back: is the disk full or damaged?")


def drop_points(folder: Path) -> None:
    """Remove all resume points and half-written ones."""
    for path in [*_points(folder), *_leftovers(folder)]:
        shutil.rmtree(path)
    (folder / _ADOPTED).unlink(missing_ok=True)


def _put(beside: Path, target: Path) -> None:
    """Rename a finished folder to its final name, in place of a former point of the same step, which may be damaged."""
    aside = target.with_name(f".{target.name}.old.part")
    shutil.rmtree(aside, ignore_errors=True)
    if target.exists():
        target.replace(aside)
    beside.replace(target)
    sync_folder(target.parent)
    shutil.rmtree(aside, ignore_errors=True)


def _leftovers(folder: Path) -> list[Path]:
    """What a kill left half written or half removed; only one process writes here."""
    return list(folder.glob(f".{_PREFIX}*.part"))


def _points(folder: Path) -> list[Path]:
    """Newest first."""
    points = [path for path in folder.glob(f"{_PREFIX}*") if path.name.removeprefix(_PREFIX).isdigit()]
    return sorted(points, key=lambda path: int(path.name.removeprefix(_PREFIX)), reverse=True)


def _tensor_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """As a safetensors file; the same tensors give the same bytes."""
    data: bytes = save({name: tensors[name].contiguous() for name in sorted(tensors)}, metadata={"format": "pt"})
    return data


def _verified_state(path: Path) -> dict[str, Any] | None:
    """The state of a resume point whose files are all as written; None for a damaged one."""
    try:
        state: dict[str, Any] = parse_json((path / _STATE).read_bytes())
        whole = all(sha256_file(path / name) == digest for name, digest in state["files"].items())
    except (OSError, ValueError, KeyError):
        return None
    return state if whole and {ADAPTER_CONFIG, ADAPTER_WEIGHTS} <= state["files"].keys() else None

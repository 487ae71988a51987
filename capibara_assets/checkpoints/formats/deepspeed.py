"""Reader of DeepSpeed ZeRO checkpoints, stages 1 to 3, consolidated to float32 weights.

ZeRO (Rajbhandari et al. 2020, arXiv 1910.02054) keeps the float32 weights with the optimizer, cut into one part per
process. These weights are read here, equal to those of DeepSpeed's own zero_to_fp32; the optimizer's moments are not
read. DeepSpeed itself is not needed.

Its files hold objects of a few of its own classes. `torch.load(weights_only=True)` is given an empty class for each of
their names, so that none of DeepSpeed's code runs and any other class is refused.
"""

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from capibara_assets.checkpoints.content import Content, PieceSource, live, of_torch
from capibara_assets.checkpoints.formats import pytorch
from capibara_assets.checkpoints.formats.beside import read_files
from capibara_assets.checkpoints.formats.limits import listed
from capibara_assets.errors import InputError

_OPTIMIZER, _MODEL = "*_optim_states.pt", "*_model_states.pt"
_OWN = ("latest", "zero_to_fp32.py", "zero_to_torch.py")
_COMPARED = 4096  # numbers at either end of a weight that are compared with the module's copy
_ROUNDED, _MOST_APART = 2**-6, 0.05  # of a number in bfloat16, and the share of numbers that may have moved since
_WEIGHTS = re.compile(r"\.(safetensors|bin|pt|pth)$|\.index\.json$")


class _Blank:
    """Stand-in for an object of DeepSpeed that is not used here."""


_STAND_INS = [
    (int, "deepspeed.runtime.zero.config.ZeroStageEnum"),
    (_Blank, "deepspeed.runtime.fp16.loss_scaler.LossScaler"),
    (_Blank, "deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler"),
    (_Blank, "deepspeed.utils.tensor_fragment.fragment_address"),
]


@dataclass(frozen=True)
class JoinedFragments:
    """A tensor cut into parts of flat, memory-mapped tensors; reading it takes the memory of the tensor.

    Attributes:
        parts: (flat tensor, begin, end), in order; elements beyond the shape are padding.
    """

    parts: Sequence[tuple[torch.Tensor, int, int]] = field(repr=False)
    dtype: str
    shape: tuple[int, ...]

    def pieces(self) -> Iterator[memoryview]:
        whole = torch.cat([flat[begin:end] for flat, begin, end in self.parts])
        yield from of_torch(whole[: math.prod(self.shape)]).pieces()

    def sample(self, count: int) -> torch.Tensor:
        """The first and the last `count` numbers of the tensor; all twice of one that has fewer."""
        size = math.prod(self.shape)
        ends = _cut([flat[begin:end] for flat, begin, end in self.parts], 0, min(count, size))
        ends += _cut([flat[begin:end] for flat, begin, end in self.parts], max(size - count, 0), size)
        return torch.cat([flat[begin:end] for flat, begin, end in ends]) if size else torch.empty(0)


def detect(path: Path) -> bool:
    """Whether this is a folder of DeepSpeed's with a file `latest`, or one of its tags."""
    if any(path.glob(_OPTIMIZER)):
        return True
    return (path / "latest").is_file() and any(path.glob(f"*/{_OPTIMIZER}"))


def read(path: Path) -> Content:
    """Read the weights of a checkpoint under the module's names; of the tag that `latest` names, or of `path` itself.

    Trained weights are ZeRO's float32 ones, frozen ones keep their type (also in stage 1, where DeepSpeed's own script
    loses them), floating-point buffers are float32; parameters that the module shares are ties. Files beside the tags
    (a config, a tokenizer) belong to the checkpoint; other copies of weights do not.

    Raises:
        InputError: a file is missing or damaged, there are fewer or more of them than processes, weights are missing or
            too many, the model was cut by tensor or pipeline parallelism, or a file holds objects of unknown classes.
    """
    folder = _tag(path)
    optimizers = [_load(file) for file in _files(folder, _OPTIMIZER)]
    models = [_load(file) for file in _files(folder, _MODEL)]
    _check_files(folder, optimizers, models)
    stage = int(_states(optimizers[0])["zero_stage"])
    module = models[0]
    tensors: dict[str, PieceSource] = {}
    for name in module["buffer_names"]:
        if name in (module["module"] or {}):
            buffer = module["module"][name]
            tensors[name] = live(buffer.float() if buffer.is_floating_point() else buffer, name)
        elif stage < 3:
            raise InputError(f"{folder} names the buffer {name}, and its module's state has none")
    tensors |= _frozen_whole(folder, module) if stage < 3 else _frozen_in_parts(folder, models)
    tensors |= _trained_in_a_row(folder, optimizers, module) if stage < 3 else _trained_each(folder, optimizers, module)
    shared, state = module["shared_params"], module["module"] or {}
    if lost := [name for name, kept in shared.items() if kept not in tensors and kept not in state]:
        raise InputError(f"{folder} shares {listed(lost)} with weights that it does not have")
    ties = {name: kept for name, kept in shared.items() if kept in tensors}
    if stage < 3:  # a process has nothing of them whole in stage 3
        _require_copies(folder, tensors, state)
    tensors |= _others(folder, stage, {k: v for k, v in state.items() if k not in tensors | ties})
    return Content(tensors, "model", ties=ties, files=_beside(path, folder), origin={"format": "deepspeed"})


def _tag(path: Path) -> Path:
    if any(path.glob(_OPTIMIZER)):
        return path
    latest = path / "latest"
    if not latest.is_file():
        raise InputError(f"{latest} is missing: give DeepSpeed's folder, or the folder of one of its tags")
    tag = latest.read_text("utf-8").strip()
    if not tag or Path(tag).name != tag or not (path / tag).is_dir():
        raise InputError(f"{latest} names the tag {tag!r}, which is no folder beside it: copy the whole checkpoint")
    return path / tag


def _files(folder: Path, pattern: str) -> list[Path]:
    def by_number(path: Path) -> list[Any]:
        return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.name)]

    files = sorted(folder.glob(pattern), key=by_number)
    if not files:
        raise InputError(f"no {pattern} in {folder}: copy the whole checkpoint")
    return files


def _load(path: Path) -> Any:
    with torch.serialization.safe_globals(_STAND_INS):
        return pytorch.load(path)


def _check_files(folder: Path, optimizers: list[Any], models: list[Any]) -> None:
    try:
        states = [_states(optimizer) for optimizer in optimizers]
        counts = states[0]["partition_count"]
        stage, world = int(states[0]["zero_stage"]), int(max(counts) if isinstance(counts, list) else counts)
        key = _flat_key(stage)
        if {(str(state["partition_count"]), int(state["zero_stage"])) for state in states} != {(str(counts), stage)}:
            raise InputError(
                f"{folder}: its processes state other stages or numbers of parts: they are of several runs"
            )
        complete = all(key in state for state in states) and all(
            wanted in model
            for model in models
            for wanted in ("module", "buffer_names", "param_shapes", "shared_params")
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{folder} is no checkpoint of ZeRO: its optimizer states have no {error}") from error
    if not complete:
        raise InputError(f"{folder} is no checkpoint of ZeRO that is known here: its entries are others")
    if any(model.get("mp_world_size", 1) != 1 for model in models) or len(models) != (world if stage == 3 else 1):
        raise InputError(
            f"{folder} has {len(models)} model states: a model that tensor, pipeline or expert "
            "parallelism cut up is not read"
        )
    if len(optimizers) != world:
        raise InputError(f"{folder} has {len(optimizers)} of {world} {_OPTIMIZER}: copy the whole checkpoint")


def _states(optimizer: Any) -> Any:
    return optimizer["optimizer_state_dict"]


def _flat_key(stage: int) -> str:
    return "fp32_flat_groups" if stage == 3 else "single_partition_of_fp32_groups"


def _frozen_whole(folder: Path, module: Any) -> dict[str, PieceSource]:
    fragments, shapes = module.get("frozen_param_fragments") or {}, module.get("frozen_param_shapes") or {}
    for name, shape in shapes.items():
        if name not in fragments or tuple(fragments[name].shape) != tuple(shape):
            raise InputError(f"{folder}: the frozen {name} is not of its shape {list(shape)}: it was changed")
    return {name: live(fragments[name], name) for name in shapes}


def _require_copies(folder: Path, tensors: Mapping[str, PieceSource], copies: Mapping[str, Any]) -> None:
    """Refuse weights that are not those of the module's own state, in 16 bits as they were trained with.

    Compared are a few thousand numbers of each: parts of other processes, or in another order, differ in nearly all.
    """
    for name, source in tensors.items():
        copy = copies.get(name)
        if not isinstance(source, JoinedFragments) or not isinstance(copy, torch.Tensor):
            continue
        if tuple(copy.shape) != source.shape:
            raise InputError(f"{folder}: {name} is {list(source.shape)}, in its module's state {list(copy.shape)}")
        ours, theirs = source.sample(_COMPARED), copy.reshape(-1)
        theirs = torch.cat([theirs[:_COMPARED], theirs[-_COMPARED:]]).float()
        apart = (ours - theirs).abs() > _ROUNDED * theirs.abs() + _ROUNDED * float(theirs.abs().mean())
        if apart.numel() and float(apart.float().mean()) > _MOST_APART:
            raise InputError(f"{folder}: the parts of {name} are not what its module's state has: they are of others")


def _frozen_in_parts(folder: Path, models: list[Any]) -> dict[str, PieceSource]:
    weights: dict[str, PieceSource] = {}
    for name, shape in (models[0].get("frozen_param_shapes") or {}).items():
        parts = [model["frozen_param_fragments"][name] for model in models]
        weights[name] = _joined([(part, 0, part.numel()) for part in parts], shape, f"{folder}: {name}")
    return weights


def _others(folder: Path, stage: int, rest: Mapping[str, Any]) -> dict[str, PieceSource]:
    """Frozen weights of stage 1, which are in the module's state only, where zero_to_fp32 ignores them."""
    odd = [name for name, value in rest.items() if stage == 3 or not isinstance(value, torch.Tensor)]
    if odd:
        raise InputError(f"{folder} has {len(odd)} entries that are neither weights nor buffers: {listed(odd)}")
    return {name: live(tensor, name) for name, tensor in rest.items()}


def _trained_in_a_row(folder: Path, optimizers: list[Any], module: Any) -> dict[str, PieceSource]:
    """Trained weights of stages 1 and 2: a group's weights are concatenated and cut into one part per process."""
    weights: dict[str, PieceSource] = {}
    align = 2 * len(optimizers)  # the concatenation was padded to a multiple of this
    paddings = _states(optimizers[0]).get("param_alignment_paddings")
    for group, shapes in enumerate(module["param_shapes"]):
        flats = [_states(optimizer)[_flat_key(2)][group] for optimizer in optimizers]
        gaps = [0] * len(shapes) if paddings is None else paddings[group]
        if len(gaps) != len(shapes):
            raise InputError(f"{folder}: group {group} has {len(shapes)} weights and {len(gaps)} paddings")
        at, whole = 0, sum(flat.numel() for flat in flats)
        for (name, shape), gap in zip(shapes.items(), gaps, strict=True):
            size = math.prod(shape)
            weights[name] = _joined(_cut(flats, at, at + size), shape, f"{folder}: {name}")
            at += size + gap
        if math.ceil(at / align) != math.ceil(whole / align):
            raise InputError(f"{folder}: the weights of group {group} are {at} numbers, its parts have {whole}")
    return weights


def _trained_each(folder: Path, optimizers: list[Any], module: Any) -> dict[str, PieceSource]:
    """Trained weights of stage 3: each is padded and cut into equal parts; a process has its parts concatenated."""
    weights: dict[str, PieceSource] = {}
    rows = [_states(optimizer)[_flat_key(3)] for optimizer in optimizers]
    at = 0
    for name, shape in ((name, shape) for shapes in module["param_shapes"] for name, shape in shapes.items()):
        size = math.ceil(math.prod(shape) / len(optimizers))
        parts = [part for row in rows for part in _cut(row, at, at + size)]
        weights[name] = _joined(parts, shape, f"{folder}: {name}")
        at += size
    for rank, row in enumerate(rows):
        if (whole := sum(flat.numel() for flat in row)) != at:
            raise InputError(f"{folder}: the weights are {at} numbers per process, process {rank} has {whole}")
    return weights


def _cut(flats: Sequence[torch.Tensor], begin: int, end: int) -> list[tuple[torch.Tensor, int, int]]:
    """The parts of flat tensors that are elements `begin` to `end` of their concatenation."""
    starts = itertools.accumulate((flat.numel() for flat in flats), initial=0)
    return [
        (flat, max(begin - start, 0), min(end - start, flat.numel()))
        for start, flat in zip(starts, flats, strict=False)
        if start < end and begin < start + flat.numel()
    ]


def _joined(parts: list[tuple[torch.Tensor, int, int]], shape: Any, what: str) -> PieceSource:
    flats = [(flat.reshape(-1), begin, end) for flat, begin, end in parts]
    held = sum(end - begin for _, begin, end in flats)
    if held < math.prod(shape):
        raise InputError(f"{what}, of shape {list(shape)}, has {held} numbers only: the checkpoint is not whole")
    if odd := [flat.dtype for flat, _, _ in flats if flat.dtype != torch.float32]:
        raise InputError(f"{what} is kept as {str(odd[0]).removeprefix('torch.')}, ZeRO keeps float32: it was changed")
    return JoinedFragments(flats, of_torch(torch.empty(0, dtype=torch.float32)).dtype, tuple(shape))


def _beside(path: Path, folder: Path) -> Mapping[str, PieceSource]:
    """Files beside the tags, without DeepSpeed's own and without other copies of the weights."""
    if folder == path:
        return {}
    tags = {tag.parent.name for tag in path.glob(f"*/{_OPTIMIZER}")}
    return {
        name: source
        for name, source in read_files(path, _OWN).items()
        if name.split("/")[0] not in tags and not _WEIGHTS.search(name)
    }

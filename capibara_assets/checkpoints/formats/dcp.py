"""torch.distributed.checkpoint folders, written by any number of processes; read and written here in one process.

DCP itself turns keys into strings, omits empty dictionaries and stores a tied tensor twice. So the folders written here
have a file `capibara_state.json` with the exact tree and ties: other readers ignore it, and this one restores the same
state from it. A checkpoint without it is read as DCP describes it.
"""

import dataclasses
import io
import json
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.distributed import checkpoint as torch_dcp
from torch.futures import Future

from capibara_assets.checkpoints.content import (
    Content,
    PieceSource,
    live,
    of_bytes,
    of_torch,
    to_torch,
    torch_dtype,
)
from capibara_assets.checkpoints.formats import dcp_metadata, pytorch
from capibara_assets.checkpoints.formats.beside import read_files, write_files
from capibara_assets.checkpoints.formats.dcp_metadata import Metadata, StoredTensor
from capibara_assets.checkpoints.formats.limits import listed
from capibara_assets.checkpoints.formats.publish import disk_error, new_folder
from capibara_assets.checkpoints.tree import flatten, join, split, tensor_names, unflatten
from capibara_assets.errors import InputError
from capibara_assets.processes.memory import return_free_memory
from capibara_assets.storage.jsonfiles import user_json

_STATE = "capibara_state.json"
_FILE = 32 << 20
_LARGE = 1 << 20  # bytes of a tensor; giving memory back takes a third of a millisecond, too long after each small one
"""Bytes of tensors in one `.distcp` file: DCP's writer keeps a file's tensors in memory until the file is done."""


@dataclasses.dataclass(frozen=True)
class Chunked:
    """A tensor in one or more chunks, joined when it is read; memory: the tensor, and its largest chunk twice."""

    folder: Path
    name: str
    stored: StoredTensor
    dtype: str
    shape: tuple[int, ...]

    def pieces(self) -> Iterator[memoryview]:
        whole = torch.empty(self.shape, dtype=self.stored.dtype)
        for chunk in self.stored.chunks:
            part = _load(self.folder, chunk.file, chunk.start, chunk.length, self.name)
            if not isinstance(part, torch.Tensor) or (part.dtype, tuple(part.shape)) != (whole.dtype, chunk.sizes):
                raise InputError(
                    f"{self.folder / chunk.file} is damaged: what it holds of {self.name} is not the "
                    f"{self.stored.dtype} of shape {list(chunk.sizes)} that {dcp_metadata.NAME} promises"
                )
            place = tuple(slice(begin, begin + size) for begin, size in zip(chunk.offsets, chunk.sizes, strict=True))
            whole[place].copy_(part)
            del part
        yield from of_torch(whole, self.name).pieces()
        large = whole.nbytes >= _LARGE
        del whole
        if large:
            return_free_memory()  # the C library would keep several tensors of this size for the next one


def detect(path: Path) -> bool:
    """Whether this is a folder with DCP's `.metadata`."""
    return (path / dcp_metadata.NAME).is_file()


def read(path: Path) -> Content:
    """Read a checkpoint's whole state, written by any number of ranks; tensors are read on demand.

    Nothing is unpickled (see `dcp_metadata`); values other than tensors are read by `torch.load(weights_only=True)`.

    Raises:
        InputError: no `.metadata` or a damaged one, a missing file, a value that only unpickling could restore; it
            names the file and the tensor.
    """
    metadata = dcp_metadata.read_metadata(path)
    files = {file for file, _, _ in metadata.values.values()}
    files |= {chunk.file for stored in metadata.tensors.values() for chunk in stored.chunks}
    beside = read_files(path, [dcp_metadata.NAME, _STATE, *files])
    tensors: dict[str, PieceSource] = {
        join(_keys(metadata, name)): _chunked(path, name, stored) for name, stored in metadata.tensors.items()
    }
    if (path / _STATE).is_file():
        return _as_written(path, metadata, tensors, beside)
    leaves = {name: _load(path, *place, name) for name, place in metadata.values.items()}
    # an empty tensor stands for each in `flatten`, and is replaced by the name of its place
    leaves |= {name: torch.empty(0, dtype=stored.dtype) for name, stored in metadata.tensors.items()}
    inside, tree, ties = flatten(_nested({metadata.paths.get(name, (name,)): leaf for name, leaf in leaves.items()}))
    leaf_tensors: dict[str, PieceSource] = {name: live(tensor, name) for name, tensor in inside.items()}
    return Content(leaf_tensors | tensors, "state", tree, ties, beside, {"format": "dcp"})


def write(content: Content, path: Path) -> None:
    """Write a folder that `torch.distributed.checkpoint.load` reads, with the checkpoint's files beside.

    Memory holds 32 MiB of tensors at a time, or one larger tensor.

    Raises:
        InputError: `path` exists, the state is not a dictionary, two entries get the same name in DCP, or a file has
            one of DCP's names.
    """
    tensors, ties, tree = dict(content.tensors), dict(content.ties), content.tree
    if tree is None:  # a flat dictionary, whose keys are no paths
        tensors = {join((name,)): source for name, source in tensors.items()}
        ties = {join((name,)): join((kept,)) for name, kept in ties.items()}
        tree = {"dict": [[split(name)[0], {"tensor": name}] for name in (*tensors, *ties)]}
    if next(iter(tree)) not in ("dict", "odict", "state_dict"):
        raise InputError(f"dcp holds a dictionary, this state is a {next(iter(tree))}: put it into one")
    in_tuples = {ties.get(name, name) for name in _below_tuples(tree)}

    def stand_in(name: str) -> torch.Tensor:
        source = tensors[name]
        if name in in_tuples:  # DCP saves a tuple, with its tensors, by torch.save
            return to_torch(source)
        return torch.empty(source.shape, dtype=torch_dtype(source.dtype), device="meta")

    sources = {".".join(split(name)): tensors[ties.get(name, name)] for name in (*tensors, *ties)}
    state = unflatten(tree, stand_in, ties)
    described = {"kind": content.kind, "tree": content.tree, "ties": dict(ties), "origin": dict(content.origin)}
    beside = {_STATE: of_bytes(json.dumps(described, allow_nan=False).encode())}
    with new_folder(path) as folder:
        writer = _GroupedWriter(folder, single_file_per_rank=True, sync_files=False)
        try:
            with warnings.catch_warnings():  # saving from one process is intended
                warnings.filterwarnings("ignore", message="torch.distributed is disabled")
                torch_dcp.save(state, storage_writer=writer, planner=_Planner(sources), no_dist=True)
        except torch_dcp.CheckpointException as error:
            failure, _ = error.failures[0]  # of the only rank
            if isinstance(failure, ValueError):
                raise InputError(f"dcp cannot carry this state ({failure}): rename one of the entries") from error
            raise (disk_error(failure) or failure) from error
        write_files({**content.files, **beside}, folder)


class _Planner(torch_dcp.DefaultSavePlanner):  # type: ignore[misc]
    """Planner that loads each tensor only when it is written; the planned state has shapes only."""

    def __init__(self, sources: Mapping[str, PieceSource]):
        super().__init__()
        self._sources = sources

    def lookup_object(self, index: Any) -> Any:
        value = super().lookup_object(index)
        return to_torch(self._sources[index.fqn]) if isinstance(value, torch.Tensor) else value


class _GroupedWriter(torch_dcp.FileSystemWriter):  # type: ignore[misc]
    """Writer of files of at most `_FILE` bytes, one after another, without time or place in the metadata."""

    def write_data(self, plan: Any, planner: Any) -> Future[list[Any]]:
        results: list[Any] = []
        for number, items in enumerate(_groups(plan.items)):
            prefix = dataclasses.replace(plan.storage_data, prefix=f"{plan.storage_data.prefix}{number}_")
            part = dataclasses.replace(plan, items=items, storage_data=prefix)
            results += super().write_data(part, planner).wait()
            return_free_memory()
        done: Future[list[Any]] = Future()
        done.set_result(results)
        return done

    def storage_meta(self) -> Any:
        return torch_dcp.metadata.StorageMeta()


def _groups(items: list[Any]) -> Iterator[list[Any]]:
    group: list[Any] = []
    size = 0
    for item in items:
        data = item.tensor_data
        length = 0 if data is None else data.size.numel() * data.properties.dtype.itemsize
        if group and size + length > _FILE:
            yield group
            group, size = [], 0
        group.append(item)
        size += length
    yield group


def _as_written(
    path: Path, metadata: Metadata, tensors: Mapping[str, PieceSource], files: Mapping[str, PieceSource]
) -> Content:
    """The content that `write` was given: tree from our file, tensors from DCP's."""
    try:
        described = user_json((path / _STATE).read_bytes(), path / _STATE)
        kind, tree, ties, origin = (described[key] for key in ("kind", "tree", "ties", "origin"))
        if tree is None:
            flat = {split(name)[0]: source for name, source in tensors.items() if name not in ties}
            return Content(flat, kind, None, {split(a)[0]: split(b)[0] for a, b in ties.items()}, files, origin)
        names = [name for name in tensor_names(tree) if name not in ties]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path / _STATE} is damaged ({error}): remove it to read the checkpoint without") from error
    available = dict(tensors)
    if not available.keys() >= set(names):
        available |= _in_values(path, metadata)
    missing = [name for name in names if name not in available]
    if missing:
        raise InputError(
            f"{path / _STATE} names tensors that the checkpoint has not: {listed(missing)}; remove it to read the "
            "checkpoint without"
        )
    return Content({name: available[name] for name in names}, kind, tree, ties, files, origin)


def _in_values(path: Path, metadata: Metadata) -> dict[str, PieceSource]:
    """The tensors inside DCP's other values, such as tuples."""
    tensors: dict[str, PieceSource] = {}
    for name, place in metadata.values.items():
        inside, _, _ = flatten(_load(path, *place, name))
        tensors |= {f"{join(_keys(metadata, name))}/{place}": live(tensor, place) for place, tensor in inside.items()}
    return tensors


def _keys(metadata: Metadata, name: str) -> tuple[str, ...]:
    return tuple(str(key) for key in metadata.paths.get(name, (name,)))


def _nested(leaves: Mapping[tuple[str | int, ...], Any]) -> Any:
    """Dictionaries and lists from leaves and their keys; gaps in a list (empty parts) are None."""
    if () in leaves:
        return leaves[()]
    parts: dict[str | int, dict[tuple[str | int, ...], Any]] = {}
    for keys, leaf in leaves.items():
        parts.setdefault(keys[0], {})[keys[1:]] = leaf
    if parts and all(isinstance(key, int) for key in parts):
        length = 1 + max(key for key in parts if isinstance(key, int))
        return [_nested(parts[index]) if index in parts else None for index in range(length)]
    return {key: _nested(part) for key, part in parts.items()}


def _below_tuples(tree: Any) -> list[str]:
    [(kind, value)] = tree.items()
    if kind == "tuple":
        return tensor_names(tree)
    if kind == "state_dict":
        return _below_tuples(value["items"])
    if kind in ("dict", "odict"):
        return [name for _, child in value for name in _below_tuples(child)]
    return [name for child in value for name in _below_tuples(child)] if kind == "list" else []


def _chunked(path: Path, name: str, stored: StoredTensor) -> Chunked:
    return Chunked(path, name, stored, of_torch(torch.empty(0, dtype=stored.dtype), name).dtype, stored.shape)


def _load(folder: Path, file: str, start: int, length: int, name: str) -> Any:
    with (folder / file).open("rb") as stream:
        stream.seek(start)
        return pytorch.load_stream(io.BytesIO(stream.read(length)), f"{folder / file} ({name})")

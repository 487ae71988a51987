"""The `.metadata` file of torch.distributed.checkpoint, unpickled into inert records only.

DCP defines this file as a pickle and torch offers no other way to read it: its own reader calls `pickle.load`, which
runs whatever the file says. Here an unpickler knows the names of DCP's metadata classes only, and creates an inert
record for each; any other name is an error.
"""

import math
import pickle
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch

from capibara_assets.errors import InputError

NAME = ".metadata"
_DAMAGE = (pickle.UnpicklingError, EOFError, ValueError, KeyError, IndexError, TypeError, AttributeError, ImportError)


@dataclass(frozen=True)
class Chunk:
    """One chunk of a tensor, a box of its elements, and the place of its bytes (torch.save's, in a `.distcp` file).

    Attributes:
        offsets: first index of the box in each dimension.
        sizes: of the box in each dimension.
        file, start, length: file and range of bytes.
    """

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str
    start: int
    length: int


@dataclass(frozen=True)
class StoredTensor:
    """A tensor's type and shape, and the chunks that together cover it."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True)
class Metadata:
    """Content of a checkpoint's `.metadata`.

    Attributes:
        tensors: DCP's name -> tensor.
        values: DCP's name -> (file, start, length) of any other value, as torch.save wrote it.
        paths: DCP's name -> its keys in the nested state; empty where it was saved flat.
    """

    tensors: Mapping[str, StoredTensor]
    values: Mapping[str, tuple[str, int, int]]
    paths: Mapping[str, tuple[str | int, ...]]


def read_metadata(folder: Path) -> Metadata:
    """Read and check `.metadata`.

    Raises:
        InputError: it is missing, damaged, names a class that is not DCP's, or a tensor's chunks overlap or do not
            cover it; it names the tensor.
    """
    path = folder / NAME
    if not path.is_file():
        raise InputError(f"{path} is missing: {folder} is no finished checkpoint of torch.distributed.checkpoint")
    try:
        with path.open("rb") as file:
            document = _Restricted(file, path).load()
        return _metadata(document, path)
    except _DAMAGE as error:
        raise InputError(f"{path} is damaged or of a torch that this one does not know ({error})") from error


class _InertRecord:
    """Stand-in for an object of DCP: its fields, without behaviour."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.fields = state


class _TensorMetadata(_InertRecord): ...


class _BytesMetadata(_InertRecord): ...


_RECORDS: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "torch.distributed.checkpoint.metadata": {
        "TensorStorageMetadata": _TensorMetadata,
        "BytesStorageMetadata": _BytesMetadata,
        **dict.fromkeys(
            ("Metadata", "MetadataIndex", "ChunkStorageMetadata", "TensorProperties", "StorageMeta"), _InertRecord
        ),
        "_MEM_FORMAT_ENCODING": _InertRecord,
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo": _InertRecord},
    "torch.serialization": {"_get_layout": _InertRecord},
    "torch": {"Size": tuple},
    "collections": {"OrderedDict": OrderedDict},
    "pathlib": dict.fromkeys(("PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath", "Path"), _InertRecord),
}


class _Restricted(pickle.Unpickler):
    """Unpickler that creates `_InertRecord`s for DCP's classes and refuses all others."""

    def __init__(self, file: IO[bytes], path: Path):
        super().__init__(file)
        self._path = path

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and isinstance(dtype := getattr(torch, name, None), torch.dtype):
            return dtype
        try:
            return _RECORDS[module][name]
        except KeyError:
            raise InputError(
                f"{self._path} names {module}.{name}, which is no part of a checkpoint's metadata: nothing is unpickled"
            ) from None


def _metadata(document: _InertRecord, path: Path) -> Metadata:
    fields = document.fields
    places: dict[str, dict[tuple[int, ...] | None, tuple[str, int, int]]] = {}
    for index, info in fields["storage_data"].items():
        name, offset = index.fields["fqn"], index.fields.get("offset")
        where = info.fields
        if where.get("transform_descriptors"):
            raise InputError(
                f"{path}: {name} was saved through {', '.join(where['transform_descriptors'])}: load it with the "
                "program that wrote it and save it without"
            )
        places.setdefault(name, {})[None if offset is None else tuple(offset)] = _place(path, where)
    tensors: dict[str, StoredTensor] = {}
    values: dict[str, tuple[str, int, int]] = {}
    for name, stored in fields["state_dict_metadata"].items():
        if isinstance(stored, _TensorMetadata):
            tensors[name] = _tensor(name, stored.fields, places[name], path)
        elif isinstance(stored, _BytesMetadata):
            [values[name]] = places[name].values()
        else:
            raise InputError(f"{path}: {name} is neither a tensor nor a value")
    return Metadata(tensors, values, {name: tuple(keys) for name, keys in (fields.get("planner_data") or {}).items()})


def _place(path: Path, where: Mapping[str, Any]) -> tuple[str, int, int]:
    file, start, length = where["relative_path"], where["offset"], where["length"]
    if Path(file).is_absolute() or ".." in Path(file).parts:
        raise InputError(f"{path} names the file {file!r}, which lies outside of its folder")
    if not (path.parent / file).is_file():
        raise InputError(f"{path.parent / file} is missing, though {path} names it: copy the whole checkpoint")
    size = (path.parent / file).stat().st_size
    if not 0 <= start <= start + length <= size:
        raise InputError(
            f"{path} is damaged: it places {length:,} bytes at {start:,} of {file}, which has {size:,}: copy the whole "
            "checkpoint"
        )
    return str(file), int(start), int(length)


def _tensor(
    name: str, fields: Mapping[str, Any], places: Mapping[tuple[int, ...] | None, tuple[str, int, int]], path: Path
) -> StoredTensor:
    shape = tuple(fields["size"])
    chunks = []
    for box in fields["chunks"]:
        offsets, sizes = tuple(box.fields["offsets"]), tuple(box.fields["sizes"])
        if any(begin + length > whole for begin, length, whole in zip(offsets, sizes, shape, strict=True)):
            raise InputError(f"{path}: a part of {name} lies outside of its shape {list(shape)}")
        if offsets not in places:
            raise InputError(f"{path}: the part of {name} at {list(offsets)} is in no file")
        chunks.append(Chunk(offsets, sizes, *places[offsets]))
    # disjoint boxes within the shape whose volumes add up to it leave nothing out
    for number, one in enumerate(chunks):
        for other in chunks[:number]:
            if _overlap(one, other):
                raise InputError(
                    f"{path}: the parts of {name} at {list(one.offsets)} and {list(other.offsets)} overlap"
                )
    volume = sum(math.prod(chunk.sizes) for chunk in chunks)
    if volume != math.prod(shape):
        raise InputError(f"{path}: the parts of {name} are {volume} numbers, its shape {list(shape)} has others")
    return StoredTensor(fields["properties"].fields[0], shape, tuple(chunks))


def _overlap(one: Chunk, other: Chunk) -> bool:
    return all(
        max(a, b) < min(a + m, b + n)
        for a, m, b, n in zip(one.offsets, one.sizes, other.offsets, other.sizes, strict=True)
    )

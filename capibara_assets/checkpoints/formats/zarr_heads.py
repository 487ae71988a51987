"""What arrays in zarr state of themselves (`.zarray`, `zarr.json`), against the chunks that lie beside it.

TensorStore reads a head that states a thing twice, and chunks beyond an array's shape are nothing to it: rows would be
missing without a word.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.storage.foreign import read_document
from capibara_assets.storage.jsonfiles import foreign_object, is_whole

HEADS = (".zarray", "zarr.json")
_CHUNK = re.compile(r"(?:c[./])?(\d+(?:[./]\d+)*)")


@dataclass
class StoredArray:
    """The head of an array as it lies in a store, and the names of its chunks there."""

    head: bytes = b""
    chunks: list[str] = field(default_factory=list)


def in_folders(folder: Path) -> dict[str, StoredArray]:
    """The arrays in the folders right below one, by their names."""
    found: dict[str, StoredArray] = {}
    for head in (path for name in HEADS for path in folder.glob(f"*/{name}")):
        within = (path for path in head.parent.rglob("*") if path.name not in HEADS and not path.is_dir())
        chunks = [path.relative_to(head.parent).as_posix() for path in within]
        found[head.parent.name] = StoredArray(read_document(head), chunks)
    return found


def in_database(folder: Path) -> dict[str, StoredArray]:
    """The arrays in an OCDBT database, by their names. Raises InputError: it cannot be listed."""
    import tensorstore as ts

    base = {"driver": "file", "path": f"{folder.absolute()}/"}
    found: dict[str, StoredArray] = {}
    try:
        store = ts.KvStore.open({"driver": "ocdbt", "base": base}).result()
        keys = [key.decode("utf-8", "replace") for key in store.list().result()]
        for key in keys:
            name, _, last = key.rpartition("/")
            if last in HEADS:
                found[name] = StoredArray(bytes(store.read(key).result().value))
    except ValueError as error:
        reason = " ".join(str(error).partition("[tensorstore_spec")[0].split())
        raise InputError(f"{folder}: its arrays cannot be listed: {reason}") from error
    names = sorted(found, key=len, reverse=True)
    for key in keys:
        array = next((name for name in names if key.startswith(f"{name}/")), None)
        if array is not None and key.rpartition("/")[2] not in HEADS:
            found[array].chunks.append(key[len(array) + 1 :])
    return found


def require_fitting(array: StoredArray, where: str, written: Any = None) -> dict[str, Any]:
    """An array's head. One that is ambiguous, or leaves out chunks or rows that were written, is refused.

    Args:
        where: the array, for messages.
        written: the shape that an index says was written at once; None: it says none.

    Raises:
        InputError: what does not fit.
    """
    head = foreign_object(array.head, where)
    shape: Any = head.get("shape")
    if not _is_shape(shape):
        raise InputError(f"{where} states the shape {str(shape)[:80]}: no array has one like that")
    if _is_shape(written) and (len(written) != len(shape) or any(a > b for a, b in zip(written, shape, strict=True))):
        raise InputError(f"{where} states the shape {shape}, and {list(written)} was written: it was changed")
    if beyond := _beyond(array.chunks, shape, _parts(head)):
        raise InputError(f"{where} holds the chunk {beyond}, which lies beyond its shape {shape}: it was changed")
    return head


def _parts(head: Mapping[str, Any]) -> Any:
    grid = head.get("chunk_grid")
    configuration = grid.get("configuration") if isinstance(grid, dict) else None
    return configuration.get("chunk_shape") if isinstance(configuration, dict) else head.get("chunks")


def _is_shape(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(is_whole(length) for length in value)


def _beyond(chunks: Iterable[str], shape: Sequence[int], parts: Any) -> str | None:
    """The first chunk that lies beyond a shape; None where none does, or the chunks are not known."""
    if not _is_shape(parts) or len(parts) != len(shape) or not shape or 0 in parts:
        return None
    most = [-(-length // part) for length, part in zip(shape, parts, strict=True)]
    for name in sorted(chunks):
        places = [int(place[:20]) for place in re.split(r"[./]", told[1])] if (told := _CHUNK.fullmatch(name)) else []
        if len(places) == len(most) and any(place >= count for place, count in zip(places, most, strict=True)):
            return name
    return None

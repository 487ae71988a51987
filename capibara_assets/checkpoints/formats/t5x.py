"""T5X checkpoints: a msgpack index, `checkpoint`, and a zarr folder beside it for each array.

The index is `{version: 3, optimizer: {state: {step, param_states}, target}}`; an array in zarr is represented by a
TensorStore spec whose path is its folder, `target.decoder.layers_0.mlp.wo.kernel`. Paths may be of another bucket or
machine: only their last part counts. Source: t5x/checkpoints.py, version 3 (since June 2021).
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from capibara_assets.checkpoints.content import (
    DTYPES,
    Content,
    PieceSource,
    itemsize,
    numpy_dtype,
    of_numpy,
)
from capibara_assets.checkpoints.formats import flax_msgpack, zarr
from capibara_assets.checkpoints.formats.beside import read_files, write_files
from capibara_assets.checkpoints.formats.flax_msgpack import Inline
from capibara_assets.checkpoints.formats.limits import listed
from capibara_assets.checkpoints.formats.nested import nest, unnest
from capibara_assets.checkpoints.formats.publish import new_folder
from capibara_assets.checkpoints.formats.zarr_heads import StoredArray, require_fitting
from capibara_assets.checkpoints.tree import join
from capibara_assets.errors import InputError, named
from capibara_assets.storage.foreign import read_document

INDEX = "checkpoint"
NOTE = "capibara"
"""Key of our note in the index, beside `version` and `optimizer`, the only keys that T5X reads."""

_OF_PATHS = frozenset("/\\\0")
"""What no key may hold: an array's folder is named after it, and tensorstore takes a backslash for a slash."""
_KINDS = frozenset({"dict", "odict", "list", "value", "float", "bytes", "tensor", "parameter"})
_PARTS = frozenset({"target", "state", "flax_mutables"})
_NAMES = {numpy_dtype(name).name: name for name in DTYPES}
#: Of a TensorStore spec, what leaves an array as its folder has it; a `transform` or another `metadata_key` does not.
_OF_SPEC = frozenset(
    ("driver", "kvstore", "metadata", "dtype", "path", "rank", "open", "create", "delete_existing", "assume_metadata",
     "fill_missing_data_reads", "store_data_equal_to_fill_value", "recheck_cached_data", "recheck_cached_metadata",
     "recheck_cached", "cache_pool", "data_copy_concurrency", "context")
)  # fmt: skip
_FIRST = re.compile(rb"[\x80-\x8f](?:\xa7version|\xa9optimizer)")  # a msgpack map of few keys, and its first one
_STEP = re.compile(r"checkpoint_(\d+)")


def detect(path: Path) -> bool:
    """Whether it is a T5X checkpoint: its folder, an index file, or a model directory with `checkpoint_<step>`."""
    for index in _indexes(path):
        with index.open("rb") as file:
            if _FIRST.match(file.read(16)):
                return True
    return False


def read(path: Path) -> Content:
    """Read one checkpoint: step, optimizer state and target, under paths such as `target/decoder/...`.

    Args:
        path: `checkpoint_<step>/`, a model directory that has one of these, or an index file.

    Raises:
        InputError: not a T5X checkpoint, or one of version 1 or with arrays of an unknown type; an array's folder is
            missing, or differs from the index.
    """
    index = _index(path)
    state = flax_msgpack.read(index)
    version = state.get("version") if isinstance(state, dict) else None
    if version not in (2, 3) or not isinstance(state.get("optimizer"), dict):
        raise InputError(
            f"{index} has version {version!r}: checkpoints of version 2 and 3 can be read; load and save others with "
            "T5X itself, or, if it is Orbax's, read it as orbax"
        )
    folders: set[str] = set()
    inline: list[str] = []
    scalars: list[str] = []
    nested = _resolve(state["optimizer"], (), index.parent, folders, inline, scalars)
    if version == 2 and (old := list(_halves(nested, ()))):
        raise InputError(
            f"{index} is of version 2, in which a bfloat16 in zarr is called uint16, as {listed(old)} are: load it "
            "with T5X and save it again"
        )
    note = json.loads(state[NOTE]) if NOTE in state else {}
    if note.get("under") == "target":
        nested = nested["target"]
    origin = {"format": "t5x", "version": version, "inline": inline, "scalars": scalars}
    files = {} if path == index else _files(index.parent, folders)
    if note.get("complete"):
        nested = _complete(nested)
    return unnest(nested, note, origin, files)


def write(content: Content, path: Path) -> None:
    """Write a checkpoint folder that T5X's own `Checkpointer` restores.

    A T5X state (`target`, `state`) is written unchanged. Any other state becomes the target, its flat names split at
    their dots, at step 0 and without optimizer state.

    Raises:
        InputError: `path` exists; entries that msgpack, zarr or T5X cannot hold: it names them.
    """
    nested, note = nest(content, "t5x", _KINDS, _refuse)
    note["complete"] = True  # every chunk is written: a missing one is damage, not zeros
    if not (isinstance(nested, dict) and "target" in nested and nested.keys() <= _PARTS):
        note["under"] = "target"
        step = Inline(of_numpy(np.asarray(0, np.int32)))
        nested = {"state": {"step": step}, "target": nested}
    known = content.origin if content.origin.get("format") == "t5x" else {}
    with new_folder(path) as folder:
        arrays: dict[str, PieceSource] = {}
        optimizer = _place(nested, (), arrays, set(known.get("inline", ())), set(known.get("scalars", ())))
        clashing = sorted({INDEX, *arrays} & {name.partition("/")[0] for name in content.files})
        if clashing:
            raise InputError(f"the checkpoint has files called {listed(clashing)}, as T5X calls its own: rename them")
        for name, source in arrays.items():
            spec = _spec(source, name)
            zarr.write({**spec, "kvstore": {"driver": "file", "path": f"{folder / name}/"}}, source)
        write_files(content.files, folder)
        with (folder / INDEX).open("wb") as file:
            flax_msgpack.write({"version": 3, "optimizer": optimizer, NOTE: json.dumps(note)}, file)


def _refuse(keys: tuple[str, ...], leaf: Any) -> str | None:
    if any(not key or not _OF_PATHS.isdisjoint(key) for key in keys):
        return "a key that is empty, or has a / or \\ in it"
    if type(leaf) is int and not -(1 << 63) <= leaf < 1 << 64:
        return "an integer beyond 64 bits"
    return None


def _indexes(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if (path / INDEX).is_file():
        return [path / INDEX]
    if not path.is_dir():
        return []
    steps = {int(match[1]): child for child in path.iterdir() if (match := _STEP.fullmatch(child.name))}
    indexes = [child / INDEX if child.is_dir() else child for _, child in sorted(steps.items())]
    return [index for index in indexes if index.is_file()]


def _index(path: Path) -> Path:
    indexes = _indexes(path)
    if not indexes:
        raise InputError(f"{path} is no checkpoint of T5X: there is no file {INDEX!r} in it")
    if len(indexes) > 1:
        steps = ", ".join(index.parent.name if index.name == INDEX else index.name for index in indexes)
        raise InputError(f"{path} has several checkpoints: name one of {steps}")
    return indexes[0]


def _resolve(
    node: Any, keys: tuple[str, ...], folder: Path, folders: set[str], inline: list[str], scalars: list[str]
) -> Any:
    """The state with a source for every array; arrays of TensorStore specs are in `folder`."""
    if isinstance(node, Inline):
        inline.append(join(keys))
        if node.scalar:
            scalars.append(join(keys))
        return node.source
    if isinstance(node, dict) and node.keys() >= {"driver", "kvstore", "metadata"}:
        source = _open(node, keys, folder)
        folders.add(Path(source.where).name)
        return source
    if isinstance(node, dict):
        return {
            key: _resolve(child, (*keys, str(key)), folder, folders, inline, scalars) for key, child in node.items()
        }
    if isinstance(node, list):
        return [
            _resolve(child, (*keys, str(index)), folder, folders, inline, scalars) for index, child in enumerate(node)
        ]
    return node


def _open(spec: Any, keys: tuple[str, ...], folder: Path) -> zarr.InZarr:
    """The array of a spec in the index: its type and shape, in the folder here with the last part of its path."""
    others = spec.keys() - _OF_SPEC
    if others or (spec["kvstore"].get("path") and spec.get("path")):
        raise InputError(
            f"{folder / INDEX} opens {named('/'.join(keys))} with {listed(sorted(map(str, others)) or ['two paths'])}, "
            "which changes what its folder holds: T5X writes none; save the array as it is"
        )
    path = str(spec["kvstore"].get("path") or spec.get("path") or "")
    name = path.rstrip("/").rpartition("/")[2]
    if spec["driver"] != "zarr" or name in ("", ".", ".."):
        raise InputError(f"{'/'.join(keys)} lies in {spec['driver']} at {path!r}: T5X keeps arrays in zarr folders")
    here = folder / name
    try:
        array = StoredArray(read_document(here / ".zarray"), [path.name for path in here.iterdir()])
        metadata = require_fitting(array, str(here))
    except (InputError, FileNotFoundError) as error:
        raise InputError(f"{here} should hold {named('/'.join(keys))}: {error}") from error
    dtype, shape = _dtype(metadata["dtype"]), tuple(metadata["shape"])
    if dtype is None:
        raise InputError(f"{here} is an array of {metadata['dtype']}, which has no place in a checkpoint here")
    stated = spec.get("dtype", numpy_dtype(dtype).name)
    if shape != tuple(spec["metadata"]["shape"]) or stated != numpy_dtype(dtype).name:
        raise InputError(
            f"{here} holds {numpy_dtype(dtype).name}{list(shape)}, the index says {stated}"
            f"{list(spec['metadata']['shape'])}"
        )
    read = {"driver": "zarr", "kvstore": {"driver": "file", "path": f"{here}/"}}
    return zarr.InZarr(read, str(here), dtype, shape)


def _dtype(stored: str) -> str | None:
    """Our name of a zarr type in numpy's spelling (`<f4`) or ml_dtypes' (`bfloat16`); None where unknown."""
    if stored in _NAMES:
        return _NAMES[stored]
    try:
        return _NAMES.get(np.dtype(stored).name)
    except TypeError:
        return None


def _halves(node: Any, keys: tuple[str, ...]) -> Iterator[str]:
    """Paths of the uint16 arrays in zarr."""
    if isinstance(node, dict):
        for key, child in node.items():
            yield from _halves(child, (*keys, str(key)))
    elif isinstance(node, zarr.InZarr) and node.dtype == "U16":
        yield join(keys)


def _complete(node: Any) -> Any:
    """The state with arrays in which a missing chunk is an error, not a block of zeros."""
    if isinstance(node, zarr.InZarr):
        return zarr.InZarr({**node.spec, "fill_missing_data_reads": False}, node.where, node.dtype, node.shape)
    if isinstance(node, dict):
        return {key: _complete(child) for key, child in node.items()}
    return [_complete(child) for child in node] if isinstance(node, list) else node


def _files(folder: Path, arrays: set[str]) -> dict[str, PieceSource]:
    """Other files beside the index: the iterator's state (`train_ds-...`), or a model's config."""
    return {
        name: source for name, source in read_files(folder, [INDEX]).items() if name.partition("/")[0] not in arrays
    }


def _place(
    node: Any,
    keys: tuple[str, ...],
    arrays: dict[str, PieceSource],
    inline: set[str],
    scalars: set[str],
    listed: bool = False,
) -> Any:
    """The index; arrays are moved to folders unless T5X had them in the index or cannot read them from a folder."""
    if isinstance(node, dict):
        return {key: _place(child, (*keys, key), arrays, inline, scalars, listed) for key, child in node.items()}
    if isinstance(node, list):
        return [_place(child, (*keys, str(i)), arrays, inline, scalars, True) for i, child in enumerate(node)]
    if isinstance(node, Inline) or node is None or isinstance(node, bool | int | float | str | bytes):
        return node
    path, name = join(keys), ".".join(keys)
    # T5X reads every uint16 in zarr as a bfloat16 of version 2, zarr has no empty chunks, and a list is one leaf
    if listed or not node.shape or 0 in node.shape or node.dtype == "U16" or path in inline:
        return Inline(node, scalar=path in scalars and not node.shape)
    if name in arrays:
        raise InputError(f"two arrays would lie in the folder {name}: a key has a point in it")
    arrays[name] = node
    return _spec(node, name)


def _spec(source: PieceSource, name: str) -> dict[str, Any]:
    """The TensorStore spec of an array's folder in the index, with a relative path."""
    chunks = zarr.chunk_shape(source.shape, itemsize(source.dtype), zarr.CHUNK)
    return {
        "driver": "zarr",
        "dtype": numpy_dtype(source.dtype).name,
        "kvstore": {"driver": "file", "path": f"{name}/"},
        "metadata": {
            "chunks": list(chunks),
            "compressor": {"id": "gzip", "level": 1},
            "shape": list(source.shape),
        },
    }

"""Orbax checkpoints: nested state in TensorStore (OCDBT or plain zarr), with every leaf named in `_METADATA`.

Orbax itself reads the tree and writes the folder; tensors are streamed past it in pieces, so that memory never holds a
whole checkpoint.
Source: orbax-checkpoint 0.12, `PyTreeCheckpointHandler`; its docs, "Checkpoint format guide".
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from capibara_assets.checkpoints.content import DTYPES, Content, numpy_dtype, to_numpy
from capibara_assets.checkpoints.formats import zarr, zarr_heads
from capibara_assets.checkpoints.formats.beside import read_files, write_files
from capibara_assets.checkpoints.formats.limits import listed
from capibara_assets.checkpoints.formats.nested import nest, unnest
from capibara_assets.checkpoints.formats.publish import new_folder
from capibara_assets.checkpoints.tree import join
from capibara_assets.errors import InputError
from capibara_assets.storage.jsonfiles import read_foreign_object

NOTE = "capibara"
"""Key of our note in Orbax's `custom_metadata`."""

_KINDS = frozenset({"dict", "odict", "list", "tuple", "value", "float", "tensor", "parameter", "frozen"})
_ARRAYS = ("jax.Array", "np.ndarray", "scalar")  # types of leaves that Orbax stores in zarr
_METADATA, _STRINGS = "_METADATA", "_strings.json"
_OWN = re.compile(
    r"(_METADATA|_CHECKPOINT_METADATA|_sharding|_strings\.json|commit_success\.txt|manifest\.ocdbt|descriptor"
    r"|array_metadatas|d|ocdbt\.process_.*|ocdbt_data|ocdbt_meta)(/.*)?"
)
_STEP = re.compile(r"(?:.*_)?(\d+)")
_NAMES = {numpy_dtype(name): name for name in DTYPES}


def detect(path: Path) -> bool:
    """Whether it is an Orbax checkpoint: an item with `_METADATA`, a step of items, or a manager's folder of steps."""
    return path.is_dir() and bool(_items(path) or any(_items(step) for step in _steps(path)))


def read(path: Path) -> Content:
    """Read one checkpoint as numpy values, saved from any devices and sharding.

    A single item (`default`, or the folder itself) is read as its own tree; several items of a step as one tree with
    an entry for each. Other files of the folder, such as a step's metrics, become files of the content.

    Args:
        path: an item's folder, a step's, or a `CheckpointManager`'s with one step in it.

    Raises:
        InputError: not an Orbax checkpoint, several steps, or a leaf that a content cannot hold; it names it.
    """
    step = _step(path)
    items = _items(step)
    trees: dict[str, Any] = {}
    notes: dict[str, Any] = {}
    custom: dict[str, Any] = {}
    scalars: list[str] = []
    own: set[str] = set()
    for name, folder in items.items():
        keys = (name,) if len(items) > 1 else ()
        ocdbt = (folder / "manifest.ocdbt").is_file()
        stored = zarr_heads.in_database(folder) if ocdbt else zarr_heads.in_folders(folder)
        _require_fitting(folder, stored)
        trees[name], metadata = _tree(folder, keys, scalars)
        custom[name] = {key: value for key, value in metadata.items() if key != NOTE}
        notes[name] = json.loads(metadata[NOTE]) if NOTE in metadata else {}
        arrays = {".".join(leaf) for leaf, value in _walk(trees[name], ()) if not isinstance(value, str | type(None))}
        if unnamed := sorted(stored.keys() - arrays):
            raise InputError(
                f"{folder}: its {_METADATA} does not name {listed(unnamed)}, which it stores: it was changed"
            )
        prefix = "" if folder == step else f"{folder.relative_to(step).as_posix()}/"
        own |= {f"{prefix}{file}" for file in read_files(folder, []) if _is_own(file, arrays)}
    files = {
        name: source
        for name, source in read_files(step, own).items()
        if not _OWN.fullmatch(name) and not name.endswith("/commit_success.txt")
    }
    origin: dict[str, Any] = {"format": "orbax", "scalars": scalars}
    if len(items) > 1:
        if ours := [name for name, note in notes.items() if note]:
            raise InputError(f"{step} has several items, {listed(ours)} written here: read each folder by itself")
        return unnest(trees, {}, origin | {"items": {name: custom[name] for name in sorted(items)}}, files)
    [name] = items
    if custom[name]:
        origin["custom_metadata"] = custom[name]
    return unnest(trees[name], notes[name], origin, files)


def write(content: Content, path: Path) -> None:
    """Write an item's folder (OCDBT) that Orbax's `StandardCheckpointer` and `PyTreeCheckpointer` restore.

    Flat names are split at their dots. Tied tensors are stored under each of their names: JAX has no ties.

    Raises:
        InputError: `path` exists; entries that Orbax cannot hold (empty tensors, keys that are no text, other
            objects): it names them.
    """
    state, note = nest(content, "orbax", _KINDS, _refuse)
    if not state or not isinstance(state, dict | list):
        raise InputError("Orbax cannot write a checkpoint with nothing in it, or of a single value")
    _check_names(state)
    own = content.origin.get("custom_metadata", {}) if content.origin.get("format") == "orbax" else {}
    scalars = set(content.origin.get("scalars", ())) if content.origin.get("format") == "orbax" else set()
    if clashing := [name for name in content.files if _OWN.fullmatch(name)]:
        raise InputError(f"the checkpoint has files called {listed(clashing)}, as Orbax calls its own: rename them")
    custom = {**own, NOTE: json.dumps(note)} if note else own
    from capibara_assets.checkpoints.formats import orbax_saving  # the library of the extra `tpu`

    with new_folder(path) as folder:
        orbax_saving.save(folder, state, scalars, custom or None)
        write_files(content.files, folder)


def _refuse(keys: tuple[str, ...], leaf: Any) -> str | None:
    if any(not key or "/" in key or "\0" in key for key in keys):
        return "a key that is empty or has a / in it"
    if isinstance(leaf, str) and any("~" in key for key in keys):
        return "a text under a key with a ~ in it"
    if type(leaf) is int and not -(1 << 63) <= leaf < 1 << 63:
        return "an integer beyond 64 bits"
    shape = getattr(leaf, "shape", None)
    return "a tensor without elements" if shape is not None and 0 in shape else None


def _check_names(state: Any) -> None:
    """Raises InputError where Orbax, which joins keys by dots, would store two leaves in one place."""
    seen: dict[str, tuple[str, ...]] = {}
    for keys, _ in _walk(state, ()):
        name = ".".join(keys)
        if name in seen:
            raise InputError(f"Orbax would store {join(seen[name])} and {join(keys)} in one place, {name}: rename one")
        seen[name] = keys


def _walk(node: Any, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(node, dict | list | tuple) and node:
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            yield from _walk(child, (*keys, str(key)))
    else:
        yield keys, node


def _step(path: Path) -> Path:
    if not path.is_dir():
        raise InputError(f"{path} is no folder: a checkpoint of Orbax is one")
    if _items(path):
        return path
    steps = [step for step in _steps(path) if _items(step)]
    if len(steps) == 1:
        return steps[0]
    if steps:
        raise InputError(f"{path} has several steps: name one of {', '.join(step.name for step in steps)}")
    raise InputError(
        f"{path} is no checkpoint of Orbax: no {_METADATA} in it, in its items or in its steps (before Orbax 0.5 there "
        "was none: load and save it with Orbax first)"
    )


def _items(path: Path) -> dict[str, Path]:
    """Name -> folder of the items of a step; {"": path} where the folder itself is an item."""
    if (path / _METADATA).is_file():
        return {"": path}
    folders = sorted(child for child in path.iterdir() if child.is_dir()) if path.is_dir() else []
    return {child.name: child for child in folders if (child / _METADATA).is_file() and not _STEP.fullmatch(child.name)}


def _steps(path: Path) -> list[Path]:
    """Folders of a manager's steps, in ascending order."""
    steps = [child for child in path.iterdir() if child.is_dir() and _STEP.fullmatch(child.name)]
    return sorted(steps, key=lambda child: int(_STEP.fullmatch(child.name)[1]))  # type: ignore[index]


def _require_fitting(folder: Path, stored: Mapping[str, zarr_heads.StoredArray]) -> None:
    """Refuse arrays that are missing, or whose heads leave out what lies beside them or was written by the index.

    Orbax notices a missing one, too, and then may print errors of its threads as it ends.
    """
    leaves = read_foreign_object(folder / _METADATA).get("tree_metadata")
    written: dict[str, Any] = {}
    missing: list[str] = []
    for leaf in leaves.values() if isinstance(leaves, dict) else ():
        keys = leaf.get("key_metadata") if isinstance(leaf, dict) else None
        value = leaf.get("value_metadata") if isinstance(leaf, dict) else None
        if isinstance(keys, list) and isinstance(value, dict) and all(isinstance(key, dict) for key in keys):
            name = ".".join(str(key.get("key")) for key in keys)
            written[name] = value.get("write_shape")
            missing += [name] * (value.get("value_type") in _ARRAYS and name not in stored)
    if missing:
        raise InputError(f"{folder}: its {_METADATA} and its arrays do not fit: {listed(missing)} is not stored")
    for name, array in stored.items():
        zarr_heads.require_fitting(array, f"{folder}/{name}", written.get(name))


def _tree(folder: Path, keys: tuple[str, ...], scalars: list[str]) -> tuple[Any, Mapping[str, Any]]:
    """(state with sources as leaves, custom metadata) of an item's folder."""
    import orbax.checkpoint as ocp

    from capibara_assets.checkpoints.formats.orbax_saving import quiet

    stored = read_foreign_object(folder / _METADATA)
    try:
        with quiet():
            metadata = ocp.PyTreeCheckpointHandler().metadata(folder.absolute())
    except (ValueError, KeyError) as error:
        reason = str(error).partition("[tensorstore_spec")[0].strip()
        raise InputError(f"{folder}: its {_METADATA} and its arrays do not fit: {reason}") from error
    strings = read_foreign_object(folder / _STRINGS) if (folder / _STRINGS).is_file() else {}
    ocdbt, zarr3 = (folder / "manifest.ocdbt").is_file(), bool(stored.get("use_zarr3"))

    def build(node: Any, keys: tuple[str, ...]) -> Any:
        if isinstance(node, dict):
            return {key: build(child, (*keys, str(key))) for key, child in node.items()}
        if isinstance(node, list | tuple):
            return type(node)(build(child, (*keys, str(index))) for index, child in enumerate(node))
        if node is None:
            return None
        if isinstance(node, ocp.metadata.StringMetadata):
            value = strings
            for part in node.name.split("/"):
                value = value[part]
            return value
        stated = getattr(node, "dtype", None)
        dtype = _NAMES.get(np.dtype(stated)) if stated is not None else None
        if dtype is None:
            raise InputError(
                f"{folder}: {join(keys)} is of {stated}, which cannot be read: known are {', '.join(DTYPES)}"
            )
        place: dict[str, Any] = {"driver": "file", "path": f"{folder.absolute()}/"}
        if ocdbt:
            place = {"driver": "ocdbt", "base": place, "path": f"{node.name}/"}
        else:
            place["path"] += f"{node.name}/"
        spec: dict[str, Any] = {"driver": "zarr3" if zarr3 else "zarr", "kvstore": place}
        if stored.get("store_array_data_equal_to_fill_value"):
            spec["fill_missing_data_reads"] = False
        source = zarr.InZarr(spec, f"{folder}/{node.name}", dtype, tuple(node.shape or ()))
        if not isinstance(node, ocp.metadata.ScalarMetadata):
            return source
        if dtype in ("BOOL", "I64", "F64"):  # what Python's own numbers are stored as
            return to_numpy(source).item()
        scalars.append(join(keys))
        return source

    return build(metadata.tree, keys), stored.get("custom_metadata") or {}


def _is_own(file: str, arrays: set[str]) -> bool:
    """Whether it is one of Orbax's files, or in plain zarr a file in an array's folder."""
    return bool(_OWN.fullmatch(file)) or any(parent.as_posix() in arrays for parent in PurePosixPath(file).parents)

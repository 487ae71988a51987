"""Transformers models and PEFT adapters: safetensors with JSON configs, whole or in shards."""

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from huggingface_hub import split_state_dict_into_shards_factory

from capibara_assets.checkpoints.content import Content, Kind, PieceSource, nbytes, of_bytes, to_bytes
from capibara_assets.checkpoints.formats import pytorch
from capibara_assets.checkpoints.formats.beside import read_files, write_files
from capibara_assets.checkpoints.formats.limits import listed, refuse
from capibara_assets.checkpoints.formats.nested import flat_names
from capibara_assets.checkpoints.formats.publish import new_file, new_folder
from capibara_assets.checkpoints.formats.safetensors_file import header, layout, read_file, write_file
from capibara_assets.errors import InputError, named
from capibara_assets.modeling.files import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    CONFIG,
    INDEX,
    WEIGHTS,
    require_one_model,
    require_sane_sizes,
    weight_map,
)
from capibara_assets.modeling.heads import architectures
from capibara_assets.storage.jsonfiles import foreign_object

MAX_SHARD_SIZE = "5GB"
"""A shard's size where none is given: huggingface_hub's own limit."""

_SUFFIX = ".safetensors"
_LONGEST, _DEEPEST = 255, 8  # bytes of a file's name, folders of a shard's
_LEGACY = ("pytorch_model.bin", "adapter_model.bin")
_LEGACY_INDEX = "pytorch_model.bin.index.json"
_FORMAT = {"format": "pt"}


def detect(path: Path) -> bool:
    """Whether this is a safetensors file, or a folder with one, or with Transformers' or PEFT's older files."""
    if path.is_file():
        return path.suffix == _SUFFIX
    configured = (path / CONFIG).is_file() or (path / ADAPTER_CONFIG).is_file()
    older = configured and any((path / name).is_file() for name in (*_LEGACY, _LEGACY_INDEX))
    return older or any(path.glob(f"*{_SUFFIX}"))


def read(path: Path) -> Content:
    """Read a folder, or one `.safetensors` file; the tensors stay in their files until they are needed.

    Weights are those that Transformers or PEFT would load; every other file of the folder belongs to the checkpoint
    unchanged (`beside.read_files`). A tensor that the files omit because the model ties it to another stays omitted;
    one that safetensors' convention for shared tensors names in the header's `__metadata__` is a tie. An old
    `pytorch_model.bin` or `adapter_model.bin` is read where there is no safetensors file, and is written as one.

    Raises:
        InputError: no weights, a damaged file, a tensor that is in two shards or not where the index says; it names the
            file and the tensor.
    """
    if path.is_file():
        tensors, ties, origin = _read_weights(path.parent, [path.name], None)
        kind: Kind = "adapter" if any(".lora_" in name for name in tensors) else "model"
        return Content(tensors, kind, ties=ties, origin=origin)
    if not path.is_dir():
        raise InputError(f"{path} does not exist: give a folder in Transformers' format, or a .safetensors file")
    kind = "adapter" if (path / ADAPTER_CONFIG).is_file() else "model"
    weights, index = _weights(path)
    if weights:
        tensors, ties, origin = _read_weights(path, weights, index)
        files = read_files(path, [*weights, index or ""])
        return Content(tensors, kind, ties=ties, files=files, origin=origin)
    weights = _legacy(path)
    if not weights:
        raise InputError(f"no weights in {path}: expected {WEIGHTS}, {ADAPTER_WEIGHTS} or {INDEX} with its shards")
    old, ties = _read_legacy(path, weights)
    files = read_files(path, [*weights, _LEGACY_INDEX])
    return Content(old, kind, ties=ties, files=files, origin={"format": "huggingface"})


def write(content: Content, path: Path, *, max_shard_size: str | int = MAX_SHARD_SIZE) -> None:
    """Write a folder, or one file if `path` ends in `.safetensors`; only one piece of one tensor is in memory.

    A checkpoint that was read in this format and still has the same names, types and shapes gets its own headers and
    shards, so its files have the same bytes. Otherwise headers are those that the safetensors library writes, models
    are cut into shards of at most `max_shard_size`, adapters stay whole. A tied tensor is stored once where the loader
    makes the tie (`implied_ties`), else under each of its names; either way the tie is noted in `__metadata__`.

    Raises:
        InputError: `path` exists; a nested state, values that are no tensors, an element type that safetensors lacks,
            or files beside a single `.safetensors` file: it names what cannot be written.
    """
    tensors, ties = flat_names(content, "huggingface")
    files = dict(content.files)
    sources = dict(tensors) | {name: tensors[target] for name, target in ties.items()}
    single = path.suffix == _SUFFIX
    if single:
        refuse(f"the single file {path.name}", sorted(files), "files", "give a folder's name")
    headers = _kept_headers(content.origin, tensors, ties)
    if headers is not None and content.origin["index"] is not None and not single:
        name, text = content.origin["index"]
        files[name] = of_bytes(text.encode())
    if headers is None or (single and len(headers) > 1):
        whole = single or _is_adapter(content)
        headers = _fresh_headers(content, tensors, ties, None if whole else max_shard_size)
        if len(headers) > 1:
            files[INDEX] = _index(headers, sources)
    if single:
        with new_file(path) as file:
            write_file(file, next(iter(headers.values())), sources)
        return
    with new_folder(path) as folder:
        for name, text in headers.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with (folder / name).open("xb") as file:
                write_file(file, text, sources)
        write_files(files, folder)


def _weights(path: Path) -> tuple[list[str], str | None]:
    """(names of the safetensors files, name of the index), in the order of preference of a loader."""
    if (path / ADAPTER_CONFIG).is_file() and (path / ADAPTER_WEIGHTS).is_file():
        return [ADAPTER_WEIGHTS], None
    if (path / WEIGHTS).is_file():
        require_one_model(path)
        return [WEIGHTS], None
    if (path / INDEX).is_file():
        return _shards(path, INDEX), INDEX
    if (path / ADAPTER_WEIGHTS).is_file():
        return [ADAPTER_WEIGHTS], None
    return sorted(file.name for file in path.glob(f"*{_SUFFIX}") if file.is_file()), None


def _legacy(path: Path) -> list[str]:
    """Names of the torch.save files of a model or adapter without safetensors."""
    if (path / _LEGACY_INDEX).is_file():
        return _shards(path, _LEGACY_INDEX)
    return [name for name in _LEGACY if (path / name).is_file()][:1]


def _shards(path: Path, index: str) -> list[str]:
    names = sorted(set(weight_map(path / index).values()))
    for name in names:
        parts = PurePosixPath(name).parts
        if PurePosixPath(name).is_absolute() or ".." in parts:
            raise InputError(f"{path / index} names the shard {name[:_LONGEST]!r}, which lies outside of the folder")
        if any(len(part.encode()) > _LONGEST for part in parts) or len(parts) > _DEEPEST:
            raise InputError(f"{path / index} names the shard {name[:_LONGEST]!r}, which is no file's name")
        if not (path / name).is_file():
            raise InputError(f"{path / name} is missing, though {index} names it: copy the whole model")
    return names


def _read_weights(
    path: Path, names: list[str], index: str | None
) -> tuple[dict[str, PieceSource], dict[str, str], dict[str, Any]]:
    tensors: dict[str, PieceSource] = {}
    places: dict[str, str] = {}
    metadata: dict[str, str] = {}
    headers: list[list[str]] = []
    for name in names:
        held = read_file(path / name)
        for tensor, source in held.tensors.items():
            if tensor in places:
                raise InputError(
                    f"{named(tensor)} is in {path / places[tensor]} and in {path / name}: remove one of the two"
                )
            tensors[tensor], places[tensor] = source, name
        metadata |= held.metadata
        headers.append([name, held.header])
    if index is not None:
        _check_index(path / index, places)
    ties = _noted_ties(tensors, metadata)
    for name in ties.keys() & tensors.keys():
        del tensors[name]
    kept = (
        None if index is None else [index, (path / index).read_bytes().decode()]
    )  # bytes: read_text would change its line ends
    return tensors, ties, {"format": "huggingface", "weights": headers, "index": kept, "metadata": metadata}


def _check_index(index: Path, places: Mapping[str, str]) -> None:
    wanted = weight_map(index)
    wrong = sorted(name for name in wanted.keys() | places.keys() if wanted.get(name) != places.get(name))
    if wrong:
        raise InputError(
            f"{index} and its shards disagree on {len(wrong)} tensors: {listed(wrong)}; {named(wrong[0])} is "
            f"in {named(places.get(wrong[0], 'no shard'))}, the index says {named(wanted.get(wrong[0], 'nothing'))}; "
            "copy the whole model"
        )


def _noted_ties(tensors: Mapping[str, PieceSource], metadata: Mapping[str, str]) -> dict[str, str]:
    """Ties as `safetensors.torch.save_model` notes them: omitted name -> the name that was kept.

    `write` notes them also for names that it stores twice; these count only while both have the same bytes.
    """
    return {
        name: kept
        for name, kept in metadata.items()
        if name not in _FORMAT
        and kept in tensors
        and kept not in metadata
        and (name not in tensors or _same(tensors[name], tensors[kept]))
    }


def _same(one: PieceSource, other: PieceSource) -> bool:
    alike = (one.dtype, one.shape) == (other.dtype, other.shape)
    return alike and all(a == b for a, b in zip(one.pieces(), other.pieces(), strict=True))


def _read_legacy(path: Path, names: list[str]) -> tuple[dict[str, PieceSource], dict[str, str]]:
    tensors: dict[str, PieceSource] = {}
    ties: dict[str, str] = {}
    for name in names:
        held, tied = flat_names(pytorch.read(path / name), f"{path / name}, a file of a model's weights,")
        twice = sorted((tensors.keys() | ties.keys()) & (held.keys() | tied.keys()))
        if twice:
            raise InputError(f"{path / name} has tensors that another shard has, too: {listed(twice)}")
        tensors |= held
        ties |= tied
    return tensors, ties


def _kept_headers(
    origin: Mapping[str, Any], tensors: Mapping[str, PieceSource], ties: Mapping[str, str]
) -> dict[str, str] | None:
    """File name -> the header it was read with, if these still describe exactly these tensors and ties."""
    if origin.get("format") != "huggingface" or not origin.get("weights"):
        return None
    headers: dict[str, str] = dict(origin["weights"])
    held = {name: entry for text in headers.values() for name, entry in layout(text).items()}
    whole = {name: tensors[ties.get(name, name)] for name in (*tensors, *ties)}
    unnoted = {name for name in ties if origin["metadata"].get(name) not in (name, *_group(name, ties))}
    if unnoted or not tensors.keys() <= held.keys() <= whole.keys():
        return None
    return headers if all((whole[n].dtype, whole[n].shape) == entry for n, entry in held.items()) else None


def _group(name: str, ties: Mapping[str, str]) -> set[str]:
    kept = ties.get(name, name)
    return {kept, *(other for other, target in ties.items() if target == kept)}


def _fresh_headers(
    content: Content, tensors: Mapping[str, PieceSource], ties: Mapping[str, str], limit: str | int | None
) -> dict[str, str]:
    """File name -> header, for tensors that have no headers yet or whose headers no longer fit."""
    implied = implied_ties(content.files, ties)
    stored = {name: tensors[ties.get(name, name)] for name in (*tensors, *ties) if name not in implied}
    noted: dict[str, str] = {}
    for kept in sorted(set(ties.values())):
        first, *others = sorted(_group(kept, ties), key=lambda name: (name in implied, name != kept, name))
        noted |= {name: first for name in others if name not in _FORMAT}
    metadata = {key: value for key, value in content.origin.get("metadata", {}).items() if key not in noted}
    metadata = dict(sorted((_FORMAT | metadata).items()))
    name = ADAPTER_WEIGHTS if _is_adapter(content) else WEIGHTS
    if limit is None or not stored:
        return {name: header(stored, metadata | noted)}
    split = split_state_dict_into_shards_factory(
        stored,
        get_storage_size=lambda source: nbytes(source.dtype, source.shape),
        filename_pattern=name.replace(_SUFFIX, f"{{suffix}}{_SUFFIX}"),
        max_shard_size=limit,
    )
    return {
        file: header(
            {name: stored[name] for name in names},
            metadata | {name: kept for name, kept in noted.items() if kept in names},
        )
        for file, names in split.filename_to_tensors.items()
    }


def implied_ties(files: Mapping[str, PieceSource], ties: Mapping[str, str]) -> set[str]:
    """Tied names that the weight files may omit, because the loader makes the tie.

    With a `config.json`, the model's own class says which: it is built from the config on the meta device, without
    weights. A class that Transformers lacks is assumed to tie nothing. With an `adapter_config.json` nothing is
    omitted: PEFT silently takes a missing name for an untrained one. Without either, a checkpoint is for
    `safetensors.torch.load_model`, which wants each shared tensor once.

    Args:
        files: the checkpoint's files.
        ties: name -> the name whose storage it shares.

    Raises:
        InputError: the config is not JSON, or its class cannot be built from it.
    """
    if not ties or ADAPTER_CONFIG in files:
        return set()
    if CONFIG not in files:
        return set(ties)
    settings = foreign_object(to_bytes(files[CONFIG]), CONFIG)
    require_sane_sizes(settings, Path(CONFIG))
    names = architectures(settings)

    def kept(name: str) -> str:
        return ties.get(name, name)

    known = {name: source for architecture in names for name, source in _ties_of(architecture, settings).items()}
    return {name for name, to in known.items() if kept(name) == kept(to) in ties.values()}


def _ties_of(architecture: str, settings: Mapping[str, object]) -> dict[str, str]:
    import torch
    import transformers

    known = getattr(transformers, architecture, None)
    if known is None or not hasattr(known, "config_class"):
        return {}
    try:
        with torch.device("meta"):
            model = known(known.config_class.from_dict(dict(settings)))
    except (TypeError, ValueError, KeyError, AttributeError, RuntimeError) as error:
        raise InputError(f"config.json does not describe a {architecture} that can be built: {error}") from error
    return dict(model.all_tied_weights_keys)


def _index(headers: Mapping[str, str], sources: Mapping[str, PieceSource]) -> PieceSource:
    places = {name: file for file, text in headers.items() for name in layout(text)}
    size = sum(nbytes(sources[name].dtype, sources[name].shape) for name in places)
    index = {"metadata": {"total_size": size}, "weight_map": places}
    return of_bytes((json.dumps(index, indent=2, sort_keys=True) + "\n").encode())


def _is_adapter(content: Content) -> bool:
    return content.kind == "adapter" or ADAPTER_CONFIG in content.files

"""Merge of checkpoints of any size: tensor by tensor in blocks, from memory-mapped files into the result's shards.

Anonymous memory is a few dozen pieces of four megabytes for any model size (DELLA, whose masks need a sort, keeps a bit
for each entry of one tensor and model). The result is the same to the byte for any order of the models, number of
threads and layout of their shards: for each tensor the models are ordered by their weights and bytes.
"""

import functools
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from capibara_assets import __version__
from capibara_assets.checkpoints.content import nbytes, of_bytes, to_bytes
from capibara_assets.checkpoints.formats.beside import write_files
from capibara_assets.checkpoints.formats.publish import new_folder
from capibara_assets.checkpoints.formats.safetensors_file import layout
from capibara_assets.consensus.merging.element_kernels import first_non_finite, to_bfloat16
from capibara_assets.consensus.merging.inputs import FLOATS, Model, check_alike, read_model, same_place, untied
from capibara_assets.consensus.merging.interface import Merge, Recipe
from capibara_assets.consensus.merging.methods import METHODS, RegisteredMethod
from capibara_assets.consensus.merging.options import DTYPES, PER_MODEL, known_method, read_options, recipes
from capibara_assets.consensus.merging.stack import Block, MappedTensor, Stack, grouped
from capibara_assets.consensus.merging.writer import PIECE, Shape, Writer, index, shards, write_side_by_side
from capibara_assets.errors import InputError
from capibara_assets.modeling.files import CONFIG, INDEX, without_code
from capibara_assets.processes.progress import Count
from capibara_assets.storage.digests import combine, sha256_file
from capibara_assets.storage.jsonfiles import user_json
from capibara_assets.storage.manifest import MANIFEST


@dataclass(frozen=True)
class MergedCheckpoint:
    """A merged checkpoint on disk.

    Attributes:
        path: the folder.
        digest: of the weight files' names and bytes.
        tensors: number of tensors written.
        bytes: size of the weight files.
        only_base: tensors that only the base has; they are copied unchanged.
        untied: output layers that some models tied to the embedding and the result does not.
    """

    path: Path
    digest: str
    tensors: int
    bytes: int
    only_base: tuple[str, ...]
    untied: tuple[str, ...]

    def __fspath__(self) -> str:
        return str(self.path)


def merge_checkpoints(paths: Sequence[Path | str], method: str, out: Path | str, **options: Any) -> MergedCheckpoint:
    """Merge models of one architecture into a Transformers folder, which is written atomically.

    Args:
        paths: Transformers folders (safetensors, whole or in shards) or single `.safetensors` files.
        method: one of `methods.METHODS`.
        out: the folder to make, with the config and tokenizer of the base, or else of the first model.
        options: `base` (a path; one among `paths` is not merged with itself), `dtype` (float32, bfloat16, float16;
            default: the models'), `max_shard_size` ("500MB": shards are written side by side), `threads`; and those
            of the method, under mergekit's names and with its defaults: `weights`, `density`, `gamma`, `epsilon`
            (a number, or one per model, each a number or {pattern of tensor names: number}), `t`, `lambda_` (also
            `scale`), `normalize`, `rescale`, `seed`, `select_topk`, `max_iter`, `tol`, `eps`, `normalize_weights`,
            `row_wise`, `flatten`, `filter_wise`.

    Raises:
        ValueError: unknown method or option, too few or too many models, a value outside of its range.
        InputError: a file is missing or damaged, tensors are missing or differ in shape or type, a value is not
            finite, `out` exists, the disk is full.
    """
    known = known_method(method)
    given = read_options(method, known, options)
    target = Path(out)
    models, base, given = _models(paths, method, known, given)
    source = base if base is not None else models[0]
    first = models[0]
    loaded, untied_names = untied([*models, *([base] if base else [])])
    models, base = loaded[: len(models)], loaded[len(models)] if base else None
    merging = [base, *models] if known.base == "first" and base else models
    origin = base if known.base in ("required", "optional") else None
    only_base = check_alike(merging, origin, given["dtype"] is not None)
    recipe = recipes(method, given, len(merging))
    shapes = _shapes(merging, origin, only_base, given["dtype"])
    headers = shards(shapes, given["max_shard_size"], first.tied)
    total = sum(nbytes(shape.dtype, shape.shape) for shape in shapes.values())
    job = _Job(method, merging, origin, recipe, shapes, frozenset(only_base))
    for name in shapes:
        recipe(name)  # values out of range raise before anything is written
    with new_folder(target) as folder:
        _check_room(folder, total)
        digests = _write(job, headers, folder, given["threads"])
        files = {
            name: of_bytes(without_code(name, to_bytes(file))) if name.endswith("config.json") else file
            for name, file in source.files.items()
            if name != CONFIG
        }
        if source.config:
            files[CONFIG] = of_bytes(_config(source, given["dtype"], bool(untied_names)))
        if len(headers) > 1:
            files[INDEX] = of_bytes(index(headers, shapes))
        write_files(files, folder)
        entries = {name: {"sha256": digest, "bytes": size} for name, (digest, size) in digests.items()}
        for name in files:
            entries[name] = {"sha256": sha256_file(folder / name), "bytes": (folder / name).stat().st_size}
        weights_digest = combine({name: digest for name, (digest, _) in digests.items()})
        manifest = {
            "schema_version": 1,
            "method": method,
            "options": {name: _plain(value) for name, value in given.items() if name not in ("base", "threads")},
            "models": [_described(model) for model in models],
            "base": _described(base) if base is not None else None,
            "config_from": "base" if base is not None and source is not first else "first model",
            "only_base": only_base,
            "untied": untied_names,
            "files": entries,
            "digest": weights_digest,
            "software": {"capibara-assets": __version__, "numba": version("numba"), "numpy": np.__version__},
        }
        (folder / MANIFEST).write_bytes(_manifest_bytes(manifest))
    written = sum(size for _, size in digests.values())
    return MergedCheckpoint(target, weights_digest, len(shapes), written, tuple(only_base), tuple(untied_names))


# Models and options


def _models(
    paths: Sequence[Path | str], method: str, known: RegisteredMethod, given: dict[str, Any]
) -> tuple[list[Model], Model | None, dict[str, Any]]:
    """The models to merge, the base, and the options without the entries of a base that was among the models.

    Raises:
        ValueError: too few or too many models, or no base where the method needs one.
        InputError: as `read_model`.
    """
    if isinstance(paths, str | Path):
        raise ValueError(f"merge_checkpoints takes a list of paths, not the one path {paths}")
    places, base = list(paths), given["base"]
    if known.base == "required" and base is None:
        raise ValueError(
            f"{method} merges differences from a base: give the model that all were trained from (base=, --base)"
        )
    if known.base == "first" and base is None and places:
        base = places[0]
    if base is not None and known.base != "unused":
        kept = [number for number, place in enumerate(places) if not same_place(place, base)]
        for name in PER_MODEL:
            if isinstance(given.get(name), list | tuple) and len(given[name]) == len(places):
                given = given | {name: [given[name][number] for number in kept]}
        places = [places[number] for number in kept]
    least, most = known.models
    count = len(places) + (known.base == "first" and base is not None)
    if count < least or (most is not None and count > most):
        wanted = f"{least}" if most == least else f"at least {least}" if most is None else f"{least} to {most}"
        beside = " besides its base" if known.base == "required" else ""
        raise ValueError(f"{method} takes {wanted} model{'' if wanted == '1' else 's'}{beside}; {count} given")
    return [read_model(place) for place in places], None if base is None else read_model(base), given


# Tensor by tensor


@dataclass(frozen=True)
class _Job:
    """A merge in progress: models in their final order, options and shapes per tensor."""

    method: str
    models: Sequence[Model]
    base: Model | None
    recipe: Callable[[str], Recipe]
    shapes: Mapping[str, Shape]
    only_base: frozenset[str]


def _shapes(
    models: Sequence[Model], base: Model | None, only_base: Sequence[str], dtype: str | None
) -> dict[str, Shape]:
    """Tensors to write, in the order of the first model's files; tied names are left out."""
    shapes: dict[str, Shape] = {}
    for model in (*models, *([base] if base else [])):
        for name, source in model.tensors.items():
            left_out = all(name in each.tied or name not in each.tensors for each in models)
            if (name in shapes or left_out) and name not in only_base:
                continue
            kept = source.dtype if dtype is None or source.dtype not in FLOATS else DTYPES[dtype]
            shapes.setdefault(name, Shape(kept, source.shape))
    return shapes


def _write(job: _Job, headers: Mapping[str, str], folder: Path, threads: int | None) -> dict[str, tuple[str, int]]:
    """Write the shards; file name -> (SHA-256, bytes)."""

    count = Count("tensors", len(job.shapes))

    def write(name: str, executor: Executor, writer: Writer) -> None:
        raw = headers[name].encode()
        tensors = layout(headers[name])
        size = sum(nbytes(dtype, shape) for dtype, shape in tensors.values())
        writer.open(name, len(raw).to_bytes(8, "little") + raw, 8 + len(raw) + size)
        for tensor in tensors:
            _put_tensor(job, tensor, executor, writer)
            count.one()

    return write_side_by_side(folder, list(headers), threads or len(os.sched_getaffinity(0)), write)


def _put_tensor(job: _Job, name: str, executor: Executor, writer: Writer) -> None:
    """Queue the pieces of one tensor at the writer, in order; they are computed on the executor's threads."""
    shape = job.shapes[name]
    holders = [job.base] if name in job.only_base and job.base else job.models
    source = holders[0].tensors[name]
    size = int(np.prod(source.shape, dtype=np.int64))
    if size == 0:
        return
    if source.dtype not in FLOATS or name in job.only_base:
        same = holders if job.base is None or name in job.only_base else [*holders, job.base]
        parts = [model.part(name) for model in same]
        for start in range(0, len(parts[0].data), PIECE):
            stop = min(start + PIECE, len(parts[0].data))
            writer.put(stop - start, functools.partial(_copy, name, parts, start, stop))
        return
    recipe = job.recipe(name)
    parts = [model.part(name) for model in holders]
    if METHODS[job.method].base != "first":
        order = _order(parts, recipe)
        parts = [parts[number] for number in order]
        moved: dict[str, Any] = {}
        for key in PER_MODEL:
            values = getattr(recipe, key)
            moved[key] = tuple(values[number] for number in order) if values else values
        recipe = replace(recipe, **moved)
    stack = Stack(name, source.shape, tuple(parts), job.base.part(name) if job.base else None, executor)
    merge = METHODS[job.method].build(stack, recipe)
    width = nbytes(shape.dtype, (1,))
    for blocks in grouped(merge.blocks, PIECE // width):
        elements = blocks[-1][1] - blocks[0][0]
        last = writer.put(elements * width, functools.partial(_make, stack, merge, blocks, shape.dtype))
    last.add_done_callback(lambda _: stack.page_out())


def _make(stack: Stack, merge: Merge, blocks: Sequence[Block], dtype: str, into: memoryview) -> None:
    """Compute consecutive blocks in the memory that they are written from."""
    first, last = blocks[0][0], blocks[-1][1]
    stack.page_in(first, last)
    made = np.frombuffer(into, np.uint8)
    width = len(made) // (last - first)
    aligned = made.ctypes.data % width == 0
    direct = dtype == "F32" and aligned
    at_once = merge.write if aligned and dtype in ("F32", "BF16") else None
    if at_once is not None and at_once(first, last, np.uint64(made.ctypes.data), FLOATS[dtype]):
        return
    # The method or element type has no such pass, or a value is not finite: the slower pass below names it
    largest = max(stop - start for start, stop in blocks)
    scratch = np.empty(0 if direct else largest, np.float32)
    for start, stop in blocks:
        data = made[(start - first) * width : (stop - first) * width]
        values = data.view(np.float32) if direct else scratch[: stop - start]
        if not merge.spreads:
            stack.check_finite(start, stop)
        merge.emit(start, stop, values)
        rounded, at = _rounded(values, dtype)
        if at >= 0:
            stack.check_finite(start, stop)
            raise InputError(
                f"{stack.name}: the merged value {values[at]} does not fit into {dtype}: give another dtype or weights"
            )
        if not direct:
            data[:] = rounded.view(np.uint8)


def _rounded(values: Any, dtype: str) -> tuple[Any, int]:
    """(float32 values in another element type, to nearest, ties to even; place of the first not finite, or −1)."""
    if dtype == "BF16":
        rounded = np.empty(len(values), np.uint16)
        return rounded, to_bfloat16(values, rounded)
    if dtype == "F16":
        with np.errstate(over="ignore", invalid="ignore"):
            values = values.astype(np.float16)
    return values, first_non_finite(np.uint64(values.ctypes.data), FLOATS[dtype], 0, len(values))


def _copy(name: str, parts: Sequence[MappedTensor], start: int, stop: int, into: memoryview) -> None:
    """Copy bytes of a tensor that is not merged.

    Raises:
        InputError: the models differ there.
    """
    for part in parts[1:]:
        if not np.array_equal(parts[0].data[start:stop], part.data[start:stop]):
            raise InputError(
                f"{name} holds no floating-point numbers, which are not merged, and differs between {parts[0].where} "
                f"and {part.where}: make them equal first"
            )
    into[:] = parts[0].data[start:stop].data


def _order(parts: Sequence[MappedTensor], recipe: Recipe) -> list[int]:
    """An order of the models that depends on their options and bytes alone, not on how they were listed."""

    def compare(one: int, other: int) -> int:
        keys = [tuple(getattr(recipe, key)[n] for key in PER_MODEL if getattr(recipe, key)) for n in (one, other)]
        if keys[0] != keys[1]:
            return -1 if keys[0] < keys[1] else 1
        left, right = parts[one].data, parts[other].data
        if len(left) != len(right):
            return len(left) - len(right)
        for start, stop in [(0, 4096), *((at, at + (1 << 20)) for at in range(4096, len(left), 1 << 20))]:
            a, b = left[start:stop], right[start:stop]
            if (differ := np.flatnonzero(a != b)).size:
                return int(a[differ[0]]) - int(b[differ[0]])
        return 0

    return sorted(range(len(parts)), key=functools.cmp_to_key(compare))


# What lies beside the weights


def _manifest_bytes(value: Mapping[str, Any]) -> bytes:
    """The manifest's bytes. Raises ValueError: NaN or infinity in it."""
    return json.dumps(value, indent=2, sort_keys=True, allow_nan=False).encode() + b"\n"


def _config(source: Model, dtype: str | None, unties: bool) -> bytes:
    """config.json of the source, with the new element type, and without a tie that no longer holds."""
    plain = without_code(CONFIG, to_bytes(source.files[CONFIG]))
    if dtype is None and not unties:
        return plain
    config = json.loads(plain)
    if dtype is not None:
        config["torch_dtype" if "torch_dtype" in config and "dtype" not in config else "dtype"] = dtype
    if unties:
        config["tie_word_embeddings"] = False
    return json.dumps(config, indent=2, ensure_ascii=False).encode() + b"\n"


def _check_room(folder: Path, wanted: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < wanted:
        raise InputError(
            f"no room to write to {folder.parent}: the merge takes {wanted} bytes, {free} are free; nothing was written"
        )


def _described(model: Model) -> dict[str, Any]:
    """An input's entry in the manifest; with its digest where it has a manifest itself."""
    entry: dict[str, Any] = {
        "name": model.path.name,
        "tensors": len(model.tensors),
        "bytes": sum(nbytes(source.dtype, source.shape) for source in model.tensors.values()),
    }
    manifest = model.path / MANIFEST
    if manifest.is_file():
        with suppress(InputError):  # another tool's file of that name
            stated = user_json(manifest.read_bytes(), manifest)
            entry |= {"digest": stated["digest"]} if isinstance(stated, dict) and "digest" in stated else {}
    return entry


def _plain(value: Any) -> Any:
    """An option as JSON."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(entry) for entry in value]
    return value.item() if isinstance(value, np.generic) else value

"""Reader and writer of one safetensors file: header checked to the byte, tensors as ranges of the file.

The format (github.com/huggingface/safetensors): the header's length as 8 bytes, little-endian; the header, JSON, padded
with spaces; then the tensors' bytes, row-major and little-endian, with neither gaps nor overlaps.
"""

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from capibara_assets.checkpoints.content import DTYPES, InFile, PieceSource, nbytes
from capibara_assets.checkpoints.formats.limits import refuse
from capibara_assets.checkpoints.formats.publish import write_source
from capibara_assets.errors import InputError, named
from capibara_assets.modeling.files import read_safetensors_header
from capibara_assets.storage.jsonfiles import first_twice, why_not_json

# The library orders tensors by element type, the last of these first, then by name.
_ORDER = (
    *("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "I16", "U16", "F16", "BF16"),
    *("I32", "U32", "F32", "C64", "F64", "I64", "U64"),
)
METADATA = "__metadata__"


@dataclass(frozen=True)
class SafetensorsFile:
    """Content of a safetensors file.

    Attributes:
        header: the JSON text with its padding, exactly as in the file.
        metadata: the header's `__metadata__`.
        tensors: name -> range of the file, in the order of the bytes.
    """

    header: str = field(repr=False)
    metadata: Mapping[str, str]
    tensors: Mapping[str, InFile]


def read_file(path: Path) -> SafetensorsFile:
    """Read and check a file's header; the tensors are not read.

    Raises:
        InputError: the file is too short or too long; its header is not a safetensors header; an entry is duplicated,
            has an unknown type or another size than its shape, is outside of the file, overlaps another or leaves a
            gap. It names the file and the tensor.
    """
    raw = read_safetensors_header(path)
    entries = _entries(raw, path)
    metadata = entries.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise InputError(f"{path}: {METADATA} of its header is not a dictionary of text")
    return SafetensorsFile(raw.decode(), metadata, _ranges(entries, path, 8 + len(raw), path.stat().st_size))


def header(tensors: Mapping[str, PieceSource], metadata: Mapping[str, str]) -> str:
    """The header under which the safetensors library would write these tensors, padded to 8 bytes.

    Raises:
        InputError: an element type that safetensors lacks, or a name that is reserved or not Unicode text.
    """
    unknown = [f"{name} ({source.dtype})" for name, source in tensors.items() if source.dtype not in _ORDER]
    refuse("safetensors", unknown, "tensors of a type that it lacks", "write them as pytorch or dcp")
    refuse("safetensors", [name for name in tensors if name == METADATA], "tensors of this name", "rename it")
    entries: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    at = 0
    for name in sorted(tensors, key=lambda name: (-_ORDER.index(tensors[name].dtype), name.encode("utf-8", "replace"))):
        source = tensors[name]
        end = at + nbytes(source.dtype, source.shape)
        entries[name] = {"dtype": source.dtype, "shape": list(source.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False)
    try:
        text += " " * (-len(text.encode()) % 8)
    except UnicodeEncodeError as error:
        raise InputError(
            f"safetensors names are Unicode text, {error.object[error.start - 20 : error.end]!r} is not"
        ) from error
    return text


def write_file(file: BinaryIO, header: str, tensors: Mapping[str, PieceSource]) -> None:
    """Write a header unchanged, and the tensors in the order of its offsets, piece by piece.

    Raises:
        IntegrityError: a tensor has more or fewer bytes than its type and shape say.
    """
    raw = header.encode()
    file.write(struct.pack("<Q", len(raw)))
    file.write(raw)
    for name in names_of(header):
        write_source(tensors[name], name, file)


def layout(header: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Name -> (element type, shape), in the order of the bytes. Raises InputError: not a header."""
    entries = _entries(header.encode(), Path("the header that the checkpoint was read with"))
    entries.pop(METADATA, None)
    order = sorted(entries, key=lambda name: entries[name]["data_offsets"])
    return {name: (entries[name]["dtype"], tuple(entries[name]["shape"])) for name in order}


def names_of(header: str) -> Iterable[str]:
    """Names of a header's tensors, in the order of their bytes."""
    return layout(header).keys()


def _entries(raw: bytes, path: Path) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        entries = dict(pairs)
        if len(entries) != len(pairs):
            raise InputError(f"{path} is damaged: its header has the entry {named(first_twice(pairs))!r} twice")
        return entries

    try:
        entries = json.loads(raw.decode(), object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path} is damaged: its safetensors header is {why_not_json(error)}; copy it again"
        ) from error
    if not isinstance(entries, dict):
        raise InputError(f"{path} is damaged: its safetensors header is no JSON object; copy it again")
    return entries


def _ranges(entries: dict[str, Any], path: Path, start: int, size: int) -> dict[str, InFile]:
    spans: list[tuple[int, int, str]] = []
    ranges: dict[str, InFile] = {}
    for name, entry in entries.items():
        dtype, shape, begin, end = _entry(name, entry, path)
        if end - begin != nbytes(dtype, shape):
            raise InputError(
                f"{path} is damaged: {named(name)} has {end - begin} bytes, {dtype} of shape {_shown(list(shape))} has "
                f"{nbytes(dtype, shape)}"
            )
        if start + end > size:
            raise InputError(
                f"{path} is damaged: {named(name)} ends {start + end - size} bytes behind the end of the file"
            )
        spans.append((begin, end, name))
        ranges[name] = InFile(path, dtype, shape, start + begin)
    at, before = 0, "the header"
    for begin, end, name in sorted(spans):
        if begin != at:
            last = named(before)
            how = f"overlaps {last}" if begin < at else f"leaves a gap of {begin - at} bytes behind {last}"
            raise InputError(f"{path} is damaged: {named(name)} {how}")
        at, before = end, name
    if start + at != size:
        raise InputError(f"{path} is damaged: {size} bytes where its header says {start + at}; copy it again")
    return {name: ranges[name] for _, _, name in sorted(spans)}


def _entry(name: str, entry: Any, path: Path) -> tuple[str, tuple[int, ...], int, int]:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise InputError(f"{path} is damaged: the header's entry {named(name)!r} is not dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    numbers = [*shape, *offsets] if isinstance(shape, list) and isinstance(offsets, list) else [None]
    if len(numbers) < 2 or len(offsets) != 2 or not all(type(n) is int and 0 <= n < 1 << 63 for n in numbers):
        raise InputError(
            f"{path} is damaged: {named(name)} has the shape {_shown(shape)} and the data_offsets {_shown(offsets)}, "
            "expected whole numbers from 0 to 2**63, of data_offsets two"
        )
    if offsets[0] > offsets[1]:
        raise InputError(f"{path} is damaged: {named(name)} ends before it begins: data_offsets {offsets}")
    if dtype not in DTYPES or dtype not in _ORDER:
        raise InputError(f"{path}: {named(name)} has the element type {_shown(dtype)}; read are {', '.join(_ORDER)}")
    return dtype, tuple(shape), offsets[0], offsets[1]


def _shown(value: Any) -> str:
    """A value of a header, cut; a number may have thousands of digits."""
    return named(repr(value[:8]) if isinstance(value, list) else repr(value))

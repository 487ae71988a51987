"""The content of a checkpoint in any format: tensors and files, read in pieces, and a tree of values."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Protocol

import ml_dtypes
import numpy as np
import torch

from capibara_assets.checkpoints.memory import empty
from capibara_assets.errors import InputError, named

PIECE = 8 << 20
"""Bytes of a piece, the unit of hashing, compression, encryption and deduplication."""

_MOST_ELEMENTS = 1 << 60  # eight bytes each, as strides are counted

Kind = Literal["model", "adapter", "state"]

_TORCH: Mapping[str, torch.dtype] = MappingProxyType(
    {
        "BOOL": torch.bool,
        "U8": torch.uint8,
        "I8": torch.int8,
        "U16": torch.uint16,
        "I16": torch.int16,
        "U32": torch.uint32,
        "I32": torch.int32,
        "U64": torch.uint64,
        "I64": torch.int64,
        "F8_E4M3": torch.float8_e4m3fn,
        "F8_E5M2": torch.float8_e5m2,
        "F16": torch.float16,
        "BF16": torch.bfloat16,
        "F32": torch.float32,
        "F64": torch.float64,
        "C64": torch.complex64,
        "C128": torch.complex128,
    }
)
_NUMPY: Mapping[str, np.dtype[Any]] = MappingProxyType(
    {
        **{f"{kind}{bits}": np.dtype(f"{code}{bits // 8}") for kind, code in (("U", "u"), ("I", "i"), ("F", "f"))
           for bits in (8, 16, 32, 64) if (kind, bits) != ("F", 8)},
        "BOOL": np.dtype(bool),
        "BF16": np.dtype(ml_dtypes.bfloat16),
        "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
        "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
        "C64": np.dtype("c8"),
        "C128": np.dtype("c16"),
    }
)  # fmt: skip
_OF_TORCH = {dtype: name for name, dtype in _TORCH.items()}
_OF_NUMPY = {dtype: name for name, dtype in _NUMPY.items()}

DTYPES = tuple(_TORCH)
"""Names of the element types, as safetensors spells them (and C128, which safetensors lacks)."""


class PieceSource(Protocol):
    """A tensor or file that is read in pieces and need not be in memory."""

    @property
    def dtype(self) -> str:
        """One of `DTYPES`; U8 for a file."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions; (bytes,) for a file."""
        ...

    def pieces(self) -> Iterator[memoryview]:
        """Its bytes (row-major, little-endian) in order: pieces of `PIECE` bytes, the last one shorter; none if empty.

        A piece is valid until the next one is asked for.

        Raises:
            IntegrityError: what is stored is not what was written.
        """
        ...


@dataclass(frozen=True)
class Content:
    """Everything in one checkpoint.

    Attributes:
        tensors: name -> tensor. Names of a nested state are paths: keys joined by `/`, `~` and `/` in a key
            written `~0` and `~1` (RFC 6901).
        kind: `model` (weights of a whole model), `adapter` (LoRA weights), `state` (anything else that torch saves).
        tree: the nested state as `tree.flatten` gives it; None where `tensors` is all there is, a flat dict.
        ties: name -> the name in `tensors` that shares its storage (tied embeddings); disjoint from `tensors`.
        files: relative POSIX name -> a file that belongs to it (config, tokenizer, adapter_config.json).
        origin: what the format it was read from needs to reproduce its bytes: `format`, and JSON of that format.
    """

    tensors: Mapping[str, PieceSource]
    kind: Kind = "state"
    tree: Any = None
    ties: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, PieceSource] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, source in self.tensors.items():
            _require_sound(name, source)


def _require_sound(name: str, source: PieceSource) -> None:
    """Raise InputError unless a tensor's name is Unicode text, and its shape one that every library can address."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"the name of a tensor is no Unicode text: {named(name)}; rename it where it was saved"
        ) from error
    if min(source.shape, default=0) < 0 or prod(max(length, 1) for length in source.shape) >= _MOST_ELEMENTS:
        raise InputError(f"{named(name)} states the shape {str(list(source.shape))[:80]}: no tensor has one like that")


@dataclass(frozen=True)
class InMemory:
    """A source over bytes in memory, which must not change while it is read."""

    dtype: str
    shape: tuple[int, ...]
    data: memoryview = field(repr=False)

    def pieces(self) -> Iterator[memoryview]:
        for start in range(0, len(self.data), PIECE):
            yield self.data[start : start + PIECE]


@dataclass(frozen=True)
class InFile:
    """A source over a range of a local file."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int = 0

    def pieces(self) -> Iterator[memoryview]:
        left = nbytes(self.dtype, self.shape)
        buffer = memoryview(bytearray(min(left, PIECE)))
        with self.path.open("rb", buffering=0) as file:
            file.seek(self.offset)
            while left:
                piece = buffer[: min(left, PIECE)]
                filled = 0
                while filled < len(piece):
                    got = file.readinto(piece[filled:])
                    if not got:
                        raise InputError(
                            f"{self.path} ends {left - filled} bytes before its content does: it is cut off"
                        )
                    filled += got
                left -= len(piece)
                yield piece


@dataclass(frozen=True)
class Live:
    """A source over a tensor on any device or in a mapped file; it is copied to the CPU only when it is read."""

    tensor: torch.Tensor = field(repr=False)
    name: str
    dtype: str
    shape: tuple[int, ...]

    def pieces(self) -> Iterator[memoryview]:
        yield from of_torch(self.tensor, self.name).pieces()


def nbytes(dtype: str, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor of this type and shape."""
    size = itemsize(dtype)
    for length in shape:
        size *= length
    return size


def itemsize(dtype: str) -> int:
    """Bytes of one element. Raises InputError for an unknown element type."""
    return int(torch_dtype(dtype).itemsize)


def torch_dtype(name: str) -> torch.dtype:
    """torch's type for a name in `DTYPES`. Raises InputError if torch has none."""
    if name not in _TORCH:
        raise InputError(f"no element type {name!r}: known are {', '.join(DTYPES)}")
    return _TORCH[name]


def numpy_dtype(name: str) -> np.dtype[Any]:
    """numpy's type (bfloat16 and float8 from ml_dtypes). Raises InputError if there is none."""
    if name not in _NUMPY:
        raise InputError(f"no element type {name!r}: known are {', '.join(DTYPES)}")
    return _NUMPY[name]


def of_torch(tensor: torch.Tensor, name: str = "tensor") -> InMemory:
    """A source over a tensor; contiguous CPU tensors are not copied.

    Raises:
        InputError: an element type (quantised, 4-bit) or layout (sparse) that has no plain bytes; it names the tensor.
    """
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.dtype not in _OF_TORCH:
        raise InputError(
            f"{name}: a {tensor.layout} tensor of {tensor.dtype} has no plain bytes to store: make it dense, of one of "
            + ", ".join(DTYPES)
        )
    if tensor.is_meta:
        raise InputError(f"{name} is on the meta device: it has no values")
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    flat = plain.reshape(-1).view(torch.uint8) if plain.numel() else torch.empty(0, dtype=torch.uint8)
    return InMemory(_OF_TORCH[tensor.dtype], tuple(tensor.shape), memoryview(flat.numpy()).cast("B"))


def live(tensor: torch.Tensor, name: str) -> Live:
    """A source over a tensor. Raises InputError: it has no plain bytes; the message names it."""
    plain = tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_meta
    empty = of_torch(torch.empty(0, dtype=tensor.dtype) if plain else tensor, name)  # raises, and says why
    return Live(tensor, name, empty.dtype, tuple(tensor.shape))


def of_numpy(array: np.ndarray[Any, Any], name: str = "array") -> InMemory:
    """A source over an array; C-contiguous little-endian arrays are not copied. Raises InputError as `of_torch`."""
    plain = np.ascontiguousarray(array).reshape(array.shape)
    if plain.dtype.byteorder == ">" or (plain.dtype.byteorder == "=" and sys.byteorder == "big"):
        plain = plain.astype(plain.dtype.newbyteorder("<"))
    if plain.dtype not in _OF_NUMPY:
        raise InputError(
            f"{name}: an array of {array.dtype} cannot be stored in a checkpoint; storable are {', '.join(DTYPES)}"
        )
    return InMemory(_OF_NUMPY[plain.dtype], tuple(plain.shape), plain.reshape(-1).view(np.uint8).data)


def of_bytes(data: bytes) -> InMemory:
    """A file in memory."""
    return InMemory("U8", (len(data),), memoryview(data))


def of_file(path: Path) -> InFile:
    """A whole local file."""
    return InFile(path, "U8", (path.stat().st_size,))


def to_numpy(source: PieceSource) -> np.ndarray[Any, Any]:
    """The whole tensor as an array of its own memory, (shape)."""
    array = np.empty(source.shape, numpy_dtype(source.dtype))
    _fill(array.reshape(-1).view(np.uint8), source)
    return array


def to_torch(source: PieceSource) -> torch.Tensor:
    """The whole tensor in its own CPU memory, (shape)."""
    tensor = empty(source.shape, torch_dtype(source.dtype))
    if tensor.numel():
        _fill(tensor.reshape(-1).view(torch.uint8).numpy(), source)
    return tensor


def _fill(view: np.ndarray[Any, Any], source: PieceSource) -> None:
    at = 0
    for piece in source.pieces():
        view[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
        at += len(piece)


def to_bytes(source: PieceSource) -> bytes:
    """All bytes of a small source, such as a config file."""
    return b"".join(bytes(piece) for piece in source.pieces())

"""msgpack of flax.serialization: nested state with arrays as extension types, read in place and written as a stream.

Arrays are extension type 1 (numpy scalars 3), each a msgpack tuple (shape, dtype name, row-major bytes); an array
above 1 GiB is a map of flat parts, `__msgpack_chunked_array__`. Source: flax/serialization.py, flax 0.12.
"""

import mmap
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from capibara_assets.checkpoints.content import DTYPES, InFile, PieceSource, itemsize, nbytes, numpy_dtype
from capibara_assets.checkpoints.formats.zarr import JoinedSources, Taker
from capibara_assets.errors import InputError

if TYPE_CHECKING:
    import msgpack

LARGEST = 1 << 30
"""Largest array in bytes that flax writes in one part (msgpack's own limit is 2 GiB)."""

_CHUNKED = "__msgpack_chunked_array__"
_ARRAY, _COMPLEX, _SCALAR = 1, 2, 3
_DEEPEST = 64
_NAMES = {numpy_dtype(name).name: name for name in DTYPES}
_FIXED = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_WIDTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}


@dataclass(frozen=True)
class Inline:
    """An array inside the msgpack file; `scalar`: flax restores it as a numpy scalar."""

    source: PieceSource
    scalar: bool = False


def read(path: Path) -> Any:
    """Read the nested state; every array is an `Inline` whose bytes stay in the file until they are needed.

    Raises:
        InputError: not msgpack, cut off, or of types that flax does not write; it names the entry.
    """
    with path.open("rb") as file:
        if not path.stat().st_size:
            raise InputError(f"{path} is empty: it is no checkpoint")
        import msgpack

        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            reader = _Reader(path, data)
            try:
                state = reader.value(())
            except (msgpack.UnpackException, ValueError, IndexError) as error:
                reason = str(error) or "it ends early"
                raise InputError(
                    f"{path} is no msgpack file, or cut off (byte {reader.at} of {len(data)}): {reason}"
                ) from error
            if reader.at != len(data):
                raise InputError(f"{path} goes on after its state ends at byte {reader.at}: it is no checkpoint")
            return state


def write(state: Any, file: IO[bytes]) -> None:
    """Write a nested state of dictionaries, lists, plain values and `Inline` arrays, arrays as a stream of bytes."""
    packer = _packer()
    if isinstance(state, dict):
        file.write(packer.pack_map_header(len(state)))
        for key, value in state.items():
            file.write(packer.pack(key))
            write(value, file)
    elif isinstance(state, list):
        file.write(packer.pack_array_header(len(state)))
        for value in state:
            write(value, file)
    elif isinstance(state, Inline):
        _write_array(state, file)
    else:
        file.write(packer.pack(state))


def _write_array(array: Inline, file: IO[bytes]) -> None:
    source = array.source
    taker = Taker(source.pieces())
    if nbytes(source.dtype, source.shape) <= LARGEST:
        _write_extension(_SCALAR if array.scalar else _ARRAY, source.dtype, source.shape, taker, file)
        return
    packer = _packer()
    count, most = prod(source.shape), LARGEST // itemsize(source.dtype)
    file.write(packer.pack_map_header(3) + packer.pack(_CHUNKED) + packer.pack(True) + packer.pack("shape"))
    file.write(packer.pack({str(axis): length for axis, length in enumerate(source.shape)}))
    file.write(packer.pack("chunks") + packer.pack_map_header(-(-count // most)))
    for index, start in enumerate(range(0, count, most)):
        file.write(packer.pack(str(index)))
        _write_extension(_ARRAY, source.dtype, (min(most, count - start),), taker, file)


def _write_extension(code: int, dtype: str, shape: tuple[int, ...], taker: Taker, file: IO[bytes]) -> None:
    size = nbytes(dtype, shape)
    packer = _packer()
    head = packer.pack_array_header(3) + packer.pack(list(shape)) + packer.pack(numpy_dtype(dtype).name)
    head += _header((0xC4, 0xC5, 0xC6), size)
    file.write(_header((0xC7, 0xC8, 0xC9), len(head) + size) + bytes([code]) + head)
    for part in taker.take(size):
        file.write(part)


def _packer() -> "msgpack.Packer":
    import msgpack

    return msgpack.Packer(use_bin_type=True, strict_types=True)


def _header(codes: tuple[int, int, int], size: int) -> bytes:
    """The bytes before a binary or extension of `size`: a code and the length in one, two or four bytes."""
    for code, width in zip(codes, (1, 2, 4), strict=True):
        if size < 1 << 8 * width:
            return bytes([code]) + size.to_bytes(width, "big")
    raise InputError(f"an entry of {size} bytes is too large for msgpack")


class _Reader:
    """Parser of a mapped file: the library decodes small values, arrays are only located."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.at = 0
        self._path = path
        self._data = data

    def value(self, keys: tuple[str, ...]) -> Any:
        """Parse the value at the current position."""
        if len(keys) > _DEEPEST:
            raise InputError(f"{self._path} is nested deeper than {_DEEPEST}: it is no checkpoint")
        code = self._data[self.at]
        if 0x80 <= code <= 0x8F or code in (0xDE, 0xDF):
            return self._map(keys)
        if 0x90 <= code <= 0x9F or code in (0xDC, 0xDD):
            count = self._small(lambda unpacker: unpacker.read_array_header())
            return [self.value((*keys, str(index))) for index in range(count)]
        if code in _FIXED or code in (0xC7, 0xC8, 0xC9):
            return self._extension(keys)
        return self._small(lambda unpacker: unpacker.unpack())

    def _map(self, keys: tuple[str, ...]) -> Any:
        entries: dict[Any, Any] = {}
        for _ in range(self._small(lambda unpacker: unpacker.read_map_header())):
            key = self._small(lambda unpacker: unpacker.unpack())
            if not isinstance(key, str | int) or key in entries:
                raise InputError(f"{self._path}: {'/'.join(keys) or 'the state'} has {key!r} as a key, or has it twice")
            entries[key] = self.value((*keys, str(key)))
        if _CHUNKED not in entries:
            return entries
        parts = [entries["chunks"][str(index)].source for index in range(len(entries["chunks"]))]
        shape = tuple(entries["shape"][str(axis)] for axis in range(len(entries["shape"])))
        return Inline(JoinedSources(parts[0].dtype, shape, tuple(parts)))

    def _extension(self, keys: tuple[str, ...]) -> Inline:
        start = self.at
        code = self._data[start]
        size = _FIXED.get(code)
        start += 1
        if size is None:
            size, start = self._length(code, start)
        kind, start = self._data[start], start + 1
        if kind not in (_ARRAY, _SCALAR):
            what = "a complex number" if kind == _COMPLEX else f"an extension of type {kind}"
            raise InputError(f"{self._path}: {'/'.join(keys)} is {what}: only arrays and plain values can be read")
        self.at, end = start, start + size
        if end > len(self._data):
            raise InputError(f"{self._path} ends within {'/'.join(keys)}: it is cut off")
        header = self._small(lambda unpacker: (unpacker.read_array_header(), unpacker.unpack(), unpacker.unpack()))
        _, shape, name = header
        length, first = self._length(self._data[self.at], self.at + 1)
        if name not in _NAMES:
            raise InputError(
                f"{self._path}: {'/'.join(keys)} is an array of {name!r}, known are {', '.join(sorted(_NAMES))}"
            )
        dtype, shape = _NAMES[name], tuple(shape)
        if first + length != end or length != nbytes(dtype, shape):
            raise InputError(f"{self._path}: {'/'.join(keys)} has {length} bytes, {dtype}{list(shape)} needs others")
        self.at = end
        return Inline(InFile(self._path, dtype, shape, first), scalar=kind == _SCALAR)

    def _length(self, code: int, at: int) -> tuple[int, int]:
        """(length, position after it) of a binary, text or extension whose code is just before `at`."""
        if 0xA0 <= code <= 0xBF:  # old msgpack writes short byte strings as short texts
            return code & 0x1F, at
        if code not in _WIDTHS:
            raise InputError(f"{self._path}: byte {at - 1} is no array's: the file is damaged")
        width = _WIDTHS[code]
        return int.from_bytes(self._data[at : at + width], "big"), at + width

    def _small(self, decode: "Callable[[msgpack.Unpacker], Any]") -> Any:
        """Decode a small value at the current position by the library, and move past it."""
        import msgpack

        for reach in (1 << 12, 1 << 20, len(self._data) - self.at):
            unpacker = msgpack.Unpacker(raw=False, strict_map_key=False, max_buffer_size=0)
            unpacker.feed(self._data[self.at : self.at + reach])
            try:
                value = decode(unpacker)
            except msgpack.OutOfData:
                if self.at + reach >= len(self._data):
                    raise
                continue
            self.at += unpacker.tell()
            return value
        raise msgpack.OutOfData

"""Lossless compression of pieces: numbers by byte planes, files as bytes, raw if nothing is saved.

The sign and the mantissa of trained weights are noise; their exponents are not (2.6 of 8 bits for a normal
distribution). So elements are rotated left by one bit, which moves the sign behind the mantissa and makes the first
byte of bfloat16 and float32 the bare exponent, and each of their k bytes goes to a plane of its own; planes that do not
shrink are stored raw (Hershcovitch et al., ZipNN, arXiv 2411.05239).

Encodings:
    raw: the bytes themselves.
    zstd, gzip: one frame of RFC 8878, one member of RFC 1952.
    planes<k>-zstd: k lengths (u32, little-endian), k planes from the least significant byte to the most, and the
        bytes that remain after the last whole element. A plane as long as there are elements is stored raw, a
        shorter one is a zstd frame.
"""

import struct
import threading
import zlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import zstandard

from capibara_assets.errors import IntegrityError

Compression = Literal["zstd", "gzip", "none"]

_WIDTH: Mapping[str, int] = MappingProxyType(
    {
        "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
        "U32": 4, "I32": 4, "F32": 4, "C64": 4,
        "U64": 8, "I64": 8, "F64": 8, "C128": 8,
    }
)  # fmt: skip
"""Bytes of the words that are rotated and split; other element types have one byte, and no planes."""

_WORDS: Mapping[int, np.dtype[Any]] = MappingProxyType({width: np.dtype(f"<u{width}") for width in (2, 4, 8)})

_SMALLEST = 256  # bytes: below, a frame's headers eat what it saves
_PAYS = 0.97  # less than 3 % saved is not worth the unpacking
_RUNS, _RUN = 16, 1024  # a sample: this many runs of this many elements
_BLOCK = 1 << 16  # elements rotated at a time: two blocks of them stay in the processor's cache
_GZIP_LEVEL = 1  # on weights, level 6 takes three times as long and saves 1 % more


class _Scratch(threading.local):
    """A thread's compression contexts, which must not be shared, and its buffers, which are reused."""

    def __init__(self) -> None:
        # Exponents have no order to find, only an uneven distribution: with the least possible search for matches
        # all is left to Huffman's code, which takes 0.4 of level 1's time and gives 10 % less (matches found by chance
        # cost more than they save). Negative levels omit Huffman's code.
        self.of_planes = zstandard.ZstdCompressor(
            compression_params=zstandard.ZstdCompressionParameters(
                strategy=zstandard.STRATEGY_FAST, window_log=17, hash_log=6, min_match=7, target_length=0
            )
        )
        self.of_bytes = zstandard.ZstdCompressor(level=3)
        self.decompressor = zstandard.ZstdDecompressor()
        self.words = {width: (np.empty(_BLOCK, word), np.empty(_BLOCK, word)) for width, word in _WORDS.items()}
        self._room = np.empty(0, np.uint8)

    def room(self, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """`size` bytes, until the next call."""
        if len(self._room) < size:
            self._room = np.empty(size, np.uint8)
        return self._room[:size]


_scratch = _Scratch()


def encode(piece: memoryview, dtype: str, compression: Compression) -> tuple[str, bytes | memoryview]:
    """Compress one piece of a tensor of `dtype` (one of `content.DTYPES`), or of a file (U8).

    Returns the encoding, for `decode`, and the bytes to store: the piece itself, uncopied, under `raw`, which is used
    unless at least 3 % are saved. The same piece always gives the same bytes.
    """
    if compression == "none" or len(piece) < _SMALLEST:
        return "raw", piece
    if compression == "gzip":
        encoding, stored = "gzip", _gzip(piece)
    elif (width := _WIDTH.get(dtype, 1)) > 1:
        encoding, stored = f"planes{width}-zstd", _to_planes(piece, width)
    else:
        packer = _scratch.of_planes if dtype.startswith("F8") else _scratch.of_bytes
        encoding, stored = "zstd", packer.compress(piece)
    return (encoding, stored) if len(stored) < _PAYS * len(piece) else ("raw", piece)


def decode(encoding: str, stored: memoryview, out: memoryview) -> None:
    """Fill `out`, which is as long as the plain piece, with the piece that `encode` was given.

    Takes no more memory than `out` has bytes, whatever `stored` claims.

    Raises:
        IntegrityError: `stored` is not what `encode` makes of a piece of that length, or the encoding is unknown.
    """
    match encoding:
        case "raw":
            if len(stored) != len(out):
                raise _damaged(encoding, f"it has {len(stored)} bytes instead of {len(out)}")
            out[:] = stored
        case "zstd":
            _unpack(stored, out, encoding)
        case "gzip":
            _gunzip(stored, out)
        case "planes2-zstd" | "planes4-zstd" | "planes8-zstd":
            _from_planes(stored, int(encoding[6]), out)
        case _:
            raise IntegrityError(f"a piece is stored as {encoding!r}, which this version does not know")


def _to_planes(piece: memoryview, width: int) -> bytes | memoryview:
    count = len(piece) // width
    words = np.frombuffer(piece, _WORDS[width], count)
    chosen = _planes_that_pay(words, width)
    if not chosen:
        return piece
    planes = _scratch.room(width * count).reshape(width, count)
    _split(words, planes)
    parts: list[bytes | memoryview] = [plane.data for plane in planes]
    for index in chosen:
        frame = _scratch.of_planes.compress(parts[index])
        if len(frame) < _PAYS * count:
            parts[index] = frame
    return b"".join((struct.pack(f"<{width}I", *map(len, parts)), *parts, piece[count * width :]))


def _planes_that_pay(words: np.ndarray[Any, Any], width: int) -> list[int]:
    """Numbers of the planes to compress: those of which a sample becomes smaller; all of them in a short piece."""
    if len(words) <= _RUNS * _RUN:
        return list(range(width))
    starts = np.linspace(0, len(words) - _RUN, _RUNS).astype(np.int64)
    sample = np.concatenate([words[start : start + _RUN] for start in starts])
    planes = _scratch.room(width * len(sample)).reshape(width, -1)
    _split(sample, planes)
    compress = _scratch.of_planes.compress
    return [index for index, plane in enumerate(planes) if len(compress(plane.data)) < _PAYS * len(plane)]


def _split(words: np.ndarray[Any, Any], planes: np.ndarray[Any, Any]) -> None:
    """Words (count,) rotated left by a bit, and their bytes, least significant first, as planes (width, count)."""
    width = len(planes)
    for start in range(0, len(words), _BLOCK):
        block = words[start : start + _BLOCK]
        rotated, sign = (room[: len(block)] for room in _scratch.words[width])
        np.right_shift(block, 8 * width - 1, out=sign)
        np.left_shift(block, 1, out=rotated)
        np.bitwise_or(rotated, sign, out=rotated)
        for plane in planes:
            plane[start : start + _BLOCK] = rotated  # keeps the lowest byte
            np.right_shift(rotated, 8, out=rotated)


def _from_planes(stored: memoryview, width: int, out: memoryview) -> None:
    name, count, header = f"planes{width}-zstd", len(out) // width, 4 * width
    if len(stored) < header:
        raise _damaged(name, "its head is cut off")
    lengths = struct.unpack_from(f"<{width}I", stored)
    tail = len(out) - count * width
    if max(lengths) > count or header + sum(lengths) + tail != len(stored):
        raise _damaged(name, f"planes of {lengths} bytes do not make {len(out)} out of {len(stored)}")
    room = _scratch.room(sum(count for length in lengths if length < count))
    planes, at = [], header
    for length in lengths:
        part = stored[at : at + length]
        at += length
        if length < count:
            plane, room = room[:count], room[count:]
            _unpack(part, plane.data, name)
            planes.append(plane)
        else:
            planes.append(np.frombuffer(part, np.uint8, count))
    _join(planes, np.frombuffer(out, _WORDS[width], count))
    out[count * width :] = stored[at:]


def _join(planes: list[np.ndarray[Any, Any]], words: np.ndarray[Any, Any]) -> None:
    """The inverse of `_split`."""
    width = len(planes)
    for start in range(0, len(words), _BLOCK):
        block = words[start : start + _BLOCK]
        rotated, lower = (room[: len(block)] for room in _scratch.words[width])
        rotated[:] = planes[-1][start : start + _BLOCK]
        for plane in planes[-2::-1]:
            np.left_shift(rotated, 8, out=rotated)
            lower[:] = plane[start : start + _BLOCK]
            np.bitwise_or(rotated, lower, out=rotated)
        np.right_shift(rotated, 1, out=block)
        np.left_shift(rotated, 8 * width - 1, out=rotated)
        np.bitwise_or(block, rotated, out=block)


def _unpack(frame: memoryview, out: memoryview, encoding: str) -> None:
    """One zstd frame into `out`. What it claims is checked first: a few bytes can ask for gigabytes."""
    try:
        claims = zstandard.get_frame_parameters(frame)
        if claims.content_size != len(out) or claims.window_size > max(len(out), 1 << zstandard.WINDOWLOG_MIN):
            asked = f"{claims.content_size} bytes in a window of {claims.window_size}"
            raise _damaged(encoding, f"a frame of {asked} stands for {len(out)} bytes")
        reader, filled = _scratch.decompressor.stream_reader(frame), 0
        while filled < len(out):
            got = reader.readinto(out[filled:])
            if not got:
                raise _damaged(encoding, f"a frame ends {len(out) - filled} bytes early")
            filled += got
    except zstandard.ZstdError as error:
        raise _damaged(encoding, str(error)) from error


def _gzip(piece: memoryview) -> bytes | memoryview:
    """The gzip member, or the piece itself where a sample hardly shrinks: deflate takes longest on noise."""
    size = _RUNS * _RUN
    sample = piece[len(piece) // 2 :][:size] if len(piece) > 4 * size else piece
    if len(packed := zlib.compress(sample, _GZIP_LEVEL, 31)) >= _PAYS * len(sample):
        return piece
    return packed if sample is piece else zlib.compress(piece, _GZIP_LEVEL, 31)


def _gunzip(member: memoryview, out: memoryview) -> None:
    unpacker = zlib.decompressobj(31)
    try:
        plain = unpacker.decompress(member, len(out) + 1)
    except zlib.error as error:
        raise _damaged("gzip", str(error)) from error
    if len(plain) != len(out) or not unpacker.eof or unpacker.unused_data:
        raise _damaged("gzip", f"it does not unpack to {len(out)} bytes")
    out[:] = plain


def _damaged(encoding: str, why: str) -> IntegrityError:
    return IntegrityError(f"a piece stored as {encoding} is damaged: {why}")

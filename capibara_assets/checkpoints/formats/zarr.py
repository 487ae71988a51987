"""Arrays in zarr of T5X and Orbax, read and written through TensorStore, a band of chunks at a time."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from capibara_assets.checkpoints.content import PIECE, PieceSource, itemsize, nbytes, numpy_dtype
from capibara_assets.errors import InputError, IntegrityError

if TYPE_CHECKING:
    import tensorstore as ts

CHUNK = 4 << 20
"""Largest chunk, in bytes, that is written here. T5X aims at 64 MiB and reads any.

TensorStore holds a few chunks at once, and each of its threads keeps about two freed ones in its own heap: at 16 MiB
that was 290 MiB on a busy machine.
"""

_DAMAGED = ("DATA_LOSS", "FAILED_PRECONDITION", "INVALID_ARGUMENT", "NOT_FOUND", "OUT_OF_RANGE")

_MOST_DIMENSIONS = 32  # of zarr and numpy
_LARGE_CHUNK, _MOST_PADDED = 256 << 20, 4
_MOST_CHUNKS = 1_000_000  # of an array; T5X's of 64 MiB would be 64 TB

Region = tuple[slice, ...]


@dataclass(frozen=True)
class InZarr:
    """A source over an array that TensorStore opens.

    Attributes:
        spec: argument of `tensorstore.open`, with `fill_missing_data_reads` false where no chunk may be missing.
        where: file or folder for messages.
    """

    spec: Mapping[str, Any] = field(repr=False)
    where: str
    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        sound = all(isinstance(length, int) and length >= 0 for length in self.shape)
        if not sound or len(self.shape) > _MOST_DIMENSIONS:
            raise InputError(f"{self.where} states the shape {str(list(self.shape))[:80]}: no array has one like that")

    def pieces(self) -> Iterator[memoryview]:
        return regroup(self._bands())

    def layer(self, axis: int, index: int) -> np.ndarray[Any, Any]:
        """The part at `index` of dimension `axis`, without that dimension; no other chunks are read."""
        with self._damage():
            return np.asarray(self._open()[(slice(None),) * axis + (index,)].read().result())

    def _bands(self) -> Iterator[memoryview]:
        if 0 in self.shape:
            return
        with self._damage():
            array = self._open()
            for region in regions(self.shape, chunks_of(array), itemsize(self.dtype)):
                block = np.ascontiguousarray(array[region].read().result())
                yield block.reshape(-1).view(np.uint8).data

    def _open(self) -> "ts.TensorStore":
        import tensorstore as ts

        array = ts.open(dict(self.spec), read=True, open=True).result()
        if tuple(array.shape) != self.shape or array.dtype.numpy_dtype != numpy_dtype(self.dtype):
            raise InputError(
                f"{self.where} holds {array.dtype.name}{list(array.shape)}, its index says "
                f"{self.dtype}{list(self.shape)}"
            )
        self._require_usual(chunks_of(array))
        return array

    def _require_usual(self, chunk: tuple[int, ...]) -> None:
        """Refuse chunks far larger than the array, which are unpacked whole, and arrays of nothing but chunks."""
        count = prod(-(-length // part) for length, part in zip(self.shape, chunk, strict=True))
        size = nbytes(self.dtype, chunk)
        if size > max(_LARGE_CHUNK, _MOST_PADDED * nbytes(self.dtype, self.shape)) or count > _MOST_CHUNKS:
            raise InputError(f"{self.where} is kept in {count:,} chunks of {size:,} bytes: no checkpoint is")

    @contextmanager
    def _damage(self) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            reason = " ".join(str(error).partition("[tensorstore_spec")[0].split())
            what = "is damaged or incomplete" if str(error).startswith(_DAMAGED) else "cannot be read"
            raise InputError(f"{self.where} {what}: {reason}") from error


def write(spec: Mapping[str, Any], source: PieceSource) -> None:
    """Create the array of `spec` (its metadata names shape and chunks) and fill it; memory is a band of chunks.

    Raises:
        OSError: of the disk, for instance because it is full.
    """
    import tensorstore as ts

    with as_os_error():
        array = ts.open({**spec, "store_data_equal_to_fill_value": True}, create=True).result()
        for region, block in blocks(source, chunks_of(array)):
            array[region].write(block).result()


@contextmanager
def as_os_error() -> Iterator[None]:
    """Context that turns TensorStore's ValueError for a failed system call into the OSError in its text."""
    try:
        yield
    except ValueError as error:
        if match := re.search(r"os_error_code='(\d+)'", str(error)):
            raise OSError(int(match[1]), os.strerror(int(match[1]))) from error
        raise


def chunks_of(array: "ts.TensorStore") -> tuple[int, ...]:
    """Shape of the chunks that an array is written and decoded in."""
    return tuple(int(length or 1) for length in array.chunk_layout.write_chunk.shape or ())


def blocks(source: PieceSource, chunk: tuple[int, ...]) -> Iterator[tuple[Region, np.ndarray[Any, Any]]]:
    """The values of a source, region by region of whole chunks, in order."""
    dtype = numpy_dtype(source.dtype)
    taker = Taker(source.pieces())
    for region in regions(source.shape, chunk, dtype.itemsize):
        shape = tuple(part.stop - part.start for part in region)
        block = np.empty(shape, dtype)
        taker.fill(block.reshape(-1).view(np.uint8).data)
        yield region, block


def regions(shape: tuple[int, ...], chunk: tuple[int, ...], size: int, limit: int = CHUNK) -> Iterator[Region]:
    """Boxes that cover an array in row-major order, each contiguous and made of whole chunks.

    So no chunk is decoded twice. A box is at most `limit` bytes, or one row of chunks where that is larger.
    """
    if not shape:
        yield ()
        return
    row = size * prod(shape[1:])
    if chunk[0] == 1 and row > limit:
        for index in range(shape[0]):
            for region in regions(shape[1:], chunk[1:], size, limit):
                yield (slice(index, index + 1), *region)
        return
    rows = chunk[0] * max(1, limit // (row * chunk[0]))
    rest = tuple(slice(0, length) for length in shape[1:])
    for start in range(0, shape[0], rows):
        yield (slice(start, min(start + rows, shape[0])), *rest)


def chunk_shape(shape: tuple[int, ...], size: int, limit: int) -> tuple[int, ...]:
    """The largest chunk within `limit` bytes that is contiguous in a row-major array of elements of `size` bytes.

    It divides its dimension evenly where a divisor is near, which T5X's partitioned reads need.
    """
    for axis, length in enumerate(shape):
        inner = size * prod(shape[axis + 1 :])
        if inner <= limit:
            return (*(1 for _ in shape[:axis]), even_rows(length, limit // inner), *shape[axis + 1 :])
    return ()


def even_rows(length: int, most: int) -> int:
    """Rows of a chunk: at most `most`, and a divisor of `length` if one is at least half of what `most` allows."""
    parts = -(-length // most)
    for count in range(parts, min(2 * parts, length) + 1):
        if length % count == 0:
            return length // count
    return -(-length // parts)


def regroup(blocks: Iterable[memoryview], size: int = PIECE) -> Iterator[memoryview]:
    """The same bytes in pieces of `size`, the last one shorter."""
    rest = bytearray()
    for block in blocks:
        at = 0
        if rest:
            at = min(size - len(rest), len(block))
            rest += block[:at]
            if len(rest) == size:
                yield memoryview(rest)
                rest = bytearray()
        while len(block) - at >= size:
            yield block[at : at + size]
            at += size
        rest += block[at:]
    if rest:
        yield memoryview(rest)


class Taker:
    """Reader of bytes from a sequence of pieces, in portions of any size."""

    def __init__(self, pieces: Iterator[memoryview]) -> None:
        self._pieces = pieces
        self._piece = memoryview(b"")

    def take(self, count: int) -> Iterator[memoryview]:
        """The next `count` bytes, in parts. Raises IntegrityError: there are fewer."""
        while count:
            if not len(self._piece):
                piece = next(self._pieces, None)
                if piece is None:
                    raise IntegrityError(f"a tensor ends {count} bytes before its shape does")
                self._piece = piece
            part = self._piece[:count]
            self._piece = self._piece[len(part) :]
            count -= len(part)
            yield part

    def fill(self, out: memoryview) -> None:
        """The next bytes into `out`, all of it."""
        at = 0
        for part in self.take(len(out)):
            out[at : at + len(part)] = part
            at += len(part)


@dataclass(frozen=True)
class JoinedSources:
    """A source that concatenates the bytes of others."""

    dtype: str
    shape: tuple[int, ...]
    parts: tuple[PieceSource, ...] = field(repr=False)

    def pieces(self) -> Iterator[memoryview]:
        total = sum(nbytes(part.dtype, part.shape) for part in self.parts)
        if total != nbytes(self.dtype, self.shape):
            raise IntegrityError(f"the parts of an array of {self.dtype}{list(self.shape)} have {total} bytes together")
        return regroup(piece for part in self.parts for piece in part.pieces())

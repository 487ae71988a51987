"""Reads a file's lines with their offsets in bounded memory; plain, gzip or zstd is told by content, never by name."""

import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import zstandard
from numpy.typing import NDArray

from capibara_assets.executions.formats.event_folders import open_log
from capibara_assets.storage.foreign import hollow

BLOCK = 1 << 20
_PIECE = 64 << 10  # bytes decompressed at once: their text stays in the processor's cache until it is read
_ZSTD_PIECE = 1 << 10  # bytes of zstd decompressed at once: every four of them may be 128 KiB of text
_SALVAGED = 8  # bytes of a damaged block decompressed at once: as many as gzip's checksum and size have
MAX_LINE = 64 << 20  # bytes; real lines reach 2 MB
_UTF16, _UTF32 = (b"\xff\xfe", b"\xfe\xff"), (b"\xff\xfe\0\0", b"\0\0\xfe\xff")
_PACKED = (b"PK\x03\x04", b"SQLite format 3\0", b"PAR1")
_UTF8_BOM = b"\xef\xbb\xbf"
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_QUOTE, _COLON, _BACKSLASH = ord('"'), ord(":"), ord("\\")
_IS_SPACE = np.isin(np.arange(256), [ord(" "), ord("\t"), ord("\r")])  # by byte
UNKNOWN = -1  # number of keys in a line where the bytes leave it open


class LogLine(NamedTuple):
    """One physical line of a file, without its line end."""

    number: int  # from 1
    offset: int  # bytes into the decompressed file
    data: bytes
    ended: bool = True  # False: the file ended before the line did
    fault: str | None = None  # line_too_long
    keys: int = UNKNOWN  # of the JSON objects in it, see `key_ends`


class Chain:
    """A file's digest that can be continued: SHA-256 of one block of 1 MiB, then of each digest with the next block.

    For a file of at most one block it is the SHA-256 of its bytes.
    """

    def __init__(self, state: bytes = b"") -> None:
        self.state = state  # of the whole blocks
        self.first = b""  # digest of the first block that was added
        self._partial = b""  # digest that includes a last block that is not whole

    def add(self, block: bytes) -> None:
        """Adds the next block; only the last one may be shorter than BLOCK."""
        digest = hashlib.sha256(self.state + block).digest()
        self.first = self.first or digest
        if len(block) == BLOCK:
            self.state, self._partial = digest, b""
        else:
            self._partial = digest

    @property
    def hex(self) -> str:
        """The digest of all blocks so far, in hex."""
        return (self._partial or self.state or hashlib.sha256().digest()).hex()


@dataclass
class LineReader:
    """Iterates over a file's lines; after the iteration `fault`, `bytes_read` and `digest` describe the file.

    `fault` is None, or the reason why the file could not be read to its end: truncated_gzip, invalid_gzip,
    truncated_zstd, invalid_zstd, invalid_utf8 for a file in UTF-16 or UTF-32, or hollow_file for one that is hardly
    more than a hole (none of whose lines are given).
    `closed` says that no more can come: a compressed file that reached its proper end.

    With `stops`, a line of more than MAX_LINE is the last one, and given as soon as so much of it was read.

    A plain file can be read from `start` on, where the line `number` begins, with the `chain` of the blocks before.
    """

    path: Path
    start: int = 0
    number: int = 1
    chain: Chain = field(default_factory=Chain)
    fault: str | None = None
    detail: str = ""
    closed: bool = False
    compressed: bool = False
    stops: bool = False
    bytes_read: int = 0
    end: int = 0  # offset behind the last line that ended

    @property
    def digest(self) -> str:
        """The digest of all bytes read, in hex (see `Chain`)."""
        return self.chain.hex

    def __iter__(self) -> Iterator[LogLine]:
        number, offset, too_long = self.number, self.start, False
        held, size = [b""], 0  # of the line that has not ended, in pieces: joined once, or long lines take a square
        self.end = self.start
        for index, block in enumerate(self._decompressed()):
            if index == 0 and self.start == 0:
                if wide := _wide_encoding(block):
                    self.fault, self.detail = "invalid_utf8", f"the file is {wide}; save it as UTF-8"
                    self._drain()
                    yield LogLine(0, 0, block[:65536], ended=False)
                    return
                if block.startswith(_UTF8_BOM):
                    offset, block = len(_UTF8_BOM), block[len(_UTF8_BOM) :]
            if b"\n" in block:
                text = b"".join((*held, block))
                pieces = text.split(b"\n")
                held = [pieces.pop()]
                size = len(held[0])
                ends = np.cumsum([len(piece) + 1 for piece in pieces])
                for piece, keys in zip(pieces, key_ends(text[: ends[-1]], ends), strict=True):
                    fault = "line_too_long" if too_long else None
                    yield LogLine(number, offset, piece.removesuffix(b"\r"), True, fault, keys)
                    number, offset, too_long = number + 1, offset + len(piece) + 1, False
                self.end = offset
            else:
                held.append(block)
                size += len(block)
            if size > MAX_LINE:
                # the head is enough to say which line it was
                offset, held, size, too_long = offset + size - 4096, [b"".join(held)[:4096]], 4096, True
                if self.stops:
                    break
        if size:
            rest = b"".join(held).rstrip(b"\r")
            yield LogLine(number, offset, rest, ended=False, fault="line_too_long" if too_long else None)

    def _blocks(self) -> Iterator[bytes]:
        """The file's bytes from `start` on; what stands before it in its block counts for the digest only."""
        skipped = self.start % BLOCK
        self.bytes_read = self.start - skipped
        if why := hollow(self.path, self.path.stat()):
            self.fault, self.detail = "hollow_file", f"the file {why}"
            return
        with open_log(self.path) as file:
            file.seek(self.bytes_read)
            while block := file.read(BLOCK):
                self.chain.add(block)
                self.bytes_read += len(block)
                if fresh := block[skipped:] if skipped else block:
                    yield fresh
                skipped = 0

    def _drain(self) -> None:
        """Reads the rest, so that digest and size are those of the whole file."""
        with open_log(self.path) as file:
            file.seek(self.bytes_read)
            while block := file.read(BLOCK):
                self.chain.add(block)
                self.bytes_read += len(block)

    def _decompressed(self) -> Iterator[bytes]:
        blocks = self._blocks()
        first = next(blocks, b"")
        codec: _Codec
        self.compressed = self.start == 0 and first.startswith((_GZIP, _ZSTD))
        if self.compressed and first.startswith(_GZIP):
            codec = _Gzip()
        elif self.compressed:
            codec = _Zstd()
        else:
            if first:
                yield first
            yield from blocks
            return
        for block in _chain(first, blocks):
            try:
                for piece in codec.feed(block):
                    if piece:
                        yield piece
            except (zlib.error, zstandard.ZstdError) as error:
                self.fault, self.detail = f"invalid_{codec.name}", f"damaged {codec.name} data: {error}"
                self._drain()
                return
        if codec.finished:
            self.closed = True
        else:
            self.fault, self.detail = f"truncated_{codec.name}", f"the {codec.name} data ends early"


def unpacked(path: Path, most: int) -> bytes:
    """A file's bytes, of a compressed one what it holds, at most so many. Raises OSError."""
    kept, size = [], 0
    for block in LineReader(path)._decompressed():
        kept.append(block)
        size += len(block)
        if size > most:
            break
    return b"".join(kept)[:most]


class _Codec(Protocol):
    name: str

    @property
    def finished(self) -> bool: ...

    def feed(self, block: bytes) -> Iterator[bytes]: ...


class _Gzip:
    """Decompresses gzip members, also several in a row, a bounded piece at a time."""

    name = "gzip"

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(31)

    @property
    def finished(self) -> bool:
        return self._inflate.eof

    def feed(self, block: bytes) -> Iterator[bytes]:
        for start in range(0, len(block), _PIECE):
            yield from self._feed(block[start : start + _PIECE])

    def _feed(self, block: bytes) -> Iterator[bytes]:
        while block:
            if self._inflate.eof:
                if not block.strip(b"\0"):  # padding after the last member
                    return
                self._inflate = zlib.decompressobj(31)
            before = self._inflate.copy()
            try:
                piece = self._inflate.decompress(block, BLOCK)
            except zlib.error:
                yield from _before_damage(before, block)
                raise
            yield piece
            block = self._inflate.unconsumed_tail or self._inflate.unused_data


def _before_damage(inflate: Any, block: bytes) -> Iterator[bytes]:
    """What a damaged block holds before the damage, which may be the checksum behind all of it."""
    for start in range(0, len(block), _SALVAGED):
        try:
            yield inflate.decompress(block[start : start + _SALVAGED])
        except zlib.error:
            return


class _Zstd:
    """Decompresses zstd frames, also several in a row."""

    name = "zstd"

    def __init__(self) -> None:
        self._frame = zstandard.ZstdDecompressor().decompressobj()

    @property
    def finished(self) -> bool:
        return self._frame.eof

    def feed(self, block: bytes) -> Iterator[bytes]:
        for start in range(0, len(block), _ZSTD_PIECE):
            yield from self._feed(block[start : start + _ZSTD_PIECE])

    def _feed(self, block: bytes) -> Iterator[bytes]:
        while block:
            if self._frame.eof:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            yield self._frame.decompress(block)
            block = self._frame.unused_data if self._frame.eof else b""


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _wide_encoding(block: bytes) -> str | None:
    """UTF-16 or UTF-32, by its mark, or by a NUL in every other byte: other binary files have them anywhere."""
    head = block[:512]
    if head.startswith(_PACKED):
        return None  # an archive of such files, or a table that has them in a cell
    if head.startswith(_UTF32):
        return "UTF-32"
    even, odd = head[::2].count(0), head[1::2].count(0)
    other = max(even, odd) * 3 >= len(head) and min(even, odd) * 20 <= max(even, odd)
    return "UTF-16" if head.startswith(_UTF16) or (len(head) >= 8 and other) else None


# --- keys in a line, counted in its bytes ---------------------------------------------------------------------------


def key_ends(text: bytes, ends: NDArray[np.int64]) -> list[int]:
    """Counts the JSON keys in each line of `text`; UNKNOWN where space before a colon leaves the number open.

    It checks a parser that silently drops one of two equal keys. `ends`: offset behind each line.

    A key ends with a quote and a colon. The same two bytes inside a string have an odd number of backslashes before the
    quote. A string that begins with a colon counts as a key too many, so a count is never too small.
    """
    data = np.frombuffer(text, np.uint8)
    colons = np.flatnonzero(data == _COLON)
    colons = colons[colons > 0]
    before = data[colons - 1]
    quotes = colons[before == _QUOTE] - 1
    keys = quotes[~_escaped(data, quotes)]
    counts = np.diff(np.searchsorted(keys, ends), prepend=0)
    spaced = colons[_IS_SPACE[before]] - 1
    while len(spaced := spaced[spaced > 0]):
        spaced = spaced - 1
        open_ends = spaced[data[spaced] == _QUOTE]
        open_ends = open_ends[~_escaped(data, open_ends)]
        lines = np.searchsorted(ends, open_ends)
        counts[lines[lines < len(counts)]] = UNKNOWN
        spaced = spaced[_IS_SPACE[data[spaced]]]
    keys_by_line: list[int] = counts.tolist()
    return keys_by_line


def _escaped(data: NDArray[np.uint8], places: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether an odd number of backslashes stands before each place."""
    odd = np.zeros(len(places), bool)
    running, distance = np.arange(len(places)), 1
    while len(running):
        at = places[running] - distance
        running = running[(at >= 0) & (data[np.maximum(at, 0)] == _BACKSLASH)]
        odd[running] ^= True
        distance += 1
    return odd

"""Archives of logs (zip, tar): their members, of which each that is a log is read like a separate file.

Chats and results of jobs are exported this way. Members are read in the order of their names, in memory, what gzip
or zstd packed as well. One that is too large, damaged or encrypted is a fault with the member's name.
"""

import codecs
import gzip
import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

import zstandard

from capibara_assets.executions.formats.strict_json import Fault

_ZIP = b"PK\x03\x04"
_GZIP, _ZSTD = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"
_HEADER = struct.Struct("<6xHH8xI4xHH")  # before a member: flags, method, packed size, sizes of its name and the rest
_BEHIND, _SIZES, _SIZES_FOLLOW = 8, 12, b"PK\x07\x08"  # the flag that sizes stand behind the member, and their bytes
_BLOCK, _PIECE = 512, 1 << 16  # bytes of a tar's block, and read at once
_USTAR, _MAGIC = b"ustar", slice(257, 262)
_MOST_MEMBERS = 10_000
MOST = 256 << 20  # bytes of all members
_ENCRYPTED = 1  # bit of a zip entry's flags
_DAMAGED = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError, ValueError),
    *(RuntimeError, NotImplementedError, zstandard.ZstdError),  # a method that is not known
)


def is_archive(data: bytes) -> bool:
    """Whether bytes begin as a zip or a tar archive does."""
    return data.startswith(_ZIP) or data[_MAGIC] == _USTAR


def members(data: bytes) -> Iterator[tuple[str, bytes] | Fault]:
    """Name and content of each file in an archive."""
    left = MOST
    if data.startswith(_ZIP) and not zipfile.is_zipfile(io.BytesIO(data)):
        yield from _without_list(data)
        return
    try:
        with _opened(data) as pack:
            damage: list[Fault] = []
            listed = sorted(_listed(pack, len(data), damage), key=lambda member: member[0])
            for name, size, info in listed[:_MOST_MEMBERS]:
                if size > left:
                    yield Fault("member_too_large", f"{name}: more than {MOST} bytes in all")
                    continue
                if isinstance(info, zipfile.ZipInfo) and info.flag_bits & _ENCRYPTED:
                    yield Fault("encrypted_member", f"{name}: unpack the archive with its password")
                    continue
                content, problem = _content(pack, info, size)
                if problem:
                    yield Fault("damaged_member", f"{name}: {problem}")
                left -= len(content)
                yield name, content
            yield from damage
            if rest := listed[_MOST_MEMBERS:]:
                yield Fault("too_many_members", f"the last {len(rest)} of {len(listed)}, from {rest[0][0]}: unpack it")
    except _DAMAGED as error:
        yield Fault("damaged_archive", str(error))


def _opened(data: bytes) -> zipfile.ZipFile | tarfile.TarFile:
    file = io.BytesIO(data)
    return zipfile.ZipFile(file) if data.startswith(_ZIP) else tarfile.open(fileobj=file, mode="r:")


def _listed(pack: zipfile.ZipFile | tarfile.TarFile, size: int, damage: list[Fault]) -> Iterator[tuple[str, int, Any]]:
    """Name, size and entry of each file in an archive of a size; of a damaged tar those before the damage."""
    if isinstance(pack, zipfile.ZipFile):
        yield from ((info.filename, info.file_size, info) for info in pack.infolist() if not info.is_dir())
        return
    try:
        for entry in pack:
            if entry.isreg():
                yield entry.name, entry.size, entry
    except tarfile.TarError as error:
        damage.append(Fault("damaged_archive", f"{error}: members behind byte {pack.offset} are not read"))
        return
    assert pack.fileobj is not None  # opened in memory
    pack.fileobj.seek(pack.offset)
    if any(pack.fileobj.read(_BLOCK)):  # an archive ends with blocks of zeros; the library stops at any bad header
        damage.append(
            Fault("damaged_archive", f"no header at byte {pack.offset} of {size}: members behind it are lost")
        )


def _without_list(data: bytes) -> Iterator[tuple[str, bytes] | Fault]:
    """The members of a zip whose end, where they are listed, is missing: by the header before each of them."""
    at, left, count = 0, MOST, 0
    while data.startswith(_ZIP, at) and len(data) - at >= _HEADER.size and left and count < _MOST_MEMBERS:
        count += 1
        flags, method, packed, name_size, extra_size = _HEADER.unpack_from(data, at)
        begin = at + _HEADER.size + name_size + extra_size
        name = data[at + _HEADER.size : at + _HEADER.size + name_size].decode("utf-8", "replace")
        if (
            flags & _ENCRYPTED
            or method not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
            or (flags & _BEHIND and not method)
        ):
            break  # where it ends is not told
        if method == zipfile.ZIP_STORED:
            content, at, whole = data[begin : begin + packed], begin + packed, len(data) >= begin + packed
        else:
            try:
                content, at, whole = _inflated(data, begin, left)
            except zlib.error:
                break
        if flags & _BEHIND:
            at += _SIZES + (len(_SIZES_FOLLOW) if data.startswith(_SIZES_FOLLOW, at) else 0)
        left -= len(content)
        if not whole:
            yield Fault("damaged_member", f"{name}: the archive ends in it")
        if not name.endswith("/"):
            yield name, content
        if not whole:
            break
    yield Fault("damaged_archive", "its end is missing: members are read up to there")


def _inflated(data: bytes, begin: int, most: int) -> tuple[bytes, int, bool]:
    """What deflate packed from a byte on, at most so much of it, the byte behind it, and whether it ended there."""
    inflate, kept, size, at = zlib.decompressobj(-zlib.MAX_WBITS), list[bytes](), 0, begin
    while not inflate.eof and size < most and at < len(data):
        piece = inflate.unconsumed_tail or data[at : at + _PIECE]
        at += 0 if inflate.unconsumed_tail else len(piece)
        kept.append(inflate.decompress(piece, most - size))
        size += len(kept[-1])
    return b"".join(kept), at - len(inflate.unused_data), inflate.eof


def _content(pack: zipfile.ZipFile | tarfile.TarFile, info: Any, size: int) -> tuple[bytes, str]:
    """A member's bytes, of gzip or zstd what it holds, and what is wrong with them: they are those before it."""
    try:
        member = pack.open(info) if isinstance(pack, zipfile.ZipFile) else pack.extractfile(info)
    except _DAMAGED as error:
        return b"", str(error)
    if member is None:
        return b"", ""
    content, problem = _read(member, size)  # what a member says of itself bounds what it holds
    if content.startswith(_GZIP):
        content, unpacking = _read(gzip.GzipFile(fileobj=io.BytesIO(content)), MOST)
    elif content.startswith(_ZSTD):
        packed = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(content), read_across_frames=True)
        content, unpacking = _read(packed, MOST)
    else:
        return _as_utf8(content), problem
    return _as_utf8(content), problem or unpacking or (
        f"more than {MOST} bytes unpacked" if len(content) == MOST else ""
    )


def _as_utf8(text: bytes) -> bytes:
    """Text in UTF-16 (as PowerShell writes what is redirected to a file) or UTF-32 in UTF-8; others as they are."""
    if text.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):  # the former begins as the mark of UTF-16 does
        return text.decode("utf-32", "replace").encode()
    if text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return text.decode("utf-16", "replace").encode()
    return text


def _read(file: Any, most: int) -> tuple[bytes, str]:
    """At most so many bytes of an open file, and what ended it before; what was read before an error counts."""
    kept, left, problem = list[bytes](), most, ""
    with file:
        try:
            while left and (piece := file.read1(min(left, _PIECE))):
                kept.append(piece)
                left -= len(piece)
        except _DAMAGED as error:
            problem = str(error)
    return b"".join(kept), problem

"""Archives of logs (zip, tar): each member that is a log is read like a separate file.

Chats and results of jobs are exported this way. Members are read in the order of their names, in memory. One that is
too large, damaged or encrypted is a fault with the member's name.
"""

import io
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from capibara_assets.executions.formats.agents.runs import Entry, LogDocument, Reader
from capibara_assets.executions.formats.strict_json import Fault

ZIP = b"PK\x03\x04"
_USTAR, _MAGIC = b"ustar", slice(257, 262)
_MOST_MEMBERS = 10_000
_MOST = 256 << 20  # bytes of all members
_ENCRYPTED = 1  # bit of a zip entry's flags
_DAMAGED = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError, ValueError),
    *(RuntimeError, NotImplementedError),  # a method that is not known
)


def is_archive(data: bytes) -> bool:
    """Whether bytes begin as a zip or a tar archive does."""
    return data.startswith(ZIP) or data[_MAGIC] == _USTAR


def reader_of(document: LogDocument, find_reader: Callable[[LogDocument], Reader | None]) -> Reader | None:
    """A reader for an archive's members that are logs; None: there are none, and nothing is wrong with a member."""
    found: list[tuple[bytes, Reader] | Fault] = []
    for member in _members(document.data):
        if isinstance(member, Fault):
            found.append(member)
        elif reader := find_reader(LogDocument(member)):
            found.append((member, reader))
    if not found:
        return None

    def entries(_: LogDocument) -> Iterator[Entry]:
        for one in found:
            if isinstance(one, Fault):
                yield one
            else:  # a document keeps what was parsed: one at a time
                yield from one[1].entries(LogDocument(one[0]))

    return Reader("archive", (), lambda _: True, entries)


def _members(data: bytes) -> Iterator[bytes | Fault]:
    """Content of each file in an archive that is no archive itself."""
    left = _MOST
    try:
        with _opened(data) as pack:
            listed = sorted(_listed(pack), key=lambda member: member[0])
            for name, size, info in listed[:_MOST_MEMBERS]:
                if size > left:
                    yield Fault("member_too_large", f"{name}: more than {_MOST} bytes in all")
                    continue
                if isinstance(info, zipfile.ZipInfo) and info.flag_bits & _ENCRYPTED:
                    yield Fault("encrypted_member", f"{name}: unpack the archive with its password")
                    continue
                try:
                    content = _content(pack, info, size)
                except _DAMAGED as error:
                    yield Fault("damaged_member", f"{name}: {error}")
                    continue
                left -= len(content)
                if not is_archive(content):
                    yield content
            if rest := listed[_MOST_MEMBERS:]:
                yield Fault("too_many_members", f"the last {len(rest)} of {len(listed)}, from {rest[0][0]}: unpack it")
    except _DAMAGED as error:
        yield Fault("damaged_archive", str(error))


def _opened(data: bytes) -> zipfile.ZipFile | tarfile.TarFile:
    file = io.BytesIO(data)
    return zipfile.ZipFile(file) if data.startswith(ZIP) else tarfile.open(fileobj=file, mode="r:")


def _listed(pack: zipfile.ZipFile | tarfile.TarFile) -> list[tuple[str, int, Any]]:
    """Name, size and entry of each file in an archive."""
    if isinstance(pack, zipfile.ZipFile):
        return [(info.filename, info.file_size, info) for info in pack.infolist() if not info.is_dir()]
    return [(entry.name, entry.size, entry) for entry in pack if entry.isreg()]


def _content(pack: zipfile.ZipFile | tarfile.TarFile, info: Any, size: int) -> bytes:
    member = pack.open(info) if isinstance(pack, zipfile.ZipFile) else pack.extractfile(info)
    if member is None:
        return b""
    with member:
        return member.read(size)  # what a member says of itself bounds what it holds

"""Storage of a round's messages: a folder, a bucket (any address fsspec knows), or an HTTP endpoint.

Names appear with all their bytes or not at all, and are never written again. When a message was received is what the
place says, never its sender: the file's time of change on a disk, the object's time in a bucket, the server's clock.
"""

import errno
import os
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from stat import S_ISREG
from typing import Protocol

from upath import UPath

from capibara_assets.checkpoints.store.places import PARTS, StorePlace, open_place
from capibara_assets.errors import InputError, printable
from capibara_assets.storage.jsonfiles import strict_json

MESSAGES = "letters"  # as in rounds that were begun before
_TIMEOUT_S = 60.0  # in which a place has to go on, and in which a short answer has to be there
_TRANSFER_S = 900.0  # in which a file has to be there
_SHORT = 4096  # bytes of an answer that is no file; of more nothing is read


@dataclass(frozen=True, order=True)
class Arrival:
    """A message as a place lists it; ordered by time of arrival.

    Attributes:
        received: seconds since 1970, by the place's clock.
        size: bytes; -1: no regular file lies under this name.
    """

    received: float
    name: str
    size: int


class RoundPlace(Protocol):
    """Interface of a storage place of rounds."""

    @property
    def root(self) -> str:
        """Address, for messages."""
        ...

    def create(self, name: str, data: bytes) -> bool:
        """Write a new file; False, without effect, if the name exists. Raises InputError if refused."""
        ...

    def read(self, name: str, most: int) -> bytes:
        """The first `most` bytes of a file. Raises FileNotFoundError."""
        ...

    def arrivals(self, round_digest: str) -> list[Arrival]:
        """Messages of a round, in the order of arrival."""
        ...

    def now(self) -> float:
        """Time of the place's clock, which decides deadlines: seconds since 1970, up to one behind."""
        ...


def open_round_place(address: str, work: Path) -> RoundPlace:
    """Open the place at an address.

    Args:
        work: local folder that a bucket may need for unfinished files.
    """
    if address.startswith(("http://", "https://")):
        return HttpPlace(address.rstrip("/"))
    return StoredPlace(open_place(address, work=work), UPath(address))


_NO_FILE = (errno.ELOOP, errno.ENOTDIR, errno.ENXIO)  # of a link to itself, below a file, a socket


@dataclass(frozen=True)
class StoredPlace:
    """A place in a folder on a disk or in an object store."""

    store: StorePlace
    path: UPath

    @property
    def root(self) -> str:
        return self.store.root

    def create(self, name: str, data: bytes) -> bool:
        return self.store.create(name, data)

    @property
    def _local(self) -> bool:
        return self.path.protocol in ("", "file", "local")

    def read(self, name: str, most: int) -> bytes:
        if not self._local:
            with (self.path / name).open("rb") as remote:
                return bytes(remote.read(most))
        path = Path(self.path.path, name)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in _NO_FILE:
                raise FileNotFoundError(f"{path} is no regular file") from error
            raise
        try:
            if not S_ISREG(os.fstat(descriptor).st_mode):  # a folder, or a pipe, which would never end
                raise FileNotFoundError(f"{path} is no regular file")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                return file.read(most)
        finally:
            os.close(descriptor)

    def arrivals(self, round_digest: str) -> list[Arrival]:
        folder = f"{round_digest}/{MESSAGES}"
        if self._local:
            return _on_disk(Path(self.path.path, folder))
        arrivals = []
        for name, size in self.store.list(folder).items():
            try:
                arrivals.append(Arrival(self._received(f"{folder}/{name}"), name, size))
            except FileNotFoundError:
                continue  # taken away meanwhile
        return sorted(arrivals)

    def now(self) -> float:
        name = f"{PARTS}/clock-{uuid.uuid4().hex}"
        self.store.create(name, b"", durable=False)
        try:
            return Path(self.path.path, name).stat().st_ctime if self._local else self._received(name)
        finally:
            self.store.delete(name)

    def _received(self, name: str) -> float:
        fs, path = self.path.fs, (self.path / name).path
        try:
            return float(fs.created(path).timestamp())
        except NotImplementedError:
            return float(fs.modified(path).timestamp())


def _on_disk(folder: Path) -> list[Arrival]:
    """What lies in a folder, also what is no file; its time of change is one that no sender can set."""
    arrivals = []
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        if error.errno not in (*_NO_FILE, errno.ENOENT):
            raise
        return []
    for entry in entries:
        try:
            stat = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue  # taken away meanwhile
        arrivals.append(Arrival(stat.st_ctime, entry.name, stat.st_size if S_ISREG(stat.st_mode) else -1))
    return sorted(arrivals)


@dataclass(frozen=True)
class HttpPlace:
    """A place behind the endpoint of `capibara consensus serve`."""

    root: str

    def create(self, name: str, data: bytes) -> bool:
        status, _, said = self._asked("PUT", name, _SHORT, data)
        if status not in (200, 201):
            why = said.decode("utf-8", "replace")[:400].strip()
            raise InputError(f"{self.root} refuses the message: {printable(why) or status}")
        return status == 201

    def read(self, name: str, most: int) -> bytes:
        status, _, data = self._asked("GET", name, most)
        if status != 200:
            raise FileNotFoundError(f"{self.root}/{name}: {status}")
        return data

    def arrivals(self, round_digest: str) -> list[Arrival]:
        data = self.read(f"{round_digest}/{MESSAGES}", 64 << 20)
        try:
            listed = strict_json(data)
            return sorted(Arrival(float(received), str(name), int(size)) for received, name, size in listed)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise InputError(f"{self.root} lists no messages, but {data[:80]!r}: check the address") from error

    def now(self) -> float:
        try:
            return parsedate_to_datetime(self._asked("GET", "", 0)[1]["Date"]).timestamp()
        except (KeyError, ValueError, OverflowError) as error:
            raise InputError(f"{self.root} does not tell its time (Date): check the address") from error

    def _asked(
        self, method: str, name: str, most: int, content: bytes | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and the first `most` bytes of an answer, of which nothing further is read.

        Raises:
            InputError: the place cannot be reached, or has not sent them in time.
        """
        import httpx2

        data = bytearray()
        try:
            with httpx2.stream(
                method, f"{self.root}/{name}", content=content, timeout=_TIMEOUT_S,
                headers={"Accept-Encoding": "identity"},  # so that few bytes do not stand for many
            ) as reply:  # fmt: skip
                # what is sent may take its time; each of its blocks has the time-out of the connection
                until = time.monotonic() + (_TIMEOUT_S if most <= _SHORT else _TRANSFER_S)
                pieces = reply.iter_raw() if most else iter(())
                while len(data) < most and (piece := next(pieces, b"")):
                    data += piece
                    if time.monotonic() > until:
                        raise InputError(f"{self.root} does not come to the end of {name or 'its answer'}: try again")
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._unreachable(error) from error
        return reply.status_code, reply.headers, bytes(data[:most])

    def _unreachable(self, error: Exception) -> InputError:
        return InputError(
            f"{self.root} cannot be reached: {error or type(error).__name__}; check the address, try again"
        )

"""Where the letters of a round lie: a folder, a bucket (any address fsspec knows), or an HTTP endpoint.

Names appear with all their bytes or not at all, and are never written again. When a letter was received is what the
place says, never its sender: the file's time of change on a disk, the object's time in a bucket, the server's clock.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from upath import UPath

from capibara_assets.checkpoints.store.places import StorePlace, open_place
from capibara_assets.errors import InputError

LETTERS = "letters"
_TIMEOUT_S = 60.0


@dataclass(frozen=True, order=True)
class Arrival:
    """A letter as a place lists it; ordered by when it came.

    Attributes:
        received: seconds since 1970, by the place's clock.
    """

    received: float
    name: str
    size: int


class RoundPlace(Protocol):
    """What a place of rounds can do."""

    @property
    def root(self) -> str:
        """Address, for messages."""
        ...

    def create(self, name: str, data: bytes) -> bool:
        """Write a new file; False, and no effect, where the name exists. Raises InputError: it is refused."""
        ...

    def read(self, name: str, most: int) -> bytes:
        """The first `most` bytes of a file. Raises FileNotFoundError."""
        ...

    def arrivals(self, round_digest: str) -> list[Arrival]:
        """The letters of a round, in the order in which they came."""
        ...


def open_round_place(address: str, work: Path) -> RoundPlace:
    """The place at an address.

    Args:
        work: local folder that a bucket may need for unfinished files.
    """
    if address.startswith(("http://", "https://")):
        return HttpPlace(address.rstrip("/"))
    return StoredPlace(open_place(address, work=work), UPath(address))


@dataclass(frozen=True)
class StoredPlace:
    """A folder on a disk, or one of an object store."""

    store: StorePlace
    path: UPath

    @property
    def root(self) -> str:
        return self.store.root

    def create(self, name: str, data: bytes) -> bool:
        return self.store.create(name, data)

    def read(self, name: str, most: int) -> bytes:
        with (self.path / name).open("rb") as file:
            return bytes(file.read(most))

    def arrivals(self, round_digest: str) -> list[Arrival]:
        folder = f"{round_digest}/{LETTERS}"
        found = []
        for name, size in self.store.list(folder).items():
            try:
                found.append(Arrival(self._received(f"{folder}/{name}"), name, size))
            except FileNotFoundError:
                continue  # taken away meanwhile
        return sorted(found)

    def _received(self, name: str) -> float:
        if self.path.protocol in ("", "file", "local"):
            return Path(self.path.path, name).stat(follow_symlinks=False).st_ctime  # no sender can set this one
        fs, path = self.path.fs, (self.path / name).path
        try:
            return float(fs.created(path).timestamp())
        except NotImplementedError:
            return float(fs.modified(path).timestamp())


@dataclass(frozen=True)
class HttpPlace:
    """An endpoint of `capibara consensus serve`."""

    root: str

    def create(self, name: str, data: bytes) -> bool:
        import httpx2

        try:
            reply = httpx2.put(f"{self.root}/{name}", content=data, timeout=_TIMEOUT_S)
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from error
        if reply.status_code not in (200, 201):
            raise InputError(f"{self.root} refuses the letter: {reply.text[:400].strip() or reply.status_code}")
        return reply.status_code == 201

    def read(self, name: str, most: int) -> bytes:
        import httpx2

        data = bytearray()
        try:
            with httpx2.stream("GET", f"{self.root}/{name}", timeout=_TIMEOUT_S) as reply:
                if reply.status_code != 200:
                    raise FileNotFoundError(f"{self.root}/{name}: {reply.status_code}")
                for piece in reply.iter_bytes():
                    data += piece
                    if len(data) >= most:
                        break
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from error
        return bytes(data[:most])

    def arrivals(self, round_digest: str) -> list[Arrival]:
        import json

        listed = json.loads(self.read(f"{round_digest}/{LETTERS}", 64 << 20))
        return sorted(Arrival(float(received), str(name), int(size)) for received, name, size in listed)

    def _unreachable(self, error: Exception) -> InputError:
        return InputError(
            f"{self.root} cannot be reached: {error or type(error).__name__}; check the address, try again"
        )

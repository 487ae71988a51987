"""Values by key in one SQLite file, which can be computed again: any number of processes read and write it at once.

A value that is not what was written, and a file that SQLite finds damaged, count as absent; the next write replaces
them.
"""

import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from capibara_assets.errors import InputError

_WAIT_S = 60.0  # for another process's write, which takes milliseconds
# Rows lie by a digest of their key: a second tree of keys could be damaged where nobody notices.
_TABLE = "CREATE TABLE IF NOT EXISTS cached (place INTEGER PRIMARY KEY, key BLOB, value BLOB, sum BLOB)"


@dataclass(frozen=True)
class CacheRead:
    """Result of reading a cache.

    Attributes:
        damaged: number of values that are not what was written; a damaged file counts as one.
    """

    values: dict[bytes, bytes] = field(default_factory=dict)
    damaged: int = 0


@dataclass(frozen=True)
class Cache:
    """A cache file; one that is not there is empty.

    Attributes:
        holds: what it is a cache of, in the plural, for messages.
        former: glob patterns, in its folder, of files that held these values before, or hold those of other programs;
            the next write removes them.
    """

    path: Path
    holds: str
    former: Collection[str] = ()

    def read(self, key: bytes | None = None) -> CacheRead:
        """All values, or that of one key alone.

        Raises:
            InputError: the file cannot be opened, or others keep it locked.
        """
        if not self.path.exists():
            return CacheRead()
        values, damaged = dict[bytes, bytes](), 0
        try:
            with self._opened() as database:
                database.text_factory = bytes  # a damaged type of a value is no error, only a wrong checksum
                database.execute(_TABLE)
                which, wanted = ("", ()) if key is None else (" WHERE place = ?", (_place(key),))
                for name, value, checksum in database.execute(f"SELECT key, value, sum FROM cached{which}", wanted):
                    if isinstance(name, bytes) and isinstance(value, bytes) and checksum == _checksum(name, value):
                        values[name] = value
                    else:
                        damaged += 1
        except sqlite3.DatabaseError:
            return CacheRead(values, damaged + 1)
        return CacheRead(values, damaged)

    def add(self, values: Mapping[bytes, bytes]) -> None:
        """Write values, replacing those of the same keys.

        Raises:
            InputError: as `read`, or the disk is full.
        """
        rows = sorted((_place(key), key, value, _checksum(key, value)) for key, value in values.items())
        try:
            self._write(rows)
        except sqlite3.DatabaseError:
            self.remove()
            self._write(rows)
        self._remove_former()

    def replace(self, values: Mapping[bytes, bytes]) -> None:
        """Make these all that the cache holds, in a new file: of other values no byte stays."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=self.path.parent, prefix=".writing-") as folder:
            beside = Cache(Path(folder) / self.path.name, self.holds)
            beside.add(values)
            beside.path.replace(self.path)
        self._remove_former()

    def remove(self) -> None:
        """Delete the file and SQLite's temporary files beside it."""
        for path in (self.path, self.path.with_name(f"{self.path.name}-journal")):
            path.unlink(missing_ok=True)

    def _write(self, rows: Collection[tuple[int, bytes, bytes, bytes]]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._opened() as database, database:
            database.execute(_TABLE)
            database.executemany("INSERT OR REPLACE INTO cached VALUES (?, ?, ?, ?)", rows)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=_WAIT_S)) as database:
                yield database
        except sqlite3.OperationalError as error:  # locked, full, not writable: nothing is damaged
            raise InputError(
                f"cannot use the cache of {self.holds} {self.path}: {error}. Remove it ({self.holds} are made again) "
                "or give another folder"
            ) from error

    def _remove_former(self) -> None:
        for pattern in self.former:
            for path in self.path.parent.glob(pattern):
                if path != self.path:
                    path.unlink(missing_ok=True)


def _place(key: bytes) -> int:
    return int.from_bytes(sha256(key).digest()[:8], signed=True)


def _checksum(key: bytes, value: bytes) -> bytes:
    return sha256(key + value).digest()[:8]

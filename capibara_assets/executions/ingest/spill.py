"""Encrypted scratch storage for tables that do not fit into memory, by partition.

Nothing unredacted may be written in the clear, yet placeholders are numbered over a whole sandbox, whose lines may be
far apart. So rows that wait for the rest of their sandbox are sealed with a key that exists only in the memory of one
ingest run's processes: the scratch files that a crash leaves behind are unreadable.
"""

import io
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_BLOCK = 256 << 10  # bytes of a partition that are written at once
_HELD = 16 << 20  # bytes of all partitions that wait in memory
_NONCE = 12


def new_key() -> bytes:
    """A fresh AES-256 key."""
    return AESGCM.generate_key(256)


class Spill:
    """Data frames by (name, partition). Each process appends to files of its own and reads those of all.

    Args:
        out: another folder to write to, whose files are no part of the spill before `adopt`.
    """

    def __init__(self, folder: Path, key: bytes, writer: str, out: Path | None = None) -> None:
        self.folder, self.key, self.writer, self.out = folder, key, writer, out or folder
        self._cipher = AESGCM(key)
        self._waiting: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        self._sizes: dict[tuple[str, int], int] = defaultdict(int)
        self._held = 0
        self._read: tuple[tuple[str, int], pl.DataFrame] | None = None  # the partition that was read last

    def add(self, name: str, part: int, frame: pl.DataFrame) -> None:
        """Appends the rows of a frame to a partition."""
        if frame.is_empty():
            return
        self._read = None
        buffer = io.BytesIO()
        frame.write_ipc_stream(buffer)
        nonce = os.urandom(_NONCE)
        sealed = self._cipher.encrypt(nonce, buffer.getbuffer(), None)
        place = (name, part)
        self._waiting[place] += [len(sealed).to_bytes(8, "big"), nonce, sealed]
        self._sizes[place] += len(sealed)
        self._held += len(sealed)
        if self._sizes[place] >= _BLOCK:
            self._write(place)
        elif self._held >= _HELD:
            self.flush()

    def frame(self, name: str, part: int, schema: dict[str, Any]) -> pl.DataFrame:
        """The rows that all processes wrote, in no particular order between them; flush this one's first."""
        if self._read is None or self._read[0] != (name, part):
            frames = [pl.read_ipc_stream(block) for block in self._blocks(name, part)]
            self._read = (name, part), pl.concat(frames) if frames else pl.DataFrame(schema=schema)
        return self._read[1]

    def once(self, name: str, part: int, schema: dict[str, Any]) -> pl.DataFrame:
        """`frame`, for the one who reads it last: nothing is remembered."""
        frame = self.frame(name, part, schema)
        self._read = None
        return frame

    def adopt(self, out: Path) -> None:
        """Takes the files over that another process wrote to a folder of its own."""
        self._read = None
        for path in out.glob("*/*"):
            (self.folder / path.parent.name).mkdir(exist_ok=True)
            path.rename(self.folder / path.parent.name / path.name)

    def drop(self, name: str, part: int) -> None:
        """Frees the disk and the memory of a partition that was read."""
        self._read = None
        drop_files(self.folder, name, part)

    def flush(self) -> None:
        """Writes buffered rows to disk."""
        for place in [place for place, blocks in self._waiting.items() if blocks]:
            self._write(place)

    def _blocks(self, name: str, part: int) -> Iterator[bytes]:
        for path in sorted((self.folder / name).glob(f"{part}.*")):
            with path.open("rb") as file:
                while head := file.read(8):
                    nonce = file.read(_NONCE)
                    yield self._cipher.decrypt(nonce, file.read(int.from_bytes(head, "big")), None)

    def _write(self, place: tuple[str, int]) -> None:
        name, part = place
        (self.out / name).mkdir(exist_ok=True)  # not the folder itself: when it is gone, so is the run
        with (self.out / name / f"{part}.{self.writer}").open("ab") as file:
            file.writelines(self._waiting[place])
        self._held -= self._sizes[place]
        self._waiting[place], self._sizes[place] = [], 0


def drop_files(folder: Path, name: str, part: int) -> None:
    """Frees the disk of a partition that no process needs any more."""
    for path in (folder / name).glob(f"{part}.*"):
        path.unlink()

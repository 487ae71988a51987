"""Work that does not fit into memory, on disk by partition: encrypted, because not all of it is redacted yet.

Nothing unredacted may be written, yet placeholders are numbered over a whole sandbox, whose lines may be far apart. So
what waits for the rest of its sandbox is sealed with a key that only lives in the memory of the processes of one look:
what a crash leaves behind cannot be read by anybody.
"""

import io
import marshal
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_BLOCK = 256 << 10  # bytes of a partition that are written at once
_HELD = 32 << 20  # bytes of all partitions that wait in memory
_NONCE = 12


def new_key() -> bytes:
    return AESGCM.generate_key(256)


class Spill:
    """Items by (name, partition); every process writes files of its own and reads those of all."""

    def __init__(self, folder: Path, key: bytes, writer: str) -> None:
        self.folder, self.key, self.writer = folder, key, writer
        self._cipher = AESGCM(key)
        self._waiting: dict[tuple[str, int], list[Any]] = defaultdict(list)
        self._sizes: dict[tuple[str, int], int] = defaultdict(int)
        self._held = 0

    def add(self, name: str, part: int, item: Any, size: int) -> None:
        """Keeps an item (of str, bytes, numbers, None, tuples and lists of them) of about `size` bytes."""
        place = (name, part)
        self._waiting[place].append(item)
        self._sizes[place] += size
        self._held += size
        if self._sizes[place] >= _BLOCK:
            self._write(place)
        elif self._held >= _HELD:
            self.flush()

    def add_frame(self, name: str, part: int, frame: pl.DataFrame) -> None:
        if not frame.is_empty():
            buffer = io.BytesIO()
            frame.write_ipc_stream(buffer)
            self.add(name, part, buffer.getvalue(), buffer.tell())

    def read(self, name: str, part: int) -> Iterator[Any]:
        """The items of all processes, in no particular order between them; ours must be flushed."""
        for path in sorted((self.folder / name).glob(f"{part}.*")):
            with path.open("rb") as file:
                while head := file.read(8):
                    sealed = file.read(int.from_bytes(head, "big"))
                    yield from marshal.loads(self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], None))

    def frame(self, name: str, part: int, schema: dict[str, Any]) -> pl.DataFrame:
        frames = [pl.read_ipc_stream(io.BytesIO(item)) for item in self.read(name, part)]
        return pl.concat(frames) if frames else pl.DataFrame(schema=schema)

    def drop(self, name: str, part: int) -> None:
        """Frees the disk of a partition that was read."""
        for path in (self.folder / name).glob(f"{part}.*"):
            path.unlink()

    def flush(self) -> None:
        for place in [place for place, items in self._waiting.items() if items]:
            self._write(place)

    def _write(self, place: tuple[str, int]) -> None:
        name, part = place
        nonce = os.urandom(_NONCE)
        # version 2 has no references between equal objects, which is faster
        sealed = nonce + self._cipher.encrypt(nonce, marshal.dumps(self._waiting[place], 2), None)
        (self.folder / name).mkdir(exist_ok=True)  # not the folder itself: without it the look is over
        with (self.folder / name / f"{part}.{self.writer}").open("ab") as file:
            file.writelines((len(sealed).to_bytes(8, "big"), sealed))
        self._held -= self._sizes[place]
        self._waiting[place], self._sizes[place] = [], 0

"""Reader of a checkpoint's pieces: read, verified and decoded on several threads, directly into their destination."""

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

from capibara_assets.checkpoints.content import PIECE, nbytes
from capibara_assets.checkpoints.encryption.vault import Vault
from capibara_assets.checkpoints.store.catalog import Catalog
from capibara_assets.checkpoints.store.manifest import TensorEntry
from capibara_assets.checkpoints.store.packs import PackReader, Stored, pack_name
from capibara_assets.checkpoints.store.places import StorePlace
from capibara_assets.checkpoints.store.writing import threads
from capibara_assets.errors import IntegrityError

_OPEN = 200  # packs that one reader keeps open
_AHEAD = 2  # pieces that are read ahead


class PieceRead(NamedTuple):
    """One piece to read, and the memory to read it into."""

    where: str
    """Name of its tensor or file, for messages."""
    digest: str
    out: memoryview


class Reader:
    """Reader of one checkpoint's pieces. Safe to use from several threads; files are closed with the last use."""

    def __init__(self, place: StorePlace, vault: Vault | None, catalog: Catalog, checkpoint: str, verify: bool) -> None:
        self._place, self._vault, self._catalog = place, vault, catalog
        self._checkpoint, self._verify = checkpoint, verify
        self._lock = threading.Lock()
        self._open: dict[str, PackReader] = {}
        self._pool: ThreadPoolExecutor | None = None

    def read(self, job: PieceRead) -> None:
        """Fill `job.out` with a piece.

        Raises:
            IntegrityError: it is missing or damaged; the message names the pack, the checkpoint and the tensor.
        """
        stored = self._find(job)
        while True:
            try:
                self._pack(stored.pack).read(job.digest, stored, job.out, self._verify)
                return
            except FileNotFoundError:
                self._drop(stored.pack)
                stored = self._find(job)  # the pack was collected: the piece is in another one
            except IntegrityError as error:
                name = pack_name(stored.pack)
                raise IntegrityError(
                    f"{self._place.root}/{name} is damaged at {job.where} of checkpoint {self._checkpoint}: {error}"
                ) from error

    def read_all(self, jobs: Iterable[PieceRead]) -> None:
        """Fill all of them, in their order on disk. Raises IntegrityError: as `read`."""
        placed = sorted(jobs, key=lambda job: self._find(job)[:3])
        if not placed:
            return
        workers = min(threads(), len(placed))
        ahead = iter(placed[2 * workers :])
        take = iter(placed)
        lock = threading.Lock()
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                with lock:
                    job, later = next(take, None), next(ahead, None)
                if job is None:
                    return
                if later is not None:
                    self._hint(later)
                try:
                    self.read(job)
                except BaseException:
                    stop.set()
                    raise

        with ThreadPoolExecutor(workers, thread_name_prefix="reading") as pool:
            for done in [pool.submit(work) for _ in range(workers)]:
                done.result()

    def pieces(self, where: str, entry: TensorEntry) -> Iterator[memoryview]:
        """The pieces of an entry in order, with read-ahead; each is valid until the next is requested."""
        lengths = piece_lengths(entry)
        if len(lengths) == 1:
            out = memoryview(bytearray(lengths[0]))
            self.read(PieceRead(where, entry.pieces[0], out))
            yield out
            return
        buffers = [memoryview(bytearray(PIECE)) for _ in range(min(len(lengths), _AHEAD + 1))]
        coming: deque[tuple[memoryview, Future[None]]] = deque()
        pool = self._threads()
        try:
            for number, (digest, length) in enumerate(zip(entry.pieces, lengths, strict=True)):
                out = buffers[number % len(buffers)][:length]
                coming.append((out, pool.submit(self.read, PieceRead(where, digest, out))))
                if len(coming) > _AHEAD:
                    ready, done = coming.popleft()
                    done.result()
                    yield ready
            for ready, done in coming:
                done.result()
                yield ready
        finally:
            for _, done in coming:
                done.cancel()

    def _find(self, job: PieceRead) -> Stored:
        stored = self._catalog.find(job.digest)
        if stored is None:
            self._catalog.refresh()
            stored = self._catalog.find(job.digest)
        if stored is None:
            damaged = "".join(f"; {error}" for error in self._catalog.damaged.values())
            raise IntegrityError(
                f"{self._place.root} lacks the piece {job.digest[:12]} of {job.where} of checkpoint "
                f"{self._checkpoint}: no pack has it{damaged}"
            )
        if stored.plain != len(job.out):
            raise IntegrityError(
                f"{self._place.root}/{pack_name(stored.pack)} has {stored.plain} bytes for a piece of {job.where} of "
                f"checkpoint {self._checkpoint}, which takes {len(job.out)}"
            )
        return stored

    def _pack(self, pack: str) -> PackReader:
        with self._lock:
            reader = self._open.get(pack)
        if reader is None:
            reader = PackReader(self._place, self._catalog.index(pack), self._vault)
            with self._lock:
                if len(self._open) < _OPEN:
                    self._open[pack] = reader
        return reader

    def _hint(self, job: PieceRead) -> None:
        stored = self._find(job)
        with self._lock:
            reader = self._open.get(stored.pack)
        if reader is not None:
            reader.will_read(stored)

    def _drop(self, pack: str) -> None:
        with self._lock:
            self._open.pop(pack, None)
        self._catalog.forget(pack)

    def _threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_AHEAD, thread_name_prefix="ahead")
            return self._pool


@dataclass(frozen=True)
class StoredSource:
    """A tensor or file of a checkpoint, read from the store piece by piece."""

    name: str
    entry: TensorEntry = field(repr=False)
    reader: Reader = field(repr=False)

    @property
    def dtype(self) -> str:
        return self.entry.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.entry.shape

    def pieces(self) -> Iterator[memoryview]:
        return self.reader.pieces(self.name, self.entry)


def piece_lengths(entry: TensorEntry) -> list[int]:
    """Bytes of each piece of an entry, in order."""
    size = nbytes(entry.dtype, entry.shape)
    return [min(PIECE, size - start) for start in range(0, size, PIECE)]

"""Writer of a merge's weight files: shard headers, and parallel filling, hashing and writing.

A merge writes more than it computes. Through the page cache every byte would be copied once more, into pages that the
kernel has to find and clear first, and pushed out of it again by the sync: more processor time than merging takes, and
the inputs' own pages would make room for it. Written directly, a piece goes from where it was made to the disk; pieces
of a file are filled in parallel and hashed in order.
"""

import ctypes
import errno
import fcntl
import hashlib
import mmap
import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple, cast

from huggingface_hub import split_state_dict_into_shards_factory

from capibara_assets.checkpoints.content import nbytes
from capibara_assets.checkpoints.formats.safetensors_file import header, layout
from capibara_assets.storage.jsonfiles import readable_json

PIECE = 4 << 20
"""Bytes of a piece: the most that is computed and written at once, except for longer rows."""

_ALIGNED = max(4096, mmap.PAGESIZE)  # what direct writes begin and end on
_PIECES = 40  # at most, with however many threads and files: 160 MB
_WRITES = 4  # at the same time, of a file
_FILES = 4  # at the same time
_libc = ctypes.CDLL(None, use_errno=True)
Fill = Callable[[memoryview], None]


class Shape(NamedTuple):
    """Element type and shape of a tensor to write; the bytes come later."""

    dtype: str
    shape: tuple[int, ...]


def shards(tensors: Mapping[str, Shape], max_shard_size: str | int, ties: Mapping[str, str]) -> dict[str, str]:
    """Plan the shards: file name -> safetensors header, in the layout that Transformers writes.

    Args:
        ties: name that is left out -> the name under which it is stored; noted in the header.
    """
    split = split_state_dict_into_shards_factory(
        dict(tensors),
        get_storage_size=lambda tensor: nbytes(tensor.dtype, tensor.shape),
        filename_pattern="model{suffix}.safetensors",
        max_shard_size=max_shard_size,
    )
    return {
        file: header(
            cast(Any, {name: tensors[name] for name in names}),  # of a source, a header takes type and shape only
            {"format": "pt", **{name: to for name, to in ties.items() if name not in tensors and to in names}},
        )
        for file, names in sorted(split.filename_to_tensors.items())
    }


def index(headers: Mapping[str, str], tensors: Mapping[str, Shape]) -> bytes:
    """Index document of a sharded checkpoint."""
    places = {name: file for file, text in headers.items() for name in layout(text)}
    size = sum(nbytes(tensors[name].dtype, tensors[name].shape) for name in places)
    return readable_json({"metadata": {"total_size": size}, "weight_map": places})


class _Piece(NamedTuple):
    """Memory of its own for `size` bytes of a file, as far behind a boundary as they are in the file."""

    memory: mmap.mmap
    lead: int
    size: int

    @property
    def data(self) -> memoryview:
        return memoryview(self.memory)[self.lead : self.lead + self.size]


class _Memory:
    """A limited pool of page-aligned memory; `take` waits until enough has been given back."""

    def __init__(self, limit: int) -> None:
        self._free: list[mmap.mmap] = []
        self._room = limit
        self._lent = 0
        self._changed = threading.Condition()

    def take(self, lead: int, size: int) -> _Piece:
        wanted = max(-(-(lead + size) // _ALIGNED) * _ALIGNED, PIECE + _ALIGNED)
        with self._changed:
            self._changed.wait_for(lambda: self._lent == 0 or self._lent + wanted <= self._room)
            self._lent += wanted
            if wanted == PIECE + _ALIGNED and self._free:
                return _Piece(self._free.pop(), lead, size)
        return _Piece(_anonymous(wanted), lead, size)

    def give_back(self, piece: _Piece) -> None:
        with self._changed:
            self._lent -= len(piece.memory)
            if len(piece.memory) == PIECE + _ALIGNED:
                self._free.append(piece.memory)
            self._changed.notify_all()


class _File:
    """A file being written: its hash so far, and its last bytes, which are too few to be written yet."""

    def __init__(self, path: Path, size: int) -> None:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        self.direct = True
        try:
            self.descriptor = os.open(path, flags | os.O_DIRECT, 0o644)
        except OSError as error:
            if error.errno != errno.EINVAL:  # said by file systems that write through the cache only
                raise
            path.unlink(missing_ok=True)
            self.direct = False
            self.descriptor = os.open(path, flags, 0o644)
        # All space at once, in few extents. Only advice: where there is too little, the writes fail themselves
        _libc.fallocate(self.descriptor, 0, ctypes.c_long(0), ctypes.c_long(size))
        self.name = path.name
        self.digest = hashlib.sha256()
        self.size = 0
        self.rest = b""
        self.writes: list[Future[None]] = []


class Stopped(Exception):
    """Raised to abandon a file because another one could not be written."""


class Writer:
    """Fills pieces on the given threads, hashes them in file order, writes and syncs them on threads of its own.

    Attributes:
        digests: file -> (SHA-256, bytes), once closed.
    """

    def __init__(
        self, folder: Path, executor: Executor, threads: int, beside: int = 1, stop: threading.Event | None = None
    ) -> None:
        """`beside`: number of writers at the same time, with this one; `stop` is set when one of them has failed."""
        self._folder = folder
        self._executor = executor
        self._stop = stop or threading.Event()
        self._memory = _Memory(min(_PIECES // beside, threads + _WRITES) * (PIECE + _ALIGNED))
        self._offset = 0
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._writers = ThreadPoolExecutor(_WRITES, "merge-write")
        self._syncer = ThreadPoolExecutor(1, "merge-sync")
        self._syncs: list[Future[None]] = []
        self._thread = threading.Thread(target=self._run, name="merge-hash", daemon=True)
        self._thread.start()
        self.digests: dict[str, tuple[str, int]] = {}

    def open(self, name: str, head: bytes, size: int) -> None:
        """Begin a file with its header; it will have `size` bytes."""
        self._offset = 0
        self._queue.put((name, size))
        self.put(len(head), lambda data: data.__setitem__(slice(None), head))

    def put(self, size: int, fill: Fill) -> Future[None]:
        """Queue the next bytes of the file: `fill` is called with memory for them, on one of the threads.

        Raises:
            any exception of an earlier piece.
            Stopped: another writer failed.
        """
        piece = self._memory.take(self._offset % _ALIGNED, size)
        if self._error is not None or self._stop.is_set():
            self._memory.give_back(piece)
            raise self._error or Stopped
        self._offset += size
        filled = self._executor.submit(fill, piece.data)
        self._queue.put((filled, piece))
        return filled

    def close(self, failed: bool = False) -> None:
        """Wait until everything is hashed and on disk.

        Args:
            failed: do not raise: something else went wrong before.
        """
        self._queue.put(None)
        self._thread.join()
        self._writers.shutdown()
        self._syncer.shutdown()
        if failed:
            return
        if self._error is not None:
            raise self._error
        for sync in self._syncs:
            sync.result()

    def _run(self) -> None:
        file: _File | None = None
        while (item := self._queue.get()) is not None:
            try:
                if isinstance(item[0], Future):
                    self._append(file, *item)
                elif self._error is None:
                    self._finish(file)
                    file = None
                    file = _File(self._folder / item[0], item[1])
            except (Exception, CancelledError) as error:  # noqa: BLE001 - raised where the next piece is put
                self._error = self._error or error
        self._finish(file)

    def _append(self, file: _File | None, filled: Future[None], piece: _Piece) -> None:
        """Hash a piece and submit its write; the last bytes wait for the next piece: writes begin at a boundary."""
        submitted = False
        try:
            filled.result()
            if self._error is not None or file is None:
                return
            file.digest.update(piece.data)
            start, end = file.size - piece.lead, file.size + piece.size
            piece.memory[: piece.lead] = file.rest
            whole = (end - start) // _ALIGNED * _ALIGNED
            file.rest = piece.memory[whole : end - start]
            file.size = end
            if whole:
                view = memoryview(piece.memory)[:whole]
                write = self._writers.submit(_write, file, view, start)
                write.add_done_callback(lambda done: self._written(done, piece))
                file.writes.append(write)
                submitted = True
        finally:
            if not submitted:
                self._memory.give_back(piece)

    def _written(self, write: Future[None], piece: _Piece) -> None:
        self._error = self._error or write.exception()
        self._memory.give_back(piece)

    def _finish(self, file: _File | None) -> None:
        if file is not None:
            self.digests[file.name] = (file.digest.hexdigest(), file.size)
            self._syncs.append(self._syncer.submit(_sync_and_close, file))


def write_side_by_side(
    folder: Path, names: Sequence[str], threads: int, write: Callable[[str, Executor, Writer], None]
) -> dict[str, tuple[str, int]]:
    """Write several files in parallel; return file -> (SHA-256, bytes).

    A file is hashed sequentially, which takes longer than computing it; other files proceed meanwhile.

    Args:
        write: produces the file of this name: `writer.open`, and `writer.put` with work for the executor's `threads`.

    Raises:
        the exception of the first writer that failed; the others stop at their next piece.
    """
    waiting = queue.SimpleQueue[str]()
    for name in names:
        waiting.put(name)
    beside = max(1, min(threads, len(names), _FILES))
    stop = threading.Event()
    digests: dict[str, tuple[str, int]] = {}

    def lane(executor: Executor) -> None:
        writer = Writer(folder, executor, threads, beside, stop)
        done = False
        try:
            while True:
                try:
                    name = waiting.get_nowait()
                except queue.Empty:
                    break
                write(name, executor, writer)
            done = True
        except Stopped:
            pass
        finally:
            if not done:
                stop.set()
            writer.close(failed=not done)
        digests.update(writer.digests)

    with ThreadPoolExecutor(threads, "merge") as executor, ThreadPoolExecutor(beside, "merge-file") as lanes:
        running = [lanes.submit(lane, executor) for _ in range(beside)]
        try:
            for one in running:
                one.result()
        except BaseException:
            stop.set()
            raise
    return digests


def _sync_and_close(file: _File) -> None:
    """Write the last bytes as a whole page, truncate the file to its size, and wait for the disk."""
    try:
        wait(file.writes)
        page = _anonymous(_ALIGNED)
        page[: len(file.rest)] = file.rest
        _write(file, memoryview(page), file.size - len(file.rest))
        os.ftruncate(file.descriptor, file.size)
        os.fsync(file.descriptor)
    finally:
        os.close(file.descriptor)


def _write(file: _File, view: memoryview, offset: int) -> None:
    """Write all of the bytes at a place of the file."""
    while view:
        direct = file.direct
        try:
            written = os.pwrite(file.descriptor, view, offset)
        except OSError as error:
            if error.errno != errno.EINVAL or not direct:
                raise
            # A disk with larger sectors, or the rest of a write that was cut short: through the cache, then.
            flags = fcntl.fcntl(file.descriptor, fcntl.F_GETFL)
            fcntl.fcntl(file.descriptor, fcntl.F_SETFL, flags & ~os.O_DIRECT)
            file.direct = False
            continue
        view, offset = view[written:], offset + written


def _anonymous(size: int) -> mmap.mmap:
    """Anonymous private memory."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    return memory

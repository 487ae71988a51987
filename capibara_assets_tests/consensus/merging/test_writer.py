"""Files written past the page cache: the bytes that were put, in order, of whatever sizes; errors reach the caller."""

import errno
import fcntl
import hashlib
import os
import resource
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.consensus.merging import writer as checkpoint_merge_writer
from capibara_assets.consensus.merging.writer import PIECE, Writer, write_side_by_side


def filling(content: bytes) -> Callable[[memoryview], None]:
    def fill(into: memoryview) -> None:
        into[:] = content

    return fill


def written(folder: Path, files: Sequence[tuple[bytes, Sequence[bytes]]], threads: int = 2) -> None:
    """Write (header, pieces) of files, and hold the writer to what was asked for."""
    with ThreadPoolExecutor(threads) as pool:
        writer = Writer(folder, pool, threads)
        for number, (head, pieces) in enumerate(files):
            writer.open(f"{number}", head, len(head) + sum(map(len, pieces)))
            for piece in pieces:
                writer.put(len(piece), filling(piece))
        writer.close()
    for number, (head, pieces) in enumerate(files):
        content = (folder / f"{number}").read_bytes()
        assert content == head + b"".join(pieces)
        assert writer.digests[f"{number}"] == (hashlib.sha256(content).hexdigest(), len(content))


sizes = st.one_of(st.integers(1, 9), st.integers(4090, 4100), st.integers(1, 70_000))


@given(st.lists(st.tuples(st.binary(max_size=20), st.lists(sizes, max_size=8)), min_size=1, max_size=2), st.data())
def test_a_file_is_its_pieces_whatever_their_sizes(files: list[tuple[bytes, list[int]]], data: st.DataObject) -> None:
    seeds = iter(range(1, 100))
    made = [(head, [(bytes([next(seeds)]) * 3 + b"capibara" * size)[:size] for size in own]) for head, own in files]
    with TemporaryDirectory() as folder:
        written(Path(folder), made, data.draw(st.integers(1, 3)))


def test_pieces_may_be_larger_than_the_memory_that_is_lent(tmp_path: Path) -> None:
    large = os.urandom(1 << 20) * 40  # of 33 MB
    written(tmp_path, [(b"head", [b"first", large, os.urandom(PIECE), b"last"])])


def test_disks_that_refuse_direct_writes_are_written_through_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = [os.urandom(PIECE), os.urandom(5000), os.urandom(PIECE)]
    write, opened = os.pwrite, os.open

    def refusing_write(descriptor: int, data: memoryview, offset: int) -> int:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            refused.append(offset)
            raise OSError(errno.EINVAL, "unaligned")
        return write(descriptor, data, offset)

    refused: list[int] = []
    monkeypatch.setattr(os, "pwrite", refusing_write)
    (tmp_path / "late").mkdir()
    written(tmp_path / "late", [(b"head", pieces)])
    assert refused
    monkeypatch.setattr(os, "pwrite", write)

    def refusing_open(path: str | Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECT:
            asked.append(path)
            os.close(opened(path, flags & ~os.O_DIRECT, mode))  # some file systems make the file, and then refuse
            raise OSError(errno.EINVAL, "no direct writes here")
        return opened(path, flags, mode)

    asked: list[str | Path] = []
    monkeypatch.setattr(os, "open", refusing_open)
    (tmp_path / "early").mkdir()
    written(tmp_path / "early", [(b"head", pieces)])
    assert asked


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, offset: write(descriptor, data[: 1 << 20], offset))
    written(tmp_path, [(b"head", [os.urandom(PIECE), os.urandom(PIECE)])])


def test_what_goes_wrong_in_a_piece_reaches_the_caller(tmp_path: Path) -> None:
    def failing(into: memoryview) -> None:
        raise ZeroDivisionError("in a piece")

    with ThreadPoolExecutor(2) as pool:
        writer = Writer(tmp_path, pool, 2)
        writer.open("file", b"head", 1 << 20)
        writer.put(100, failing)
        with pytest.raises(ZeroDivisionError, match="in a piece"):
            for _ in range(1000):  # far more than are lent at once: they come back, though nothing is written any more
                writer.put(PIECE, filling(bytes(PIECE)))
        with pytest.raises(ZeroDivisionError, match="in a piece"):
            writer.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("merge-")]


def test_a_disk_that_is_full_reaches_the_caller(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (PIECE, before[1]))
    try:
        with ThreadPoolExecutor(2) as pool:
            writer = Writer(tmp_path, pool, 2)
            with pytest.raises(OSError, match="File too large"):
                writer.open("file", b"head", 40 * PIECE)
                for _ in range(40):
                    writer.put(PIECE, filling(bytes(PIECE)))
                writer.close()
            writer.close(failed=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_an_existing_file_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    with ThreadPoolExecutor(1) as pool:
        writer = Writer(tmp_path, pool, 1)
        writer.open("file", b"head", 4)
        with pytest.raises(FileExistsError):
            writer.close()
    assert (tmp_path / "file").read_bytes() == b"mine"


def test_files_side_by_side_are_those_written_one_by_one(tmp_path: Path) -> None:
    contents = {f"file-{number}": os.urandom(PIECE * number + 1000 + number) for number in range(5)}

    def write(name: str, _: Executor, writer: Writer) -> None:
        data = contents[name]
        writer.open(name, b"", len(data))
        for start in range(0, len(data), PIECE):
            writer.put(len(data[start : start + PIECE]), filling(data[start : start + PIECE]))

    for threads in (1, 3):
        folder = tmp_path / str(threads)
        folder.mkdir()
        digests = write_side_by_side(folder, list(contents), threads, write)
        assert digests == {name: (hashlib.sha256(data).hexdigest(), len(data)) for name, data in contents.items()}
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == contents


def test_a_file_that_fails_stops_the_others(tmp_path: Path) -> None:
    """The error is its own, not that of those which were stopped, and they do not go on to their end."""
    pieces = 0

    def endless(into: memoryview) -> None:
        nonlocal pieces
        pieces += 1

    def write(name: str, _: Executor, writer: Writer) -> None:
        writer.open(name, b"", PIECE)
        if name == "bad":
            raise ZeroDivisionError("in a file")
        for _ in range(100_000):
            writer.put(PIECE, endless)

    with pytest.raises(ZeroDivisionError, match="in a file"):
        write_side_by_side(tmp_path, ["good", "bad"], 2, write)
    assert pieces < 100_000
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("merge")]


def test_a_disk_that_does_not_write_stops_those_who_make_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, full, made = threading.Event(), threading.Event(), []
    write = checkpoint_merge_writer._write

    def held(*arguments: Any) -> None:
        assert disk.wait(60)
        write(*arguments)

    monkeypatch.setattr(checkpoint_merge_writer, "_write", held)
    content = os.urandom(PIECE)

    def fill(into: memoryview) -> None:
        into[:] = content
        made.append(len(into))

    with ThreadPoolExecutor(2) as pool:
        writer = Writer(tmp_path, pool, 2)
        memory = writer._memory
        wait_for = memory._changed.wait_for

        def noticed(predicate: Callable[[], bool]) -> bool:
            if not predicate():
                full.set()
            return wait_for(predicate)

        monkeypatch.setattr(memory._changed, "wait_for", noticed)
        writer.open("file", b"head", 4 + 20 * PIECE)
        putting = threading.Thread(target=lambda: [writer.put(PIECE, fill) for _ in range(20)])
        putting.start()
        assert full.wait(60)
        in_flight = memory._lent
        disk.set()
        putting.join()
        writer.close()
    assert 0 < in_flight <= memory._room < 7 * PIECE  # two are made, four are written
    assert len(made) == 20
    assert writer.digests["file"] == (hashlib.sha256(b"head" + 20 * content).hexdigest(), 4 + 20 * PIECE)

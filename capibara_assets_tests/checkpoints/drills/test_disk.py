"""The disk that forgets: what a crash may leave follows from what was synced, and a careless writer is caught by it."""

import random
from collections.abc import Callable
from pathlib import Path

from capibara_assets.checkpoints.store import files
from capibara_assets_tests.checkpoints.drills.disk import (
    LOSSES,
    SECTOR,
    Change,
    Recorder,
    Tree,
    full_disk,
    left_by_crash,
)

OLD, NEW = b"o" * 1000, b"n" * 3000


def replace(path: Path, data: bytes, *, sync: bool = True, sync_folder: bool = True) -> None:
    """A small file replaced the careful way, or with a step left out."""
    beside = path.with_name(path.name + ".part")
    fd = files.create(beside)
    files.pwrite(fd, data, 0)
    if sync:
        files.sync(fd)
    files.close(fd)
    files.rename(beside, path)
    if sync_folder:
        files.sync_folder(path.parent)


def recorded(root: Path, work: Callable[[], None]) -> list[Change]:
    with Recorder(root).recording() as recorder:
        work()
    return recorder.changes


def crashes(changes: list[Change], seeds: int = 40) -> list[tuple[int, Tree]]:
    """(changes done, tree) after crashes at every change, of every kind."""
    return [
        (done, left_by_crash(changes[:done], loss, random.Random(seed)))
        for done in range(1, len(changes) + 1)
        for loss in LOSSES
        for seed in range(seeds)
    ]


def test_without_a_crash_everything_is_there(tmp_path: Path) -> None:
    def work() -> None:
        files.make_folder(tmp_path / "a")
        replace(tmp_path / "a" / "one", OLD)
        replace(tmp_path / "a" / "one", NEW)
        files.link(tmp_path / "a" / "one", tmp_path / "two")
        replace(tmp_path / "gone", OLD)
        files.unlink(tmp_path / "gone")
        files.unlink(tmp_path / "never")

    changes = recorded(tmp_path, work)
    tree = left_by_crash([*changes, Change("note")], "killed", random.Random(0))
    assert tree == Tree(frozenset({"a"}), {"a/one": NEW, "two": NEW})
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()} == {*tree.files}


def test_a_careful_replacement_is_old_or_new_and_new_once_it_returned(tmp_path: Path) -> None:
    first = recorded(tmp_path, lambda: replace(tmp_path / "x", OLD))
    second = recorded(tmp_path, lambda: replace(tmp_path / "x", NEW))
    # the second recorder counts its inodes from 0 again
    both = [*first, *(Change(**{**change.__dict__, "inode": change.inode + 10, "seen": change.seen + len(first)})
                      for change in second)]  # fmt: skip
    seen = set()
    for done, tree in crashes(both):
        if done >= len(first):
            seen.add(tree.files["x"])
            assert tree.files["x"] in (OLD, NEW)
        if done == len(both):
            assert tree.files["x"] == NEW
    assert seen == {OLD, NEW}


def test_without_a_sync_the_content_may_be_anything(tmp_path: Path) -> None:
    changes = recorded(tmp_path, lambda: replace(tmp_path / "x", NEW, sync=False))
    found = {tree.files["x"] for done, tree in crashes(changes) if done == len(changes)}
    assert b"" in found and NEW in found
    torn = [data for data in found if data not in (b"", NEW)]
    assert any(len(data) < len(NEW) for data in torn), "never cut short"
    assert any(b"\0" in data for data in torn), "never a hole"
    for data in torn:
        assert all(set(data[start : start + SECTOR]) in ({0}, {NEW[0]}) for start in range(0, len(data), SECTOR)), (
            "sectors are whole"
        )


def test_without_a_sync_of_the_folder_the_name_may_be_missing(tmp_path: Path) -> None:
    changes = recorded(tmp_path, lambda: replace(tmp_path / "x", NEW, sync_folder=False))
    found = {tree.files.get("x") for done, tree in crashes(changes) if done == len(changes)}
    assert found == {None, NEW}


def test_what_lies_in_a_folder_that_was_not_synced_may_be_lost_with_it(tmp_path: Path) -> None:
    def work() -> None:
        files.make_folder(tmp_path / "a")
        replace(tmp_path / "a" / "x", NEW)

    changes = recorded(tmp_path, work)
    found = {tree.files.get("a/x") for done, tree in crashes(changes) if done == len(changes)}
    assert found == {None, NEW}


def test_a_sync_does_not_cover_what_is_written_while_it_waits(tmp_path: Path) -> None:
    changes = [
        Change("create", path="x", inode=0),
        Change("pwrite", inode=0, data=b"early"),
        Change("pwrite", inode=0, offset=5, data=b"late!"),
        Change("sync", inode=0, seen=2),
        Change("sync_folder", path=".", seen=4),
    ]
    assert left_by_crash(changes, "lost", random.Random(0)).files == {"x": b"early"}


def test_a_killed_process_loses_nothing_but_the_end_of_its_last_write(tmp_path: Path) -> None:
    changes = recorded(tmp_path, lambda: replace(tmp_path / "x", NEW, sync=False, sync_folder=False))
    cut = {len(left_by_crash(changes[:2], "killed", random.Random(seed)).files["x.part"]) for seed in range(40)}
    assert len(cut) > 10 and all(length <= len(NEW) for length in cut)
    assert left_by_crash(changes, "killed", random.Random(0)).files == {"x": NEW}


def test_a_full_disk_fails_from_a_call_on_for_so_many_and_a_write_leaves_half(tmp_path: Path) -> None:
    with full_disk(1, 1) as failed:
        fd = files.create(tmp_path / "x")
        try:
            files.pwrite(fd, NEW, 0)
        except OSError as error:
            assert error.strerror == "No space left on device"
        files.pwrite(fd, b"again", 0)
        files.close(fd)
    assert failed == ["pwrite"]
    assert (tmp_path / "x").read_bytes() == b"again" + NEW[5 : len(NEW) // 2]

"""Sweeps over folders: what changes the fingerprint, what does not, and that a bounded sweep ends at the same one."""

import os
import shutil
import time
from pathlib import Path

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.executions.ingest.file_plan import log_files
from capibara_assets.storage.arrivals import Listing, Parts, Sweep, files_below, local_lister, remote_lister, sweep

NOW = time.time()


def drop(path: Path, text: str = "x", age: float = 60.0, now: float = NOW) -> Path:
    """A file last written `age` seconds before `now`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (now - age, now - age))
    return path


def look(root: Path, now: float = NOW) -> Sweep:
    return sweep(local_lister(root), Sweep(), now=now, quiet=2.0, budget=60.0)


def test_new_grown_replaced_renamed_and_removed_files_change_the_fingerprint(tmp_path: Path) -> None:
    seen = [look(tmp_path).fingerprint]

    def changed() -> bool:
        seen.append(look(tmp_path).fingerprint)
        return seen[-1] not in seen[:-1]

    path = drop(tmp_path / "a" / "one.jsonl")
    assert changed()
    drop(path, "xy")
    assert changed()
    drop(tmp_path / "other", "zz")
    (tmp_path / "other").replace(path)  # the same size and time, other bytes
    assert changed()
    path.rename(tmp_path / "a" / "two.jsonl")
    assert changed()
    drop(tmp_path / "late.jsonl", age=1e8)
    assert changed()
    (tmp_path / "empty" / "folder").mkdir(parents=True)
    assert not changed()
    (tmp_path / "late.jsonl").unlink()
    shutil.rmtree(tmp_path / "a")
    assert look(tmp_path).fingerprint == seen[0]


def test_files_that_are_written_to_wait_and_unfinished_names_do_not_count(tmp_path: Path) -> None:
    now = time.time()  # not the module's: the suite may have run for an hour, and the files take long on a busy machine
    drop(tmp_path / "done", now=now)
    drop(tmp_path / "hot", age=0.5, now=now)
    drop(tmp_path / "upload.part", now=now)
    drop(tmp_path / ".hidden" / "x", now=now)
    drop(tmp_path / "tomorrow", age=-86_400, now=now)  # a clock that is ahead: its last change of state decides
    found = look(tmp_path, now)
    assert (found.files, found.waiting) == (1, 2)
    set_back = look(tmp_path, time.time() - 3600)  # all were written in an hour from now
    assert (set_back.files, set_back.waiting) == (3, 0)
    later = look(tmp_path, time.time() + 60)  # after the changes of state, however long the suite has run
    assert (later.files, later.waiting) == (3, 0)


def test_sessions_in_the_hidden_folders_of_agents_count_as_the_ingest_reads_them(tmp_path: Path) -> None:
    drop(tmp_path / ".claude" / "projects" / "a.jsonl")
    drop(tmp_path / ".my-agent" / "b.jsonl")
    drop(tmp_path / ".mux" / "sessions" / "c.jsonl")
    drop(tmp_path / ".local" / "share" / "crush" / "d.jsonl")
    drop(tmp_path / ".git" / "e.jsonl")
    drop(tmp_path / ".llmware" / "f.jsonl")
    assert look(tmp_path).files == len(log_files(tmp_path, None)) == 4


def test_a_link_to_a_folder_above_ends(tmp_path: Path) -> None:
    drop(tmp_path / "a" / "x")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    assert look(tmp_path).files == 1


def test_a_missing_root_is_an_error_and_a_vanished_folder_is_not(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        look(tmp_path / "nowhere")
    list_folder = local_lister(tmp_path)
    drop(tmp_path / "a" / "x")

    def vanishing(folder: Parts) -> Listing:
        listing = list_folder(folder)
        if not folder:
            shutil.rmtree(tmp_path / "a")
        return listing

    assert sweep(vanishing, Sweep(), now=NOW, quiet=2.0, budget=60.0) == Sweep(0, 0, 0, None, done=True)


paths = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map("/".join)


@given(st.sets(paths, max_size=25))
def test_a_sweep_of_one_folder_a_tick_counts_every_file_once(names: set[str]) -> None:
    """Files are named `<path>/f`, so that every path can be a folder."""
    folders: dict[Parts, Listing] = {(): Listing([], [])}
    for name in sorted(names):
        parts = tuple(name.split("/"))
        for depth in range(1, len(parts) + 1):
            above, here = folders[parts[: depth - 1]], parts[:depth]
            if here not in folders:
                folders[here] = Listing([], [])
                above.folders.append(here[-1])
    for name in names:
        folders[tuple(name.split("/"))].files.append(("f", 1, name, None))
    whole = sweep(folders.__getitem__, Sweep(), now=NOW, quiet=2.0, budget=60.0)
    state, ticks = Sweep(), 0
    while not state.done:
        state = sweep(folders.__getitem__, state, now=NOW, quiet=2.0, budget=-1.0)
        ticks += 1
    assert (state.fingerprint, state.files) == (whole.fingerprint, len(names))
    assert ticks == len(folders) + 1


def test_remote_folders(tmp_path: Path) -> None:
    system = fsspec.filesystem("memory")
    root = f"/{tmp_path.name}"
    for name in ("a/one.jsonl", "two.jsonl", ".hidden", "b/c/three.jsonl"):
        system.pipe_file(f"{root}/{name}", b"x")
    lister = remote_lister(system, root)
    assert sorted("/".join((*parts, name)) for parts, (name, *_) in files_below(lister)) == [
        "a/one.jsonl",
        "b/c/three.jsonl",
        "two.jsonl",
    ]
    before = sweep(lister, Sweep(), now=NOW, quiet=2.0, budget=60.0)
    system.pipe_file(f"{root}/two.jsonl", b"xy")
    after = sweep(lister, Sweep(), now=NOW, quiet=2.0, budget=60.0)
    assert before.files == after.files == 3 and before.fingerprint != after.fingerprint
    assert sweep(remote_lister(system, f"{root}/none"), Sweep(), now=NOW, quiet=2.0, budget=60.0).files == 0

"""Writers and readers at once, killed processes, full disks: only whole checkpoints are ever seen."""

import errno
import os
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from capibara_assets.checkpoints.encryption.vault import Vault
from capibara_assets.checkpoints.store import files
from capibara_assets.checkpoints.store.store import CheckpointStore
from capibara_assets.checkpoints.store.versions import Version, Versions
from capibara_assets.errors import InputError
from capibara_assets_tests.checkpoints.limits import files_of_at_most
from capibara_assets_tests.checkpoints.states import adapter, same, unsynced  # noqa: F401 - a fixture
from capibara_assets_tests.forked import Forked, Say


def writer(root: Path, model: str, first: int, last: int, go: Path) -> Forked:
    """A process that saves adapters and says their names; it begins when there is a file `go`."""

    def work(say: Say) -> None:
        torch.set_num_threads(1)
        store = CheckpointStore(root, compression="none")
        say("ready")
        while not go.exists():
            time.sleep(0.001)
        for step in range(first, last):
            say(store.save(adapter(step, 512), step, model))

    process = Forked(work)
    assert process.lines.readline() == "ready\n"
    return process


def test_two_processes_write_the_same_and_different_checkpoints_beside_collections_and_readers(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "store")
    go = tmp_path / "go"
    processes = [writer(tmp_path / "store", model, 0, 6, go) for model in ("shared", "shared", "own")]
    go.touch()
    while any(process.poll() is None for process in processes):
        for checkpoint in CheckpointStore(tmp_path / "store").list():
            assert same(checkpoint.state(), adapter(checkpoint.manifest.about.step, 512))
        store.collect()
        time.sleep(0.05)
    ids = [process.rest().split() for process in processes]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert ids[0] == ids[1] != ids[2]
    # the same content of two writers is one version, and nothing was lost
    assert [one.id for one in store.list("shared")] == ids[0] and [one.id for one in store.list("own")] == ids[2]
    assert [one.version for one in store.list("shared")] == list(range(1, 7))
    store.collect()
    assert store.verify() == []
    assert all(same(store.load(one), adapter(step, 512)) for step, one in enumerate(ids[0]))


@pytest.mark.usefixtures("unsynced")
@pytest.mark.parametrize("vault", [None, Vault.new()], ids=["plain", "encrypted"])
def test_threads_of_one_store(tmp_path: Path, vault: Vault | None) -> None:
    store = CheckpointStore(tmp_path, vault=vault)

    def work(number: int) -> str:
        identity = store.save(adapter(number % 5), number % 5, f"m{number % 2}")
        assert same(store.load(identity), adapter(number % 5))
        return identity

    with ThreadPoolExecutor(6) as pool:
        ids = list(pool.map(work, range(20)))
    assert len(set(ids)) == 10 and sorted(set(ids)) == sorted(one.id for one in store.list())
    assert store.verify() == []


@pytest.mark.parametrize("turns", [2, pytest.param(4, marks=pytest.mark.extended)])
def test_a_killed_writer_leaves_whole_checkpoints_or_nothing(tmp_path: Path, turns: int) -> None:
    root, go = tmp_path / "store", tmp_path / "go"
    store = CheckpointStore(root)
    go.touch()
    chance = random.Random(5)
    published: set[str] = set()
    for turn in range(turns):
        process = writer(root, "m", 100 * turn, 100 * turn + 100, go)
        time.sleep(chance.uniform(0.05, 0.4))
        process.kill()
        published |= {line for line in process.rest().split("\n") if len(line) == 64}
        there = {one.id: one for one in CheckpointStore(root).list()}
        assert published <= there.keys()
        assert all(same(one.state(), adapter(one.manifest.about.step, 512)) for one in there.values())
        assert store.verify() == []
    store.collect()
    assert [path for path in (root / "parts").iterdir() if path.suffix == ".pack"] == []
    assert [*root.glob("leases/*"), *root.glob("condemned/*")] == []
    needed = {pack for one in store.list() for pack in one.manifest.packs}
    assert {path.stem for path in (root / "packs").iterdir()} == needed
    assert {one.id for one in store.list()} >= published and store.verify() == []


@pytest.mark.usefixtures("unsynced")
@pytest.mark.parametrize("failure", [errno.ENOSPC, errno.EDQUOT, errno.EIO], ids=["full", "quota", "broken"])
def test_a_disk_that_fails_at_any_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: int) -> None:
    """A full disk is the user's to mend, a broken one nobody's; either way the store is as before, and goes on."""
    state = {"w": torch.rand(300), "v": torch.rand(10)}
    sizes: list[int] = []
    CheckpointStore(tmp_path / "measured").save({}, 1, "m")
    with monkeypatch.context() as patch:
        pwrite = files.pwrite
        patch.setattr(files, "pwrite", lambda fd, data, at: (sizes.append(len(data)), pwrite(fd, data, at))[1])
        CheckpointStore(tmp_path / "measured", compression="none").save(state, 2, "m")
    store = CheckpointStore(tmp_path / "store", compression="none")
    kept = store.save(adapter(1), 1, "m")
    assert sum(sizes) > 1000
    for room in [*range(0, sum(sizes) - 50, 97), sum(sizes) - 50]:
        with monkeypatch.context() as patch:
            limit(patch, room, failure)
            with pytest.raises(OSError if failure == errno.EIO else InputError) as caught:
                store.save(state, 2, "m")
            if failure != errno.EIO:
                assert str(tmp_path) in str(caught.value) and "nothing was published" in str(caught.value)
        assert [one.id for one in store.list()] == [kept]
        assert list((tmp_path / "store" / "parts").iterdir()) == []
        store.collect()  # else the next attempt finds its pieces in the pack that this one left, and writes less
    identity = store.save(state, 2, "m")
    assert same(CheckpointStore(tmp_path / "store").load(identity), state)
    store.collect()
    assert store.verify() == [] and len(store.catalog.listed()) == 2


def limit(patch: pytest.MonkeyPatch, room: int, failure: int) -> None:
    """Let `files.pwrite` write so many bytes, the last of them in part, and fail from then on."""
    left = [room]
    pwrite = files.pwrite

    def failing(fd: int, data: Any, offset: int) -> None:
        fits = min(len(data), left[0])
        pwrite(fd, data[:fits], offset)
        left[0] -= fits
        if fits < len(data):
            raise OSError(failure, os.strerror(failure))

    patch.setattr(files, "pwrite", failing)


@pytest.mark.usefixtures("unsynced")
@pytest.mark.parametrize("call", ["create", "sync", "link", "rename", "make_folder", "sync_folder"])
def test_every_other_call_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """ENOSPC comes from any of them; whenever it comes, the checkpoint is there whole or not at all."""
    state = {"w": torch.rand(300)}
    turn, failed = 0, True
    while failed:
        failed = False
        root = tmp_path / str(turn)
        store = CheckpointStore(root)
        original, calls = getattr(files, call), iter(range(1000))

        def failing(*args: Any, original: Any = original, calls: Iterator[int] = calls, turn: int = turn) -> Any:
            nonlocal failed
            if next(calls) == turn:
                failed = True
                raise OSError(errno.ENOSPC, "No space left on device")
            return original(*args)

        with monkeypatch.context() as patch:
            patch.setattr(files, call, failing)
            try:
                store.save(state, 1, "m")
            except InputError as error:
                assert "no room" in str(error)
        for one in CheckpointStore(root).list():
            assert same(one.state(), state)
        identity = CheckpointStore(root).save(state, 1, "m")
        assert same(CheckpointStore(root).load(identity), state)
        CheckpointStore(root).collect()
        assert [one.version for one in CheckpointStore(root).list()] == [1]
        assert CheckpointStore(root).verify() == [] and list((root / "parts").iterdir()) == []
        turn += 1
    assert turn > 1


def test_a_real_limit_of_the_system(tmp_path: Path) -> None:
    """RLIMIT_FSIZE: the kernel itself cuts a write off in the middle."""
    store = CheckpointStore(tmp_path, compression="none")
    store.save({"small": torch.ones(10)}, 1, "m")
    with files_of_at_most(50_000), pytest.raises(InputError, match=r"no room to write to.*nothing was published"):
        store.save({"w": torch.rand(100_000)}, 2, "m")
    assert [one.version for one in CheckpointStore(tmp_path).list()] == [1]
    assert list((tmp_path / "parts").iterdir()) == [] and CheckpointStore(tmp_path).verify() == []


def test_readers_during_a_write_see_what_was_there_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every call with which a save changes the disk, a reader in another thread sees the old checkpoint, whole."""
    store = CheckpointStore(tmp_path)
    old = store.save(adapter(1), 1, "m")
    seen: list[list[str]] = []
    inside = threading.local()

    def watched(name: str) -> None:
        original = getattr(files, name)

        def call(*args: Any) -> Any:
            if not getattr(inside, "busy", False):
                inside.busy = True
                reader = CheckpointStore(tmp_path)
                seen.append([one.id for one in reader.list()])
                assert same(reader.load("m@v1"), adapter(1)) and reader.verify() == []
                inside.busy = False
            return original(*args)

        monkeypatch.setattr(files, name, call)

    for name in ("create", "pwrite", "sync", "link", "rename", "unlink", "sync_folder", "close"):
        watched(name)
    new = store.save(adapter(2), 2, "m")
    published = [len(ids) for ids in seen]
    assert published == sorted(published) and {tuple(ids) for ids in seen} == {(old,), (old, new)}


def test_nothing_is_published_before_it_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Order of what reaches the disk: pack and its name, manifest and its name, then the version."""
    happened: list[str] = []
    paths: dict[int, str] = {}

    def note(name: str, describe: Any) -> None:
        original = getattr(files, name)

        def call(*args: Any) -> Any:
            result = original(*args)
            happened.append(f"{name} {describe(result, *args)}")
            return result

        monkeypatch.setattr(files, name, call)

    def kind(path: Path) -> str:
        return "version" if path.parent.parent.name == "models" else path.parent.name

    note("create", lambda fd, path, *_: paths.setdefault(fd, path.suffix) and path.suffix)
    note("sync", lambda _, fd: fd)
    note("rename", lambda _, source, target: kind(target))
    note("link", lambda _, source, target: kind(target))
    note("sync_folder", lambda _, path: path.name)
    CheckpointStore(tmp_path).save({"w": torch.ones(2)}, 1, "m")
    order = [
        next(i for i, what in enumerate(happened) if what == wanted)
        for wanted in ("rename packs", "sync_folder packs", "rename manifests", "sync_folder manifests", "link version")
    ]
    order += [max(i for i, what in enumerate(happened) if what == "sync_folder m")]
    assert order == sorted(order)
    for moved in ("rename packs", "rename manifests", "link version"):
        before = happened[: happened.index(moved)]
        assert any(what.startswith("sync ") for what in before[-3:]), (moved, happened)


def test_what_is_retired_and_collected_while_it_is_looked_at_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a version and its manifest another process may take both away: that is no damage."""
    writing, read = CheckpointStore(tmp_path), Versions.read
    stays = writing.save(adapter(1), 1, "m")

    def interrupted(self: Versions, folder: str, number: int) -> Version:
        version = read(self, folder, number)
        if self is not writing.versions and version.id != stays and version.id in [one.id for one in writing.list()]:
            writing.retire([version.id])
            writing.collect()
        return version

    for step, look in enumerate((lambda s: s.list(), lambda s: s.list("m"), lambda s: [s.open("m")]), start=2):
        writing.save(adapter(step), step, "m")
        with monkeypatch.context() as patch:
            patch.setattr(Versions, "read", interrupted)
            assert [one.id for one in look(CheckpointStore(tmp_path))] == [stays]
    assert CheckpointStore(tmp_path).verify() == []


def test_a_full_disk_while_a_version_is_retired_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(tmp_path)
    gone = store.save(adapter(1), 1, "m")

    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "sync_folder", full)
        with pytest.raises(InputError, match="no room"):
            store.retire([gone])
    assert store.verify() == []

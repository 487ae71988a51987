"""Encrypting and decrypting whole stores, interrupted: killed at any change of a file, or by a power cut."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.checkpoints.store import files
from capibara_assets.checkpoints.store.opening import open_store
from capibara_assets.checkpoints.store.resealing import Resealed, decrypt, encrypt
from capibara_assets_tests.checkpoints.crashes import dies_after, dies_before
from capibara_assets_tests.checkpoints.resealed import (
    KEY,
    NEW_KEY,
    filled,
    key_of,
    kind_and_all,
    plain_words,
    present,
    whole,
)
from capibara_assets_tests.checkpoints.states import unsynced

__all__ = ["unsynced"]
pytestmark = pytest.mark.usefixtures("unsynced")


# Primes: they fall on every kind of change.
@pytest.mark.parametrize("every", [61, pytest.param(11, marks=pytest.mark.extended)])
@pytest.mark.parametrize("move", [encrypt, decrypt])
def test_after_a_crash_at_any_change_all_is_there_and_once_more_finishes(
    tmp_path: Path, move: Callable[..., Resealed], every: int
) -> None:
    """Killed at every few changes of a file: readers find all checkpoints, and the next attempt leaves nothing else."""
    ids = filled(tmp_path / "whole", None if move is encrypt else KEY)
    words = plain_words(tmp_path / "whole") if move is encrypt else set()
    changes, step, kinds = 0, 1, set()
    while True:
        root = tmp_path / str(changes)
        shutil.copytree(tmp_path / "whole", root)
        finished = not dies_after(changes, lambda root=root: move(root, KEY))
        kinds.add(kind_and_all(root, ids))
        if changes % 3 == 0:
            move(root, KEY)
            whole(root, key_of(move), ids)
            assert [word for word in words if present(root, word)] == []
            assert not [path for path in root.iterdir() if path.is_file() and path.name != "store.json"]
            assert len(list(root.glob("generation-*/store.json"))) == 1
        shutil.rmtree(root)
        if finished:
            break
        changes += step
        step = every
    assert changes > 100 and kinds == {"plain", "sealed"}


@pytest.mark.parametrize("move", [encrypt, decrypt])
def test_a_power_cut_finds_the_copy_on_disk_before_the_switch_and_the_switch_before_any_deletion(
    tmp_path: Path, move: Callable[..., Resealed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written is synced, and so is its name, before what relies on it is."""
    monkeypatch.undo()  # syncs are counted, not left out
    filled(tmp_path, None if move is encrypt else KEY)
    dirty: dict[int, Path] = {}  # files written to since their last sync, by descriptor
    unsynced_names: set[Path] = set()  # names since the last sync of their folder
    written: set[Path] = set()
    switches: list[set[Path]] = []
    before_switch: list[Path] = []

    def recording(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if name == "rename" and args[1] == tmp_path / "store.json":
                durable = {path for path in written if "leases" not in path.parts and path.suffix != ".part"}
                switches.append(durable & ({*dirty.values()} | unsynced_names))
                assert len(durable) > 10
            if (
                name == "unlink"
                and args[0].parent != tmp_path / "parts"
                and (not switches or tmp_path / "store.json" in unsynced_names)
            ):
                before_switch.append(args[0])
            result = real(*args, **options)
            if name == "create":
                dirty[result] = args[0]
            elif name == "sync":
                dirty.pop(args[0], None)
            elif name in ("link", "rename"):
                unsynced_names.add(args[1])
                written.add(args[1])
                if args[0] in dirty.values():
                    dirty[-len(written)] = args[1]
            elif name == "sync_folder":
                unsynced_names.difference_update([path for path in unsynced_names if path.parent == args[0]])
            return result

        return call

    for name in ("create", "sync", "link", "rename", "unlink", "sync_folder"):
        monkeypatch.setattr(files, name, recording(name, getattr(files, name)))
    move(tmp_path, KEY)
    assert len(switches) == 2 and switches[0] == set()  # the switch, and the note that nothing is left
    assert {path.parent.name for path in before_switch} <= {"leases", "parts"}


@pytest.mark.parametrize(
    "moments",
    [
        pytest.param((5, 20, 60), marks=pytest.mark.extended),
        pytest.param((0, 5, 10, 20, 30, 40, 60, 80, 100, 150), marks=pytest.mark.extended),
    ],
    ids=["three", "ten"],
)
def test_a_killed_process_is_finished_by_the_next(tmp_path: Path, moments: tuple[int, ...]) -> None:
    """`kill -9` of real processes at some moments."""
    ids = filled(tmp_path / "whole")
    code = (
        "import sys; from pathlib import Path; from capibara_assets.checkpoints.encryption.keys import RawKey\n"
        "from capibara_assets.checkpoints.store.resealing import encrypt\n"
        "print('begun', flush=True); encrypt(Path(sys.argv[1]), RawKey(b'k' * 32, 'k')); print('done', flush=True)"
    )
    killed = 0
    for milliseconds in moments:
        root = tmp_path / str(milliseconds)
        shutil.copytree(tmp_path / "whole", root)
        process = subprocess.Popen([sys.executable, "-c", code, str(root)], stdout=subprocess.PIPE)
        assert process.stdout is not None and process.stdout.readline() == b"begun\n"
        time.sleep(milliseconds / 1000)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        killed += process.stdout.read() == b""
        process.stdout.close()
        kind_and_all(root, ids)
        encrypt(root, KEY)
        whole(root, KEY, ids)
        assert not present(root, b"voter")
    assert killed >= max(1, 3 * len(moments) // 10)


def test_what_was_retired_after_the_switch_does_not_come_back(tmp_path: Path) -> None:
    """The crash came while the plain form was being deleted; days later the rest is deleted, not copied again."""
    root, ids = tmp_path, filled(tmp_path)

    def first_plain_version_goes(_: int, name: str, path: str) -> bool:
        return name == "unlink" and f"{tmp_path}/models/" in path

    assert dies_before(first_plain_version_goes, lambda: encrypt(root, KEY))
    assert len(list(root.glob("models/*/v00000?"))) == 4
    retired, *rest = ids
    store = open_store(root, key=KEY)
    store.retire([store.open(retired).id])
    encrypt(root, KEY)
    assert len(open_store(root, key=KEY).list()) == len(rest)
    assert not list(root.glob("models/*"))


def test_an_attempt_that_was_given_up_is_deleted(tmp_path: Path) -> None:
    """Begun under a key that nobody wants any more: neither the next key nor staying plain is held up by it."""
    ids = filled(tmp_path)

    def third_sealed_version_comes(_: int, name: str, path: str) -> bool:
        return name == "link" and len(list(tmp_path.glob("generation-*/models/*/v*"))) == 2

    for move, key in ((encrypt, KEY), (decrypt, None)):
        assert dies_before(third_sealed_version_comes, lambda: encrypt(tmp_path, NEW_KEY))
        assert len(list(tmp_path.glob("generation-*"))) == 1
        move(tmp_path, KEY)
        whole(tmp_path, key, ids)
        assert len(list(tmp_path.glob("generation-*"))) == (1 if move is encrypt else 0)
        if move is encrypt:
            shutil.rmtree(tmp_path)
            filled(tmp_path)

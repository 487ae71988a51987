"""Encrypting and decrypting whole stores: nothing lost, nothing left, at whatever point it is interrupted."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from capibara_assets.checkpoints import files, resealing
from capibara_assets.checkpoints.keys import RawKey
from capibara_assets.checkpoints.leases import hold
from capibara_assets.checkpoints.resealing import Resealed, decrypt, encrypt, rotate
from capibara_assets.checkpoints.store import Checkpoint, CheckpointStore, open_store
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets_tests.checkpoints.crashes import dies_after, dies_before
from capibara_assets_tests.checkpoints.states import adapter, same, unsynced

__all__ = ["unsynced"]
pytestmark = pytest.mark.usefixtures("unsynced")

KEY, NEW_KEY = RawKey(b"k" * 32, "the key"), RawKey(b"n" * 32, "the new key")
FILES = {"adapter_config.json": b'{"r": 8}' * 10}


def filled(root: Path, key: RawKey | None = None) -> dict[str, int]:
    """Five versions of two models, each the child of the one before; the last of one model is retired. id -> seed."""
    store, parent, ids = open_store(root, key=key), None, {}
    for seed in range(5):
        parent = store.save(adapter(seed, 16), seed, f"voter {seed % 2}", files=FILES, parent=parent, run=f"run {seed}")
        ids[parent] = seed
    store.retire([parent])
    return {identity: seed for identity, seed in ids.items() if seed < 4}


def whole(root: Path, key: RawKey | None, ids: dict[str, int]) -> list[Checkpoint]:
    """See that a store has these checkpoints and no others, sound, with ids, parents and versions as they were."""
    store = open_store(root, key=key)
    assert store.verify() == []
    found = store.list()
    assert len(found) == len(ids)
    for identity, seed in ids.items():
        checkpoint = store.open(identity)
        assert store.open(identity[:10]).id == checkpoint.id
        about = checkpoint.manifest.about
        assert (about.step, about.model, about.run) == (seed, f"voter {seed % 2}", f"run {seed}")
        assert checkpoint.version == 1 + seed // 2
        assert same(checkpoint.state(), adapter(seed, 16))
        assert (about.parent is None) == (seed == 0)
        if about.parent is not None:
            assert store.open(about.parent).manifest.about.step == seed - 1
            assert about.parent in {one.id for one in found}
    return found


def plain_words(root: Path) -> set[bytes]:
    """What a plain store shows: names, ids, digests of pieces, in hex and as bytes."""
    store, words = CheckpointStore(root), {b"voter", b"lora_", b"adapter_config", b"exp_avg", b"manifests/"}
    for one in store.list():
        words.add(one.id.encode())
        for entry in (*one.manifest.tensors.values(), *one.manifest.files.values()):
            for piece in entry.pieces:
                words |= {piece.encode(), bytes.fromhex(piece)}
        for tensor in one.tensors().values():
            words.add(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()[-16:].rjust(16, b"?"))
    return words - {b"manifests/"}


def test_there_and_back(tmp_path: Path) -> None:
    """Encrypted: nothing of the plain form is left. Decrypted: ids are what they were, and no key is needed."""
    root = tmp_path / "store"
    ids = filled(root)
    words = plain_words(root)
    assert all(present(root, word) for word in (b"voter", next(iter(ids)).encode()))

    done = encrypt(root, KEY)
    assert set(done.ids) == set(ids) and not set(done.ids.values()) & set(ids) and done.deleted >= 12
    assert [word for word in words if present(root, word)] == []
    found = whole(root, KEY, ids)
    assert {one.id for one in found} == set(done.ids.values())
    whole(root, KEY, {done.ids[identity]: seed for identity, seed in ids.items()})
    with pytest.raises(InputError, match="is encrypted, it opens with"):
        open_store(root)

    back = decrypt(root, KEY)
    assert back.ids == {new: old for old, new in done.ids.items()}
    assert {one.id for one in whole(root, None, ids)} == set(ids)
    assert not list(root.rglob("keys"))
    whole(root, None, {done.ids[identity]: seed for identity, seed in ids.items()})  # aliases, the other way round


def test_once_more_changes_nothing(tmp_path: Path) -> None:
    ids = filled(tmp_path)
    encrypt(tmp_path, KEY)
    before = files_of(tmp_path)
    assert encrypt(tmp_path, KEY) == Resealed(open_store(tmp_path, key=KEY).root)
    assert files_of(tmp_path) == before
    decrypt(tmp_path, KEY)
    before = files_of(tmp_path)
    assert decrypt(tmp_path, KEY).ids == {}
    assert files_of(tmp_path) == before
    whole(tmp_path, None, ids)


def test_a_store_goes_on_where_it_was(tmp_path: Path) -> None:
    """Versions count on, past retired ones; equal content is found to be there; children name their parents."""
    ids = filled(tmp_path)
    encrypt(tmp_path, KEY)
    store = open_store(tmp_path, key=KEY)
    packs = set(Path(store.root).glob("packs/*"))
    last = store.open("voter 1")
    assert store.save(adapter(3, 16), 3, "voter 1", files=FILES, parent=last.manifest.about.parent, run="x") == last.id
    assert set(Path(store.root).glob("packs/*")) == packs
    store.save(adapter(9, 16), 9, "voter 0")
    assert store.open("voter 0").version == 4  # 3 was retired before
    decrypt(tmp_path, KEY)
    assert open_store(tmp_path).open("voter 0").version == 4
    assert open_store(tmp_path).open(next(iter(ids))).manifest.about.step == 0


def test_shared_tensors_are_stored_once(tmp_path: Path) -> None:
    """The base of four checkpoints takes its room once, in the encrypted store and in the plain one again."""
    filled(tmp_path)
    CheckpointStore(tmp_path).collect()
    before = sum(len(index.pieces) for index in CheckpointStore(tmp_path).catalog.refresh().values())
    for move in (encrypt, decrypt):
        store = CheckpointStore(move(tmp_path, KEY).root, vault=open_store(tmp_path, key=key_of(move)).vault)
        digests = [digest for index in store.catalog.refresh().values() for digest in index.pieces]
        assert len(digests) == len(set(digests)) <= before


def test_rotation_after_encryption(tmp_path: Path) -> None:
    ids = filled(tmp_path)
    encrypt(tmp_path, KEY)
    packs = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.parent.name != "keys"}
    rotate(tmp_path, KEY, NEW_KEY)
    now = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.parent.name != "keys"}
    assert {p: t for p, t in now.items() if p.is_file()} == {p: t for p, t in packs.items() if p.is_file()}
    whole(tmp_path, NEW_KEY, ids)
    with pytest.raises(InputError, match="wrong key"):
        decrypt(tmp_path, KEY)
    decrypt(tmp_path, NEW_KEY)
    whole(tmp_path, None, ids)
    with pytest.raises(InputError, match="is not encrypted"):
        rotate(tmp_path, KEY, NEW_KEY)


def test_what_cannot_be_done_is_said_and_nothing_changes(tmp_path: Path) -> None:
    for move in (encrypt, decrypt):
        with pytest.raises(InputError, match="there is no checkpoint store"):
            move(tmp_path / "none", KEY)
    assert not (tmp_path / "none").exists()
    ids = filled(tmp_path / "s", KEY)
    before = files_of(tmp_path / "s")
    for attempt in (lambda: encrypt(tmp_path / "s", NEW_KEY), lambda: decrypt(tmp_path / "s", NEW_KEY)):
        with pytest.raises(InputError, match="wrong key"):
            attempt()
    assert files_of(tmp_path / "s") == before
    whole(tmp_path / "s", KEY, ids)


def test_a_damaged_store_is_not_moved(tmp_path: Path) -> None:
    """Damage is named, and what is whole stays readable where it is."""
    filled(tmp_path)
    pack = max(tmp_path.glob("packs/*"), key=lambda path: path.stat().st_size)
    data = bytearray(pack.read_bytes())
    data[600] ^= 1
    pack.write_bytes(data)
    with pytest.raises(IntegrityError, match=f"{pack.name} is damaged"):
        encrypt(tmp_path, KEY)
    assert len(open_store(tmp_path).list()) == 4
    data[600] ^= 1
    pack.write_bytes(data)
    encrypt(tmp_path, KEY)
    assert len(open_store(tmp_path, key=KEY).list()) == 4


def test_what_was_written_is_read_back_before_anything_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = filled(tmp_path)
    verify = CheckpointStore.verify

    def damaging(store: CheckpointStore) -> Any:
        pack = next(Path(store.root).glob("packs/*"))
        data = bytearray(pack.read_bytes())
        data[700] ^= 4
        pack.write_bytes(data)
        return verify(store)

    monkeypatch.setattr(CheckpointStore, "verify", damaging)
    with pytest.raises(IntegrityError, match=r"is damaged.*nothing was deleted"):
        encrypt(tmp_path, KEY)
    monkeypatch.undo()
    whole(tmp_path, None, ids)


@pytest.mark.parametrize("move", [encrypt, decrypt])
def test_after_a_crash_at_any_change_all_is_there_and_once_more_finishes(
    tmp_path: Path, move: Callable[..., Resealed]
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
        step = 7  # a prime: it falls on every kind of change
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


@pytest.mark.slow
def test_a_killed_process_is_finished_by_the_next(tmp_path: Path) -> None:
    """`kill -9` of real processes at some moments."""
    ids = filled(tmp_path / "whole")
    code = (
        "import sys; from pathlib import Path; from capibara_assets.checkpoints.keys import RawKey\n"
        "from capibara_assets.checkpoints.resealing import encrypt\n"
        "print('begun', flush=True); encrypt(Path(sys.argv[1]), RawKey(b'k' * 32, 'k')); print('done', flush=True)"
    )
    killed = 0
    for milliseconds in (0, 5, 10, 20, 30, 40, 60, 80, 100, 150):
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
    assert killed >= 3


def test_a_writer_that_was_at_work_is_waited_for_and_comes_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began before the switch and publishes after it: nothing of it is lost, and nothing of it stays plain."""
    ids = filled(tmp_path)
    writer, reader = open_store(tmp_path), open_store(tmp_path)
    began, go_on = threading.Event(), threading.Event()
    real = CheckpointStore.write_pieces

    def slow(store: CheckpointStore, *args: Any) -> Any:
        if store is writer:
            began.set()
            assert go_on.wait(30)
        return real(store, *args)

    monkeypatch.setattr(CheckpointStore, "write_pieces", slow)
    late: list[str] = []
    saving = threading.Thread(target=lambda: late.append(writer.save(adapter(7, 16), 7, "late voter")))
    saving.start()
    assert began.wait(30)
    sealing = threading.Thread(target=encrypt, args=(tmp_path, KEY))
    sealing.start()
    wait_until(lambda: b"moved" in (tmp_path / "store.json").read_bytes())
    assert len(open_store(tmp_path, key=KEY).list()) == 4 and sealing.is_alive()
    go_on.set()
    saving.join()
    sealing.join()
    sealed = open_store(tmp_path, key=KEY)
    assert same(sealed.load(late[0]), adapter(7, 16)) and len(sealed.list()) == 5
    assert sealed.verify() == [] and not present(tmp_path, b"voter")
    sealed.retire([sealed.open("late voter").id])
    whole(tmp_path, KEY, ids)
    for attempt in (lambda: writer.save(adapter(8, 16), 8, "m"), lambda: reader.open("voter 0")):
        with pytest.raises(InputError, match="was encrypted or decrypted, its checkpoints are in generation-1 now"):
            attempt()
    assert not present(tmp_path, b"voter")


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


def test_two_processes_at_once_are_one_too_many(tmp_path: Path) -> None:
    filled(tmp_path)
    store = open_store(tmp_path)
    with hold(store.place, None, "reseal"), pytest.raises(InputError, match="by another process: let it finish"):
        encrypt(tmp_path, KEY)
    encrypt(tmp_path, KEY)


def test_a_writer_that_does_not_end_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resealing, "LIFE_S", 0.0)
    monkeypatch.setattr(resealing, "GRACE_S", 0.3)
    ids = filled(tmp_path)
    with (
        hold(open_store(tmp_path).place, None, "save m step 3"),
        pytest.raises(InputError, match=r"writers are still at work.*save m step 3"),
    ):
        encrypt(tmp_path, KEY)
    whole(tmp_path, KEY, ids)
    assert present(tmp_path, b"voter")
    encrypt(tmp_path, KEY)
    whole(tmp_path, KEY, ids)
    assert not present(tmp_path, b"voter")


def test_a_flipped_bit_in_what_points_to_the_store_is_found(tmp_path: Path) -> None:
    filled(tmp_path)
    encrypt(tmp_path, KEY)
    whole_file = (tmp_path / "store.json").read_bytes()
    for position in range(8 * len(whole_file)):
        data = bytearray(whole_file)
        data[position // 8] ^= 1 << position % 8
        (tmp_path / "store.json").write_bytes(data)
        with pytest.raises(IntegrityError, match=r"store\.json is damaged"):
            open_store(tmp_path, key=KEY)
    (tmp_path / "store.json").write_bytes(whole_file)
    shutil.rmtree(tmp_path / "generation-1")
    with pytest.raises(IntegrityError, match="generation-1 is missing"):
        open_store(tmp_path, key=KEY)


def kind_and_all(root: Path, ids: dict[str, int]) -> str:
    """Readers find all checkpoints, by their former ids, in the plain store or in the encrypted one."""
    try:
        store, kind = open_store(root), "plain"
    except InputError:
        store, kind = open_store(root, key=KEY), "sealed"
    assert len(store.list()) == len(ids)
    for identity, seed in ids.items():
        assert same(store.load(identity), adapter(seed, 16))
    return kind


def key_of(move: Callable[..., Resealed]) -> RawKey | None:
    return KEY if move is encrypt else None


def present(root: Path, word: bytes) -> bool:
    """Whether a file below a folder, or the name of one, has these bytes."""
    return any(
        word in str(path.relative_to(root)).encode() or (path.is_file() and word in path.read_bytes())
        for path in root.rglob("*")
    )


def files_of(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file()
    }


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)

"""Encrypting and decrypting whole stores: nothing lost, nothing left, and others at work meanwhile."""

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.checkpoints.store import resealing
from capibara_assets.checkpoints.store.kind import Moved, check_kind, moved, point, switch
from capibara_assets.checkpoints.store.leases import hold
from capibara_assets.checkpoints.store.opening import open_store
from capibara_assets.checkpoints.store.places import open_place
from capibara_assets.checkpoints.store.resealing import Resealed, decrypt, encrypt, rotate
from capibara_assets.checkpoints.store.store import CheckpointStore
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets_tests.checkpoints.resealed import (
    FILES,
    KEY,
    NEW_KEY,
    files_of,
    filled,
    key_of,
    plain_words,
    present,
    whole,
)
from capibara_assets_tests.checkpoints.states import adapter, same, unsynced

__all__ = ["unsynced"]
pytestmark = pytest.mark.usefixtures("unsynced")


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
        with pytest.raises(InputError, match="is a file: a checkpoint store is a folder"):
            move(Path(__file__), KEY)
    assert not (tmp_path / "none").exists()
    ids = filled(tmp_path / "s", KEY)
    before = files_of(tmp_path / "s")
    for attempt in (lambda: encrypt(tmp_path / "s", NEW_KEY), lambda: decrypt(tmp_path / "s", NEW_KEY)):
        with pytest.raises(InputError, match="wrong key"):
            attempt()
    assert files_of(tmp_path / "s") == before
    whole(tmp_path / "s", KEY, ids)


def test_a_folder_of_somebody_elses_is_left_as_it_is(tmp_path: Path) -> None:
    for name in ("packs", "models/x", "manifests", "leases", "parts"):
        (tmp_path / "project" / name).mkdir(parents=True)
    (tmp_path / "project" / "leases" / "q").write_text("mine")
    for move in (encrypt, decrypt):
        with pytest.raises((InputError, IntegrityError)):
            move(tmp_path / "project", KEY)
    assert sorted(path.name for path in (tmp_path / "project").iterdir()) == sorted(
        ("packs", "models", "manifests", "leases", "parts")
    )


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
def test_a_writer_that_was_at_work_is_waited_for_and_comes_along(
    tmp_path: Path, move: Callable[..., Resealed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began before the switch and publishes after it: nothing is lost, and nothing stays of the former kind."""
    ids = filled(tmp_path)
    if move is decrypt:
        encrypt(tmp_path, KEY)
    before, after = (KEY, None) if move is decrypt else (None, KEY)
    writer, other = open_store(tmp_path, key=before), open_store(tmp_path, key=before)
    began, go_on = threading.Event(), threading.Event()
    real = CheckpointStore.write_pieces

    def slow(store: CheckpointStore, *args: Any) -> Any:
        if store is writer:
            began.set()
            assert go_on.wait(60)
        return real(store, *args)

    monkeypatch.setattr(CheckpointStore, "write_pieces", slow)
    late: list[str] = []
    saving = threading.Thread(target=lambda: late.append(writer.save(adapter(7, 16), 7, "late voter")))
    saving.start()
    assert began.wait(60)
    sealing = threading.Thread(target=move, args=(tmp_path, KEY))
    pointer = (tmp_path / "store.json").read_bytes()
    sealing.start()
    wait_until(lambda: (tmp_path / "store.json").read_bytes() != pointer)
    assert len(open_store(tmp_path, key=after).list()) == 4 and sealing.is_alive()
    wait_until(lambda: b"moved" in (Path(other.root) / "store.json").read_bytes())
    with pytest.raises(InputError, match="was encrypted or decrypted, its checkpoints are in generation-"):
        other.save(adapter(8, 16), 8, "too late")
    go_on.set()
    saving.join()
    sealing.join()
    now = open_store(tmp_path, key=after)
    assert same(now.load(late[0]), adapter(7, 16)) and len(now.list()) == 5 and now.verify() == []
    now.retire([now.open("late voter").id])
    whole(tmp_path, after, ids)
    for attempt in (lambda: writer.save(adapter(8, 16), 8, "m"), lambda: other.open("voter 0")):
        with pytest.raises(InputError, match=r"was encrypted or decrypted|no longer there|it is empty"):
            attempt()
    assert present(tmp_path, b"voter") == (move is decrypt) and not present(tmp_path, b"too%20late")


def test_two_processes_at_once_are_one_too_many(tmp_path: Path) -> None:
    filled(tmp_path)
    store = open_store(tmp_path)
    with hold(store.place, None, "reseal"), pytest.raises(InputError, match="by another process: let it finish"):
        encrypt(tmp_path, KEY)
    encrypt(tmp_path, KEY)


def test_a_store_that_another_process_moved_meanwhile_is_not_moved(tmp_path: Path) -> None:
    place = open_place(tmp_path / "store")
    check_kind(place, encrypted=False, create=True)
    before = moved(place)
    point(place, Moved("generation-1"))
    with pytest.raises(InputError, match="by another process meanwhile; nothing was changed"):
        switch(place, before, Moved("generation-2", left=""))
    assert moved(place) == Moved("generation-1")
    switch(place, Moved("generation-1"), Moved("generation-2", left="generation-1"))
    assert moved(place) == Moved("generation-2", left="generation-1")


def test_a_writer_that_does_not_end_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resealing, "LIFE_S", 0.0)
    monkeypatch.setattr(resealing, "GRACE_S", 0.3)
    ids = filled(tmp_path)
    with (
        hold(open_store(tmp_path).place, None, "save m step 3"),
        pytest.raises(InputError, match=r"writers are still active.*save m step 3"),
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


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)

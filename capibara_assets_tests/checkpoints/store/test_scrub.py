"""Damage: every flipped bit of every file is found and named, and nothing damaged is ever read as if it were whole."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import zstandard

from capibara_assets.checkpoints.encryption.keys import RawKey
from capibara_assets.checkpoints.encryption.vault import Vault
from capibara_assets.checkpoints.store.catalog import Catalog
from capibara_assets.checkpoints.store.documents import unpacked
from capibara_assets.checkpoints.store.opening import open_store
from capibara_assets.checkpoints.store.places import open_place
from capibara_assets.checkpoints.store.slots import create_vault
from capibara_assets.checkpoints.store.store import CheckpointStore
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.storage.foreign import LARGEST_STORED
from capibara_assets_tests.checkpoints.states import same, unsynced  # noqa: F401 - a fixture
from capibara_assets_tests.storage.test_foreign import NO_FILES

pytestmark = pytest.mark.usefixtures("unsynced")


def small(root: Path, encrypted: bool) -> tuple[CheckpointStore, Vault | None]:
    """Two checkpoints that share a tensor, a tie and a file; raw and compressed pieces; a version that was retired."""
    key = RawKey(bytes(range(32)), "test") if encrypted else None
    vault = create_vault(open_place(root, private=True), key) if key is not None else None
    store = CheckpointStore(root, vault=vault)
    shared = torch.arange(300, dtype=torch.int32)
    for step in (1, 2):
        own = torch.frombuffer(bytearray(os.urandom(40)), dtype=torch.uint8)
        store.save({"shared": shared, "own": own, "tied": shared}, step, "m", files={"config.json": b"{}"})
    store.retire([store.save({"x": torch.ones(3)}, 3, "m")])
    store.collect()
    assert store.verify() == []
    return store, vault


def flips(path: Path, step: int) -> Iterator[int]:
    """Change one bit after another, give its number, and change it back."""
    data = bytearray(path.read_bytes())
    for bit in range(0, 8 * len(data), step):
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        yield bit
        data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


@pytest.mark.parametrize("step", [211, *(pytest.param(step, marks=pytest.mark.extended) for step in (67, 7))])
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_every_flipped_bit_is_found_and_named(tmp_path: Path, encrypted: bool, step: int) -> None:
    _, vault = small(tmp_path, encrypted)
    files = [path for path in sorted(tmp_path.rglob("*")) if path.is_file() and path.stat().st_size]
    assert {path.relative_to(tmp_path).parts[0] for path in files} >= {"packs", "manifests", "models", "store.json"}
    for path in files:
        name = path.relative_to(tmp_path).as_posix()
        # with 7: every byte, another of its bits each time; of sealed packs, 4 KiB of which are ciphertext, fewer
        for bit in flips(path, 5 * step if encrypted and name.startswith("packs/") else step):
            damages = CheckpointStore(tmp_path, vault=vault).verify()
            assert damages, (name, bit)
            assert name in {damage.file for damage in damages}, (name, bit, damages)
            payload = name.startswith("packs/") and 8 * 512 <= bit < 8 * 552
            if payload:
                assert all(damage.checkpoint and damage.tensor for damage in damages), (name, bit, damages)
    assert CheckpointStore(tmp_path, vault=vault).verify() == []


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_no_flipped_bit_is_ever_read(tmp_path: Path, encrypted: bool) -> None:
    """A reader gets what was written, or an error; lists and saves, too."""
    store, vault = small(tmp_path, encrypted)
    ids = [one.id for one in store.list()]
    sound = {one: store.load(one) for one in ids}
    for path in sorted(tmp_path.rglob("*")):
        if not path.is_file():
            continue
        for bit in flips(path, 251):
            reader = CheckpointStore(tmp_path, vault=vault)
            for one in ids:
                try:
                    state = reader.load(one)
                except IntegrityError:
                    continue
                assert same(state, sound[one]), (path, bit)


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_reading_a_damaged_piece_names_pack_checkpoint_and_tensor(tmp_path: Path, encrypted: bool) -> None:
    store, vault = small(tmp_path, encrypted)
    checkpoint = store.open("m@v1")
    [digest] = checkpoint.manifest.tensors["own"].pieces
    place = store.catalog.find(digest)
    assert place is not None
    pack = tmp_path / "packs" / f"{place.pack}.safetensors"
    data = bytearray(pack.read_bytes())
    data[place.offset + 3] ^= 4
    pack.write_bytes(data)
    reader = CheckpointStore(tmp_path, vault=vault)
    with pytest.raises(IntegrityError, match=rf"{place.pack}.* is damaged at own of checkpoint {checkpoint.id[:12]}"):
        reader.load("m@v1")
    with pytest.raises(IntegrityError, match=place.pack):
        list(reader.open("m@v1").content().tensors["own"].pieces())
    assert same(reader.open("m@v1").tensor("tied"), torch.arange(300, dtype=torch.int32))
    if not encrypted:  # told not to look
        assert not same(reader.load("m@v1", verify=False)["own"], store.load("m@v2")["own"])
    [damage] = reader.verify("m@v1")
    assert (damage.file, damage.checkpoint, damage.tensor) == (f"packs/{pack.name}", checkpoint.id, "own")
    assert reader.verify() == [damage]
    assert reader.verify("m@v2") == []


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_missing_swapped_cut_and_strange_files(tmp_path: Path, encrypted: bool) -> None:
    store, vault = small(tmp_path, encrypted)
    first, second = (store.open(f"m@v{version}") for version in (1, 2))

    def damages() -> list[tuple[str, str | None, str | None]]:
        return [damage[:3] for damage in CheckpointStore(tmp_path, vault=vault).verify()]

    shared, own = sorted((tmp_path / "packs").iterdir(), key=lambda path: path.stem not in first.manifest.packs)
    content = shared.read_bytes()
    shared.unlink()
    name = f"packs/{shared.name}"
    assert sorted(damages()) == sorted(
        [(name, first.id, tensor) for tensor in ("shared", "own", "config.json")]
        + [(name, second.id, tensor) for tensor in ("shared", "config.json")]
    )
    with pytest.raises(IntegrityError, match=r"lacks the piece .* of (own|shared|config.json) of checkpoint"):
        CheckpointStore(tmp_path, vault=vault).load(first.id)
    shared.write_bytes(own.read_bytes())  # one pack under the other's name
    assert (name, first.id, "own") in damages()
    for cut in (content[:-1], content + b"\0", content[:100], b""):
        shared.write_bytes(cut)
        assert (name, first.id, "own") in damages()
    shared.write_bytes(content)
    left, right = (tmp_path / "models" / folder / f"v00000{n}" for n in (1, 2) for folder in store.versions.folders())
    one, two = left.read_bytes(), right.read_bytes()
    left.write_bytes(two)
    assert damages() == [(left.relative_to(tmp_path).as_posix(), None, None)]
    left.write_bytes(one)
    for stray in ("packs/x", f"packs/{'0' * 64}", "manifests/x", f"{left.parent.relative_to(tmp_path).as_posix()}/v1"):
        (tmp_path / stray).write_bytes(b"x")
        assert damages() == [(stray, None, None)]
        (tmp_path / stray).unlink()
    [manifest] = (tmp_path / "manifests").glob(f"{first.id}*")
    manifest.unlink()
    assert damages() == [(f"manifests/{manifest.name}", first.id, None)]
    with pytest.raises(IntegrityError, match=manifest.name):
        CheckpointStore(tmp_path, vault=vault).list()
    (tmp_path / "store.json").unlink()
    assert ("store.json", None, None) in damages()
    with pytest.raises(IntegrityError, match=r"store\.json is missing"):
        CheckpointStore(tmp_path, vault=vault).save({}, 1, "m")


@pytest.mark.parametrize("shape", NO_FILES)
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_no_file_at_a_files_place_is_damage(
    tmp_path: Path, encrypted: bool, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe is not waited for, a hole not read, and a version that is one of them does not count as retired.

    Nobody knows a folder of a bucket from no file: there `verify` alone tells it.
    """
    key = RawKey(bytes(range(32)), "test") if encrypted else None
    small(tmp_path, encrypted)
    monkeypatch.chdir(tmp_path)  # a socket's name is short
    files = [path.relative_to(tmp_path) for path in sorted(tmp_path.rglob("*")) if path.is_file()]
    for file in (file for file in files if file.suffix != ".retired"):
        file.rename("aside")
        NO_FILES[shape](file)
        words = r"is no file but|bytes, of which|lacks the piece|is missing|no key slot"
        with pytest.raises((IntegrityError, InputError), match=words):
            found = open_store(tmp_path, key=key, create=False)
            assert file.as_posix() in {damage.file for damage in found.verify()}
            if file.parts[0] == "models" and shape == "a folder":
                raise IntegrityError("is missing")
            for one in found.list():
                found.load(one.id)
        file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink()
        Path("aside").rename(file)
    assert open_store(tmp_path, key=key).verify() == []


def test_a_frame_is_not_unpacked_to_more_than_a_document_has() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(LARGEST_STORED + 1))
    with pytest.raises(ValueError, match="it unpacks to 268,435,457 bytes"):
        unpacked(bomb)
    assert unpacked(zstandard.ZstdCompressor().compress(b"sound")) == b"sound"


def test_files_of_another_encrypted_store(tmp_path: Path) -> None:
    """Whoever can write files, but has no key, cannot bring in content of his own, nor exchange what is there."""
    store, vault = small(tmp_path / "a", encrypted=True)
    _, other = small(tmp_path / "b", encrypted=True)
    assert vault is not None and other is not None
    for folder in ("packs", "manifests"):
        theirs = next((tmp_path / "b" / folder).iterdir())
        ours = next((tmp_path / "a" / folder).iterdir())
        kept = ours.read_bytes()
        ours.write_bytes(theirs.read_bytes())
        assert f"{folder}/{ours.name}" in {damage.file for damage in store.verify()}
        ours.write_bytes(kept)


def test_a_damaged_pack_is_not_relied_on(tmp_path: Path) -> None:
    """A pack whose index cannot be read is as good as absent: what a save needs of it is written again."""
    state = {"w": torch.randn(500)}
    CheckpointStore(tmp_path).save(state, 1, "m")
    [pack] = (tmp_path / "packs").iterdir()
    pack.write_bytes(pack.read_bytes()[:-1] + b"?")
    store = CheckpointStore(tmp_path)
    with pytest.raises(IntegrityError, match=pack.name):
        store.load("m")
    store.save(state, 2, "m")
    assert same(CheckpointStore(tmp_path).load("m"), state)
    assert same(CheckpointStore(tmp_path).load("m@v1"), state)  # healed: it is the same content


def test_a_checkpoint_that_is_retired_and_collected_meanwhile_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = small(tmp_path, encrypted=False)
    second = store.open("m@v2").id
    refresh, ran = Catalog.refresh, []

    def late(self: Catalog) -> Any:
        if not ran:
            ran.append(True)
            other = CheckpointStore(tmp_path)
            other.retire([second])
            other.collect()
        return refresh(self)

    monkeypatch.setattr(Catalog, "refresh", late)
    assert CheckpointStore(tmp_path).verify() == [] and ran
    assert [one.version for one in store.list()] == [1]

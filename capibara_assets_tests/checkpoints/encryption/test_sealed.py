"""An encrypted store: what is on disk says nothing, nothing can be moved about, and equal content is stored once."""

import base64
import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zstandard

from capibara_assets.checkpoints.encryption.keys import KEY, RawKey
from capibara_assets.checkpoints.store.opening import open_store
from capibara_assets.checkpoints.store.store import CheckpointStore
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets_tests.checkpoints.states import adapter, same, unsynced

__all__ = ["unsynced"]
pytestmark = pytest.mark.usefixtures("unsynced")

KEY_A, KEY_B = RawKey(b"a" * 32, "key a"), RawKey(b"b" * 32, "key b")
PATTERN = np.frombuffer(b"capibara weights" * 600, np.float32)


def telling() -> dict[str, Any]:
    """A state whose every part is easy to search for."""
    return {
        "secret.layer": {"lora_A.weight": torch.from_numpy(PATTERN.copy()).reshape(80, 30)},
        "noise": torch.frombuffer(bytearray(np.random.default_rng(0).bytes(30_011)), dtype=torch.uint8),
        "note": "a secret note in the tree",
    }


ABOUT = {
    "recipe": {"secret_recipe": "learning rate 12345"},
    "metrics": {"secret_metric": 0.8125},
    "dataset_digest": "5ec4e7" * 10,
    "tags": ("secret_tag",),
    "run": "secret-run",
}
FILES = {"secret_config.json": b'{"secret_setting": "capibaras at night"}' * 20}


def needles(state: dict[str, Any], identity: str) -> dict[str, bytes]:
    """What must not be found: names, shapes, digests (hex, raw, base64), values, compressed or not.

    Each longer than what a random digest in hex holds by chance.
    """
    found = {
        text: text.encode()
        for text in (
            "secret", "lora_A", "learning rate", "rate 12345", "secret_metric", "0.8125", "capibaras", "config.json",
            "adapters of", "[80,30]", "[80, 30]", "(80, 30)", "[30011]", '"F32"', '"tensors"', '"pieces"',
            "5ec4e7", identity, identity[:16],
        )
    }  # fmt: skip
    values = {
        "pattern": PATTERN.tobytes(),
        "noise": state["noise"].numpy().tobytes(),
        "config": FILES["secret_config.json"],
    }
    for name, data in values.items():
        digest = hashlib.sha256(data).digest()
        found[f"values of {name}"] = data[:16]
        found[f"values of {name}, from the middle"] = data[len(data) // 2 :][:16]
        found[f"digest of {name}"] = digest
        found[f"hex of {name}"] = digest.hex().encode()
        found[f"base64 of {name}"] = base64.b64encode(digest)[:24]
    return found


def shown(root: Path, needle: bytes) -> list[str]:
    """Where something can be read: contents and names of files and folders."""
    places = []
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if needle in name.encode():
            places.append(f"the name {name}")
        if path.is_file() and any(needle in data for data in unpacked(path.read_bytes())):
            places.append(name)
    return places


def unpacked(data: bytes) -> Iterator[bytes]:
    """The bytes, and what each zstd frame in them says: plain documents and indexes are compressed."""
    yield data
    for found in re.finditer(re.escape(zstandard.FRAME_HEADER), data):
        with contextlib.suppress(zstandard.ZstdError):
            yield zstandard.ZstdDecompressor().decompressobj().decompress(data[found.start() :])


def test_an_encrypted_store_says_nothing(tmp_path: Path) -> None:
    """The same search finds nearly everything in a plain store, so that it is one that can find."""
    state = telling()
    plain = CheckpointStore(tmp_path / "plain", compression="none")
    identity = plain.save(state, 12345, "adapters of secret", files=FILES, **ABOUT)
    wanted = needles(state, identity)
    hidden = {name for name, needle in wanted.items() if not shown(tmp_path / "plain", needle)}
    assert hidden <= {"[80, 30]", "(80, 30)", "digest of pattern", "digest of noise", "digest of config"}

    sealed = open_store(tmp_path / "sealed", key=KEY_A, compression="none")
    other = sealed.save(state, 12345, "adapters of secret", files=FILES, **ABOUT)
    assert other != identity
    for name, needle in wanted.items():
        assert shown(tmp_path / "sealed", needle) == [], name
    assert same(sealed.load(other), state)


def test_files_of_an_encrypted_store_are_one_s_own(tmp_path: Path) -> None:
    open_store(tmp_path / "sealed", key=KEY_A).save(adapter(0), 0, "m")
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "sealed").rglob("*"))


def test_the_same_tensor_is_stored_once_and_another_store_shares_no_byte_of_it(tmp_path: Path) -> None:
    stores = [open_store(tmp_path / name, key=KEY_A, compression="none") for name in "xy"]
    big = torch.frombuffer(bytearray(os.urandom(400_000)), dtype=torch.bfloat16)
    for store in stores:
        store.save({"w": big}, 1, "m")
        before = size(Path(store.root))
        store.save({"a": big.clone(), "b": torch.ones(3)}, 2, "m")
        open_store(Path(store.root), key=KEY_A).save({"again": big.clone()}, 3, "another model")
        assert size(Path(store.root)) - before < 30_000
    blocks = [set(blocks_of(Path(store.root))) for store in stores]
    assert len(blocks[0]) > 20_000 and not blocks[0] & blocks[1]
    digests = [
        {piece for one in store.list() for e in one.manifest.tensors.values() for piece in e.pieces} for store in stores
    ]
    assert not digests[0] & digests[1]


def test_no_nonce_is_used_twice_across_saves_processes_and_forks(tmp_path: Path) -> None:
    """Every sealed document and pack of a store has a salt of its own, whoever wrote it."""
    open_store(tmp_path, key=KEY_A).save(adapter(0), 0, "m")
    store = open_store(tmp_path, key=KEY_A)  # what follows forks with a store, and a vault, that are open
    store.save(adapter(1), 1, "m")
    children = []
    for number in range(2, 5):
        process = os.fork()
        if process == 0:
            try:
                store.save(adapter(number), number, "m")
                os._exit(0)
            finally:
                os._exit(1)
        children.append(process)
    store.save(adapter(5), 5, "m")
    assert [os.waitpid(process, 0)[1] for process in children] == [0] * len(children)
    salts = [salt for path in tmp_path.rglob("*") if path.is_file() for salt in salts_of(path.read_bytes())]
    assert len(salts) == 3 * 6 and len(set(salts)) == len(salts)
    assert open_store(tmp_path, key=KEY_A).verify() == []
    assert len(store.list()) == 6


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """A store with three checkpoints of two models, in as many packs, with pieces of equal length."""
    store = open_store(tmp_path / "store", key=KEY_A, compression="none")
    for number in range(3):
        values = {name: torch.full((64, 64), 10.0 * number + i) for i, name in enumerate("abc")}
        store.save(values, number, f"model {number % 2}")
    return tmp_path / "store"


def checked(root: Path, *named: str) -> None:
    """Verifying names these files, and loading what they hold is an IntegrityError."""
    store = open_store(root, key=KEY_A)
    damages = store.verify()
    assert {damage.file for damage in damages} >= set(named) and damages, damages
    refused = 0
    for model in ("model 0", "model 1"):
        for version in (1, 2):
            try:
                store.load(f"{model}@v{version}")
            except IntegrityError as error:
                assert any(name in str(error) for name in named) or "lacks the piece" in str(error), error
                refused += 1
            except InputError:
                continue  # there is no such version
    assert refused


def swap(one: Path, other: Path) -> None:
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


@pytest.mark.parametrize("folder", ["packs", "manifests"])
def test_swapped_files_are_found(two: Path, folder: str) -> None:
    one, other, *_ = sorted((two / folder).iterdir())
    swap(one, other)
    checked(two, f"{folder}/{one.name}", f"{folder}/{other.name}")


def test_swapped_versions_are_found(two: Path) -> None:
    one, other, *_ = sorted(two.glob("models/*/v*"))
    swap(one, other)
    checked(two, str(one.relative_to(two)), str(other.relative_to(two)))


def test_a_version_copied_to_another_number_or_model_is_found(two: Path) -> None:
    first, *_ = sorted(two.glob("models/*/v000001"))
    for target in (first.with_name("v000002"), first.with_name("v000009")):
        shutil.copy(first, target)
        with pytest.raises(IntegrityError, match=str(target.relative_to(two))):
            open_store(two, key=KEY_A).list()
        target.unlink()


def test_pieces_swapped_within_a_pack_and_between_packs_are_found(two: Path) -> None:
    store = open_store(two, key=KEY_A)
    packs = store.catalog.refresh()
    pieces = [[piece for piece in index.pieces.values() if piece.plain == 4 * 64 * 64] for index in packs.values()]
    (a, b), (c, *_) = pieces[0][:2], pieces[1]
    assert a.stored == b.stored == c.stored
    for one, other in ((a, b), (a, c)):
        files = [two / f"packs/{piece.pack}.safetensors" for piece in (one, other)]
        kept = [file.read_bytes() for file in files]
        sealed = [
            data[piece.offset : piece.offset + piece.stored] for piece, data in zip((one, other), kept, strict=True)
        ]
        for piece, file, data in zip((one, other), files, reversed(sealed), strict=True):
            with file.open("r+b") as writer:
                writer.seek(piece.offset)
                writer.write(data)
        damages = open_store(two, key=KEY_A).verify()
        assert {(damage.file, damage.tensor) for damage in damages} >= {
            (f"packs/{piece.pack}.safetensors", name) for piece in (one, other) for name in names_of(store, piece)
        }
        checked(two, *(f"packs/{piece.pack}.safetensors" for piece in (one, other)))
        for file, data in zip(files, kept, strict=True):
            file.write_bytes(data)
    assert open_store(two, key=KEY_A).verify() == []


def test_files_of_another_store_under_the_same_key_are_found(two: Path, tmp_path: Path) -> None:
    """Even one with the same names and content: its data key is another."""
    store = open_store(tmp_path / "twin", key=KEY_A, compression="none")
    for number in range(3):
        values = {name: torch.full((64, 64), 10.0 * number + i) for i, name in enumerate("abc")}
        store.save(values, number, f"model {number % 2}")
    for folder in ("packs", "manifests"):
        ours, theirs = (sorted((root / folder).iterdir())[0] for root in (two, tmp_path / "twin"))
        kept = ours.read_bytes()
        shutil.copy(theirs, ours)
        checked(two, f"{folder}/{ours.name}")
        ours.write_bytes(kept)
    kept = (two / "keys/1.json").read_bytes()
    shutil.copy(tmp_path / "twin/keys/1.json", two / "keys/1.json")
    with pytest.raises(IntegrityError, match="is damaged"):
        open_store(two, key=KEY_A).list()
    assert len(open_store(two, key=KEY_A).verify()) >= 6
    (two / "keys/1.json").write_bytes(kept)
    assert open_store(two, key=KEY_A).verify() == []


def test_every_file_that_is_cut_off_is_found(two: Path) -> None:
    files = sorted(path for path in two.rglob("*") if path.is_file())
    assert len(files) == 2 + 3 * 3
    for file in files:
        data, name = file.read_bytes(), str(file.relative_to(two))
        for keep in (0, 1, len(data) // 2, len(data) - 1):
            file.write_bytes(data[:keep])
            try:
                damages = open_store(two, key=KEY_A).verify()
            except IntegrityError as error:
                assert name in str(error)
            else:
                assert name in {damage.file for damage in damages}, (name, keep, damages)
        file.write_bytes(data)
    assert open_store(two, key=KEY_A).verify() == []


def test_keys_of_the_environment_open_and_make_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, (b"a" * 32).hex())
    identity = open_store(tmp_path / "s").save(adapter(1), 1, "m")
    assert same(open_store(tmp_path / "s").load(identity), adapter(1))
    assert open_store(tmp_path / "s", key=KEY_A).verify() == []
    monkeypatch.setenv(KEY, (b"b" * 32).hex())
    with pytest.raises(InputError, match=f"^wrong key for .*: it opens with key {KEY_A.key_id}, and {KEY} gave key"):
        open_store(tmp_path / "s")
    monkeypatch.delenv(KEY)
    with pytest.raises(InputError, match=f"is encrypted, it opens with key {KEY_A.key_id}: set {KEY}"):
        open_store(tmp_path / "s")


def test_whoever_gives_a_key_is_not_given_a_plain_store(tmp_path: Path) -> None:
    """Neither for saving in the clear, nor when somebody put one in the encrypted store's place."""
    open_store(tmp_path / "plain").save(adapter(1), 1, "m")
    with pytest.raises(InputError, match=r"is not encrypted, and key a gives a key: encrypt the store"):
        open_store(tmp_path / "plain", key=KEY_A)


def test_lost_key_slots_are_not_taken_for_a_plain_store(two: Path) -> None:
    shutil.rmtree(two / "keys")
    for key in (None, KEY_A):
        with pytest.raises(IntegrityError, match="keys is missing: the store is encrypted"):
            open_store(two, key=key)
    assert not (two / "keys").exists()


def test_looking_at_what_is_not_there_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no checkpoint store"):
        open_store(tmp_path / "none", key=KEY_A, create=False)
    assert not (tmp_path / "none").exists()


def size(root: Path) -> int:
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


def blocks_of(root: Path) -> Iterator[bytes]:
    """All aligned 16-byte blocks of a store's packs, but for their headers and the padding in them."""
    for path in root.glob("packs/*"):
        data = path.read_bytes()[512:]
        yield from (data[at : at + 16] for at in range(0, len(data) - 15, 16))


def names_of(store: CheckpointStore, piece: Any) -> list[str]:
    digest = next(d for d, p in store.catalog.index(piece.pack).pieces.items() if p == piece)
    return [name for one in store.list() for name, entry in one.manifest.tensors.items() if digest in entry.pieces]


def salts_of(data: bytes) -> Iterator[bytes]:
    """Salts as they stand in documents and in headers of packs."""
    for mark in (b"capibara-sealed/1 ", b'"salt":"'):
        head = data[:1024]
        if mark in head:
            start = head.index(mark) + len(mark)
            yield head[start : start + 64]

"""A store of a few checkpoints that is encrypted and decrypted, and how to tell that nothing of it was lost or left."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import torch

from capibara_assets.checkpoints.encryption.keys import RawKey
from capibara_assets.checkpoints.store.opening import open_store
from capibara_assets.checkpoints.store.resealing import Resealed, encrypt
from capibara_assets.checkpoints.store.store import Checkpoint, CheckpointStore
from capibara_assets.errors import InputError
from capibara_assets_tests.checkpoints.states import adapter, same

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

"""Encrypting and decrypting a whole store on an object store, where nothing can be renamed."""

from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from capibara_assets.checkpoints.encryption.keys import RawKey
from capibara_assets.checkpoints.store.opening import open_store
from capibara_assets.checkpoints.store.resealing import decrypt, encrypt, rotate
from capibara_assets.errors import InputError
from capibara_assets_tests.checkpoints.states import adapter, same
from capibara_assets_tests.storage.test_remote import emulator

__all__ = ["emulator"]
KEY, NEW_KEY = RawKey(b"k" * 32, "the key"), RawKey(b"n" * 32, "the new key")


@pytest.mark.gcs
def test_there_and_back_on_google_cloud_storage(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    root = UPath("gs://bucket/sealed", token="anon", endpoint_url=request.getfixturevalue("emulator"))
    where: dict[str, Any] = {"work": tmp_path}
    plain = open_store(root, **where)
    ids = [plain.save(adapter(seed, 16), seed, "voter", files={"a.json": b"{}"}) for seed in range(2)]

    encrypt(root, KEY, **where)
    sealed = open_store(root, key=KEY, **where)
    assert sealed.verify() == [] and all(same(sealed.load(one), adapter(seed, 16)) for seed, one in enumerate(ids))
    names = [name for folder in ("packs", "manifests", "models", "leases") for name in plain.place.list(folder)]
    assert names == [] and plain.place.folders("models") == ()
    with pytest.raises(InputError, match="was encrypted or decrypted"):
        plain.save(adapter(3, 16), 3, "voter")

    rotate(root, KEY, NEW_KEY, **where)
    with pytest.raises(InputError, match="wrong key"):
        decrypt(root, KEY, **where)
    decrypt(root, NEW_KEY, **where)
    again = open_store(root, **where)
    assert again.verify() == [] and [one.id for one in again.list()] == ids
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]

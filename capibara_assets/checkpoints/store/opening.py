"""Opening a checkpoint store by address: resolves moves, detects encryption, and finds the key."""

from pathlib import Path

from upath import UPath

from capibara_assets.checkpoints.encryption.keys import WrappingKey, given_key
from capibara_assets.checkpoints.encryption.vault import Vault
from capibara_assets.checkpoints.store.codec import Compression
from capibara_assets.checkpoints.store.kind import check_kind, exists, moved
from capibara_assets.checkpoints.store.places import StorePlace, open_place
from capibara_assets.checkpoints.store.slots import create_vault, is_encrypted, open_vault
from capibara_assets.checkpoints.store.store import CheckpointStore
from capibara_assets.errors import InputError, IntegrityError


def open_store(
    root: str | UPath | Path,
    *,
    key: WrappingKey | None = None,
    compression: Compression = "zstd",
    work: Path | None = None,
    create: bool = True,
) -> CheckpointStore:
    """Open the store at an address, with its keys if it is encrypted; a new one is encrypted if a key is given.

    Args:
        key: key of an encrypted store; None: the one in the environment (`keys.given_key`).
        create: whether the key slot of a new encrypted store may be written.

    Raises:
        InputError: a remote root without `work`; an encrypted store, and no key, or not its key; a key, and a store
            that is not encrypted, or, without `create`, none.
        IntegrityError: a key slot is damaged, or the folder that the store moved to is missing.
    """
    place = open_place(root, work=work, private=True)
    if (there := moved(place)) is not None:
        root = UPath(root) / there.at
        place = open_place(root, work=work, private=True)
        if not exists(place):
            raise IntegrityError(f"{place.root} is missing: the store's checkpoints should be there")
    key = key if key is not None else given_key()
    vault = None
    if is_encrypted(place):
        vault = open_vault(place, key)
    elif key is not None:
        vault = _new_vault(place, key, create)
    return CheckpointStore(root, vault=vault, compression=compression, work=work)


def _new_vault(place: StorePlace, key: WrappingKey, create: bool) -> Vault:
    """The vault of a new encrypted store. Raises InputError: there is a plain store, or, without `create`, none."""
    if exists(place):
        if is_encrypted(place):
            return open_vault(place, key)  # another process has just created it
        raise InputError(
            f"the checkpoint store {place.root} is not encrypted, and {key.origin} gives a key: encrypt the store "
            "(`capibara checkpoint encrypt`), or do not give a key"
        )
    if not create:
        raise InputError(f"there is no checkpoint store at {place.root}")
    vault = create_vault(place, key)
    check_kind(place, True, create=True)
    return vault

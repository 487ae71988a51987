"""`capibara checkpoint encrypt`, `decrypt`, `rotate`: encrypt a store, decrypt it, or change its key."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from capibara_assets.cli.checkpoint.store import StoreLocation, on_store
from capibara_assets.cli.terminal.documents import AS_JSON, echo_result
from capibara_assets.cli.terminal.help import with_example
from capibara_assets.cli.terminal.progress import shows_progress
from capibara_assets.errors import InputError

if TYPE_CHECKING:
    from capibara_assets.checkpoints.encryption.keys import WrappingKey
    from capibara_assets.checkpoints.store.resealing import Resealed


@with_example("capibara checkpoint encrypt --key-file store.key")
@click.command("encrypt")
@AS_JSON
@on_store
@shows_progress("encrypting")
def encrypt(where: StoreLocation, as_json: bool) -> None:
    """Encrypt the store: values, names, shapes and hashes. Ids change; former ids still find their checkpoints.

    Needs disk space for a second copy while it runs. After an interruption, run the same command again to resume.
    """
    from capibara_assets.checkpoints.store import resealing

    key = _key(where)
    _report(resealing.encrypt(where.root, key, work=where.work), key, "encrypted", as_json)


@with_example("capibara checkpoint decrypt --key-file store.key")
@click.command("decrypt")
@AS_JSON
@on_store
@shows_progress("decrypting")
def decrypt(where: StoreLocation, as_json: bool) -> None:
    """Decrypt an encrypted store."""
    from capibara_assets.checkpoints.store import resealing

    key = _key(where)
    _report(resealing.decrypt(where.root, key, work=where.work), key, "decrypted", as_json)


@with_example("capibara checkpoint rotate --key-file store.key --new-key-file new.key")
@click.command("rotate")
@click.option("--new-key-file", type=click.Path(path_type=Path), help="File with the new key.")
@click.option("--new-kms", metavar="ADDRESS", help="The new key in Google KMS.")
@AS_JSON
@on_store
@shows_progress("changing the key")
def rotate(where: StoreLocation, new_key_file: Path | None, new_kms: str | None, as_json: bool) -> None:
    """Replace the key of an encrypted store; the old key no longer opens it. Payload files are not rewritten."""
    from capibara_assets.checkpoints.encryption.keys import given_key
    from capibara_assets.checkpoints.store import resealing

    new = given_key({}, key_file=new_key_file, kms_key=new_kms)
    if new is None:
        raise InputError("no new key given: use --new-key-file or --new-kms")
    key = _key(where)
    if new.key_id == key.key_id:
        raise InputError(f"the new key is the store's own, {key.key_id}: give another one")
    resealing.rotate(where.root, key, new, work=where.work)
    told = f"{where.root} opens with key {new.key_id} ({new.origin}), and no longer with {key.key_id}"
    echo_result({"store": where.root, "key_id": new.key_id, "former_key_id": key.key_id}, told, as_json)


def _key(where: StoreLocation) -> "WrappingKey":
    from capibara_assets.checkpoints.encryption.keys import HOW_TO_GIVE

    key = where.key()
    if key is None:
        raise InputError(f"no checkpoint key is given: {HOW_TO_GIVE}")
    return key


def _report(done: "Resealed", key: "WrappingKey", what: str, as_json: bool) -> None:
    told = f"{done.root}: {what} with key {key.key_id} ({key.origin}); {len(done.ids)} checkpoints have new ids"
    echo_result({"store": done.root, "key_id": key.key_id, "ids": done.ids, "deleted": done.deleted}, told, as_json)

"""Options of `capibara checkpoint` commands that choose a checkpoint store and its key."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from capibara_assets.deployment.environment import Deployment
from capibara_assets.errors import InputError

if TYPE_CHECKING:
    from capibara_assets.checkpoints.encryption.keys import WrappingKey
    from capibara_assets.checkpoints.store.store import CheckpointStore

FOLDER = "checkpoints"
"""The deployment's checkpoint store, inside its artifact store."""

_OPTIONS = (
    click.option("--store", help="Folder or gs://bucket/prefix of a store; by default the deployment's."),
    click.option("--key-file", type=click.Path(path_type=Path), help="File with the key of an encrypted store."),
    click.option("--kms", metavar="ADDRESS", help="Key in Google KMS: gcp-kms://projects/.../cryptoKeys/..."),
)


@dataclass(frozen=True)
class StoreLocation:
    """Address of a checkpoint store, and the options that name its key."""

    root: str
    work: Path
    named: bool
    """Whether the command line named it."""
    key_file: Path | None = None
    kms: str | None = None

    def key(self) -> "WrappingKey | None":
        """The key given by option or environment. Raises InputError: two keys given, or one that cannot be read."""
        from capibara_assets.checkpoints.encryption.keys import given_key

        return given_key(key_file=self.key_file, kms_key=self.kms)

    def open(self, compression: Any = "zstd", *, make: bool = False) -> "CheckpointStore":
        """The store.

        Args:
            make: create the store at its first save if the folder does not exist.

        Raises:
            InputError: no such folder, no key for an encrypted store or a wrong one.
        """
        from capibara_assets.checkpoints.store.opening import open_store
        from capibara_assets.storage.mirror import is_remote

        folder = Path(self.root.removeprefix("file://"))
        if self.named and not make and not is_remote(self.root) and not folder.is_dir():
            why = "it is a file" if folder.exists() else "the folder does not exist"
            raise InputError(f"no checkpoint store in {self.root}: {why}")
        return open_store(self.root, key=self.key(), compression=compression, work=self.work, create=make)


def on_store(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose a store; the command receives them as its argument `where`."""

    @functools.wraps(command)
    def with_store(*, store: str | None, key_file: Path | None, kms: str | None, **rest: Any) -> None:
        if store is not None and not store.strip():
            raise InputError("--store is empty: name a folder or gs://bucket/prefix, or leave it out")
        deployment = Deployment.from_environment()
        root = store or f"{deployment.store.rstrip('/')}/{FOLDER}"
        where = StoreLocation(root, deployment.work / FOLDER, bool(store), key_file, kms)
        command(where=where, **rest)

    for option in reversed(_OPTIONS):
        with_store = option(with_store)
    return with_store

"""The artifact store with its checkpoint store: weights that the graph makes are stored once, in `<root>/checkpoints`.

Imports no torch: most operations on artifacts read no weights.
"""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from upath import UPath

from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.storage.store import ArtifactStore

if TYPE_CHECKING:
    from capibara_assets.checkpoints.content import Content
    from capibara_assets.checkpoints.store.manifest import About
    from capibara_assets.checkpoints.store.store import CheckpointStore

FOLDER = "checkpoints"
"""Folder of the checkpoints below the root of a deployment's store."""
FORMAT = "huggingface"
"""Format that the graph writes: adapters in PEFT's format, models in Transformers'."""


def checkpoint_root(root: str | UPath) -> str:
    """Address of the checkpoints of an artifact store."""
    return f"{str(root).rstrip('/')}/{FOLDER}"


def open_artifacts(root: str | UPath, work: Path | None = None) -> ArtifactStore:
    """The artifact store of a deployment with its checkpoint store, which is opened on first use.

    Raises:
        InputError: a remote root without a local work folder.
    """
    store = ArtifactStore(root, work)
    store.checkpoints = GraphCheckpoints(store)
    return store


def checkpoints_of(store: ArtifactStore) -> "CheckpointStore":
    """The checkpoint store beside an artifact store.

    Raises:
        InputError: the store was opened without one, or is encrypted and no key is given.
    """
    if not isinstance(store.checkpoints, GraphCheckpoints):
        raise InputError(f"{store.root} was opened without its checkpoints: use checkpoints.artifacts.open_artifacts")
    return store.checkpoints.store


class GraphCheckpoints:
    """The checkpoint store as an artifact store uses it."""

    def __init__(self, artifacts: ArtifactStore) -> None:
        self._root, self._work = artifacts.root / FOLDER, artifacts.work / FOLDER

    @cached_property
    def store(self) -> "CheckpointStore":
        from capibara_assets.checkpoints.store.opening import open_store

        return open_store(self._root, work=self._work)

    def put(self, folder: Path, about: Mapping[str, Any]) -> str:
        """Store an adapter or model; returns its id. Raises InputError: it is neither."""
        return self.store.write(*_read(folder, about)).id

    def mend(self, folder: Path, about: Mapping[str, Any]) -> str:
        """`put`, replacing damaged packs that hold some of it. Raises IntegrityError: its manifest is damaged too."""
        return self.store.mend(*_read(folder, about)).id

    def restore(self, checkpoint: str, folder: Path) -> None:
        """Write a checkpoint's files into a folder. Raises IntegrityError: it is missing or damaged."""
        from capibara_assets.checkpoints.store.store import MissingCheckpoint

        try:
            self.store.load(checkpoint, FORMAT, folder)
        except MissingCheckpoint as error:
            raise IntegrityError(f"an artifact names checkpoint {checkpoint}: {error}") from error


def _read(folder: Path, about: Mapping[str, Any]) -> "tuple[Content, About]":
    from capibara_assets.checkpoints.formats import FORMATS
    from capibara_assets.checkpoints.store.manifest import About

    return FORMATS[FORMAT].read(folder), About(**about)

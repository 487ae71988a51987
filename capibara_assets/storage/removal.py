"""Permanent removal from the store: deletion of artifacts, and tombstones that block publishing them again.

A removal writes its note first (which artifact, when; never its content). From then on the artifact does not count as
published, and `finish_removals` completes a removal that was interrupted. Tombstones are JSON documents that are only
added, each under the digest of its bytes.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from upath import UPath

from capibara_assets.errors import IntegrityError
from capibara_assets.storage.conditional import delete_seen, has_generations, seen
from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.storage.foreign import read_stored
from capibara_assets.storage.jsonfiles import (
    delete_durable,
    parse_json,
    read_versioned,
    sync_folder,
    write_bytes_atomic,
)
from capibara_assets.storage.manifest import MANIFEST, check_name
from capibara_assets.storage.store import RESTORED, ArtifactStore

REMOVED = "removed"
TOMBSTONES = "tombstones"
_TOMBSTONE_VERSION = 1
_WHOLE = "_"


@dataclass(frozen=True, order=True)
class Removed:
    """The note of a removed artifact."""

    asset: str
    partition: str | None
    digest: str
    when: str


def remove_artifact(store: ArtifactStore, asset: str, partition: str | None, digest: str) -> None:
    """Delete an artifact's files, its local copies, and the `latest` pointer if it names this artifact.

    Checkpoints that it names are another store's: see `lineage.checkpoints`.

    Can be called again, also after it was interrupted. An object store that keeps former versions of objects keeps
    them: that is the bucket's setting.
    """
    note = store.root / REMOVED / check_name(asset) / (partition or _WHOLE) / f"{check_name(digest)}.json"
    if not note.exists():
        _write(store, note, canonical_json({"removed": datetime.now(UTC).isoformat()}))
    _forget_latest(store, asset, partition, digest)
    discard_artifact(store, asset, partition, digest)


def _forget_latest(store: ArtifactStore, asset: str, partition: str | None, digest: str) -> None:
    """Delete the pointer where it names an artifact; one that is published meanwhile keeps its own."""
    pointer = store.pointer(asset, partition)
    while True:
        former = seen(pointer) if has_generations(pointer) else None
        if store.latest_digest(asset, partition) != digest:
            return
        if former is None:
            pointer.unlink()
            if store.is_local:
                sync_folder(Path(pointer.path).parent)
        elif not delete_seen(pointer, former):
            continue
        return


def discard_artifact(store: ArtifactStore, asset: str, partition: str | None, digest: str) -> None:
    """Delete an artifact's files and its local copies without a note: nothing needs it any more, and it may come back.

    What was interrupted leaves a folder without a manifest, which is no artifact.
    """
    folder = store.root / "artifacts" / asset / (partition or _WHOLE) / digest
    manifest = folder / MANIFEST
    if manifest.exists():
        manifest.unlink()  # nobody opens it any more
        if store.is_local:
            sync_folder(Path(folder.path))  # or a loss of power leaves it without its files: damaged, not removed
    _delete(store, folder)
    for copies in ("downloads", RESTORED):
        shutil.rmtree(store.work / copies / asset / (partition or _WHOLE) / digest, ignore_errors=True)


def discard_torn(store: ArtifactStore) -> None:
    """Delete what an interrupted removal left of artifacts on a disk; nothing may be published meanwhile.

    In a bucket a folder without a manifest may be one that is being written.
    """
    for name in _folders(store.root / "artifacts") if store.is_local else ():
        for folder in (digest for partition in _folders(name) for digest in _folders(partition)):
            if not (folder / MANIFEST).exists():
                _delete(store, folder)


def removed(store: ArtifactStore, asset: str | None = None) -> list[Removed]:
    """The removed artifacts of one asset, or of all; sorted."""
    root = store.root / REMOVED
    return sorted(
        Removed(
            name.name,
            None if partition.name == _WHOLE else partition.name,
            note.name.removesuffix(".json"),
            _when(note),
        )
        for name in _folders(root)
        if asset in (None, name.name)
        for partition in _folders(name)
        for note in partition.glob("*.json")
        if not note.name.startswith(".")
    )


def _when(note: UPath) -> str:
    try:
        return str(parse_json(read_stored(note))["removed"])
    except (ValueError, KeyError, TypeError) as error:
        raise IntegrityError(f"{note} is damaged: it says when an artifact was removed; restore the store") from error


def finish_removals(store: ArtifactStore) -> int:
    """Complete interrupted removals; returns how many there were."""
    unfinished = 0
    for gone in removed(store):
        folder = store.root / "artifacts" / gone.asset / (gone.partition or _WHOLE) / gone.digest
        if folder.exists() and not (folder / MANIFEST).exists():
            _delete(store, folder)
            unfinished += 1
    return unfinished


def add_tombstone(store: ArtifactStore, document: dict[str, Any]) -> None:
    """Add a tombstone, whole and synced or not at all; the same content twice is one document."""
    name = sha256_bytes(canonical_json(document))[:32]
    path = store.root / TOMBSTONES / f"{name}.json"
    if not path.exists():
        stamped = {**document, "schema_version": _TOMBSTONE_VERSION, "created": datetime.now(UTC).isoformat()}
        _write(store, path, canonical_json(stamped))


def read_tombstones(store: ArtifactStore) -> list[dict[str, Any]]:
    """Read the tombstones of a store, by name.

    Raises:
        IntegrityError: one is damaged, or of a newer format: neither counts as absent.
    """
    folder = store.root / TOMBSTONES
    return [
        read_versioned(path, _TOMBSTONE_VERSION, "restore it, what it names would come back without it")
        for path in (sorted(folder.glob("*.json"), key=lambda path: path.name) if folder.exists() else ())
        if not path.name.startswith(".")  # being written
    ]


def _write(store: ArtifactStore, path: UPath, data: bytes) -> None:
    if store.is_local:
        write_bytes_atomic(Path(path.path), data)
    else:
        path.write_bytes(data)  # one object appears in one step


def _delete(store: ArtifactStore, folder: UPath) -> None:
    if store.is_local:
        delete_durable(Path(folder.path))
    elif folder.exists():
        folder.fs.rm(folder.path, recursive=True)


def _folders(root: UPath) -> Iterator[UPath]:
    if root.exists():
        yield from (path for path in root.iterdir() if path.is_dir())

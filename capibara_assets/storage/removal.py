"""Artifacts taken out of the store for good, and what is noted of them: which, when, never what they held.

The note is written first. From then on the artifact does not count as published, and whoever finds the note finishes
what an interrupted removal left.
"""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from upath import UPath

from capibara_assets.storage.digests import canonical_json
from capibara_assets.storage.jsonfiles import write_bytes_atomic
from capibara_assets.storage.manifest import MANIFEST, check_name
from capibara_assets.storage.store import RESTORED, ArtifactStore

REMOVED = "removed"
_WHOLE = "_"


@dataclass(frozen=True, order=True)
class Removed:
    """An artifact that was removed."""

    asset: str
    partition: str | None
    digest: str
    when: str


def remove_artifact(store: ArtifactStore, asset: str, partition: str | None, digest: str) -> None:
    """Deletes an artifact's files and its local copies; a pointer that names it goes as well.

    Checkpoints that it names are another store's: see `lineage.checkpoints`.

    Can be called again, also after it was interrupted. An object store that keeps former versions of objects keeps
    them: that is the bucket's setting.
    """
    note = store.root / REMOVED / check_name(asset) / (partition or _WHOLE) / f"{check_name(digest)}.json"
    if not note.exists():
        data = canonical_json({"removed": datetime.now(UTC).isoformat()})
        if store.is_local:
            write_bytes_atomic(Path(note.path), data)
        else:
            note.write_bytes(data)
    if store.latest_digest(asset, partition) == digest:
        store.pointer(asset, partition).unlink()
    folder = store.root / "artifacts" / asset / (partition or _WHOLE) / digest
    manifest = folder / MANIFEST
    if manifest.exists():
        manifest.unlink()  # nobody opens it any more
    _delete(store, folder)
    for copies in ("downloads", RESTORED):
        shutil.rmtree(store.work / copies / asset / (partition or _WHOLE) / digest, ignore_errors=True)


def removed(store: ArtifactStore, asset: str | None = None) -> list[Removed]:
    """What was removed, of one asset or of all."""
    root = store.root / REMOVED
    return sorted(
        Removed(
            name.name,
            None if partition.name == _WHOLE else partition.name,
            note.name.removesuffix(".json"),
            str(json.loads(note.read_bytes())["removed"]),
        )
        for name in _folders(root)
        if asset in (None, name.name)
        for partition in _folders(name)
        for note in partition.glob("*.json")
        if not note.name.startswith(".")
    )


def finish_removals(store: ArtifactStore) -> int:
    """Deletes what interrupted removals left behind; returns how many."""
    unfinished = 0
    for gone in removed(store):
        folder = store.root / "artifacts" / gone.asset / (gone.partition or _WHOLE) / gone.digest
        if folder.exists() and not (folder / MANIFEST).exists():
            _delete(store, folder)
            unfinished += 1
    return unfinished


def _delete(store: ArtifactStore, folder: UPath) -> None:
    if store.is_local:
        path = Path(folder.path)
        if path.exists():
            shutil.rmtree(path)
    elif folder.exists():
        folder.fs.rm(folder.path, recursive=True)


def _folders(root: UPath) -> Iterator[UPath]:
    if root.exists():
        yield from (path for path in root.iterdir() if path.is_dir())

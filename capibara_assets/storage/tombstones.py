"""What must not come back, beside the artifacts: documents that are only added, each under the digest of its bytes."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.storage.jsonfiles import read_versioned, write_bytes_atomic
from capibara_assets.storage.store import ArtifactStore

TOMBSTONES = "tombstones"
_VERSION = 1


def add_document(store: ArtifactStore, document: dict[str, Any]) -> None:
    """Adds a document, whole and synced or not at all; the same content twice is one document."""
    name = sha256_bytes(canonical_json(document))[:32]
    path = store.root / TOMBSTONES / f"{name}.json"
    if path.exists():
        return
    data = canonical_json({**document, "schema_version": _VERSION, "created": datetime.now(UTC).isoformat()})
    if store.is_local:
        write_bytes_atomic(Path(path.path), data)
    else:
        path.write_bytes(data)  # one object appears in one step


def documents(store: ArtifactStore) -> list[dict[str, Any]]:
    """Every document, by name.

    Raises:
        IntegrityError: one is damaged, or of a newer format: nothing may be read as if it were not there.
    """
    folder = store.root / TOMBSTONES
    found = []
    for path in sorted(folder.glob("*.json"), key=lambda path: path.name) if folder.exists() else ():
        if path.name.startswith("."):
            continue  # being written
        found.append(read_versioned(path, _VERSION, "restore it, what it names would come back without it"))
    return found

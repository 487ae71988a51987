"""The manifest of an artifact: its files with their digests, its inputs, and which files are volatile."""

import fnmatch
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from capibara_assets.errors import IntegrityError
from capibara_assets.storage.digests import canonical_json, combine, sha256_file

MANIFEST = "manifest.json"
PLAIN, WITH_CHECKPOINTS = 1, 2
"""Versions of the manifest's own format: every file lies in the artifact's folder, or some are kept as checkpoints."""
_SEGMENT = re.compile(r"[A-Za-z0-9_+=@-][A-Za-z0-9_.+=@-]*")


class FileEntry(BaseModel):
    """One file of an artifact."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: str = Field(description="SHA-256 of the bytes")
    bytes: int = Field(description="size in bytes")
    content: str = Field(description="digest of the content: of the rows for a table, else of the bytes")
    record: str | None = Field(default=None, description="for a table, its record type as name/version")


class KeptFolder(BaseModel):
    """A folder of an artifact whose files are kept in the checkpoint store."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(description="id of the checkpoint", min_length=8)
    files: list[str] = Field(description="those of the artifact's files that it holds, relative to the folder")


class Manifest(BaseModel):
    """The manifest of an artifact; written last, so that a folder without one is no artifact."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = Field(default=PLAIN, description="version of the manifest's own format")
    name: str = Field(description="asset the artifact belongs to")
    partition: str | None = Field(description="partition key, null for an unpartitioned asset")
    digest: str = Field(description="content digest: what Dagster calls the data version")
    files: dict[str, FileEntry] = Field(description="relative POSIX path -> file")
    inputs: dict[str, Any] = Field(description="what it was made from: upstream digests, recipes, code version")
    volatile: list[str] = Field(description="patterns of files outside the content digest")
    created: str = Field(description="when it was published, RFC 3339 in UTC; outside the digest")
    data: str = Field(default="", description="folder of the files relative to the manifest (object stores only)")
    checkpoints: dict[str, KeptFolder] = Field(
        default_factory=dict, description="folder -> the checkpoint that holds its files; outside the digest"
    )

    def to_json(self) -> bytes:
        """The stored form; without checkpoints it is that of version 1, which older code reads."""
        return canonical_json(self.model_dump(exclude=None if self.checkpoints else {"checkpoints"}))

    def elsewhere(self) -> dict[str, str]:
        """File -> folder whose checkpoint holds it, for the files that are not in the artifact's own folder."""
        return {f"{folder}/{name}": folder for folder, kept in self.checkpoints.items() for name in kept.files}


def file_entry(path: Path) -> FileEntry:
    """The entry of a file whose content is its bytes."""
    digest = sha256_file(path)
    return FileEntry(sha256=digest, bytes=path.stat().st_size, content=digest)


def is_file_of(path: Path, entry: FileEntry) -> bool:
    """Whether the file at `path` has the bytes that the entry states."""
    return path.is_file() and path.stat().st_size == entry.bytes and sha256_file(path) == entry.sha256


def content_digest(files: Mapping[str, FileEntry], volatile: Collection[str]) -> str:
    """Digest of an artifact's content: names and content digests of its files that match no volatile pattern."""
    return combine(
        {
            relative: entry.content
            for relative, entry in files.items()
            if not any(fnmatch.fnmatchcase(relative, pattern) for pattern in volatile)
        }
    )


def parse_manifest(data: bytes, where: str) -> Manifest:
    """Parse a manifest and check that it is consistent with itself.

    Raises:
        IntegrityError: damaged, of a newer format, or its digest is not that of its files.
    """
    try:
        manifest = Manifest.model_validate_json(data)
    except ValueError as error:
        raise IntegrityError(f"{where}: not a manifest: {error}") from error
    if manifest.schema_version not in (PLAIN, WITH_CHECKPOINTS):
        raise IntegrityError(
            f"{where}: manifest version {manifest.schema_version}, this code reads {PLAIN} and {WITH_CHECKPOINTS}"
        )
    if manifest.digest != content_digest(manifest.files, manifest.volatile):
        raise IntegrityError(f"{where}: the manifest's digest is not that of the files it lists")
    for relative in manifest.files:
        check_relative(relative)
    if unknown := sorted(manifest.elsewhere().keys() - manifest.files.keys()):
        raise IntegrityError(f"{where}: a checkpoint is said to hold {unknown[0]}, which is no file of the artifact")
    return manifest


def title_of(name: str, partition: str | None, digest: str = "") -> str:
    """A result as people write it: `asset[partition] 0123456789ab`, without what is not given."""
    where = f"[{partition}]" if partition else ""
    return f"{name}{where}{' ' * bool(digest)}{digest}"


def check_name(name: str) -> str:
    """Return an asset's, partition's or file's name if it can be one path segment.

    Raises:
        ValueError: it is empty, starts with a dot or holds anything but letters, digits and `_.+=@-`.
    """
    if not _SEGMENT.fullmatch(name):
        raise ValueError(f"{name!r} is no name for the store: letters, digits and _.+=@- only, no dot first")
    return name


def check_relative(relative: str) -> str:
    """Return a relative POSIX path if it stays inside its artifact (trees may hold any file name but `.` and `..`).

    Raises:
        ValueError: it is absolute, empty or leads outside.
    """
    parts = relative.split("/")
    if any(part in ("", ".", "..") or "\\" in part or "\0" in part for part in parts):
        raise ValueError(f"{relative!r} is no path inside an artifact")
    return relative

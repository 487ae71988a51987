"""A published artifact: its tables, documents and folders; every read is checked against the manifest."""

import io
import json
import shutil
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from upath import UPath

from capibara_assets.errors import IntegrityError
from capibara_assets.storage.digests import sha256_bytes, sha256_file
from capibara_assets.storage.manifest import FileEntry, Manifest


@dataclass(frozen=True)
class Artifact:
    """One immutable result of one asset (partition), named by its content digest."""

    name: str
    partition: str | None
    digest: str
    manifest: Manifest
    path: UPath = field(repr=False)
    """Folder of the files (local or remote)."""
    cache: Path = field(repr=False)
    """Local folder into which `directory` brings the files of a remote artifact."""

    def has(self, name: str) -> bool:
        """Whether there is a table, document, file or folder of this name."""
        return any(
            relative in (name, f"{name}.parquet", f"{name}.json") or relative.startswith(f"{name}/")
            for relative in self.manifest.files
        )

    def frame(self, table: str) -> pl.DataFrame:
        """A published table. Raises KeyError (no such table), IntegrityError (damaged)."""
        return pl.read_parquet(io.BytesIO(self.read_bytes(f"{table}.parquet")))

    def document(self, name: str) -> Any:
        """A published JSON document. Raises KeyError (no such document), IntegrityError (damaged)."""
        return json.loads(self.read_bytes(f"{name}.json"))

    def read_bytes(self, relative: str) -> bytes:
        """The bytes of one file, checked. Raises KeyError (no such file), IntegrityError (missing or damaged)."""
        entry = self._entry(relative)
        try:
            data: bytes = (self.path / relative).read_bytes()
        except FileNotFoundError as error:
            raise IntegrityError(f"{self.path / relative} is missing; {_REMEDY}") from error
        if len(data) != entry.bytes or sha256_bytes(data) != entry.sha256:
            raise IntegrityError(f"{self.path / relative} is not the file that was published; {_REMEDY}")
        return data

    def directory(self, relative: str = "") -> Path:
        """A local folder with the files below `relative` (all of them when empty); checked.

        A local artifact is used where it lies: treat it as read-only. A remote one is downloaded once into the cache.
        Raises KeyError (no such folder), IntegrityError (missing or damaged).
        """
        wanted = self._below(relative)
        if _is_local(self.path):
            base = Path(self.path.path)
            for name, entry in wanted.items():
                _check_local(base / name, entry)
            return base / relative
        base = self.cache / self.digest / (self.manifest.data or "files")
        for name, entry in wanted.items():
            self._download(name, entry, base / name)
        return base / relative

    def verify(self) -> None:
        """Read every file and compare with the manifest.

        Raises:
            IntegrityError: a file is missing, has other bytes, or is not in the manifest; names the file.
        """
        for relative in self.manifest.files:
            if _is_local(self.path):
                _check_local(Path(self.path.path) / relative, self.manifest.files[relative])
            else:
                self.read_bytes(relative)
        known = {*self.manifest.files, "manifest.json"}
        for path in self.path.rglob("*"):
            relative = path.path[len(self.path.path) :].lstrip("/")
            if path.is_file() and relative not in known:
                raise IntegrityError(f"{path} does not belong to the artifact; remove it")

    def _entry(self, relative: str) -> FileEntry:
        try:
            return self.manifest.files[relative]
        except KeyError:
            raise KeyError(f"{self.name} {self.digest[:12]} has no {relative}: {sorted(self.manifest.files)}") from None

    def _below(self, relative: str) -> dict[str, FileEntry]:
        prefix = f"{relative.rstrip('/')}/" if relative else ""
        wanted = {name: entry for name, entry in self.manifest.files.items() if name.startswith(prefix)}
        if not wanted and relative:
            raise KeyError(f"{self.name} {self.digest[:12]} has no folder {relative}: {sorted(self.manifest.files)}")
        return wanted

    def _download(self, relative: str, entry: FileEntry, target: Path) -> None:
        if target.is_file() and target.stat().st_size == entry.bytes and sha256_file(target) == entry.sha256:
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
        try:
            with (self.path / relative).open("rb") as source, beside.open("wb") as copy:
                shutil.copyfileobj(source, copy, 1 << 20)
            if sha256_file(beside) != entry.sha256:
                raise IntegrityError(f"{self.path / relative} is not the file that was published; {_REMEDY}")
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)


_REMEDY = "materialize the asset again to replace it"


def _is_local(path: UPath) -> bool:
    return path.protocol in ("", "file", "local")


def _check_local(path: Path, entry: FileEntry) -> None:
    if not path.is_file():
        raise IntegrityError(f"{path} is missing; {_REMEDY}")
    if path.stat().st_size != entry.bytes or sha256_file(path) != entry.sha256:
        raise IntegrityError(f"{path} is not the file that was published; {_REMEDY}")

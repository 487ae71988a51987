"""A published artifact: its tables, documents and folders; every read is checked against the manifest."""

import io
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
from upath import UPath

from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.storage.checkpointed import Checkpoints
from capibara_assets.storage.digests import sha256_bytes, sha256_file
from capibara_assets.storage.foreign import read_stored
from capibara_assets.storage.jsonfiles import parse_json
from capibara_assets.storage.manifest import FileEntry, Manifest, is_file_of, title_of
from capibara_assets.storage.restored import hold


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
    restored: Path = field(repr=False)
    """Local folder into which it restores files that are kept as checkpoints, until this process ends."""
    kept: Checkpoints | None = field(default=None, repr=False, compare=False)
    """The checkpoint store that holds its checkpoints."""

    @property
    def key(self) -> tuple[str, str | None, str]:
        """Name, partition and digest, which tell it from all others."""
        return self.name, self.partition, self.digest

    @property
    def title(self) -> str:
        """It as people write it, with the beginning of its digest."""
        return title_of(self.name, self.partition, self.digest[:12])

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
        try:
            return parse_json(self.read_bytes(f"{name}.json"))
        except ValueError as error:
            raise IntegrityError(f"{name}.json of {self.manifest.name} {self.digest} is no JSON: {error}") from error

    @property
    def is_local(self) -> bool:
        """Whether its files lie on a disk, not on an object store."""
        return _is_local(self.path)

    @property
    def checkpoints(self) -> dict[str, str]:
        """Folder of the artifact -> id of the checkpoint that holds its files."""
        return {folder: kept.id for folder, kept in sorted(self.manifest.checkpoints.items())}

    def read_bytes(self, relative: str) -> bytes:
        """The bytes of one file, checked. Raises KeyError (no such file), IntegrityError (missing or damaged)."""
        entry = self._entry(relative)
        if relative in self.manifest.elsewhere():
            return self._assembled({relative: entry}).joinpath(relative).read_bytes()
        try:
            data = read_stored(self.path / relative, entry.bytes)
        except FileNotFoundError as error:
            raise IntegrityError(f"{self.path / relative} is missing; {_REMEDY}") from error
        if len(data) != entry.bytes or sha256_bytes(data) != entry.sha256:
            raise IntegrityError(f"{self.path / relative} is not the file that was published; {_REMEDY}")
        return data

    def directory(self, relative: str = "") -> Path:
        """A local folder with the files below `relative` (all of them when empty); checked.

        A local artifact is used where it lies: treat it as read-only. A remote one is downloaded once into the cache.
        Where some of the files are kept as checkpoints, all of them are assembled in a folder that lasts until this
        process ends. Raises KeyError (no such folder), IntegrityError (missing or damaged).
        """
        wanted = self._below(relative)
        if not self.manifest.elsewhere().keys().isdisjoint(wanted):
            return self._assembled(wanted) / relative
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
        elsewhere = self.manifest.elsewhere()
        for folder in self.manifest.checkpoints:
            with TemporaryDirectory(dir=hold(self.restored), prefix=".verifying-") as beside:
                self._restore(folder, Path(beside) / "checkpoint")
        here = [relative for relative in self.manifest.files if relative not in elsewhere]
        for relative in here:
            if _is_local(self.path):
                _check_local(Path(self.path.path) / relative, self.manifest.files[relative])
            else:
                self.read_bytes(relative)
        known = {*here, "manifest.json"}
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

    def _assembled(self, wanted: Mapping[str, FileEntry]) -> Path:
        """The folder that holds these files, whether they are kept as checkpoints or lie in the artifact."""
        base, elsewhere = hold(self.restored), self.manifest.elsewhere()
        absent = [name for name, entry in wanted.items() if not is_file_of(base / name, entry)]
        for folder in sorted({elsewhere[name] for name in absent if name in elsewhere}):
            with TemporaryDirectory(dir=base, prefix=".restoring-") as beside:
                restored = Path(beside) / "checkpoint"
                self._restore(folder, restored)
                for name in self.manifest.checkpoints[folder].files:
                    (base / folder / name).parent.mkdir(parents=True, exist_ok=True)
                    (restored / name).replace(base / folder / name)
        for name in absent:
            if name not in elsewhere:
                self._download(name, wanted[name], base / name)
        return base

    def _restore(self, folder: str, target: Path) -> None:
        """Restore one checkpoint and compare every byte with the manifest."""
        kept = self.manifest.checkpoints[folder]
        what = f"{folder} of {self.name} {self.digest[:12]}"
        if self.kept is None:
            raise InputError(
                f"{what} is checkpoint {kept.id[:12]}, and this store was opened without its checkpoints: "
                "use checkpoints.artifacts.open_artifacts"
            )
        self.kept.restore(kept.id, target)
        for name in kept.files:
            if not is_file_of(target / name, self.manifest.files[f"{folder}/{name}"]):
                raise IntegrityError(f"{what}: checkpoint {kept.id[:12]} restores {name} with other bytes; {_REMEDY}")

    def _download(self, relative: str, entry: FileEntry, target: Path) -> None:
        if is_file_of(target, entry):
            return
        if _is_local(self.path):
            _check_local(Path(self.path.path) / relative, entry)
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
    if not is_file_of(path, entry):
        raise IntegrityError(f"{path} is not the file that was published; {_REMEDY}")

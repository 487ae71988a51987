"""The artifact store: publishes results atomically and opens them by asset, partition and content digest."""

import hashlib
import io
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from fcntl import LOCK_SH
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from upath import UPath

from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.checkpointed import Checkpointed, Checkpoints, checkpoint_of, keep
from capibara_assets.storage.commit import commit_local, commit_remote, no_room, set_aside
from capibara_assets.storage.conditional import has_generations, move
from capibara_assets.storage.digests import canonical_json, combine, sha256_bytes, tree_files
from capibara_assets.storage.foreign import read_stored
from capibara_assets.storage.jsonfiles import make_folders, naming, parse_json, write_bytes_atomic, write_durable
from capibara_assets.storage.locks import folder_locked
from capibara_assets.storage.manifest import (
    MANIFEST,
    FileEntry,
    Manifest,
    check_name,
    check_relative,
    content_digest,
    file_entry,
    parse_manifest,
    title_of,
)
from capibara_assets.storage.mirror import is_remote, prepare_buckets, require_scheme
from capibara_assets.storage.records import (
    Record,
    SchemaError,
    conform,
    frame_digest,
    frames_digest,
    problems,
)
from capibara_assets.storage.restored import evict
from capibara_assets.storage.staging import remove_left, staged

__all__ = ["Artifact", "ArtifactStore", "Artifacts", "MissingArtifact", "Table"]

POINTER = "latest.json"
RESTORED = "restored"
"""Folder below the work folder where checkpoints are brought back."""
_PART_ROWS = 16_384  # of a table in a file that are checked and digested at once
_UNPARTITIONED = "_"
_MOMENT = timedelta(microseconds=1)


class Table(NamedTuple):
    """A table to publish: its row type and its rows, or a Parquet file of them, conforming and sorted by the key."""

    model: type[Record]
    frame: pl.DataFrame | Path


class MissingArtifact(InputError):
    """The requested artifact is not in the store."""


Artifacts = list[Artifact]  # inside the class below, `list` is a method


class ArtifactStore:
    """Immutable artifacts under one root, local or on an object store.

    Layout: `<root>/artifacts/<asset>/<partition or _>/<digest>/{manifest.json, ...}` and a pointer `latest.json` beside
    the digests. Local results are written in `<root>/staging/`, synced and renamed; on an object store the files go
    first, the manifest last and only if there is none yet. The pointer moves after that. Folders that are checkpoints
    lie elsewhere, in `checkpoints`; the artifact names them. On gs:// the pointer moves from the generation that was
    read, so that a write which is delivered late does not put it back.
    """

    def __init__(
        self,
        root: str | UPath,
        work: Path | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        """`work` holds work in progress and downloads: `<root>/work` by default; a remote root needs one.

        Without `checkpoints` (`checkpoints.artifacts.open_artifacts` gives them) artifacts that name some can be
        listed, and read where these are not needed.

        Raises:
            InputError: a root that is no folder; a remote one without a local work folder, of an unknown scheme, or
                whose library is missing.
        """
        if str(root).startswith(("gs:", "gcs:")):
            prepare_buckets()
        if is_remote(str(root)):
            require_scheme(str(root))
        location = UPath(root)
        self._local_root = Path(location.path).absolute() if location.protocol in ("", "file", "local") else None
        self.root: UPath = UPath(self._local_root) if self._local_root is not None else location
        if self._local_root is not None and self._local_root.exists() and not self._local_root.is_dir():
            raise InputError(f"the store {root} is no folder: name another place (CAPIBARA_STORE)")
        if work is None and self._local_root is None:
            raise InputError(f"the store {root} is remote: name a local folder for work in progress")
        self.work = Path(work).absolute() if work is not None else Path(self.root.path) / "work"
        self.checkpoints = checkpoints

    def publish(
        self,
        name: str,
        partition: str | None,
        *,
        tables: Mapping[str, Table] | None = None,
        documents: Mapping[str, Any] | None = None,
        trees: Mapping[str, Path] | None = None,
        inputs: Mapping[str, Any] | None = None,
        volatile: Collection[str] = (),
        checkpoints: Mapping[str, Checkpointed] | None = None,
    ) -> Artifact:
        """Publish a result atomically, then let `latest` point at it.

        Args:
            tables: `<key>.parquet`, conformed to their models.
            documents: `<key>.json`, canonical JSON.
            trees: folder `<key>/`, a copy (empty folders are dropped).
            inputs: what it was made from, for lineage.
            volatile: fnmatch patterns of relative paths that stay outside the content digest.
            checkpoints: folders in `trees` (`<key>` or `<key>/<folder>`) that are kept as checkpoints instead of
                copied. The digest is the same either way.

        Content that is published already is not written again, unless it is damaged.

        Raises:
            SchemaError: a table does not fit its model.
            ValueError: a bad name, or a document that is not JSON.
            InputError: no room on the disk; nothing became visible.
        """
        folder = self._folder(name, partition)
        with self._staging() as staging:
            files: dict[str, FileEntry] = {}
            elsewhere: dict[str, dict[str, Path]] = {key: {} for key in checkpoints or {}}
            for key, (model, frame) in (tables or {}).items():
                path = _new(staging, f"{key}.parquet")
                if isinstance(frame, Path):
                    files[f"{key}.parquet"] = _copy_table(path, model, frame)
                else:
                    files[f"{key}.parquet"] = _write_table(path, model, frame)
            for key, document in (documents or {}).items():
                files[f"{key}.json"] = _write_document(_new(staging, f"{key}.json"), document)
            for key, tree in (trees or {}).items():
                for inside, path in tree_files(Path(tree)).items():
                    relative = f"{key}/{inside}"
                    if (kept := checkpoint_of(relative, checkpoints or {})) is None:
                        files[relative] = _copy_file(_new(staging, relative), path)
                    else:
                        files[relative] = file_entry(path)
                        elsewhere[kept][relative.removeprefix(f"{kept}/")] = path
            manifest = Manifest(
                name=name,
                partition=partition,
                digest=content_digest(files, volatile),
                files=dict(sorted(files.items())),
                inputs=dict(inputs or {}),
                volatile=sorted(volatile),
                created=self._time(name, partition).isoformat(),
                data="" if self._local_root else combine({k: entry.sha256 for k, entry in files.items()})[:16],
            )
            with self.locked(LOCK_SH):
                if not self._intact(name, partition, manifest.digest):
                    manifest = keep(manifest, elsewhere, checkpoints or {}, self.checkpoints, self._staging_root)
                    self._commit(staging, folder / manifest.digest, manifest)
                self._point(folder, manifest, self._time(name, partition))
        return self.open(name, partition, manifest.digest)

    def open(self, name: str, partition: str | None, digest: str) -> Artifact:
        """The artifact with this content digest.

        Raises:
            MissingArtifact: there is none.
            IntegrityError: its manifest is damaged, or no file.
        """
        folder = self._folder(name, partition) / check_name(digest)
        try:
            data = read_stored(folder / MANIFEST)
        except (FileNotFoundError, NotADirectoryError):
            raise MissingArtifact(
                f"no {title_of(name, partition)} with digest {digest} in {self.root}: materialize it first"
            ) from None
        manifest = parse_manifest(data, str(folder / MANIFEST))
        if (manifest.name, manifest.partition, manifest.digest) != (name, partition, digest):
            raise IntegrityError(f"{folder / MANIFEST} is the manifest of another artifact")
        return Artifact(
            name=name,
            partition=partition,
            digest=digest,
            manifest=manifest,
            path=folder / manifest.data if manifest.data else folder,
            cache=self.work / "downloads" / name / (partition or _UNPARTITIONED),
            restored=self._restored / name / (partition or _UNPARTITIONED) / digest,
            kept=self.checkpoints,
        )

    def find(self, name: str, partition: str | None, digest: str) -> Artifact | None:
        """As `open`; None where there is none. Raises IntegrityError as there."""
        try:
            return self.open(name, partition, digest)
        except MissingArtifact:
            return None

    def holds(self, name: str, partition: str | None, digest: str) -> bool:
        """Whether there is an artifact with this content digest."""
        return bool((self._folder(name, partition) / check_name(digest) / MANIFEST).exists())

    def latest(self, name: str, partition: str | None) -> Artifact | None:
        """The artifact published last, or None before the first."""
        digest = self.latest_digest(name, partition)
        return None if digest is None else self.open(name, partition, digest)

    def latest_digest(self, name: str, partition: str | None) -> str | None:
        """Digest of the artifact published last, or None before the first."""
        pointer = self.pointer(name, partition)
        try:
            data = read_stored(pointer)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            return str(parse_json(data)["digest"])
        except (ValueError, KeyError, TypeError) as error:
            raise IntegrityError(f"{pointer} is damaged: materialize {name} again to replace it") from error

    @property
    def is_local(self) -> bool:
        """Whether the artifacts lie on a disk of this machine."""
        return self._local_root is not None

    def pointer(self, name: str, partition: str | None) -> UPath:
        """The file that names the artifact published last."""
        return self._folder(name, partition) / POINTER

    def list(self, name: str) -> Artifacts:
        """Every artifact of an asset, sorted by partition, then time of publishing."""
        artifacts = []
        for folder in _folders(self.root / "artifacts" / check_name(name)):
            partition = None if folder.name == _UNPARTITIONED else folder.name
            for digest in _folders(folder):
                with suppress(MissingArtifact):  # being removed
                    artifacts.append(self.open(name, partition, digest.name))
        return sorted(artifacts, key=lambda a: (a.partition or "", a.manifest.created, a.digest))

    def names(self) -> Sequence[str]:
        """Every asset that has been published."""
        return sorted(folder.name for folder in _folders(self.root / "artifacts"))

    def work_dir(self, asset: str, partition: str | None, input_digest: str) -> Path:
        """Local folder for work in progress on these inputs (resume points); created, never published."""
        folder = self.work / check_name(asset) / check_name(partition or _UNPARTITIONED) / check_name(input_digest)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def sweep(self, older_than_s: float = 3600.0) -> int:
        """Remove what interrupted writers left: of this machine at once, of others once unchanged for this long.

        Returns how many folders were removed. Restored checkpoints that no process uses are removed as well.
        """
        evict(self._restored)
        return remove_left(self._staging_root, older_than_s)

    @contextmanager
    def locked(self, lock: int) -> Iterator[None]:
        """Hold LOCK_SH while a version is published, LOCK_EX while some are removed; a bucket has no such lock."""
        if self._local_root is None:
            yield
            return
        folder = self._local_root / "artifacts"
        make_folders(folder)
        with folder_locked(folder, lock):
            yield

    @property
    def _restored(self) -> Path:
        return self.work / RESTORED

    @property
    def _staging_root(self) -> Path:
        return (self._local_root if self._local_root is not None else self.work) / "staging"

    def _folder(self, name: str, partition: str | None) -> UPath:
        if partition == _UNPARTITIONED:
            raise ValueError("the partition _ stands for unpartitioned assets: pass None")
        return self.root / "artifacts" / check_name(name) / check_name(partition or _UNPARTITIONED)

    @contextmanager
    def _staging(self) -> Iterator[Path]:
        """A new folder to write in. A full disk becomes an InputError."""
        try:
            with staged(self._staging_root) as staging:
                yield staging
        except OSError as error:
            raise no_room(error, self.root) or error from error

    def _intact(self, name: str, partition: str | None, digest: str) -> bool:
        """Whether the artifact is there and undamaged."""
        try:
            self.open(name, partition, digest).verify()
        except (MissingArtifact, IntegrityError):
            return False
        return True

    def _commit(self, staging: Path, target: UPath, manifest: Manifest) -> None:
        """Make the staged folder visible, unless another writer did so first; a damaged artifact is replaced."""
        if self._local_root is None:
            if not commit_remote(staging, target, manifest) and not self._intact(
                manifest.name, manifest.partition, manifest.digest
            ):
                (target / MANIFEST).write_bytes(manifest.to_json())
            return
        while not commit_local(staging, Path(target.path), manifest):
            if self._intact(manifest.name, manifest.partition, manifest.digest):
                return
            set_aside(Path(target.path), self._staging_root)

    def _time(self, name: str, partition: str | None) -> datetime:
        """Now, or right after what was published last: a clock that was set back puts nothing in another order."""
        now = datetime.now(UTC)
        try:
            former = datetime.fromisoformat(parse_json(read_stored(self.pointer(name, partition)))["published"])
            return max(now, former + _MOMENT)
        except (FileNotFoundError, NotADirectoryError):
            return now
        except (ValueError, KeyError, TypeError, IntegrityError):
            return now  # damaged, and replaced by what is published now

    def _point(self, folder: UPath, manifest: Manifest, when: datetime) -> None:
        data = canonical_json({"digest": manifest.digest, "published": when.isoformat()})
        try:
            if self._local_root is not None:
                write_bytes_atomic(Path(folder.path) / POINTER, data)
            elif has_generations(folder):
                move(folder / POINTER, lambda former: data)
            else:
                (folder / POINTER).write_bytes(data)  # one object is replaced in one step
        except OSError as error:
            raise no_room(error, self.root) or error from error


def _new(staging: Path, relative: str) -> Path:
    """The path of a file to write; refuses the manifest's name, a name in use, and paths that lead outside."""
    path = staging / check_relative(relative)
    if relative == MANIFEST or path.exists():
        raise ValueError(f"the name {relative!r} is in use in this artifact: choose another")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _write_table(path: Path, model: type[Record], frame: pl.DataFrame) -> FileEntry:
    shaped = conform(model, frame)
    buffer = io.BytesIO()
    shaped.write_parquet(buffer, compression="zstd")
    data = buffer.getvalue()
    write_durable(path, data)
    return FileEntry(
        sha256=sha256_bytes(data),
        bytes=len(data),
        content=frame_digest(model, shaped),
        record=f"{model.schema_name}/{model.schema_version}",
    )


def _copy_table(path: Path, model: type[Record], source: Path) -> FileEntry:
    """A table that is too large for memory, checked and digested a part at a time."""
    copied = _copy_file(path, source)
    content = frames_digest(model, _checked_parts(model, source))
    return copied.model_copy(update={"content": content, "record": f"{model.schema_name}/{model.schema_version}"})


def _checked_parts(model: type[Record], source: Path) -> Iterator[pl.DataFrame]:
    scan = pl.scan_parquet(source)
    rows, last = scan.select(pl.len()).collect().item(), None
    for start in range(0, max(rows, 1), _PART_ROWS):
        part = scan.slice(start, _PART_ROWS).collect()
        keys = part.select(model.key).rows()
        if faults := problems(model, part):
            raise SchemaError("; ".join(faults))
        if keys != sorted(keys) or (keys and last is not None and keys[0] <= last):
            raise SchemaError(f"{model.schema_name}: the rows of {source.name} are not sorted by {model.key}")
        last = keys[-1] if keys else last
        yield part


def _write_document(path: Path, document: Any) -> FileEntry:
    data = canonical_json(document)
    write_durable(path, data)
    digest = sha256_bytes(data)
    return FileEntry(sha256=digest, bytes=len(data), content=digest)


def _copy_file(path: Path, source: Path) -> FileEntry:
    """Copy and digest in one pass, then sync."""
    digest = hashlib.sha256()
    with naming(path), source.open("rb") as reader, path.open("wb") as writer:
        while block := reader.read(1 << 20):
            digest.update(block)
            writer.write(block)
        writer.flush()
        os.fsync(writer.fileno())
    return FileEntry(sha256=digest.hexdigest(), bytes=path.stat().st_size, content=digest.hexdigest())


def _folders(root: UPath) -> Iterator[UPath]:
    """Folders directly below `root`, by name; none when it does not exist."""
    if root.exists():
        yield from sorted((path for path in root.iterdir() if path.is_dir()), key=lambda path: path.name)

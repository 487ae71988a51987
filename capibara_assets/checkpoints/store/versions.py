"""Manifests and the versions that make them visible in a store.

`models/<model>/v000007` names a manifest; creating this file, if it does not exist, publishes a checkpoint. A
manifest's file is named by the checkpoint's id and its writer's lease, so the name of a deleted one is never reused.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from urllib.parse import quote

import zstandard
from pydantic import ValidationError

from capibara_assets.checkpoints.encryption.vault import Vault
from capibara_assets.checkpoints.store.documents import unpacked, unwrap, unwrapped_json, wrap
from capibara_assets.checkpoints.store.leases import Lease
from capibara_assets.checkpoints.store.manifest import CheckpointManifest
from capibara_assets.checkpoints.store.places import StorePlace
from capibara_assets.errors import InputError, IntegrityError, in_words
from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.storage.jsonfiles import parse_json

MODELS, MANIFESTS = "models", "manifests"
_VERSION = re.compile(r"v(\d{6,})")
_RETIRED = re.compile(r"v(\d{6,})\.retired")
_LONGEST = 200  # of a folder's name; file systems allow 255


class Version(NamedTuple):
    """One version of a model, as its file states it."""

    folder: str
    """Name of the model's folder below `models/`."""
    number: int
    id: str
    manifest: str
    """Name of the manifest's file below `manifests/`."""

    @property
    def name(self) -> str:
        """Name of its file in the store."""
        return f"{MODELS}/{self.folder}/v{self.number:06d}"


def manifest_id(manifest: CheckpointManifest, vault: Vault | None) -> str:
    """A checkpoint's id: digest of its manifest without time, run, packs and aliases."""
    content = manifest.model_dump(exclude={"created": True, "packs": True, "aliases": True, "about": {"run"}})
    data = canonical_json(content)
    return sha256_bytes(data) if vault is None else str(vault.digest(data))


class Versions:
    """The manifests and versions of one store."""

    def __init__(self, place: StorePlace, vault: Vault | None) -> None:
        self._place, self._vault = place, vault
        self._manifests: dict[str, CheckpointManifest] = {}  # they never change

    def folder(self, model: str) -> str:
        """Name of a model's folder: percent-encoded, or, in an encrypted store, a keyed digest.

        Raises:
            InputError: the name is too long for a folder.
        """
        if self._vault is not None:
            return self._vault.digest(model.encode())[:32]
        try:
            name = quote(model, safe="")
        except UnicodeEncodeError:
            raise InputError(f"{model!r} is no name for a model: it has no UTF-8 form") from None
        if name.strip(".") == "":
            name = name.replace(".", "%2E")
        if len(name) > _LONGEST:
            raise InputError(f"the model name {model[:40]!r}... is too long: take one of at most {_LONGEST} characters")
        return name

    def folders(self) -> tuple[str, ...]:
        """Names of all models' folders."""
        return self._place.folders(MODELS)

    def numbers(self, folder: str) -> list[int]:
        """Numbers of a model's versions, sorted."""
        return sorted(int(match[1]) for name in self._names(folder) if (match := _VERSION.fullmatch(name)))

    def read(self, folder: str, number: int) -> Version:
        """Read one version. Raises IntegrityError: damaged; FileNotFoundError: it does not exist."""
        version = Version(folder, number, "", "")
        body = unwrapped_json(self._place.read(version.name), version.name, self._vault, self._place.root)
        return version._replace(id=body["id"], manifest=body["manifest"])

    def of(self, folder: str) -> list[Version]:
        """All versions of a model, the oldest first. Raises IntegrityError: one is damaged."""
        versions = []
        for number in self.numbers(folder):
            try:
                versions.append(self.read(folder, number))
            except FileNotFoundError:
                continue  # retired meanwhile
        return versions

    def all(self) -> Iterator[Version]:
        """Every version of every model. Raises IntegrityError: one is damaged."""
        for folder in self.folders():
            yield from self.of(folder)

    def manifest(self, version: Version) -> CheckpointManifest:
        """The manifest of a version.

        Raises:
            FileNotFoundError: the version was retired meanwhile, and its manifest collected.
            IntegrityError: it is missing, damaged, or of a newer format; the message names the file.
        """
        try:
            return self.read_manifest(version.manifest, version.id)
        except FileNotFoundError:
            self._place.read(version.name)  # raises FileNotFoundError: a manifest is deleted only after its version
            name = f"{self._place.root}/{MANIFESTS}/{version.manifest}"
            raise IntegrityError(f"{name} is missing: it is checkpoint {version.id}") from None

    def standing(self, versions: Iterable[Version]) -> Iterator[tuple[Version, CheckpointManifest]]:
        """Each version with its manifest, without those retired meanwhile. Raises IntegrityError."""
        for version in versions:
            try:
                yield version, self.manifest(version)
            except FileNotFoundError:
                continue

    def read_manifest(self, file: str, wanted: str) -> CheckpointManifest:
        """Read a manifest by the name of its file, and check its id.

        Raises:
            FileNotFoundError: there is none.
            IntegrityError: as `manifest`.
        """
        if file in self._manifests:
            return self._manifests[file]
        name = f"{MANIFESTS}/{file}"
        data = self._place.read(name)
        body = unwrap(data, name, self._vault, self._place.root)
        try:
            manifest = CheckpointManifest.model_validate(parse_json(unpacked(body)))
        except ValidationError as error:
            raise IntegrityError(f"{self._place.root}/{name} was written by newer code: {in_words(error)}") from error
        except (ValueError, zstandard.ZstdError) as error:
            raise IntegrityError(f"{self._place.root}/{name} is damaged: {error}") from error
        if manifest_id(manifest, self._vault) != wanted:
            raise IntegrityError(f"{self._place.root}/{name} is another checkpoint than {wanted}")
        self._manifests[file] = manifest
        return manifest

    def find(self, prefix: str) -> list[Version]:
        """Versions of the checkpoints whose id, or else a former id, has this prefix.

        Raises:
            IntegrityError: one is damaged.
        """
        by_id: dict[str, Version] = {}
        for file in sorted(self._place.list(MANIFESTS)):
            identity = file.partition("-")[0]
            if not file.startswith(prefix) or identity in by_id:
                continue
            try:
                model = self.read_manifest(file, identity).about.model
            except FileNotFoundError:
                continue  # collected meanwhile
            for version in reversed(self.of(self.folder(model))):
                if version.id == identity:
                    by_id[identity] = version
                    break
        if not by_id:
            for version, manifest in self.standing(self.all()):
                if any(alias.startswith(prefix) for alias in manifest.aliases):
                    by_id[version.id] = version
        return list(by_id.values())

    def write_manifest(self, manifest: CheckpointManifest, identity: str, lease: Lease) -> str:
        """Write a manifest durably, invisible until a version names it; returns its file's name below `manifests/`.

        Raises:
            InputError: the disk is full.
        """
        file = f"{identity}-{lease.id}"
        name = f"{MANIFESTS}/{file}"
        body = zstandard.ZstdCompressor(3, write_content_size=True).compress(canonical_json(manifest.model_dump()))
        self._place.replace(name, wrap(body, name, self._vault))
        return file

    def publish(self, model: str, identity: str, file: str, lease: Lease) -> Version:
        """Publish a checkpoint as its model's next version; or return the version that it already has.

        Raises:
            LeaseExpired: the lease has expired; nothing was published.
            InputError: the disk is full.
        """
        folder = self.folder(model)
        while True:
            number = self.next(folder)
            # manifests are listed after versions: a writer with a version had a manifest before; a later one collides
            if (version := self.same(model, identity, file)) is not None:
                return version
            version = Version(folder, number, identity, file)
            if self.place(version, lease):
                return version

    def place(self, version: Version, lease: Lease) -> bool:
        """Publish under this number; False, and no effect, if it is in use.

        Raises:
            LeaseExpired: the lease has expired; nothing was published.
            InputError: the disk is full.
        """
        body = canonical_json({"id": version.id, "manifest": version.manifest})
        lease.check()
        return self._place.create(version.name, wrap(body, version.name, self._vault))

    def same(self, model: str, identity: str, file: str = "") -> Version | None:
        """The existing version of a checkpoint, made durable; None if there is none.

        Args:
            file: a manifest of this checkpoint that has no version yet.
        """
        if all(other == file or not other.startswith(identity) for other in self._place.list(MANIFESTS)):
            return None
        folder = self.folder(model)
        existing = next((version for version in reversed(self.of(folder)) if version.id == identity), None)
        if existing is not None:
            self._place.sync_names(f"{MODELS}/{folder}")
        return existing

    def retire(self, version: Version) -> None:
        """Delete a version; its number is not used again."""
        # a mark remains, or the next save would reuse the newest number. Both are durable: the pieces of a version that
        # a crash brings back may already be deleted
        self.mark(version)
        self._place.delete(version.name, durable=True)

    def mark(self, version: Version) -> None:
        """Write the mark that keeps a version's number from being used again."""
        self._place.replace(f"{version.name}.retired", b"")

    def needless_marks(self) -> Iterator[str]:
        """Names of the marks of retired versions that are not the newest ones."""
        for folder in self.folders():
            newest = self.next(folder) - 1
            for name in self._names(folder):
                if (match := _RETIRED.fullmatch(name)) and int(match[1]) < newest:
                    yield f"{MODELS}/{folder}/{name}"

    def next(self, folder: str) -> int:
        """The number of a model's next version."""
        used = [
            match for name in self._names(folder) if (match := _VERSION.fullmatch(name) or _RETIRED.fullmatch(name))
        ]
        return 1 + max((int(match[1]) for match in used), default=0)

    def _names(self, folder: str) -> list[str]:
        return list(self._place.list(f"{MODELS}/{folder}"))

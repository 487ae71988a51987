"""Manifests and the versions that point at them: what is visible of a store, and how it is found and named.

`models/<model>/v000007` names a manifest; creating it, if it is not there, is the one step that publishes. A manifest's
file is named by the checkpoint's id and by its writer's lease, so what was deleted never comes back under its old name.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from urllib.parse import quote

import zstandard
from pydantic import ValidationError

from capibara_assets.checkpoints.encryption.vault import Vault
from capibara_assets.checkpoints.store.documents import unwrap, wrap
from capibara_assets.checkpoints.store.leases import Lease
from capibara_assets.checkpoints.store.manifest import CheckpointManifest
from capibara_assets.checkpoints.store.places import Place
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.storage.digests import canonical_json, sha256_bytes

MODELS, MANIFESTS = "models", "manifests"
_VERSION = re.compile(r"v(\d{6,})")
_RETIRED = re.compile(r"v(\d{6,})\.retired")
_LONGEST = 200  # of a folder's name; file systems take 255


class Version(NamedTuple):
    """One version as its file says."""

    folder: str
    """Name of the model's folder below `models/`."""
    number: int
    id: str
    manifest: str
    """Name of the manifest's file below `manifests/`."""

    @property
    def name(self) -> str:
        """Of its file, in the store."""
        return f"{MODELS}/{self.folder}/v{self.number:06d}"


def manifest_id(manifest: CheckpointManifest, vault: Vault | None) -> str:
    """Digest of what a checkpoint is: all of its manifest but when, by which run and where it was written."""
    content = manifest.model_dump(exclude={"created": True, "packs": True, "aliases": True, "about": {"run"}})
    data = canonical_json(content)
    return sha256_bytes(data) if vault is None else str(vault.digest(data))


class Versions:
    """The manifests and versions of one store."""

    def __init__(self, place: Place, vault: Vault | None) -> None:
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
        return sorted(int(found[1]) for name in self._names(folder) if (found := _VERSION.fullmatch(name)))

    def read(self, folder: str, number: int) -> Version:
        """One version. Raises IntegrityError: damaged; FileNotFoundError: it is not there."""
        version = Version(folder, number, "", "")
        body = json.loads(unwrap(self._place.read(version.name), version.name, self._vault, self._place.root))
        return version._replace(id=body["id"], manifest=body["manifest"])

    def of(self, folder: str) -> list[Version]:
        """All versions of a model, the oldest first. Raises IntegrityError: one is damaged."""
        found = []
        for number in self.numbers(folder):
            try:
                found.append(self.read(folder, number))
            except FileNotFoundError:
                continue  # retired while we looked
        return found

    def all(self) -> Iterator[Version]:
        """Every version of every model. Raises IntegrityError: one is damaged."""
        for folder in self.folders():
            yield from self.of(folder)

    def manifest(self, version: Version) -> CheckpointManifest:
        """What a version points at.

        Raises:
            FileNotFoundError: the version was retired meanwhile, and its manifest collected.
            IntegrityError: it is missing, damaged, or of a newer format; the message names the file.
        """
        try:
            return self.read_manifest(version.manifest, version.id)
        except FileNotFoundError:
            self._place.read(version.name)  # raises FileNotFoundError: a manifest goes only after its version went
            name = f"{self._place.root}/{MANIFESTS}/{version.manifest}"
            raise IntegrityError(f"{name} is missing: it is checkpoint {version.id}") from None

    def standing(self, versions: Iterable[Version]) -> Iterator[tuple[Version, CheckpointManifest]]:
        """Each version with its manifest, but for those that were retired meanwhile. Raises IntegrityError."""
        for version in versions:
            try:
                yield version, self.manifest(version)
            except FileNotFoundError:
                continue

    def read_manifest(self, file: str, wanted: str) -> CheckpointManifest:
        """A manifest by the name of its file, and by its id.

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
            manifest = CheckpointManifest.model_validate(json.loads(zstandard.ZstdDecompressor().decompress(body)))
        except ValidationError as error:
            raise IntegrityError(f"{self._place.root}/{name} was written by newer code: {error}") from error
        if manifest_id(manifest, self._vault) != wanted:
            raise IntegrityError(f"{self._place.root}/{name} is another checkpoint than {wanted}")
        self._manifests[file] = manifest
        return manifest

    def find(self, prefix: str) -> list[Version]:
        """Versions of the checkpoints whose id, or else one of whose former ids, begins like this.

        Raises:
            IntegrityError: one is damaged.
        """
        found: dict[str, Version] = {}
        for file in sorted(self._place.list(MANIFESTS)):
            identity = file.partition("-")[0]
            if not file.startswith(prefix) or identity in found:
                continue
            try:
                model = self.read_manifest(file, identity).about.model
            except FileNotFoundError:
                continue  # collected while we looked
            for version in reversed(self.of(self.folder(model))):
                if version.id == identity:
                    found[identity] = version
                    break
        if not found:
            for version, manifest in self.standing(self.all()):
                if any(alias.startswith(prefix) for alias in manifest.aliases):
                    found[version.id] = version
        return list(found.values())

    def write_manifest(self, manifest: CheckpointManifest, identity: str, lease: Lease) -> str:
        """Make a manifest durable; nobody finds it before a version points at it. Name of its file below `manifests/`.

        Raises:
            InputError: no room.
        """
        file = f"{identity}-{lease.id}"
        name = f"{MANIFESTS}/{file}"
        body = zstandard.ZstdCompressor(3, write_content_size=True).compress(canonical_json(manifest.model_dump()))
        self._place.replace(name, wrap(body, name, self._vault))
        return file

    def publish(self, model: str, identity: str, file: str, lease: Lease) -> Version:
        """Give a checkpoint the next version of its model, or find the one that it has.

        Raises:
            LeaseExpired: too late; nothing was published.
            InputError: no room.
        """
        folder = self.folder(model)
        while True:
            number = self.next(folder)
            # manifests after versions: whoever has a version by now had a manifest before, and who comes later collides
            if (version := self.same(model, identity, file)) is not None:
                return version
            version = Version(folder, number, identity, file)
            if self.place(version, lease):
                return version

    def place(self, version: Version, lease: Lease) -> bool:
        """Publish under this very number; False, and nothing done, if it is taken.

        Raises:
            LeaseExpired: too late; nothing was published.
            InputError: no room.
        """
        body = canonical_json({"id": version.id, "manifest": version.manifest})
        lease.check()
        return self._place.create(version.name, wrap(body, version.name, self._vault))

    def same(self, model: str, identity: str, file: str = "") -> Version | None:
        """The version that a checkpoint has already, durably; `file` is a manifest that has none yet."""
        if all(other == file or not other.startswith(identity) for other in self._place.list(MANIFESTS)):
            return None
        folder = self.folder(model)
        found = next((version for version in reversed(self.of(folder)) if version.id == identity), None)
        if found is not None:
            self._place.settle(f"{MODELS}/{folder}")
        return found

    def retire(self, version: Version) -> None:
        """Take a version away; its number is not given again."""
        # the newest one leaves a mark, or the next save would be called like it. Both are durable: a version that a
        # crash brings back would be one whose pieces may be gone
        self.mark(version)
        self._place.delete(version.name, durable=True)

    def mark(self, version: Version) -> None:
        """See to it that a version's number is not given again."""
        self._place.replace(f"{version.name}.retired", b"")

    def needless_marks(self) -> Iterator[str]:
        """Names of the marks of retired versions that are not the newest ones."""
        for folder in self.folders():
            newest = self.next(folder) - 1
            for name in self._names(folder):
                if (found := _RETIRED.fullmatch(name)) and int(found[1]) < newest:
                    yield f"{MODELS}/{folder}/{name}"

    def next(self, folder: str) -> int:
        """The number of a model's next version."""
        taken = [
            found for name in self._names(folder) if (found := _VERSION.fullmatch(name) or _RETIRED.fullmatch(name))
        ]
        return 1 + max((int(found[1]) for found in taken), default=0)

    def _names(self, folder: str) -> list[str]:
        return list(self._place.list(f"{MODELS}/{folder}"))

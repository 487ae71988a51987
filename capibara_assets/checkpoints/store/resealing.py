"""Encryption and decryption of a whole store: its checkpoints move to a new folder below the store's root.

They are copied to `generation-<n>/`, a complete store, under the digests of the new kind, with their versions, and with
their old ids as aliases. When the copy is complete and was read back, `store.json` at the root is replaced: it points
to the copy, and `open_store` follows. The old folder is deleted last. So readers see all checkpoints, of one kind or
the other, at any moment; after a crash at any point, running it again finishes it; and nothing is renamed, so it works
the same on an object store.

Writers active at that moment continue in the old folder, under leases: the move waits for them, and copies what they
published. Writers that begin later read `store.json`, under their lease, before they write.
"""

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from upath import UPath

from capibara_assets.checkpoints.content import Content
from capibara_assets.checkpoints.encryption.keys import WrappingKey
from capibara_assets.checkpoints.encryption.vault import Vault
from capibara_assets.checkpoints.store import slots
from capibara_assets.checkpoints.store.documents import unwrapped_json, wrap
from capibara_assets.checkpoints.store.kind import (
    Moved,
    check_kind,
    exists,
    generations,
    moved,
    new_generation,
    point,
    switch,
)
from capibara_assets.checkpoints.store.leases import GRACE_S, LIFE_S, Lease, alive, hold
from capibara_assets.checkpoints.store.manifest import CheckpointManifest, TensorEntry
from capibara_assets.checkpoints.store.places import StorePlace, open_place
from capibara_assets.checkpoints.store.slots import create_vault, is_encrypted, open_vault
from capibara_assets.checkpoints.store.store import CheckpointStore
from capibara_assets.checkpoints.store.versions import Version, manifest_id
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.processes.progress import tracked
from capibara_assets.storage.digests import canonical_json

_PURPOSE = "reseal"
_CONTENT = ("models", "manifests", "packs", "condemned", "leases", "parts", "keys")  # in the order of their deletion
_COPIED = "copied"
_POLL_S = 0.2

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Resealed:
    """Result of encrypting or decrypting a store.

    Attributes:
        root: address of the checkpoints now.
        ids: former id -> id, of every checkpoint that was copied this time.
        deleted: number of files of the former kind that were deleted.
    """

    root: str
    ids: Mapping[str, str] = field(default_factory=dict)
    deleted: int = 0


@dataclass(frozen=True)
class _Address:
    """Options to open the stores below one root."""

    root: UPath
    work: Path | None
    private: bool

    def place(self, folder: str) -> StorePlace:
        return open_place(self._at(folder), work=self.work, private=self.private)

    def store(self, folder: str, vault: Vault | None) -> CheckpointStore:
        return CheckpointStore(self._at(folder), vault=vault, work=self.work)

    def _at(self, folder: str) -> UPath:
        return self.root / folder if folder else self.root


def encrypt(root: str | UPath | Path, key: WrappingKey, *, work: Path | None = None) -> Resealed:
    """Encrypt a whole store under a new data key, wrapped by `key`; or finish an interrupted encryption.

    It needs space for a second copy while it runs. Ids change; the former ids still find their checkpoints. Files of
    the former kind are deleted, not overwritten: a disk, its snapshots and backups may still hold them.

    Raises:
        InputError: no store, another key than the store has already, no space, or another process is doing the same.
        IntegrityError: the store is damaged; nothing was deleted.
    """
    return _reseal(_Address(UPath(root), work, private=True), key, encrypted=True)


def decrypt(root: str | UPath | Path, key: WrappingKey, *, work: Path | None = None) -> Resealed:
    """Decrypt a whole store and delete its key slots; an otherwise unchanged store gets its former ids back.

    Raises:
        InputError: as `encrypt`, or the key does not open the store.
        IntegrityError: the store is damaged; nothing was deleted.
    """
    return _reseal(_Address(UPath(root), work, private=False), key, encrypted=False)


def rotate(root: str | UPath | Path, key: WrappingKey, new_key: WrappingKey, *, work: Path | None = None) -> None:
    """Replace the key of an encrypted store by `new_key`; data key and payload are unchanged (see `slots.rotate`).

    Raises:
        InputError: the store is not encrypted, or neither key opens it.
        IntegrityError: a key slot is damaged.
    """
    address = _Address(UPath(root), work, private=True)
    there = moved(address.place(""))
    slots.rotate(address.place(there.at if there is not None else ""), key, new_key)


def _reseal(address: _Address, key: WrappingKey, *, encrypted: bool) -> Resealed:
    top = address.place("")
    there = moved(top)
    now = there.at if there is not None else ""
    if not exists(address.place(now)):
        raise InputError(f"there is no checkpoint store at {address.root}")
    # folders of a store's names may be anybody's
    check_kind(address.place(now), is_encrypted(address.place(now)), create=False)
    if is_encrypted(address.place(now)) == encrypted:
        target = address.store(now, open_vault(address.place(now), key) if encrypted else None)
        if there is None or there.left is None:
            return Resealed(target.root, deleted=_delete_others(address, now))
        return _leave(address, there.left, now, target, key)
    source = address.store(now, None if encrypted else open_vault(address.place(now), key))
    with hold(source.place, source.vault, _PURPOSE) as lease:
        _require_alone(source, lease)
        folder, target = _target(address, now, key, encrypted)
        copier = _Copier(source, target)
        copier.copy()
        if damages := target.verify():
            raise IntegrityError(f"what was written to {target.root} is damaged: {damages[0]}; nothing was deleted")
        copier.copy()  # what was published while the copy was read back
        target.place.replace(_COPIED, wrap(canonical_json(sorted(copier.ids)), _COPIED, target.vault))
        switch(top, there, Moved(folder, left=now))
    done = _leave(address, now, folder, target, key)
    return Resealed(done.root, {**copier.ids, **done.ids}, done.deleted)


def _target(address: _Address, now: str, key: WrappingKey, encrypted: bool) -> tuple[str, CheckpointStore]:
    """The unfinished copy of an interrupted attempt, or a new store; other leftover folders are deleted."""
    keep = None
    for folder in generations(address.place("")).keys() - {now}:
        place = address.place(folder)
        try:
            if exists(place) and is_encrypted(place) == encrypted:
                keep = folder, address.store(folder, open_vault(place, key) if encrypted else None)
        except (InputError, IntegrityError) as error:
            _log.warning("an interrupted attempt in %s cannot be continued, starting again: %s", place.root, error)
    _delete_others(address, now, *(keep or ())[:1])
    if keep is None:
        folder = new_generation(address.place(""))
        keep = folder, address.store(folder, create_vault(address.place(folder), key) if encrypted else None)
    check_kind(keep[1].place, encrypted, create=True)
    return keep


def _require_alone(store: CheckpointStore, lease: Lease) -> None:
    """Raise InputError where another process is encrypting or decrypting the store."""
    if _PURPOSE in [what for one, what in alive(store.place, store.vault).items() if one != lease.id]:
        raise InputError(f"{store.root} is being encrypted or decrypted by another process: let it finish")


class _Copier:
    """Copier of versions from one store to another, which may already have some of them."""

    def __init__(self, source: CheckpointStore, target: CheckpointStore, copied: Collection[str] | None = None) -> None:
        """`copied`: ids that were copied before the target was in use; those retired there since stay retired."""
        self._source, self._target, self._copied = source, target, copied
        self._entries: dict[TensorEntry, TensorEntry] = {}  # tensors that checkpoints share are read once
        self.ids: dict[str, str] = {}
        """Former id -> id, of the checkpoints that both stores have."""

    def copy(self) -> None:
        """Copy until a pass finds nothing new."""
        with hold(self._target.place, self._target.vault, _PURPOSE) as lease:
            while self._pass(lease):
                continue

    def _pass(self, lease: Lease) -> int:
        """Copy new versions and remove retired ones; returns how many were copied."""
        standing = self._source.versions.standing(self._source.versions.all())
        wanted = [(version, manifest) for version, manifest in standing if version.id not in (self._copied or ())]
        there = {version.id: version for version, _ in wanted}
        manifests = {version.id: manifest for version, manifest in wanted}
        former_ids = {former: identity for identity, one in manifests.items() for former in (identity, *one.aliases)}
        for version in list(self._target.versions.all()):
            known = self._target.versions.manifest(version)
            same = {former_ids[one] for one in (version.id, *known.aliases) if one in former_ids}
            for identity in same:
                self.ids[identity] = version.id
                self._remember(manifests[identity], known)
            if not same and self._copied is None:
                self._target.versions.retire(version)
        new = [identity for identity in _parents_first(manifests, former_ids) if identity not in self.ids]
        for identity in tracked(new, "checkpoints"):
            self._write(there[identity], manifests[identity], former_ids, lease)
        for identity in self.ids.keys() - manifests.keys():
            del self.ids[identity]
        self._keep_numbers(there, manifests)
        return len(new)

    def _write(self, version: Version, former: CheckpointManifest, former_ids: Mapping[str, str], lease: Lease) -> None:
        target, content = self._target, self._source.checkpoint(version).content()
        while True:
            known = self._entries if self._copied is None else {}  # a target in use may be collected meanwhile
            unknown = Content(
                {name: one for name, one in content.tensors.items() if former.tensors[name] not in known},
                files={name: one for name, one in content.files.items() if former.files[name] not in known},
            )
            fresh, used = target.write_pieces(unknown, lease)
            if target.still_there(used):
                break
        tensors = {name: fresh.get(("t", name)) or known[entry] for name, entry in former.tensors.items()}
        files = {name: fresh.get(("f", name)) or known[entry] for name, entry in former.files.items()}
        places = [target.catalog.find(piece) for one in (*tensors.values(), *files.values()) for piece in one.pieces]
        parent = former.about.parent
        manifest = former.model_copy(
            update={
                "about": former.about.model_copy(
                    update={"parent": self.ids.get(former_ids.get(parent or "", ""), parent)}
                ),
                "tensors": tensors,
                "files": files,
                "packs": tuple(sorted({place.pack for place in places if place is not None})),
            }
        )
        identity = manifest_id(manifest, target.vault)
        aliases = [one for one in (version.id, *former.aliases) if one != identity]
        manifest = manifest.model_copy(update={"aliases": tuple(aliases)})
        file = target.versions.write_manifest(manifest, identity, lease)
        copied = Version(target.versions.folder(former.about.model), version.number, identity, file)
        if not target.versions.place(copied, lease):  # the number was assigned meanwhile: take the next
            target.versions.publish(former.about.model, identity, file, lease)
        self.ids[version.id] = identity
        self._remember(former, manifest)

    def _remember(self, former: CheckpointManifest, manifest: CheckpointManifest) -> None:
        for old, new in ((former.tensors, manifest.tensors), (former.files, manifest.files)):
            self._entries.update((old[name], new[name]) for name in old)

    def _keep_numbers(self, there: Mapping[str, Version], manifests: Mapping[str, CheckpointManifest]) -> None:
        """Mark numbers of retired newest versions, so that they are not assigned again."""
        for folder, model in {(there[identity].folder, one.about.model) for identity, one in manifests.items()}:
            following, target = self._source.versions.next(folder), self._target.versions
            if target.next(target.folder(model)) < following:
                target.mark(Version(target.folder(model), following - 1, "", ""))


def _parents_first(manifests: Mapping[str, CheckpointManifest], former_ids: Mapping[str, str]) -> Sequence[str]:
    """Ids in an order in which parents come before their children."""
    order: dict[str, None] = {}
    for identity in manifests:
        line = []
        while identity in manifests and identity not in order and identity not in line:
            line.append(identity)
            parent = manifests[identity].about.parent or ""
            identity = former_ids.get(parent, parent)
        order.update(dict.fromkeys(reversed(line)))
    return list(order)


def _leave(address: _Address, left: str, now: str, target: CheckpointStore, key: WrappingKey) -> Resealed:
    """After the switch: copy what late writers published, then delete the old folder."""
    place, ids = address.place(left), {}
    if left:
        point(place, Moved(now))
    if place.folders("models"):
        vault = open_vault(place, key) if target.vault is None else None
        _wait_for_writers(place, vault)
        copied = unwrapped_json(target.place.read(_COPIED), _COPIED, target.vault, target.root)
        late = _Copier(address.store(left, vault), target, copied=set(copied))
        late.copy()
        ids = late.ids
    deleted = _delete(place, whole=left != "") + _delete_others(address, now)
    target.place.delete(_COPIED)
    point(address.place(""), Moved(now))
    return Resealed(target.root, ids, deleted)


def _wait_for_writers(place: StorePlace, vault: Vault | None) -> None:
    """Wait until no writer is active; raises InputError after a lease's lifetime."""
    end, told = time.monotonic() + LIFE_S + GRACE_S, False
    while writers := alive(place, vault):
        if time.monotonic() > end:
            raise InputError(f"writers are still active in {place.root}: {', '.join(writers.values())}; try again")
        if not told:
            _log.warning("waiting for active writers in %s: %s", place.root, ", ".join(writers.values()))
            told = True
        time.sleep(_POLL_S)


def _delete_others(address: _Address, *keep: str) -> int:
    """Delete the folders of interrupted attempts except these; returns the number of files."""
    top = address.place("")
    others = [folder for folder in generations(top) if folder not in keep]
    return sum(_delete(address.place(folder), whole=True) for folder in others)


def _delete(place: StorePlace, *, whole: bool) -> int:
    """Delete a store's folders and, if `whole`, the files that make it a store; returns the number of files."""
    deleted = sum(_empty(place, folder) for folder in _CONTENT)
    if whole:
        for name in place.list(""):
            place.delete(name)
            deleted += 1
        place.delete_folder("")
    return deleted


def _empty(place: StorePlace, folder: str) -> int:
    """Delete a folder with everything in it; returns the number of files."""
    deleted = sum(_empty(place, f"{folder}/{inner}") for inner in place.folders(folder))
    for name in place.list(folder):
        place.delete(f"{folder}/{name}")
        deleted += 1
    place.delete_folder(folder)
    return deleted

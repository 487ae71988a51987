"""Garbage collection of a checkpoint store, safe while writers are active.

What makes it safe, without a lock that writers wait for:

- A writer acquires its lease before it lists the packs, and releases it after it has published.
- A pack is marked *condemned* before it is deleted, and the mark then lists the leases that were alive. Writers that
  begin later see the mark and do not rely on the pack; for the others the pack waits until all their leases are gone,
  and the versions they published are read after that. A pack that turns out to be needed loses its mark.
- A survey reads packs and manifests, then leases, then versions. So a file that exists and whose writer is gone has
  its version in the survey by then, or never will.
- Names of packs and manifests are never reused, so a late deletion cannot hit a new file.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from capibara_assets.checkpoints.encryption.vault import Vault
from capibara_assets.checkpoints.store import files, leases
from capibara_assets.checkpoints.store.catalog import CONDEMNED, Catalog
from capibara_assets.checkpoints.store.documents import unwrapped_json, wrap
from capibara_assets.checkpoints.store.leases import GRACE_S, LIFE_S, Lease, hold
from capibara_assets.checkpoints.store.packs import PackIndex, PackReader, PackWriter, Stored, pack_name
from capibara_assets.checkpoints.store.places import PARTS, StorePlace
from capibara_assets.checkpoints.store.versions import MANIFESTS, MODELS, Versions
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.storage.digests import canonical_json

_PURPOSE = "collect"
_DEAD = 0.5
"""Least share of a pack's bytes that is needed; below it the pack is rewritten."""


class CollectedFile(NamedTuple):
    """A file that a collection deleted, kept waiting or rewrote, and why."""

    name: str
    bytes: int
    why: str


@dataclass(frozen=True)
class Collected:
    """Result of a collection, or of a dry run.

    Attributes:
        deleted: files that were deleted.
        waiting: packs that are deleted by a later collection, when the writers active now are done.
        repacked: packs whose needed pieces were copied into a new pack; they are deleted, or wait, like others.
        left: packs that should have been repacked but cannot be read.
    """

    deleted: tuple[CollectedFile, ...] = ()
    waiting: tuple[CollectedFile, ...] = ()
    repacked: tuple[CollectedFile, ...] = ()
    left: tuple[CollectedFile, ...] = ()

    @property
    def bytes_freed(self) -> int:
        """Bytes of all deleted files."""
        return sum(item.bytes for item in self.deleted)


@dataclass(frozen=True)
class _View:
    """A survey of a store, read in the order that the module's docstring gives."""

    packs: dict[str, PackIndex]
    marks: dict[str, frozenset[str] | None]
    """Condemned pack -> the leases that it waits for; None: not written yet."""
    parts: dict[str, tuple[int, float]]
    """Name -> bytes, time of the last write."""
    manifests: dict[str, int]
    alive: dict[str, str]
    """Lease -> purpose."""
    gone: frozenset[str]
    """Leases whose files exist and whose writers are gone."""
    referenced: frozenset[str]
    """Manifests that versions point at."""
    homes: dict[str, frozenset[str]]
    """Pack -> the needed pieces in it that are counted in no other pack."""

    def live_bytes(self, pack: str) -> int:
        """Bytes of a pack that are needed and counted in no other."""
        return sum(self.packs[pack].pieces[digest].stored for digest in self.homes.get(pack, ()))

    def has_dead(self, pack: str) -> bool:
        """Whether a pack holds a piece that nothing needs, or that is counted in another pack."""
        return len(self.homes.get(pack, ())) < len(self.packs[pack].pieces)

    def ready(self, pack: str) -> bool:
        """Whether no writer can rely on this condemned pack any more."""
        waits_for = self.marks[pack]
        return waits_for is not None and waits_for.isdisjoint(self.alive)


def collect(
    place: StorePlace,
    vault: Vault | None,
    catalog: Catalog,
    versions: Versions,
    *,
    dry_run: bool = False,
    thorough: bool = False,
) -> Collected:
    """Delete packs, manifests and files of interrupted writers that no version needs; rewrite mostly unneeded packs.

    Args:
        thorough: rewrite every pack that holds any unneeded piece.

    Raises:
        InputError: another collection is running, or no room for a rewritten pack.
        IntegrityError: a version or a manifest is damaged, so what it needs is unknown; nothing was deleted.
    """
    collector = _Collector(place, vault, catalog, versions, thorough)
    if dry_run:
        return collector.plan()
    with hold(place, vault, _PURPOSE) as lease:
        if _PURPOSE in [what for one, what in leases.alive(place, vault).items() if one != lease.id]:
            raise InputError(f"another collection of {place.root} is running: let it finish")
        return collector.run(lease)


def condemn(place: StorePlace, vault: Vault | None, packs: Iterable[str]) -> None:
    """Mark packs (for example damaged ones) as unusable for writers: their pieces are then stored again.

    A collection removes the mark where a pack is needed after all; a thorough one first copies its readable pieces.
    """
    for pack in packs:
        _write_mark(place, vault, pack, None)


def _write_mark(place: StorePlace, vault: Vault | None, pack: str, waits_for: Collection[str] | None) -> None:
    name = f"{CONDEMNED}/{pack}"
    body = canonical_json({"leases": None if waits_for is None else sorted(waits_for)})
    # not synced: a mark that a crash lost or tore is written again
    place.replace(name, wrap(body, name, vault), durable=False)


class _Collector:
    """One collection of a store."""

    def __init__(
        self, place: StorePlace, vault: Vault | None, catalog: Catalog, versions: Versions, thorough: bool
    ) -> None:
        self._place, self._vault, self._catalog, self._versions = place, vault, catalog, versions
        self._thorough = thorough

    def plan(self) -> Collected:
        """The effect of `run` if no writer were active."""
        view = self._survey()
        dead = self._dead(view) + [pack for pack in view.marks if pack in view.packs and not view.homes.get(pack)]
        items = [self._pack_item(view, pack, "no checkpoint needs it") for pack in dead]
        waits = bool(view.alive)
        return Collected(
            deleted=tuple(self._rubbish(view)) + (() if waits else tuple(items)),
            waiting=tuple(items) if waits else (),
            repacked=tuple(self._pack_item(view, pack, self._share(view, pack)) for pack in self._sparse(view)),
        )

    def run(self, lease: Lease) -> Collected:
        """Repack, condemn and delete, under this lease."""
        view = self._survey(lease)
        repacked, left = self._repack(view, lease)
        if repacked:
            view = self._survey(lease)
        self._condemn(view, lease)
        view = self._survey(lease)
        for folder in self._versions.folders():
            self._place.sync_names(
                f"{MODELS}/{folder}"
            )  # or a crash could bring back a version whose pieces are deleted now
        lease.check()
        deleted = self._rubbish(view)
        for item in deleted:
            self._delete(item.name)
        waiting = []
        for pack in sorted(view.marks):
            if pack not in view.packs:
                self._place.delete(f"{CONDEMNED}/{pack}")  # its pack is gone, and so is the process that deleted it
            elif view.homes.get(pack):
                self._place.delete(f"{CONDEMNED}/{pack}")  # a version that needs it was published
            elif view.ready(pack):
                deleted.append(self._pack_item(view, pack, "no checkpoint needs it"))
                self._place.delete(pack_name(pack))
                self._place.delete(f"{CONDEMNED}/{pack}")
                self._catalog.forget(pack)
            else:
                waiting.append(self._pack_item(view, pack, f"writers at work: {', '.join(view.alive.values())}"))
        return Collected(tuple(deleted), tuple(waiting), tuple(repacked), tuple(left))

    def _survey(self, lease: Lease | None = None) -> _View:
        """Read the store in the order that makes a collection safe; `lease`: the collection's own, not counted."""
        packs = self._catalog.refresh()
        marks = {pack: self._waits_for(pack) for pack in self._place.list(CONDEMNED)}
        manifests = dict(self._place.list(MANIFESTS))
        parts = _parts(self._place)
        there = set(self._place.list(leases.FOLDER))
        alive = leases.alive(self._place, self._vault)
        if lease is not None:
            alive.pop(lease.id, None)
        gone = frozenset(there - alive.keys() - ({lease.id} if lease is not None else set()))
        standing = dict(self._versions.standing(self._versions.all()))
        needed = frozenset(
            digest
            for manifest in standing.values()
            for entry in (*manifest.tensors.values(), *manifest.files.values())
            for digest in entry.pieces
        )
        referenced = frozenset(version.manifest for version in standing)
        return _View(packs, marks, parts, manifests, alive, gone, referenced, _homes(packs, marks, needed))

    def _dead(self, view: _View) -> list[str]:
        """Packs that no version needs and no active writer has just written."""
        return [
            pack
            for pack, index in sorted(view.packs.items())
            if pack not in view.marks and index.lease not in view.alive and not view.homes.get(pack)
        ]

    def _sparse(self, view: _View) -> list[str]:
        """Packs to rewrite: of which little is needed."""
        return [
            pack
            for pack, index in sorted(view.packs.items())
            if (self._thorough or pack not in view.marks)
            and index.lease not in view.alive
            and view.live_bytes(pack) > 0
            and (view.live_bytes(pack) < _DEAD * index.payload or (self._thorough and view.has_dead(pack)))
        ]

    def _repack(self, view: _View, lease: Lease) -> tuple[list[CollectedFile], list[CollectedFile]]:
        """Copy needed pieces of sparse packs into one new pack; (packs copied from, packs that cannot be read)."""
        copied, left = [], []
        writer: PackWriter | None = None
        try:
            for pack in self._sparse(view):
                item = self._pack_item(view, pack, self._share(view, pack))
                try:
                    pieces = list(self._read(view, pack))
                except IntegrityError as error:
                    left.append(item._replace(why=f"damaged: {error}"))
                    continue
                writer = writer or PackWriter(self._place, lease.id, self._vault)
                for digest, stored, encoded in pieces:
                    writer.copy(digest, stored, encoded)
                copied.append(item)
            if writer is not None and (index := writer.finish()) is not None:
                self._catalog.add(index)
        finally:
            if writer is not None:
                writer.abandon()
        return copied, left

    def _read(self, view: _View, pack: str) -> Iterator[tuple[str, Stored, memoryview]]:
        index = view.packs[pack]
        reader = PackReader(self._place, index, self._vault)
        for digest in sorted(view.homes[pack], key=lambda digest: index.pieces[digest].offset):
            yield digest, index.pieces[digest], reader.encoded(digest, index.pieces[digest])

    def _condemn(self, view: _View, lease: Lease) -> None:
        """Mark unneeded packs, then write into the marks which writers must be gone before they are deleted."""
        lease.check()
        fresh = self._dead(view)
        for pack in fresh:
            self._mark(pack, None)
        unsaid = [*fresh, *(pack for pack, waits_for in view.marks.items() if waits_for is None)]
        if unsaid:
            waits_for = leases.alive(self._place, self._vault).keys() - {lease.id}
            for pack in unsaid:
                self._mark(pack, waits_for)

    def _mark(self, pack: str, waits_for: Collection[str] | None) -> None:
        _write_mark(self._place, self._vault, pack, waits_for)

    def _waits_for(self, pack: str) -> frozenset[str] | None:
        name = f"{CONDEMNED}/{pack}"
        try:
            waits_for = unwrapped_json(self._place.read(name), name, self._vault, self._place.root)["leases"]
        except IntegrityError:
            return None  # torn by a crash: it still marks the pack, and its leases are written again
        return None if waits_for is None else frozenset(waits_for)

    def _rubbish(self, view: _View) -> list[CollectedFile]:
        """Files that nothing refers to and whose writers are gone."""
        oldest = time.time() - LIFE_S - GRACE_S
        rubbish = [
            CollectedFile(f"{MANIFESTS}/{file}", size, "no version points at it")
            for file, size in sorted(view.manifests.items())
            if file not in view.referenced and file.partition("-")[2] not in view.alive
        ]
        for name, (size, written) in sorted(view.parts.items()):
            if name.partition(".")[0] not in view.alive and (name.endswith(".pack") or written < oldest):
                rubbish.append(CollectedFile(f"{PARTS}/{name}", size, "its writer was interrupted"))
        rubbish += [CollectedFile(f"{leases.FOLDER}/{lease}", 0, "its writer is gone") for lease in sorted(view.gone)]
        rubbish += [CollectedFile(name, 0, "newer versions exist") for name in self._versions.needless_marks()]
        return rubbish

    def _delete(self, name: str) -> None:
        folder, _, file = name.partition("/")
        if folder == PARTS:
            files.unlink(self._place.parts / file)
        else:
            self._place.delete(name)

    def _pack_item(self, view: _View, pack: str, why: str) -> CollectedFile:
        return CollectedFile(pack_name(pack), view.packs[pack].size, why)

    def _share(self, view: _View, pack: str) -> str:
        live, payload = view.live_bytes(pack), view.packs[pack].payload
        return f"{live} of {payload} bytes are needed"


def _parts(place: StorePlace) -> dict[str, tuple[int, float]]:
    """Name -> (bytes, time of the last write) of the files that are being written."""
    parts = {}
    for path in place.parts.iterdir():
        with suppress(FileNotFoundError):  # finished meanwhile
            parts[path.name] = (path.stat().st_size, path.stat().st_mtime)
    return parts


def _homes(
    packs: Mapping[str, PackIndex], marks: Collection[str], needed: Collection[str]
) -> dict[str, frozenset[str]]:
    """Pack -> needed pieces, each counted in one pack: packs without a mark first, then those needed most."""
    wanted = {pack: index.pieces.keys() & needed for pack, index in packs.items()}

    def order(pack: str) -> tuple[bool, float, str]:
        index = packs[pack]
        live = sum(index.pieces[digest].stored for digest in wanted[pack])
        return pack in marks, -live / max(index.payload, 1), pack

    homes: dict[str, frozenset[str]] = {}
    placed: set[str] = set()
    for pack in sorted(packs, key=order):
        homes[pack] = frozenset(wanted[pack] - placed)
        placed |= homes[pack]
    return homes

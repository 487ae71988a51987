"""Freeing what no checkpoint needs, beside writers that are at work.

What makes it safe, without a lock that writers wait for:

- A writer takes its lease before it looks which packs there are, and gives it back after it published.
- A pack is marked *condemned* before it is deleted, and the mark then lists the leases that were alive. Whoever began
  later sees the mark and does not rely on the pack; for the others the pack waits until all their leases are gone, and
  what they published is looked at after that. A pack that turns out to be needed loses its mark.
- Looking goes: packs and manifests, then leases, then versions. So whatever is there, and whose writer is not, has its
  version in view by then, or never will.
- Names of packs and manifests never come back, so a late deletion cannot hit a new file.
"""

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from capibara_assets.checkpoints.encryption.vault import Vault
from capibara_assets.checkpoints.store import files, leases
from capibara_assets.checkpoints.store.catalog import CONDEMNED, Catalog
from capibara_assets.checkpoints.store.documents import unwrap, wrap
from capibara_assets.checkpoints.store.leases import GRACE_S, LIFE_S, Lease, hold
from capibara_assets.checkpoints.store.packs import PackIndex, PackReader, PackWriter, Stored, pack_name
from capibara_assets.checkpoints.store.places import PARTS, Place
from capibara_assets.checkpoints.store.versions import MANIFESTS, MODELS, Versions
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.storage.digests import canonical_json

_PURPOSE = "collect"
_DEAD = 0.5
"""A pack is rewritten when less than this share of its bytes is needed."""


class Item(NamedTuple):
    """A file that a collection dealt with."""

    name: str
    bytes: int
    why: str


@dataclass(frozen=True)
class Collected:
    """What a collection did, or, as a dry run, would do.

    Attributes:
        deleted: files that are gone.
        waiting: packs that go once the writers that are at work now are done.
        repacked: packs whose needed pieces were copied into a new pack; they are deleted, or wait, like others.
        left: packs that should have been repacked and cannot be read.
    """

    deleted: tuple[Item, ...] = ()
    waiting: tuple[Item, ...] = ()
    repacked: tuple[Item, ...] = ()
    left: tuple[Item, ...] = ()

    @property
    def bytes_freed(self) -> int:
        """Bytes of all deleted files."""
        return sum(item.bytes for item in self.deleted)


@dataclass(frozen=True)
class _View:
    """A store as it was found, looked at in the order that the module's text gives."""

    packs: dict[str, PackIndex]
    marks: dict[str, frozenset[str] | None]
    """Condemned pack -> the leases that it waits for; None: not known yet."""
    parts: dict[str, tuple[int, float]]
    """Name -> bytes, time of the last write."""
    manifests: dict[str, int]
    alive: dict[str, str]
    """Lease -> purpose."""
    gone: frozenset[str]
    """Leases whose files are there and whose writers are not."""
    referenced: frozenset[str]
    """Manifests that versions point at."""
    needed: frozenset[str]
    """Digests of the pieces of every checkpoint."""
    homes: dict[str, frozenset[str]]
    """Pack -> the needed pieces that lie there and are counted nowhere else."""

    def live_bytes(self, pack: str) -> int:
        """Bytes of a pack that are needed and counted nowhere else."""
        return sum(self.packs[pack].pieces[digest].stored for digest in self.homes.get(pack, ()))

    def has_dead(self, pack: str) -> bool:
        """Whether there is a piece in a pack that nothing needs, or that is needed and counted elsewhere."""
        return len(self.homes.get(pack, ())) < len(self.packs[pack].pieces)

    def ready(self, pack: str) -> bool:
        """Whether no writer can rely on this condemned pack any more."""
        waits_for = self.marks[pack]
        return waits_for is not None and waits_for.isdisjoint(self.alive)


def collect(
    place: Place,
    vault: Vault | None,
    catalog: Catalog,
    versions: Versions,
    *,
    dry_run: bool = False,
    thorough: bool = False,
) -> Collected:
    """Delete what no version needs: packs, manifests, files of interrupted writers; rewrite packs that are mostly dead.

    Args:
        thorough: rewrite every pack that holds anything dead.

    Raises:
        InputError: another collection is running, or no room for a rewritten pack.
        IntegrityError: a version or a manifest is damaged, so nobody knows what it needs; nothing was deleted.
    """
    collector = _Collector(place, vault, catalog, versions, thorough)
    if dry_run:
        return collector.plan()
    with hold(place, vault, _PURPOSE) as lease:
        if _PURPOSE in [what for one, what in leases.alive(place, vault).items() if one != lease.id]:
            raise InputError(f"another collection of {place.root} is running: let it finish")
        return collector.run(lease)


def condemn(place: Place, vault: Vault | None, packs: Iterable[str]) -> None:
    """Mark packs that are not to be relied on, such as damaged ones: writers store again what these hold.

    A collection takes a mark away again where a pack is needed after all; a thorough one first copies what can be read.
    """
    for pack in packs:
        _write_mark(place, vault, pack, None)


def _write_mark(place: Place, vault: Vault | None, pack: str, waits_for: Collection[str] | None) -> None:
    name = f"{CONDEMNED}/{pack}"
    body = canonical_json({"leases": None if waits_for is None else sorted(waits_for)})
    # not synced: a mark that a crash took away, or tore, is made anew
    place.replace(name, wrap(body, name, vault), durable=False)


class _Collector:
    def __init__(self, place: Place, vault: Vault | None, catalog: Catalog, versions: Versions, thorough: bool) -> None:
        self._place, self._vault, self._catalog, self._versions = place, vault, catalog, versions
        self._thorough = thorough

    def plan(self) -> Collected:
        """What `run` would do if no writer was at work and none came."""
        view = self._look()
        dead = self._dead(view) + [pack for pack in view.marks if pack in view.packs and not view.homes.get(pack)]
        items = [self._pack_item(view, pack, "no checkpoint needs it") for pack in dead]
        waits = bool(view.alive)
        return Collected(
            deleted=tuple(self._rubbish(view)) + (() if waits else tuple(items)),
            waiting=tuple(items) if waits else (),
            repacked=tuple(self._pack_item(view, pack, self._share(view, pack)) for pack in self._sparse(view)),
        )

    def run(self, lease: Lease) -> Collected:
        view = self._look(lease)
        repacked, left = self._repack(view, lease)
        if repacked:
            view = self._look(lease)
        self._condemn(view, lease)
        view = self._look(lease)
        for folder in self._versions.folders():
            self._place.settle(f"{MODELS}/{folder}")  # or a crash may bring back a version whose pieces go now
        lease.check()
        deleted = self._rubbish(view)
        for item in deleted:
            self._delete(item.name)
        waiting = []
        for pack in sorted(view.marks):
            if pack not in view.packs:
                self._place.delete(f"{CONDEMNED}/{pack}")  # its pack went, and the one that deleted it too
            elif view.homes.get(pack):
                self._place.delete(f"{CONDEMNED}/{pack}")  # somebody published what needs it
            elif view.ready(pack):
                deleted.append(self._pack_item(view, pack, "no checkpoint needs it"))
                self._place.delete(pack_name(pack))
                self._place.delete(f"{CONDEMNED}/{pack}")
                self._catalog.forget(pack)
            else:
                waiting.append(self._pack_item(view, pack, f"writers at work: {', '.join(view.alive.values())}"))
        return Collected(tuple(deleted), tuple(waiting), tuple(repacked), tuple(left))

    def _look(self, lease: Lease | None = None) -> _View:
        packs = self._catalog.refresh()
        marks = {pack: self._waits_for(pack) for pack in self._place.list(CONDEMNED)}
        manifests = dict(self._place.list(MANIFESTS))
        parts = _parts(self._place)
        there = set(self._place.list(leases.FOLDER))
        alive = leases.alive(self._place, self._vault)
        if lease is not None:
            alive.pop(lease.id, None)
        gone = frozenset(there - alive.keys() - ({lease.id} if lease is not None else set()))
        found = dict(self._versions.standing(self._versions.all()))
        needed = frozenset(
            digest
            for manifest in found.values()
            for entry in (*manifest.tensors.values(), *manifest.files.values())
            for digest in entry.pieces
        )
        referenced = frozenset(version.manifest for version in found)
        return _View(packs, marks, parts, manifests, alive, gone, referenced, needed, _homes(packs, marks, needed))

    def _dead(self, view: _View) -> list[str]:
        """Packs that nobody needs and no writer at work has just written."""
        return [
            pack
            for pack, index in sorted(view.packs.items())
            if pack not in view.marks and index.lease not in view.alive and not view.homes.get(pack)
        ]

    def _sparse(self, view: _View) -> list[str]:
        """Packs of which little is needed."""
        return [
            pack
            for pack, index in sorted(view.packs.items())
            if (self._thorough or pack not in view.marks)
            and index.lease not in view.alive
            and view.live_bytes(pack) > 0
            and (view.live_bytes(pack) < _DEAD * index.payload or (self._thorough and view.has_dead(pack)))
        ]

    def _repack(self, view: _View, lease: Lease) -> tuple[list[Item], list[Item]]:
        """Copy what is needed out of sparse packs into one new pack; (packs copied from, packs that cannot be read)."""
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
        """Mark what is dead, then say in the marks which writers must be gone before it may be deleted."""
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
            found = json.loads(unwrap(self._place.read(name), name, self._vault, self._place.root))["leases"]
        except IntegrityError:
            return None  # torn by a crash: it marks the pack, and says again whom it waits for
        return None if found is None else frozenset(found)

    def _rubbish(self, view: _View) -> list[Item]:
        """Files that nothing refers to and whose writers are gone."""
        oldest = time.time() - LIFE_S - GRACE_S
        found = [
            Item(f"{MANIFESTS}/{file}", size, "no version points at it")
            for file, size in sorted(view.manifests.items())
            if file not in view.referenced and file.partition("-")[2] not in view.alive
        ]
        for name, (size, written) in sorted(view.parts.items()):
            if name.partition(".")[0] not in view.alive and (name.endswith(".pack") or written < oldest):
                found.append(Item(f"{PARTS}/{name}", size, "its writer was interrupted"))
        found += [Item(f"{leases.FOLDER}/{lease}", 0, "its writer is gone") for lease in sorted(view.gone)]
        found += [Item(name, 0, "newer versions exist") for name in self._versions.needless_marks()]
        return found

    def _delete(self, name: str) -> None:
        folder, _, file = name.partition("/")
        if folder == PARTS:
            files.unlink(self._place.parts / file)
        else:
            self._place.delete(name)

    def _pack_item(self, view: _View, pack: str, why: str) -> Item:
        return Item(pack_name(pack), view.packs[pack].size, why)

    def _share(self, view: _View, pack: str) -> str:
        live, payload = view.live_bytes(pack), view.packs[pack].payload
        return f"{live} of {payload} bytes are needed"


def _parts(place: Place) -> dict[str, tuple[int, float]]:
    found = {}
    for path in place.parts.iterdir():
        with suppress(FileNotFoundError):  # finished while we looked
            found[path.name] = (path.stat().st_size, path.stat().st_mtime)
    return found


def _homes(
    packs: Mapping[str, PackIndex], marks: Collection[str], needed: Collection[str]
) -> dict[str, frozenset[str]]:
    """Pack -> needed pieces, each counted in one pack: uncondemned ones first, then those that are needed most."""
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

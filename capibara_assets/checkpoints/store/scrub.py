"""Scrubbing: read every byte of a store, and report damaged files and the tensors that are lost with them."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from capibara_assets.checkpoints.encryption.vault import Vault
from capibara_assets.checkpoints.store.catalog import Catalog
from capibara_assets.checkpoints.store.checkpoint import Checkpoint
from capibara_assets.checkpoints.store.manifest import CheckpointManifest
from capibara_assets.checkpoints.store.packs import FOLDER, SUFFIX, PackIndex, PackReader, pack_name
from capibara_assets.checkpoints.store.places import StorePlace
from capibara_assets.checkpoints.store.slots import damaged_slots
from capibara_assets.checkpoints.store.versions import MANIFESTS, MODELS, Version, Versions
from capibara_assets.checkpoints.store.writing import threads
from capibara_assets.errors import IntegrityError
from capibara_assets.processes.progress import tracked

_MANIFEST = re.compile(r"[0-9a-f]{64}-[0-9a-f]{32}")
_PACK = re.compile(r"[0-9a-f]{64}" + re.escape(SUFFIX))
_VERSION = re.compile(r"v(\d{6,})(\.retired)?")

Users = Mapping[str, list[tuple[str, str]]]
"""Digest of a piece -> (checkpoint, tensor or file) of each use."""


class Damage(NamedTuple):
    """A file whose content differs from what was written."""

    file: str
    """Its name in the store."""
    checkpoint: str | None
    """Id of the damaged checkpoint; None: no checkpoint, or unknown."""
    tensor: str | None
    """The damaged tensor or file of the checkpoint; None: all of it, or unknown."""
    problem: str


class _Known(NamedTuple):
    """A checkpoint whose manifest could be read."""

    id: str
    manifest: CheckpointManifest


class _Findings(NamedTuple):
    """Damages found so far, and the versions' files of the checkpoints read."""

    damages: list[Damage]
    versions: dict[str, str]
    """Id of a checkpoint -> name of its version's file."""


def scrub(place: StorePlace, vault: Vault | None, only: Checkpoint | None = None) -> list[Damage]:
    """Every damage of a store, or of the files one checkpoint needs; indexes and manifests are read again.

    Leases, marks, and parts of interrupted writers are not read: no content comes from them.
    """
    findings = _Findings([], {})
    damages = findings.damages
    catalog = Catalog(place, vault)
    if only is None:
        known = list(_checkpoints(place, Versions(place, vault), findings))
        catalog.refresh()
        slots = damaged_slots(place, vault) if vault is not None else {}
        damages += [Damage(file, None, None, problem) for file, problem in slots.items()]
        damages += [Damage(f"{FOLDER}/{name}", None, None, _STRAY) for name in place.list(FOLDER) if not _is_pack(name)]
        of_files = (FOLDER, MANIFESTS, *(f"{MODELS}/{model}" for model in place.folders(MODELS)))
        damages += [Damage(f"{at}/{name}", None, None, _STRAY) for at in of_files for name in place.folders(at)]
    else:
        known = list(_one(Versions(place, vault), only, findings))
        catalog.load(pack for one in known for pack in one.manifest.packs)
    users: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for one in known:
        for name, entry in {**one.manifest.files, **one.manifest.tensors}.items():
            for digest in dict.fromkeys(entry.pieces):
                users[digest].append((one.id, name))
    if any(catalog.find(digest) is None for digest in users):
        catalog.refresh()
    damages += _unreadable(catalog, known, users, everything=only is None)
    with ThreadPoolExecutor(threads(), thread_name_prefix="scrub") as pool:
        for index in tracked(catalog.packs().values(), "packs read"):
            damages += _pieces(pool, place, vault, index, users, everything=only is None)
    retired = {damage.checkpoint for damage in damages if damage.checkpoint and not _there(place, findings, damage)}
    return [damage for damage in damages if damage.checkpoint is None or damage.checkpoint not in retired]


_STRAY = "it does not belong to the store"


def _checkpoints(place: StorePlace, versions: Versions, findings: _Findings) -> Iterator[_Known]:
    """Every checkpoint whose version and manifest can be read; manifests without a version are checked, too."""
    referenced: set[str] = set()
    for folder in versions.folders():
        for name, size in sorted(place.list(f"{MODELS}/{folder}").items()):
            file = f"{MODELS}/{folder}/{name}"
            match = re.fullmatch(_VERSION, name)
            if match is None or (match[2] and size):
                findings.damages.append(Damage(file, None, None, _STRAY))
            elif not match[2]:
                try:
                    version = versions.read(folder, int(match[1]))
                except FileNotFoundError:
                    continue  # retired meanwhile
                except IntegrityError as error:
                    findings.damages.append(Damage(file, None, None, str(error)))
                    continue
                referenced.add(version.manifest)
                yield from _manifest(versions, version.manifest, version.id, version, findings)
    for name in sorted(place.list(MANIFESTS).keys() - referenced):
        if _MANIFEST.fullmatch(name) is None:
            findings.damages.append(Damage(f"{MANIFESTS}/{name}", None, None, _STRAY))
        else:
            list(_manifest(versions, name, name.partition("-")[0], None, findings))


def _one(versions: Versions, checkpoint: Checkpoint, findings: _Findings) -> Iterator[_Known]:
    version = versions.read(versions.folder(checkpoint.manifest.about.model), checkpoint.version)
    yield from _manifest(versions, version.manifest, version.id, version, findings)


def _manifest(
    versions: Versions, file: str, identity: str, version: Version | None, findings: _Findings
) -> Iterator[_Known]:
    if version is not None:
        findings.versions[identity] = version.name
    try:
        manifest = versions.read_manifest(file, identity) if version is None else versions.manifest(version)
    except FileNotFoundError:
        return  # retired and collected meanwhile
    except IntegrityError as error:
        findings.damages.append(Damage(f"{MANIFESTS}/{file}", None if version is None else identity, None, str(error)))
        return
    if version is None:
        return
    if versions.folder(manifest.about.model) != version.folder:
        problem = f"it names a checkpoint of {manifest.about.model}"
        findings.damages.append(Damage(version.name, identity, None, problem))
    yield _Known(identity, manifest)


def _unreadable(catalog: Catalog, known: list[_Known], users: Users, *, everything: bool) -> Iterator[Damage]:
    """Packs whose header or index is damaged, and pieces that no pack has."""
    blamed: set[str] = set()
    there = catalog.listed()
    packs_of = {one.id: one.manifest.packs for one in known}
    for digest, belongs in users.items():
        if catalog.find(digest) is not None:
            continue
        for checkpoint, tensor in belongs:
            packs = packs_of[checkpoint]
            # the pack it was written to, if damaged; else any damaged one, since it may have been repacked
            damaged = [pack for pack in packs if pack in catalog.damaged] or list(catalog.damaged)
            missing = [pack for pack in packs if pack not in there]
            if damaged:
                blamed.add(damaged[0])
                yield Damage(pack_name(damaged[0]), checkpoint, tensor, str(catalog.damaged[damaged[0]]))
            elif missing:
                yield Damage(pack_name(missing[0]), checkpoint, tensor, "it is missing")
            else:
                yield Damage(FOLDER, checkpoint, tensor, f"no pack has the piece {digest[:12]}")
    for pack, error in catalog.damaged.items():
        if everything and pack not in blamed:
            yield Damage(pack_name(pack), None, None, str(error))


def _pieces(
    pool: ThreadPoolExecutor,
    place: StorePlace,
    vault: Vault | None,
    index: PackIndex,
    users: Users,
    *,
    everything: bool,
) -> Iterator[Damage]:
    """Damages of a pack's pieces."""
    try:
        reader = PackReader(place, index, vault)
    except FileNotFoundError:
        return  # collected meanwhile; its needed pieces are in another pack

    def check(digest: str) -> str | None:
        try:
            reader.encoded(digest, index.pieces[digest])
        except IntegrityError as error:
            return str(error)
        return None

    wanted = [digest for digest in index.pieces if everything or digest in users]
    for digest, problem in zip(wanted, pool.map(check, wanted), strict=True):
        if problem is not None:
            belongs = users.get(digest, [])
            yield from (Damage(index.name, checkpoint, tensor, problem) for checkpoint, tensor in belongs)
            if not belongs:
                yield Damage(index.name, None, None, problem)


def _is_pack(name: str) -> bool:
    return _PACK.fullmatch(name) is not None


def _there(place: StorePlace, findings: _Findings, damage: Damage) -> bool:
    """Whether a checkpoint still exists: a collection deletes the pieces of one that was retired meanwhile."""
    try:
        place.size(findings.versions[str(damage.checkpoint)])
    except FileNotFoundError:
        return False
    return True

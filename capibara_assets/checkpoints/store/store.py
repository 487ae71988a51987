"""The checkpoint store: save a state or any content, find it again by id, version or step, and read it back checked."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from upath import UPath

import capibara_assets
from capibara_assets.checkpoints import tree
from capibara_assets.checkpoints.content import Content, live, of_bytes, of_file
from capibara_assets.checkpoints.encryption.keys import WrappingKey, given_key
from capibara_assets.checkpoints.encryption.vault import Vault
from capibara_assets.checkpoints.store.catalog import Catalog
from capibara_assets.checkpoints.store.checkpoint import Backing, Checkpoint, some
from capibara_assets.checkpoints.store.codec import Compression
from capibara_assets.checkpoints.store.collect import Collected, collect, condemn
from capibara_assets.checkpoints.store.kind import STORE, check_kind, exists, moved
from capibara_assets.checkpoints.store.leases import Lease, LeaseExpired, hold
from capibara_assets.checkpoints.store.manifest import About, CheckpointManifest, TensorEntry
from capibara_assets.checkpoints.store.packs import FOLDER as PACKS
from capibara_assets.checkpoints.store.packs import SUFFIX
from capibara_assets.checkpoints.store.places import Place, open_place
from capibara_assets.checkpoints.store.scrub import Damage, scrub
from capibara_assets.checkpoints.store.slots import create_vault, is_encrypted, open_vault
from capibara_assets.checkpoints.store.versions import MANIFESTS, Version, Versions, manifest_id
from capibara_assets.checkpoints.store.writing import PieceWriter
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.storage.digests import canonical_json
from capibara_assets.storage.manifest import check_relative

_AT = re.compile(r"(?P<model>.+)@(?:latest|v(?P<number>\d+)|step:(?P<step>\d+))", re.DOTALL)
_ID = re.compile(r"[0-9a-f]{8,64}")


class MissingCheckpoint(InputError):
    """A checkpoint that was asked for by name is not in the store."""


__all__ = ["Checkpoint", "CheckpointStore", "Collected", "Damage", "MissingCheckpoint", "open_store"]

Checkpoints = list[Checkpoint]  # inside the class below, `list` is a method
Damages = list[Damage]


class CheckpointStore:
    """Immutable checkpoints under one root, local or on an object store.

    Layout: `packs/<id>.safetensors` holds pieces of tensors, `manifests/<checkpoint>-<lease>` what a checkpoint is, and
    `models/<model>/v000007` makes it visible. See docs/decisions/0005. Safe to use from several threads and processes.
    """

    def __init__(
        self,
        root: str | UPath | Path,
        *,
        vault: Vault | None = None,
        compression: Compression = "zstd",
        work: Path | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Nothing is read or written yet.

        Args:
            vault: the keys of an encrypted store; `open_store` finds out whether one is needed.
            compression: of what is written from now on; reading takes any.
            work: local folder for files on their way to a remote root.

        Raises:
            InputError: a remote root without `work`.
        """
        self.place = open_place(root, work=work, storage_options=storage_options, private=vault is not None)
        self.vault, self.compression = vault, compression
        self.versions = Versions(self.place, vault)
        self.catalog = Catalog(self.place, vault)
        self._checked = False

    @property
    def root(self) -> str:
        """Where it lies."""
        return self.place.root

    def save(
        self,
        state: Any,
        step: int,
        model_name: str,
        *,
        files: Mapping[str, bytes | Path] = {},
        **about: Any,
    ) -> str:
        """Save a nested state of torch tensors and plain data. Its id; the same state again has the same one.

        The tensors must not change meanwhile. They may be on any device; each comes to the CPU when it is its turn.

        Args:
            state: dictionaries, lists and tuples of tensors, numbers and text, as `state_dict` gives them.
            files: name -> bytes, or a local file, that belong to it.
            about: further fields of `manifest.About`.

        Raises:
            InputError: something that a checkpoint cannot hold, a bad field, or no room; nothing was published.
        """
        tensors, nested, ties = tree.flatten(state)
        content = Content(
            {name: live(tensor, name) for name, tensor in tensors.items()},
            tree=nested,
            ties=ties,
            files={name: of_bytes(file) if isinstance(file, bytes) else of_file(file) for name, file in files.items()},
        )
        fields = {"code_version": capibara_assets.__version__, **about}
        try:
            known = About(model=model_name, step=step, **fields)
        except ValidationError as error:
            raise InputError(f"what was said about checkpoint {model_name!r} of step {step}: {error}") from error
        return self.write(content, known).id

    def write(self, content: Content, about: About) -> Checkpoint:
        """Store any content, piece by piece; pieces that the store has are not written again.

        Content that this model has already is not stored again: the version there is comes back.

        Raises:
            InputError: bad names, or no room; nothing was published.
        """
        _check(content, about)
        self._prepare()
        with hold(self.place, self.vault, f"save {about.model} step {about.step}") as lease:
            self._still_the_place()
            while True:
                entries, used = self.write_pieces(content, lease)
                manifest = CheckpointManifest(
                    about=about,
                    kind=content.kind,
                    tensors={name: entries["t", name] for name in content.tensors},
                    files={name: entries["f", name] for name in content.files},
                    ties=dict(content.ties),
                    tree=content.tree,
                    origin=dict(content.origin),
                    packs=tuple(sorted(used)),
                    created=datetime.now(UTC).isoformat(timespec="milliseconds"),
                )
                if self.still_there(used):
                    break  # else a collection came between: what it took is written anew
            identity = manifest_id(manifest, self.vault)
            same = self.versions.same(about.model, identity)
            for version, known in self.versions.standing([same] if same is not None else []):
                return self._of(version, known)
            file = self.versions.write_manifest(manifest, identity, lease)
            version = self.versions.publish(about.model, identity, file, lease)
            self._stand_by(version, used, lease)
            return self.checkpoint(version)  # read back, while the lease keeps it from being collected

    def mend(self, content: Content, about: About) -> Checkpoint:
        """`write`, where packs that hold some of it are damaged: that is stored anew, and the damaged packs go.

        Raises:
            InputError: as `write`, or another collection is running.
            IntegrityError: its version or manifest is damaged: only a copy of that file mends it.
        """
        found = self.write(content, about)
        damaged = {Path(damage.file).name.removesuffix(SUFFIX) for damage in self.verify(found.id)}
        condemn(self.place, self.vault, sorted(damaged & self.catalog.listed().keys()))
        found = self.write(content, about)
        self.collect(thorough=True)
        return found

    def open(self, ref: str) -> Checkpoint:
        """A checkpoint by id, unique beginning of an id (8 digits or more), `model` (the latest), `model@latest`,
        `model@v7` or `model@step:20` (the latest of that step).

        Raises:
            MissingCheckpoint: there is none; the message says what there is.
            InputError: the beginning fits several.
            IntegrityError: it is damaged; the message names the file.
        """
        self._prepare(write=False)
        if _ID.fullmatch(ref):
            called = [self._of(*one) for one in self.versions.standing(self.versions.find(ref))]
            if len(called) > 1:
                raise InputError(f"{ref} is the beginning of several ids: {some(one.id for one in called)}")
            if called:
                return called[0]
        at = _AT.fullmatch(ref)
        model, number, step = at.group("model", "number", "step") if at else (ref, None, None)
        # a model may be called like a version of another
        found = self._newest(model, number, step) or (self._newest(ref, None, None) if at else None)
        if found is None:
            raise MissingCheckpoint(self._what_there_is(ref, model))
        return found

    def list(self, model: str | None = None) -> Checkpoints:
        """Every checkpoint, of one model or of all, by model and version.

        Raises:
            IntegrityError: one is damaged; the message names the file.
        """
        self._prepare(write=False)
        versions = self.versions.all() if model is None else self.versions.of(self.versions.folder(model))
        found = [self._of(version, manifest) for version, manifest in self.versions.standing(versions)]
        return sorted(found, key=lambda checkpoint: (checkpoint.manifest.about.model, checkpoint.version))

    def load(self, ref: str, format: str = "state", out: Path | None = None, *, verify: bool = True) -> Any:
        """A checkpoint as the nested state that was saved, or written to `out` in another format.

        Raises:
            MissingCheckpoint: there is none.
            InputError: an unknown format, no `out`, or something the format cannot carry.
            IntegrityError: it is damaged; the message names pack, checkpoint and tensor.
        """
        checkpoint = self.open(ref)
        if format == "state":
            return checkpoint.state(verify)
        from capibara_assets.checkpoints.formats import FORMATS

        if format not in FORMATS or (write := FORMATS[format].write) is None:
            known = [name for name, one in FORMATS.items() if one.write is not None]
            raise InputError(f"checkpoints are not written as {format!r}: take state, {', '.join(known)}")
        if out is None:
            raise InputError(f"say where to write {ref} as {format}")
        write(checkpoint.content(verify), out)
        return out

    def retire(self, ids: Iterable[str]) -> None:
        """Take checkpoints away: they are not found any more; `collect` frees what no other needs.

        Raises:
            MissingCheckpoint: there is none of such an id; nothing was taken away.
        """
        self._prepare(write=False)
        versions = []
        for identity in ids:
            found = [
                version
                for version, manifest in self.versions.standing(self.versions.find(identity))
                if identity in (version.id, *manifest.aliases)
            ]
            if not found:
                raise MissingCheckpoint(self._what_there_is(identity, identity))
            versions += found
        for version in versions:
            self.versions.retire(version)

    def collect(self, *, dry_run: bool = False, thorough: bool = False) -> Collected:
        """Free what no checkpoint needs; safe beside writers and readers. See checkpoints/store/collect.py.

        Args:
            thorough: leave not one dead byte, however little a rewritten pack saves: what *forget* asks for.

        Raises:
            InputError: another collection is running, or no room for a rewritten pack.
            IntegrityError: a version or a manifest is damaged, so nobody knows what it needs; nothing was deleted.
        """
        if not self._prepare(write=False):
            return Collected()
        return collect(self.place, self.vault, self.catalog, self.versions, dry_run=dry_run, thorough=thorough)

    def verify(self, ref: str | None = None) -> Damages:
        """Read every byte of the store, or of one checkpoint, and say what is not as it was written; [] is sound.

        Raises:
            MissingCheckpoint: there is none of this name.
        """
        damages = []
        try:
            check_kind(self.place, self.vault is not None, create=False)
        except IntegrityError as error:
            damages = [Damage(STORE, None, None, str(error))]
        return damages + scrub(self.place, self.vault, None if ref is None else self.open(ref))

    def write_pieces(self, content: Content, lease: Lease) -> tuple[dict[tuple[str, str], TensorEntry], set[str]]:
        """Store what a checkpoint will need. Entries of tensors ("t", name) and files ("f", name), and their packs."""
        self.catalog.refresh()
        known = self.catalog.without(self.catalog.condemned())
        with PieceWriter(self.place, lease.id, self.vault, self.compression, known) as writer:
            pending = {("t", name): writer.add(source) for name, source in content.tensors.items()}
            pending |= {("f", name): writer.add(source, file=True) for name, source in content.files.items()}
            index = writer.finish()
        used = {known[digest].pack for digest in writer.reused}
        if index is not None:
            self.catalog.add(index)
            used.add(index.id)
        elif used:
            self.place.settle(PACKS)  # as publishing a pack does: those of others may have come just now
        return {name: one.entry() for name, one in pending.items()}, used

    def still_there(self, used: set[str]) -> bool:
        """Whether these packs can be relied on: present, whole as far as their length tells, and not condemned."""
        there, known = self.catalog.listed(), self.catalog.packs()  # another thread may have noticed that one is gone
        return used.isdisjoint(self.catalog.condemned()) and all(
            pack in known and there.get(pack) == known[pack].size for pack in used
        )

    def _stand_by(self, version: Version, used: set[str], lease: Lease) -> None:
        """A process that was suspended between its last look at its lease and publishing finds out here.

        Raises:
            LeaseExpired: what it relied on was collected meanwhile; the version was taken back.
        """
        try:
            lease.check()
        except LeaseExpired:
            if not self.still_there(used) or version.manifest not in self.place.list(MANIFESTS):
                self.versions.retire(version)
                raise

    def _newest(self, model: str, number: str | None, step: str | None) -> Checkpoint | None:
        """The newest version of a model that has this number and this step."""
        folder = self.versions.folder(model)
        for there in reversed(self.versions.numbers(folder)):
            if number is not None and there != int(number):
                continue
            try:
                checkpoint = self.checkpoint(self.versions.read(folder, there))
            except FileNotFoundError:
                continue  # retired while we looked
            if step is None or checkpoint.manifest.about.step == int(step):
                return checkpoint
        return None

    def checkpoint(self, version: Version) -> Checkpoint:
        """The checkpoint that a version names.

        Raises:
            FileNotFoundError: it was retired meanwhile.
            IntegrityError: its manifest is damaged.
        """
        return self._of(version, self.versions.manifest(version))

    def _of(self, version: Version, manifest: CheckpointManifest) -> Checkpoint:
        backing = Backing(self.place, self.vault, self.catalog)
        return Checkpoint(version.id, version.number, manifest, backing)

    def _what_there_is(self, ref: str, model: str) -> str:
        self._checked = False  # it may have been encrypted since, and lie elsewhere
        there = self.list()
        same = [
            f"v{one.version} (step {one.manifest.about.step})" for one in there if one.manifest.about.model == model
        ]
        if same:
            return f"no checkpoint {ref} in {self.root}: of {model} there are {some(same)}"
        models = dict.fromkeys(one.manifest.about.model for one in there)
        return f"no checkpoint {ref} in {self.root}: " + (f"there is {some(models)}" if models else "it is empty")

    def _still_the_place(self) -> None:
        """Under a lease: see that the store was not encrypted or decrypted, to another folder, since it was opened.

        Raises:
            InputError: it was.
        """
        if not check_kind(self.place, self.vault is not None, create=False):
            raise InputError(f"{self.root} is no longer there: open the store anew")

    def _prepare(self, write: bool = True) -> bool:
        """Once: see that this is such a store; before the first write, make it one. False: there is nothing yet."""
        self._checked = self._checked or check_kind(self.place, self.vault is not None, create=write)
        return self._checked


def open_store(
    root: str | UPath | Path,
    *,
    key: WrappingKey | None = None,
    compression: Compression = "zstd",
    work: Path | None = None,
    storage_options: Mapping[str, Any] | None = None,
    create: bool = True,
) -> CheckpointStore:
    """The store at an address, opened with its keys if it is encrypted; a new one is encrypted if a key is given.

    Args:
        key: what opens an encrypted store; None: the one that the environment gives (`keys.given_key`).
        create: whether the key slot of a new encrypted store may be written.

    Raises:
        InputError: a remote root without `work`; an encrypted store, and no key, or not its key; a key, and a store
            that is not encrypted, or, without `create`, none.
        IntegrityError: a key slot is damaged, or the store went to a folder that is not there.
    """
    place = open_place(root, work=work, storage_options=storage_options, private=True)
    if (there := moved(place)) is not None:
        root = UPath(root, **dict(storage_options or {})) / there.at
        place = open_place(root, work=work, storage_options=storage_options, private=True)
        if not exists(place):
            raise IntegrityError(f"{place.root} is missing: the store's checkpoints should be there")
    key = key if key is not None else given_key()
    vault = None
    if is_encrypted(place):
        vault = open_vault(place, key)
    elif key is not None:
        vault = _new_vault(place, key, create)
    return CheckpointStore(root, vault=vault, compression=compression, work=work, storage_options=storage_options)


def _new_vault(place: Place, key: WrappingKey, create: bool) -> Vault:
    """Raises InputError: there is a plain store, or, without `create`, none."""
    if exists(place):
        if is_encrypted(place):
            return open_vault(place, key)  # another process has just made it
        raise InputError(
            f"the checkpoint store {place.root} is not encrypted, and {key.origin} gives a key: encrypt the store "
            "(`capibara checkpoint encrypt`), or do not give a key"
        )
    if not create:
        raise InputError(f"there is no checkpoint store at {place.root}")
    vault = create_vault(place, key)
    check_kind(place, True, create=True)
    return vault


def _check(content: Content, about: About) -> None:
    """Raises InputError: names that cannot be stored."""
    for name in content.files:
        try:
            check_relative(name)
        except ValueError as error:
            raise InputError(f"a file of checkpoint {about.model!r}: {error}") from error
    for name, tied in content.ties.items():
        if tied not in content.tensors or name in content.tensors:
            raise InputError(f"{name} is tied to {tied}, and one of the two is not as it should be among the tensors")
    try:
        canonical_json(about.model_dump())
    except ValueError as error:
        raise InputError(
            f"what was said about checkpoint {about.model!r} is no JSON (NaN, infinity?): {error}"
        ) from error

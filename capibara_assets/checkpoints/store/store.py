"""The checkpoint store: save a state or any content, find it by id, version or step, and read it back verified."""

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
from capibara_assets.checkpoints.encryption.vault import Vault
from capibara_assets.checkpoints.store.catalog import Catalog
from capibara_assets.checkpoints.store.checkpoint import Backing, Checkpoint, some
from capibara_assets.checkpoints.store.codec import Compression
from capibara_assets.checkpoints.store.collect import Collected, collect, condemn
from capibara_assets.checkpoints.store.kind import STORE, check_kind
from capibara_assets.checkpoints.store.leases import Lease, LeaseExpired, hold
from capibara_assets.checkpoints.store.manifest import About, CheckpointManifest, TensorEntry
from capibara_assets.checkpoints.store.packs import FOLDER as PACKS
from capibara_assets.checkpoints.store.packs import SUFFIX
from capibara_assets.checkpoints.store.places import open_place
from capibara_assets.checkpoints.store.scrub import Damage, scrub
from capibara_assets.checkpoints.store.versions import MANIFESTS, Version, Versions, manifest_id
from capibara_assets.checkpoints.store.writing import PieceWriter
from capibara_assets.errors import InputError, IntegrityError, in_words
from capibara_assets.processes.progress import tracked
from capibara_assets.storage.digests import canonical_json
from capibara_assets.storage.manifest import check_relative

_AT = re.compile(r"(?P<model>.+)@(?:latest|v(?P<number>\d+)|step:(?P<step>\d+))", re.DOTALL)
_ID = re.compile(r"[0-9a-f]{8,64}")


class MissingCheckpoint(InputError):
    """The store has no checkpoint of this name or id."""


__all__ = ["Checkpoint", "CheckpointStore", "Collected", "Damage", "MissingCheckpoint"]

Checkpoints = list[Checkpoint]  # inside the class below, `list` is a method
Damages = list[Damage]


class CheckpointStore:
    """Immutable checkpoints under one root, local or on an object store.

    Layout: `packs/<id>.safetensors` holds pieces of tensors, `manifests/<checkpoint>-<lease>` describes a
    checkpoint, and `models/<model>/v000007` makes it visible. See docs/decisions/0005. Safe to use from several threads
    and processes.
    """

    def __init__(
        self,
        root: str | UPath | Path,
        *,
        vault: Vault | None = None,
        compression: Compression = "zstd",
        work: Path | None = None,
    ) -> None:
        """Reads and writes nothing yet.

        Args:
            vault: the keys of an encrypted store; `open_store` finds out whether one is needed.
            compression: of new pieces; any can be read.
            work: local folder for unfinished files of a remote root.

        Raises:
            InputError: a remote root without `work`.
        """
        self.place = open_place(root, work=work, private=vault is not None)
        self.vault, self.compression = vault, compression
        self.versions = Versions(self.place, vault)
        self.catalog = Catalog(self.place, vault)
        self._checked = False

    @property
    def root(self) -> str:
        """The store's address."""
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
        """Save a nested state of torch tensors and plain data; returns its id, the same for the same state.

        The tensors must not change meanwhile. They may be on any device; they are copied to the CPU one by one.

        Args:
            state: dictionaries, lists and tuples of tensors, numbers and text, as `state_dict` returns them.
            files: name -> bytes, or a local file, that belong to it.
            about: further fields of `manifest.About`.

        Raises:
            InputError: a value that a checkpoint cannot hold, an invalid field, or a full disk; nothing was published.
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
            raise InputError(
                f"invalid description of checkpoint {model_name!r}, step {step}: {in_words(error)}"
            ) from error
        return self.write(content, known).id

    def write(self, content: Content, about: About) -> Checkpoint:
        """Store any content, piece by piece; pieces that the store has are not written again.

        Where the model already has this content, its existing version is returned.

        Raises:
            InputError: invalid names, or a full disk; nothing was published.
        """
        _check(content, about)
        self._prepare()
        with hold(self.place, self.vault, f"save {about.model} step {about.step}") as lease:
            self._require_same_place()
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
                    break  # else a collection deleted some of them: write those again
            identity = manifest_id(manifest, self.vault)
            same = self.versions.same(about.model, identity)
            for version, known in self.versions.standing([same] if same is not None else []):
                return self._of(version, known)
            file = self.versions.write_manifest(manifest, identity, lease)
            version = self.versions.publish(about.model, identity, file, lease)
            self._confirm(version, used, lease)
            return self.checkpoint(version)  # read back, while the lease keeps it from being collected

    def mend(self, content: Content, about: About) -> Checkpoint:
        """`write` content whose packs are damaged: its pieces are stored again, and the damaged packs are collected.

        Raises:
            InputError: as `write`, or another collection is running.
            IntegrityError: its version or manifest is damaged, which only a copy of that file repairs.
        """
        checkpoint = self.write(content, about)
        damaged = {Path(damage.file).name.removesuffix(SUFFIX) for damage in self.verify(checkpoint.id)}
        condemn(self.place, self.vault, sorted(damaged & self.catalog.listed().keys()))
        checkpoint = self.write(content, about)
        self.collect(thorough=True)
        return checkpoint

    def open(self, ref: str) -> Checkpoint:
        """Open a checkpoint by id, unique prefix of an id (8 digits or more), `model` (its latest), `model@latest`,
        `model@v7` or `model@step:20` (the latest of that step).

        Raises:
            MissingCheckpoint: there is none; the message lists the existing ones.
            InputError: the prefix fits several.
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
        newest = self._newest(model, number, step) or (self._newest(ref, None, None) if at else None)
        if newest is None:
            raise MissingCheckpoint(self._missing(ref, model))
        return newest

    def list(self, model: str | None = None) -> Checkpoints:
        """Every checkpoint, of one model or of all, by model and version.

        Raises:
            IntegrityError: one is damaged; the message names the file.
        """
        self._prepare(write=False)
        versions = self.versions.all() if model is None else self.versions.of(self.versions.folder(model))
        checkpoints = [self._of(version, manifest) for version, manifest in self.versions.standing(versions)]
        return sorted(checkpoints, key=lambda checkpoint: (checkpoint.manifest.about.model, checkpoint.version))

    def load(self, ref: str, format: str = "state", out: Path | None = None, *, verify: bool = True) -> Any:
        """Load a checkpoint as the nested state that was saved, or write it to `out` in another format.

        Raises:
            MissingCheckpoint: there is none.
            InputError: an unknown format, no `out`, or content that the format cannot hold.
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
        """Remove checkpoints from the listing; `collect` then frees the pieces that no other needs.

        Raises:
            MissingCheckpoint: an id is not in the store; nothing was removed.
        """
        self._prepare(write=False)
        versions = []
        for identity in ids:
            named = [
                version
                for version, manifest in self.versions.standing(self.versions.find(identity))
                if identity in (version.id, *manifest.aliases)
            ]
            if not named:
                raise MissingCheckpoint(self._missing(identity, identity))
            versions += named
        for version in versions:
            self.versions.retire(version)

    def collect(self, *, dry_run: bool = False, thorough: bool = False) -> Collected:
        """Free the space that no checkpoint needs; safe while writers and readers are active. See `store.collect`.

        Args:
            thorough: leave no unneeded byte, however little a rewritten pack saves; *forget* needs this.

        Raises:
            InputError: another collection is running, or no space for a rewritten pack.
            IntegrityError: a version or a manifest is damaged, so what it needs is unknown; nothing was deleted.
        """
        if not self._prepare(write=False):
            return Collected()
        return collect(self.place, self.vault, self.catalog, self.versions, dry_run=dry_run, thorough=thorough)

    def verify(self, ref: str | None = None) -> Damages:
        """Read every byte of the store, or of one checkpoint, and list damages; empty if there are none.

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
        """Store the pieces of a content.

        Returns:
            Entries of tensors ("t", name) and files ("f", name), and the ids of the packs that hold their pieces.
        """
        self.catalog.refresh()
        known = self.catalog.without(self.catalog.condemned())
        with PieceWriter(self.place, lease.id, self.vault, self.compression, known) as writer:
            pending = {("t", name): writer.add(source) for name, source in tracked(content.tensors.items(), "tensors")}
            pending |= {("f", name): writer.add(source, file=True) for name, source in content.files.items()}
            index = writer.finish()
        used = {known[digest].pack for digest in writer.reused}
        if index is not None:
            self.catalog.add(index)
            used.add(index.id)
        elif used:
            self.place.sync_names(
                PACKS
            )  # packs of other processes may have appeared just now, and may not be durable yet
        return {name: one.entry() for name, one in pending.items()}, used

    def still_there(self, used: set[str]) -> bool:
        """Whether these packs can be relied on: present, of the right length, and not condemned."""
        there, known = (
            self.catalog.listed(),
            self.catalog.packs(),
        )  # another thread may have removed one from the catalog
        return used.isdisjoint(self.catalog.condemned()) and all(
            pack in known and there.get(pack) == known[pack].size for pack in used
        )

    def _confirm(self, version: Version, used: set[str], lease: Lease) -> None:
        """Check the lease after publishing: the process may have been suspended between the last check and publishing.

        Raises:
            LeaseExpired: pieces it relied on were collected meanwhile; the version was retired again.
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
                continue  # retired meanwhile
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

    def _missing(self, ref: str, model: str) -> str:
        """The message for a missing checkpoint: which ones there are; where a path is meant, that it does not exist."""
        if ref.startswith(("/", "./", "../", "~")):
            return f"{ref} does not exist: give a folder, or a checkpoint that `capibara checkpoint ls` lists"
        self._checked = False  # it may have been encrypted since, and moved
        there = self.list()
        same = [
            f"v{one.version} (step {one.manifest.about.step})" for one in there if one.manifest.about.model == model
        ]
        if same:
            return f"no checkpoint {ref} in {self.root}: of {model} there are {some(same)}"
        models = dict.fromkeys(one.manifest.about.model for one in there)
        return f"no checkpoint {ref} in {self.root}: " + (
            f"there is {some(models)}" if models else "it is empty: `capibara run` fills it"
        )

    def _require_same_place(self) -> None:
        """Under a lease: check that the store was not moved by encryption or decryption since it was opened.

        Raises:
            InputError: it was moved.
        """
        if not check_kind(self.place, self.vault is not None, create=False):
            raise InputError(f"{self.root} is no longer there: open the store anew")

    def _prepare(self, write: bool = True) -> bool:
        """Check once that this is such a store; before the first write, create it. False: there is no store yet."""
        self._checked = self._checked or check_kind(self.place, self.vault is not None, create=write)
        return self._checked


def _check(content: Content, about: About) -> None:
    """Raises InputError where names or description cannot be stored."""
    for name in content.files:
        try:
            check_relative(name)
        except ValueError as error:
            raise InputError(f"a file of checkpoint {about.model!r}: {error}") from error
    for name, tied in content.ties.items():
        if tied not in content.tensors or name in content.tensors:
            raise InputError(f"{name} is tied to {tied}: only the latter may be among the tensors")
    try:
        canonical_json(about.model_dump())
    except ValueError as error:
        raise InputError(
            f"the description of checkpoint {about.model!r} is not JSON (NaN, infinity?): {error}"
        ) from error

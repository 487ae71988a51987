"""One checkpoint of a store: its manifest, and its tensors and files, read on demand."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from capibara_assets.checkpoints import tree
from capibara_assets.checkpoints.content import PIECE, Content, PieceSource, torch_dtype
from capibara_assets.checkpoints.encryption.vault import Vault
from capibara_assets.checkpoints.memory import empty
from capibara_assets.checkpoints.store.catalog import Catalog
from capibara_assets.checkpoints.store.manifest import CheckpointManifest, TensorEntry
from capibara_assets.checkpoints.store.packs import Stored
from capibara_assets.checkpoints.store.places import StorePlace
from capibara_assets.checkpoints.store.reading import PieceRead, Reader, StoredSource, piece_lengths
from capibara_assets.errors import InputError, IntegrityError


@dataclass(frozen=True)
class Backing:
    """The store that a checkpoint's pieces are read from."""

    place: StorePlace
    vault: Vault | None
    catalog: Catalog

    def reader(self, manifest: CheckpointManifest, identity: str, verify: bool) -> Reader:
        """A reader of a checkpoint's pieces."""
        self.catalog.load(manifest.packs)
        return Reader(self.place, self.vault, self.catalog, identity[:12], verify)

    def places(self, manifest: CheckpointManifest, identity: str) -> dict[str, Stored]:
        """Digest -> location of every piece of a checkpoint.

        Raises:
            IntegrityError: no pack has one of them.
        """
        self.catalog.load(manifest.packs)
        entries = {**manifest.files, **manifest.tensors}
        wanted = {digest: name for name, entry in entries.items() for digest in entry.pieces}
        if any(self.catalog.find(digest) is None for digest in wanted):
            self.catalog.refresh()
        places = {}
        for digest, name in wanted.items():
            if (place := self.catalog.find(digest)) is None:
                raise IntegrityError(
                    f"{self.place.root} lacks the piece {digest[:12]} of {name} of checkpoint {identity[:12]}"
                )
            places[digest] = place
        return places


@dataclass(frozen=True)
class Checkpoint:
    """One version of a model in a store.

    Attributes:
        id: digest of its content and description, 64 hex digits.
        version: its number under its model, from 1 on.
        manifest: everything but the bytes.
    """

    id: str
    version: int
    manifest: CheckpointManifest = field(repr=False)
    backing: Backing = field(repr=False, compare=False)

    def content(self, verify: bool = True) -> Content:
        """The whole content, read piece by piece on demand.

        Reading raises IntegrityError (it names pack, checkpoint and tensor) where a piece is missing or, unless
        `verify` is off, is not what was written.
        """
        reader = self.backing.reader(self.manifest, self.id, verify)

        def sources(entries: Mapping[str, TensorEntry]) -> dict[str, PieceSource]:
            return {name: StoredSource(name, entry, reader) for name, entry in entries.items()}

        manifest = self.manifest
        return Content(
            sources(manifest.tensors),
            kind=manifest.kind,
            tree=manifest.tree,
            ties=dict(manifest.ties),
            files=sources(manifest.files),
            origin=dict(manifest.origin),
        )

    def tensor(self, name: str, verify: bool = True) -> torch.Tensor:
        """One tensor in its own CPU memory; `name` may be a tied one.

        Raises:
            InputError: there is none of this name.
            IntegrityError: as `content`.
        """
        name = self.manifest.ties.get(name, name)
        if name not in self.manifest.tensors:
            raise InputError(f"checkpoint {self.id[:12]} has no tensor {name!r}: {some(self.manifest.tensors)}")
        return self.tensors([name], verify)[name]

    def tensors(self, names: Iterable[str] | None = None, verify: bool = True) -> dict[str, torch.Tensor]:
        """Tensors by name, read on several threads, each in its own CPU memory; without ties.

        Raises:
            IntegrityError: as `content`.
        """
        entries = {name: self.manifest.tensors[name] for name in (self.manifest.tensors if names is None else names)}
        made = {name: empty(entry.shape, torch_dtype(entry.dtype)) for name, entry in entries.items()}
        jobs = []
        for name, entry in entries.items():
            if not entry.pieces:
                continue
            view = memoryview(made[name].reshape(-1).view(torch.uint8).numpy()).cast("B")
            for number, (digest, length) in enumerate(zip(entry.pieces, piece_lengths(entry), strict=True)):
                jobs.append(PieceRead(name, digest, view[number * PIECE : number * PIECE + length]))
        self.backing.reader(self.manifest, self.id, verify).read_all(jobs)
        return made

    def state(self, verify: bool = True) -> Any:
        """The saved nested state, or a dictionary of tensors if there was none; ties are restored.

        Raises:
            IntegrityError: as `content`.
        """
        made = self.tensors(verify=verify)
        if self.manifest.tree is None:
            return {**made, **{name: made[tied] for name, tied in self.manifest.ties.items()}}
        return tree.unflatten(self.manifest.tree, made.__getitem__, self.manifest.ties)

    @cached_property
    def stored_bytes(self) -> int:
        """Bytes of its pieces in packs, each counted once; other checkpoints may share them."""
        return sum(place.stored for place in self.backing.places(self.manifest, self.id).values())


def some(names: Iterable[str]) -> str:
    """The first few of some names, and how many more there are."""
    listed = list(names)
    return ", ".join(listed[:6]) + (f" and {len(listed) - 6} more" if len(listed) > 6 else "")

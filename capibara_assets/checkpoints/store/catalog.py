"""Index from pieces to packs; pack indexes are read once per process since packs never change."""

import threading
from collections.abc import Collection, Iterable

from capibara_assets.checkpoints.encryption.vault import Vault
from capibara_assets.checkpoints.store import packs
from capibara_assets.checkpoints.store.packs import PackIndex, Stored, read_index
from capibara_assets.checkpoints.store.places import StorePlace
from capibara_assets.errors import IntegrityError

CONDEMNED = "condemned"


class Catalog:
    """The packs of one store whose indexes were read so far. Safe to use from several threads."""

    def __init__(self, place: StorePlace, vault: Vault | None) -> None:
        self._place, self._vault = place, vault
        self._lock = threading.Lock()
        self._packs: dict[str, PackIndex] = {}
        self._pieces: dict[str, Stored] = {}
        self.damaged: dict[str, IntegrityError] = {}
        """Packs whose index cannot be read, and why."""

    def refresh(self) -> dict[str, PackIndex]:
        """Read the indexes of the packs that exist now; id -> index, of every readable one."""
        there = self.listed()
        with self._lock:
            if gone := self._packs.keys() - there.keys():
                self._forget(gone)
            for pack in self.damaged.keys() - there.keys():
                del self.damaged[pack]
            self._load(there)
            return dict(self._packs)

    def load(self, ids: Iterable[str]) -> None:
        """Read the indexes of unknown packs; missing packs are skipped."""
        with self._lock:
            self._load(ids)

    def add(self, index: PackIndex) -> None:
        """Add a pack that this process has just written."""
        with self._lock:
            self._packs[index.id] = index
            self._pieces.update(index.pieces)

    def find(self, digest: str) -> Stored | None:
        """Location of a piece; None if no known pack has it."""
        return self._pieces.get(digest)

    def packs(self) -> dict[str, PackIndex]:
        """Id -> index, of all known packs."""
        with self._lock:
            return dict(self._packs)

    def index(self, pack: str) -> PackIndex:
        """The index of a pack. Raises FileNotFoundError: it is not, or no longer, known."""
        try:
            return self._packs[pack]
        except KeyError:
            raise FileNotFoundError(pack) from None

    def forget(self, pack: str) -> None:
        """Remove a pack whose file is gone."""
        with self._lock:
            self._forget({pack})

    def without(self, packs_left_out: Collection[str]) -> dict[str, Stored]:
        """Digest -> location of every known piece outside of these packs."""
        with self._lock:
            pieces: dict[str, Stored] = {}
            for pack, index in self._packs.items():
                if pack not in packs_left_out:
                    pieces.update(index.pieces)
            return pieces

    def listed(self) -> dict[str, int]:
        """Id -> bytes of every pack that exists, readable or not."""
        return {
            name.removesuffix(packs.SUFFIX): size
            for name, size in self._place.list(packs.FOLDER).items()
            if name.endswith(packs.SUFFIX)
        }

    def condemned(self) -> set[str]:
        """Ids of the packs that may be deleted at any time, so that no writer relies on them."""
        return set(self._place.list(CONDEMNED))

    def _load(self, ids: Iterable[str]) -> None:
        for pack in ids:
            if pack in self._packs or pack in self.damaged:
                continue
            try:
                index = read_index(self._place, pack, self._vault)
            except FileNotFoundError:
                continue
            except IntegrityError as error:
                self.damaged[pack] = error
                continue
            self._packs[pack] = index
            self._pieces.update(index.pieces)

    def _forget(self, gone: Collection[str]) -> None:
        for pack in gone:
            self._packs.pop(pack, None)
        self._pieces = {digest: stored for index in self._packs.values() for digest, stored in index.pieces.items()}

"""Writer of a content's pieces: hashed, looked up, encoded and sealed on several threads, and written in order.

Hashing, compression and encryption release Python's lock, so the threads run in parallel with each other and with the
writing. The number of pieces in flight is bounded for tensors of any size.
"""

import hashlib
from collections import deque
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import NamedTuple

from capibara_assets.checkpoints.content import InMemory, Live, PieceSource
from capibara_assets.checkpoints.encryption.vault import Vault
from capibara_assets.checkpoints.store.codec import Compression, encode
from capibara_assets.checkpoints.store.files import Data
from capibara_assets.checkpoints.store.manifest import TensorEntry
from capibara_assets.checkpoints.store.packs import PackIndex, PackWriter, associated
from capibara_assets.checkpoints.store.places import StorePlace
from capibara_assets.processes.pools import cores

_SMALL = 1 << 16  # bytes: below, handing a piece to a thread costs more than the work


def threads() -> int:
    """Number of threads for pieces: enough to keep a disk busy, few enough to bound memory."""
    return max(2, min(4, cores()))


class Pending(NamedTuple):
    """A tensor or file whose pieces are being written."""

    dtype: str
    shape: tuple[int, ...]
    digests: list[str]
    sha256: str | None

    def entry(self) -> TensorEntry:
        """Its entry in the manifest; complete after `finish`."""
        return TensorEntry(dtype=self.dtype, shape=self.shape, pieces=tuple(self.digests), sha256=self.sha256)


class _Hashed(NamedTuple):
    """A piece that is being hashed."""

    digests: list[str]
    data: memoryview
    dtype: str
    digest: "Future[str] | str"


class _Encoded(NamedTuple):
    """A piece in its stored form."""

    encoding: str
    stored: Data
    sha256: str | None


class _Ready(NamedTuple):
    """A new piece that is being encoded."""

    digest: str
    plain: int
    work: "Future[_Encoded] | _Encoded"


class PieceWriter:
    """Writer of the pieces that a store lacks into one new pack. Used as a context, by one thread."""

    def __init__(
        self,
        place: StorePlace,
        lease: str,
        vault: Vault | None,
        compression: Compression,
        known: Collection[str],
    ) -> None:
        self._vault, self._compression, self._known = vault, compression, known
        self._pack = PackWriter(place, lease, vault)
        self._pool = ThreadPoolExecutor(threads(), thread_name_prefix="pieces")
        self._depth = threads() + 1
        self._hashing: deque[_Hashed] = deque()
        self._encoding: deque[_Ready] = deque()
        self._new: set[str] = set()
        self.reused: set[str] = set()
        """Digests of pieces that the store already has."""

    def add(self, source: PieceSource, *, file: bool = False) -> "Pending":
        """Add a tensor or file; its entry is complete once `finish` has returned.

        Raises:
            InputError: the disk is full, or the source cannot be read.
        """
        digests: list[str] = []
        whole = hashlib.sha256() if file else None
        stable = isinstance(source, InMemory | Live)  # other sources overwrite a piece with the next one
        for piece in source.pieces():
            data = piece if stable else memoryview(bytes(piece))
            if whole is not None:
                whole.update(data)
            digest = self._digest(data) if len(data) < _SMALL else self._pool.submit(self._digest, data)
            self._hashing.append(_Hashed(digests, data, source.dtype, digest))
            self._hand_on(self._depth)
        return Pending(source.dtype, tuple(source.shape), digests, whole.hexdigest() if whole is not None else None)

    def finish(self) -> PackIndex | None:
        """Write the remaining pieces, and publish the pack; None if the store had every piece."""
        self._hand_on(0)
        self._write(0)
        return self._pack.finish()

    def __enter__(self) -> "PieceWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._pack.abandon()

    def _hand_on(self, keep: int) -> None:
        """Find hashed pieces in the store and start encoding new ones, until at most `keep` pieces are being hashed."""
        while len(self._hashing) > keep:
            digests, data, dtype, hashed = self._hashing.popleft()
            digest = hashed if isinstance(hashed, str) else hashed.result()
            digests.append(digest)
            if digest in self._new:
                continue
            if digest in self._known:
                self.reused.add(digest)
                continue
            number = len(self._new)
            self._new.add(digest)
            cheap = len(data) < _SMALL or (self._compression == "none" and self._vault is None)
            work = (
                self._encode(data, dtype, digest, number)
                if cheap
                else self._pool.submit(self._encode, data, dtype, digest, number)
            )
            self._encoding.append(_Ready(digest, len(data), work))
            self._write(self._depth)

    def _write(self, keep: int) -> None:
        """Write encoded pieces in order, until at most `keep` are being encoded."""
        while len(self._encoding) > keep:
            digest, plain, work = self._encoding.popleft()
            encoding, stored, sha256 = work if isinstance(work, _Encoded) else work.result()
            self._pack.add(digest, plain, encoding, stored, sha256)

    def _digest(self, data: memoryview) -> str:
        return hashlib.sha256(data).hexdigest() if self._vault is None else self._vault.digest(data)

    def _encode(self, data: memoryview, dtype: str, digest: str, number: int) -> _Encoded:
        encoding, stored = encode(data, dtype, self._compression)
        pack = self._pack
        if pack.cipher is not None:
            bound = associated(pack.salt, digest, len(data), encoding)
            return _Encoded(encoding, pack.cipher.seal(number, stored, bound), None)
        return _Encoded(encoding, stored, None if encoding == "raw" else hashlib.sha256(stored).hexdigest())

"""Clusters of near-duplicates among more documents than fit into memory: what is compared lies on disk.

Four passes, each linear in the documents: shingles are written down and counted; equal documents are found by their
signatures; the others are filed under their keys (datasets/duplicates/postings.py), in files that each stay small;
file by file, documents that meet are compared exactly and joined. In memory stay the counters of shingles (256 MiB),
some forty bytes per document, and one batch or file at a time.
"""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from capibara_assets.datasets.duplicates.near import signatures
from capibara_assets.datasets.duplicates.postings import Postings, candidates, count, counted, new_counts, postings
from capibara_assets.datasets.duplicates.shingles import Ints, ShingleSets, UInts, compared, shingle_texts
from capibara_assets.datasets.recipe import NearDuplicates

_FILES = 256  # a file holds the keys of one of so many ranges
_BATCH = 20_000  # documents looked at in one go
_COMPARED = 20_000  # pairs compared in one go
_COUNTERS = 1 << 27  # slots of two bytes
_ROW = np.dtype([("key", "<u8"), ("document", "<u4"), ("size", "<u4"), ("rest", "<u4")])


@dataclass(frozen=True)
class SpilledClusters:
    """Clusters of documents, and what it took.

    Attributes:
        labels: first document of each one's cluster, (documents,) int64.
        pairs: pairs that were compared.
        seconds: of each pass.
        reading: seconds of each batch of the first pass.
    """

    labels: Ints
    pairs: int
    seconds: dict[str, float]
    reading: list[float]


def cluster_documents(
    batches: Iterable[Sequence[str]], folder: Path, recipe: NearDuplicates, counters: int = _COUNTERS
) -> SpilledClusters:
    """Connected components of the texts whose shingle sets reach `recipe.jaccard`.

    Args:
        batches: the texts, in lists of any length; documents are numbered as they come.
        folder: an empty folder for what is spilled (about 12 bytes per word of text, and 600 per document).
        recipe: words of a shingle, least similarity, and the settings of the search.
        counters: slots to count shingles in, two bytes each. Fewer cost time, not clusters.
    """
    seconds: dict[str, float] = {}
    started = time.perf_counter()
    with ExitStack() as stack:
        sets, signature, counts, reading = _write_shingles(batches, folder / "shingles", recipe, counters)
        stack.callback(sets.close)
        seconds["shingles"], started = _lap(started)
        parent = _equal(signature, sets.sizes)
        seconds["equal"], started = _lap(started)
        files = _Files(folder, stack)
        distinct = (parent == np.arange(len(parent))) & (sets.sizes > 0)
        for start in range(0, len(parent), _BATCH):
            chosen = np.flatnonzero(distinct[start : start + _BATCH]) + start
            some = sets.read(chosen)
            files.write(postings(some, chosen, counted(some, counts), recipe))
        seconds["keys"], started = _lap(started)
        pairs = 0
        for found in files.read():
            pairs += _join(found, sets, parent, recipe)
        labels = _roots(parent, np.arange(len(parent)))
        seconds["pairs"], started = _lap(started)
    return SpilledClusters(labels, pairs, seconds, reading)


class _Sets:
    """Sets of shingles in a file, read by number."""

    def __init__(self, path: Path, sizes: Ints) -> None:
        self.sizes = sizes
        self._starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        self._file = os.open(path, os.O_RDONLY)

    def read(self, chosen: Ints) -> ShingleSets:
        """The sets at ascending positions; neighbours are read together."""
        firsts = np.concatenate([chosen[:1], chosen[1:][np.diff(chosen) != 1]])
        lasts = np.concatenate([chosen[:-1][np.diff(chosen) != 1], chosen[-1:]])
        bounds = zip(self._starts[firsts].tolist(), self._starts[lasts + 1].tolist(), strict=True)
        parts = [os.pread(self._file, 8 * (end - start), 8 * start) for start, end in bounds]
        values = np.frombuffer(b"".join(parts), "<u8").astype(np.uint64, copy=False)
        return ShingleSets(values, np.concatenate([np.zeros(1, np.int64), np.cumsum(self.sizes[chosen])]))

    def close(self) -> None:
        os.close(self._file)


class _Files:
    """Rows of postings, each in the file of its key's range."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._paths = [folder / f"keys-{number:03d}" for number in range(_FILES)]
        self._open: list[BinaryIO] = [stack.enter_context(path.open("wb")) for path in self._paths]

    def write(self, found: Postings) -> None:
        number = (found.key >> np.uint64(56)).astype(np.uint8)
        order = np.argsort(number, kind="stable")
        rows = np.empty(len(order), _ROW)
        for name in _ROW.names or ():
            rows[name] = getattr(found, name)[order]
        ends = np.cumsum(np.bincount(number, minlength=_FILES))
        for file, part in zip(self._open, np.split(rows, ends[:-1]), strict=True):
            file.write(part.tobytes())

    def read(self) -> Iterator[Postings]:
        """File by file; each is deleted once it is read."""
        for file, path in zip(self._open, self._paths, strict=True):
            file.close()
            rows = np.fromfile(path, _ROW)
            path.unlink()
            yield Postings(
                rows["key"].astype(np.uint64),
                rows["document"].astype(np.int64),
                rows["size"].astype(np.int64),
                rows["rest"].astype(np.int64),
            )


def _write_shingles(
    batches: Iterable[Sequence[str]], path: Path, recipe: NearDuplicates, counters: int
) -> tuple[_Sets, UInts, npt.NDArray[np.uint16], list[float]]:
    counts = new_counts(counters, counters)
    sizes: list[npt.NDArray[np.uint32]] = []
    signature: list[UInts] = []
    reading = []
    with path.open("wb") as file:
        for batch in batches:
            started = time.perf_counter()
            sets = shingle_texts(batch, recipe.shingle)
            count(sets, counts)
            file.write(sets.values.astype("<u8", copy=False).tobytes())
            sizes.append(sets.sizes.astype(np.uint32))
            signature.append(signatures(sets))
            reading.append(time.perf_counter() - started)
    total = np.concatenate(sizes).astype(np.int64) if sizes else np.empty(0, np.int64)
    return _Sets(path, total), np.concatenate([np.empty(0, np.uint64), *signature]), counts, reading


def _equal(signature: UInts, sizes: Ints) -> Ints:
    """First document of the same signature, for each; those without shingles are equal to none."""
    parent = np.arange(len(signature), dtype=np.int64)
    filled = np.flatnonzero(sizes)
    order = filled[np.argsort(signature[filled], kind="stable")]
    fresh = np.ones(len(order), np.bool_)
    fresh[1:] = signature[order][1:] != signature[order][:-1]
    parent[order] = order[np.flatnonzero(fresh)][np.cumsum(fresh) - 1]
    return parent


def _join(found: Postings, sets: _Sets, parent: Ints, recipe: NearDuplicates) -> int:
    """Joins in `parent` the documents of one file that resemble each other; how many pairs were compared."""
    left, right = candidates(found, recipe.jaccard)
    pairs = 0
    for start in range(0, len(left), _COMPARED):
        a, b = left[start : start + _COMPARED], right[start : start + _COMPARED]
        apart = _roots(parent, a) != _roots(parent, b)
        a, b = a[apart], b[apart]
        documents, places = np.unique(np.concatenate([a, b]), return_inverse=True)
        alike = compared(sets.read(documents), places[: len(a)], places[len(a) :]) >= recipe.jaccard
        _unite(parent, a[alike], b[alike])
        pairs += len(a)
    return pairs


def _roots(parent: Ints, documents: Ints) -> Ints:
    roots = parent[documents]
    while not np.array_equal(above := parent[roots], roots):
        roots = above
    parent[documents] = roots
    return roots


def _unite(parent: Ints, left: Ints, right: Ints) -> None:
    """One tree of the trees of each pair, under the smallest root."""
    roots, places = np.unique(np.concatenate([_roots(parent, left), _roots(parent, right)]), return_inverse=True)
    a, b = places[: len(left)], places[len(left) :]
    graph = csr_array((np.ones(len(a), np.bool_), (a, b)), shape=(len(roots), len(roots)))
    labels = connected_components(graph, directed=False)[1]
    _, first = np.unique(labels, return_index=True)
    parent[roots] = roots[first[labels]]


def _lap(started: float) -> tuple[float, float]:
    now = time.perf_counter()
    return round(now - started, 3), now

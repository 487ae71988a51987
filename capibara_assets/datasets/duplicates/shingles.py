"""Sets of hashed shingles of many texts at once, in numpy; the same hashes on every machine.

A word is a run of letters, digits and underscores of the text in lower case (every byte outside ASCII counts as a
character); a shingle is a run of words. Hashes are computed here from bytes, not by Python's `hash` nor a library, so
they do not change with processes, platforms or versions. Hashes have 63 bits: two different shingles of a million get
the same one with probability 5e-8.
"""

import hashlib
import os
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

UInts = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]

_WORD = np.zeros(256, np.bool_)
_WORD[[*b"abcdefghijklmnopqrstuvwxyz0123456789_", *range(128, 256)]] = True
_MASKS = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)  # keeps the first n bytes of eight
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio, as in splitmix64
_LONG = 64  # bytes; longer words go through BLAKE2 one by one
_BATCH = 1 << 20  # characters hashed at once: what numpy works on stays in the processor's cache
_COMPARED = 4 << 20  # shingles compared at once: bounds the memory of a comparison
_PADDING = np.uint64(2**64 - 1)  # above every hash, which have 63 bits


@dataclass(frozen=True)
class ShingleSets:
    """Sets of hashed shingles in one flat array.

    Attributes:
        values: hashes below 2^63, (total,) uint64; ascending and distinct within each set.
        offsets: set n is `values[offsets[n] : offsets[n + 1]]`, (sets + 1,) int64.
    """

    values: UInts
    offsets: Ints

    @classmethod
    def of(cls, sets: Sequence[UInts]) -> "ShingleSets":
        """Sets of one array each."""
        sizes = np.fromiter(map(len, sets), np.int64, len(sets))
        return cls(np.concatenate([*sets, np.empty(0, np.uint64)]), offsets_of(sizes))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Ints:
        """Number of shingles of each set, (sets,) int64."""
        return np.diff(self.offsets)

    def take(self, chosen: npt.NDArray[np.integer]) -> "ShingleSets":
        """The sets at the positions `chosen`, in that order."""
        sizes = self.sizes[chosen]
        offsets = offsets_of(sizes)
        within = np.arange(offsets[-1], dtype=np.int64) - np.repeat(offsets[:-1], sizes)
        return ShingleSets(self.values[np.repeat(self.offsets[:-1][chosen], sizes) + within], offsets)


def compared(sets: ShingleSets, left: Ints, right: Ints) -> npt.NDArray[np.float64]:
    """Exact Jaccard similarity of the sets at `left` with those at `right`, (pairs,)."""
    sizes = sets.sizes
    matrix = csr_array(
        (np.ones(len(sets.values), np.int8), sets.values.astype(np.int64), sets.offsets), shape=(len(sets), 2**63 - 1)
    )
    matrix.has_canonical_format = True
    out = np.empty(len(left))
    steps = np.cumsum(sizes[left] + sizes[right]) // _COMPARED
    for part in np.split(np.arange(len(left)), np.flatnonzero(np.diff(steps)) + 1):
        a, b = left[part], right[part]
        shared = np.diff(matrix[a].multiply(matrix[b]).indptr)
        out[part] = shared / (sizes[a] + sizes[b] - shared)
    return out


def shingle_texts(texts: Sequence[str], size: int) -> ShingleSets:
    """The set of `size`-word shingles of each text; a text of fewer words has one shingle of them all, or none."""
    bounds = np.concatenate([[0], np.cumsum([len(text) for text in texts], dtype=np.int64)])
    cuts = np.unique(np.searchsorted(bounds, np.arange(0, bounds[-1] + _BATCH, _BATCH)))
    cuts = np.unique(np.concatenate([[0], np.minimum(cuts, len(texts)), [len(texts)]]))
    return _in_batches([texts[a:b] for a, b in pairwise(cuts.tolist())], size)


def hash_sets(documents: Sequence[Collection[str]]) -> ShingleSets:
    """Hashed sets of given shingles; each string is hashed as a whole."""
    parts = [item.encode("utf-8", "surrogatepass") for document in documents for item in document]
    lengths = np.fromiter(map(len, parts), np.int64, len(parts))
    hashes = _hash_spans(b"".join(parts), offsets_of(lengths)[:-1], lengths)
    counts = np.fromiter(map(len, documents), np.int64, len(documents))
    return as_sets(_finished(hashes), counts)


def joined(parts: Iterable[ShingleSets]) -> ShingleSets:
    """The sets of all parts concatenated, in order."""
    listed = list(parts)
    if not listed:
        return ShingleSets(np.empty(0, np.uint64), np.zeros(1, np.int64))
    sizes = np.concatenate([part.sizes for part in listed])
    return ShingleSets(np.concatenate([part.values for part in listed]), offsets_of(sizes))


def as_sets(values: UInts, counts: Ints) -> ShingleSets:
    """Sets from flat values: sorted and made distinct within each; sets of similar size are sorted as one matrix."""
    offsets = offsets_of(counts)
    widths = np.ceil(np.log(np.maximum(counts, 1)) / np.log(1.25)).astype(np.int64)
    kept = np.zeros(len(values), np.bool_)
    out = np.empty_like(values)
    for width in np.unique(widths[counts > 0]).tolist():
        rows = np.flatnonzero((widths == width) & (counts > 0))
        sizes = counts[rows]
        columns = np.arange(sizes.max())
        inside = columns < sizes[:, None]
        places = (offsets[:-1][rows][:, None] + columns)[inside]
        matrix = np.full(inside.shape, _PADDING)
        matrix[inside] = values[places]
        matrix.sort(axis=1)
        fresh = np.ones(inside.shape, np.bool_)
        np.not_equal(matrix[:, 1:], matrix[:, :-1], out=fresh[:, 1:])
        out[places] = matrix[inside]
        kept[places] = fresh[inside]
    totals = np.concatenate([[0], np.cumsum(kept, dtype=np.int64)])
    return ShingleSets(out[kept], totals[offsets])


def mixed(values: UInts) -> UInts:
    """Mix the bits of each number (finaliser of splitmix64; Steele et al., 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _in_batches(batches: Sequence[Sequence[str]], size: int) -> ShingleSets:
    """Shingle batches in threads: numpy works outside the interpreter's lock."""
    if len(batches) < 2:
        return joined(_shingle_batch(batch, size) for batch in batches)
    with ThreadPoolExecutor(min(len(batches), os.cpu_count() or 1)) as pool:
        return joined(pool.map(lambda batch: _shingle_batch(batch, size), batches))


def _shingle_batch(texts: Sequence[str], size: int) -> ShingleSets:
    parts = [text.lower().encode("utf-8", "surrogatepass") for text in texts]
    data = b"\0".join(parts)
    lengths = np.fromiter(map(len, parts), np.int64, len(parts))
    starts, word_lengths = _words(data)
    words = _hash_spans(data, starts, word_lengths)
    first = np.searchsorted(starts, np.concatenate([[0], np.cumsum(lengths + 1)]))  # of each text, one past the last
    counts = np.diff(first)
    runs = words[: max(0, len(words) - size + 1)].copy()
    for step in range(1, size):
        runs *= _MULTIPLIER
        runs += words[step : step + len(runs)]
    within = np.ones(len(words), np.bool_)  # whether a whole shingle starts at the word
    within[len(runs) :] = False
    for step in range(1, size):
        within[first[1:][counts >= step] - step] = False
    shingles = _finished(runs[within[: len(runs)]])
    short = np.flatnonzero((counts > 0) & (counts < size))
    if not len(short):
        return as_sets(shingles, np.maximum(counts - size + 1, 0))
    return as_sets(*_with_short(shingles, counts, words, first, short, size))


def _with_short(shingles: UInts, counts: Ints, words: UInts, first: Ints, short: Ints, size: int) -> tuple[UInts, Ints]:
    """Insert one shingle for each text that has fewer words than a shingle."""
    whole = np.zeros(len(short), np.uint64)
    for step in range(size - 1):
        there = counts[short] > step
        whole[there] = whole[there] * _MULTIPLIER + words[first[short[there]] + step]
    of_text = np.maximum(counts - size + 1, 0)
    places = offsets_of(of_text)[:-1][short]
    of_text[short] = 1
    return np.insert(shingles, places, _finished(whole + counts[short].astype(np.uint64))), of_text


def _words(data: bytes) -> tuple[Ints, Ints]:
    """Start and length in bytes of the words of lower-case UTF-8."""
    inside = np.zeros(len(data) + 2, np.bool_)
    inside[1:-1] = _WORD[np.frombuffer(data, np.uint8)]
    edges = np.flatnonzero(inside[1:] != inside[:-1])
    return edges[::2], edges[1::2] - edges[::2]


def _hash_spans(data: bytes, starts: Ints, lengths: Ints) -> UInts:
    """Hash of each span of bytes, from its length and its eight-byte blocks, little-endian on every machine."""
    padded = np.frombuffer(data + bytes(8), np.uint8)
    blocks = np.ndarray((len(data) + 1,), np.dtype("<u8"), padded, strides=(1,))
    hashes = blocks[starts].astype(np.uint64, copy=False) & _MASKS[np.minimum(lengths, 8)]
    hashes = (hashes ^ lengths.astype(np.uint64)) * _MULTIPLIER
    hashes ^= hashes >> np.uint64(32)
    for position in range(8, _LONG, 8):
        longer = np.flatnonzero(lengths > position)
        if not len(longer):
            break
        block = blocks[starts[longer] + position].astype(np.uint64, copy=False)
        block &= _MASKS[np.minimum(lengths[longer] - position, 8)]
        more = (hashes[longer] ^ block) * _MULTIPLIER
        hashes[longer] = more ^ (more >> np.uint64(32))
    for index in np.flatnonzero(lengths > _LONG).tolist():
        span = data[starts[index] : starts[index] + lengths[index]]
        hashes[index] = int.from_bytes(hashlib.blake2b(span, digest_size=8).digest(), "little")
    return hashes


def _finished(hashes: UInts) -> UInts:
    return mixed(hashes) >> np.uint64(1)


def offsets_of(counts: Ints) -> Ints:
    """Where each of so many values begins in one flat array, and its end, (len(counts) + 1,)."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])

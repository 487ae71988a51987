"""Packing of examples into sequences of one length without attention across examples; batches by similar length.

Packing is best-fit decreasing (Johnson, "Near-optimal bin packing algorithms", 1973) over the histogram of lengths: all
examples of one length are placed at once, so that a million take well under a second.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from capibara_assets.errors import InputError

IGNORED = -100  # label of a token without loss
Ints = NDArray[np.int32]


@dataclass(frozen=True)
class Packs:
    """An assignment of examples to packs.

    Attributes:
        examples: indices of the examples, pack after pack, ascending within a pack; (examples,) int64.
        bounds: pack p holds `examples[bounds[p] : bounds[p + 1]]`; (packs + 1,) int64.
        capacity: most tokens of a pack.
        tokens: number of tokens of all examples.
    """

    examples: NDArray[np.int64]
    bounds: NDArray[np.int64]
    capacity: int
    tokens: int

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def of(self, pack: int) -> NDArray[np.int64]:
        """The examples of one pack."""
        return self.examples[self.bounds[pack] : self.bounds[pack + 1]]

    @property
    def efficiency(self) -> float:
        """Share of tokens that are not padding; 1.0 when there is nothing to pack."""
        return self.tokens / (len(self) * self.capacity) if len(self) else 1.0


@dataclass(frozen=True)
class Sequences:
    """Model inputs: rows of tokens of one length, padded at the end.

    Attributes:
        input_ids: (rows, length) int32.
        labels: (rows, length) int32, -100 where there is no loss, padding included.
        position_ids: (rows, length) int32; restart at 0 with each example.
        segment_ids: (rows, length) int32; 1, 2, … for the examples of a row, 0 for padding.
    """

    input_ids: Ints
    labels: Ints
    position_ids: Ints
    segment_ids: Ints


def pack_lengths(lengths: Sequence[int] | NDArray[np.integer], capacity: int) -> Packs:
    """Pack examples by best-fit decreasing: each goes into the fullest pack that still has room for it.

    Depends on the lengths alone; examples of one length are placed by index, and packs are ordered by their first
    example.

    Raises:
        InputError: an example is longer than a pack, or empty.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    if len(sizes) and (sizes.max() > capacity or sizes.min() < 1):
        bad = int(np.flatnonzero((sizes > capacity) | (sizes < 1))[0])
        raise InputError(f"example {bad} has {sizes[bad]} tokens; a pack takes 1 to {capacity}")
    order = np.argsort(-sizes, kind="stable")
    edges = np.append(np.flatnonzero(np.diff(sizes[order], prepend=-1)), len(sizes)).tolist()
    pack_of = np.empty(len(sizes), dtype=np.int64)
    rooms: list[int] = []  # numbers of free tokens that some packs have, ascending
    with_room: dict[int, list[NDArray[np.int64]]] = {}  # free tokens -> packs
    opened = 0

    def put(room: int, packs: NDArray[np.int64]) -> None:
        if room and len(packs):
            if room not in with_room:
                insort(rooms, room)
                with_room[room] = []
            with_room[room].append(packs)

    for begin, end in pairwise(edges):
        size, at = int(sizes[order[begin]]), begin
        while at < end:
            place = bisect_left(rooms, size)
            if place < len(rooms):
                room = rooms.pop(place)
                packs = np.concatenate(with_room.pop(room))
            else:
                room, packs = capacity, np.arange(opened, opened + -(-(end - at) // (capacity // size)))
                opened += len(packs)
            # the fullest pack with room for one example of this size stays the fullest while it has room for another
            each = room // size
            full, rest = divmod(end - at, each)
            full = min(full, len(packs))
            pack_of[order[at : at + full * each]] = np.repeat(packs[:full], each)
            at += full * each
            put(room - each * size, packs[:full])
            if full < len(packs):
                pack_of[order[at : at + rest]] = packs[full]
                at += rest
                put(room - rest * size, packs[full : full + 1])
                put(room, packs[full + 1 :])
    return _ordered(pack_of, opened, capacity, int(sizes.sum()))


def _ordered(pack_of: NDArray[np.int64], packs: int, capacity: int, tokens: int) -> Packs:
    first = np.full(packs, len(pack_of), dtype=np.int64)
    np.minimum.at(first, pack_of, np.arange(len(pack_of)))
    number = np.empty(packs, dtype=np.int64)
    number[np.argsort(first, kind="stable")] = np.arange(packs)
    renamed = number[pack_of]
    counts = np.bincount(renamed, minlength=packs)
    return Packs(np.argsort(renamed, kind="stable"), np.concatenate([[0], np.cumsum(counts)]), capacity, tokens)


def sequences(
    rows: Sequence[Sequence[tuple[NDArray[np.integer], NDArray[np.integer]]]], length: int, pad_id: int
) -> Sequences:
    """Concatenate the examples (ids, labels) of each row, padded at the end to `length`.

    Raises:
        InputError: the first token of an example is supervised (nothing predicts it), or a row is too long.
    """
    shape = (len(rows), length)
    ids, labels = np.full(shape, pad_id, dtype=np.int32), np.full(shape, IGNORED, dtype=np.int32)
    positions, segments = np.zeros(shape, dtype=np.int32), np.zeros(shape, dtype=np.int32)
    for row, examples in enumerate(rows):
        at = 0
        for segment, (tokens, targets) in enumerate(examples, start=1):
            here = slice(at, at + len(tokens))
            if here.stop > length:
                raise InputError(f"row {row} has more than {length} tokens")
            if len(targets) and targets[0] != IGNORED:
                raise InputError("the first token of an example is supervised, but nothing before it predicts it")
            ids[row, here], labels[row, here], segments[row, here] = tokens, targets, segment
            positions[row, here] = np.arange(len(tokens))
            at = here.stop
        positions[row, at:] = np.arange(length - at)  # of padding: within any model's range
    return Sequences(ids, labels, positions, segments)


def block_diagonal(segment_ids: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Attention mask of packed rows: causal within each example; (rows, 1, length, length), true where allowed.

    For models without variable-length attention: Transformers takes it as a 4-D `attention_mask`. Padding attends to
    itself alone, since a softmax over nothing is NaN; nothing else attends to padding.
    """
    segments = np.asarray(segment_ids)
    same = segments[:, :, None] == segments[:, None, :]
    causal = np.tri(segments.shape[1], dtype=np.bool_)
    allowed = same & causal & (segments[:, :, None] > 0)
    allowed |= np.eye(segments.shape[1], dtype=np.bool_)
    mask: NDArray[np.bool_] = allowed[:, None]
    return mask


def length_buckets(lengths: Sequence[int] | NDArray[np.integer], batch_tokens: int) -> Iterator[list[int]]:
    """Yield batches of indices of similar length, longest first; rows times longest row stays within `batch_tokens`.

    An example longer than `batch_tokens` gets a batch of its own. Ties keep their order.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    order, start = np.argsort(-sizes, kind="stable"), 0
    while start < len(order):
        rows = max(1, batch_tokens // max(1, int(sizes[order[start]])))
        yield order[start : start + rows].tolist()
        start += rows

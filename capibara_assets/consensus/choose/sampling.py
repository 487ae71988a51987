"""Deterministic subsamples of examples, for votes and searches that cannot read all of them."""

from collections.abc import Sequence


def subsample(lengths: Sequence[int], most: int, tokens: int) -> list[int]:
    """Ascending indices of at most `most` items with at most `tokens` tokens in total, but at least one item.

    The items are evenly spaced over the list. When the tokens do not suffice, items are dropped in bit-reversed order,
    so that the rest is still spread and the end of the list is not cut off.

    Args:
        lengths: tokens of each item.
    """
    count = min(most, len(lengths))
    picked = [(position * len(lengths)) // count for position in range(count)]
    width = max(1, count - 1).bit_length()
    order = sorted(range(count), key=lambda position: int(format(position, f"0{width}b")[::-1], 2))
    kept: list[int] = []
    total = 0
    for position in order:
        total += lengths[picked[position]]
        if kept and total > tokens:
            break
        kept.append(picked[position])
    return sorted(kept)

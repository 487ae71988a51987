"""Which examples a vote or a search reads when reading all of them would take too long: spread out, never random."""

from collections.abc import Sequence


def subsample(lengths: Sequence[int], most: int, tokens: int) -> list[int]:
    """Indices of at most `most` items of at most `tokens` tokens together (but of one item at least), ascending.

    Evenly spaced over the list. When the tokens do not suffice, items leave in an order in which what remains is
    still spread (reversed bits), so the end of the list is not cut off.
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

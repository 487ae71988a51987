"""How many keys each line of JSON names, counted in its bytes: the check on a parser that drops one of equal keys."""

import numpy as np
from numpy.typing import NDArray

_QUOTE, _COLON, _BACKSLASH = ord('"'), ord(":"), ord("\\")
_SPACES = (ord(" "), ord("\t"), ord("\r"))
UNKNOWN = -1


def key_ends(text: bytes, ends: NDArray[np.int64]) -> list[int]:
    """Keys in each line of `text`, whose lines end at `ends`; UNKNOWN where space before a colon leaves it open.

    A key ends with a quote and a colon. The same two bytes inside a string have an odd number of backslashes before the
    quote. A string that begins with a colon counts as a key too many, so a count is never too small.
    """
    data = np.frombuffer(text, np.uint8)
    colons = np.flatnonzero(data == _COLON)
    colons = colons[colons > 0]
    before = data[colons - 1]
    quotes = colons[before == _QUOTE] - 1
    keys = quotes[~_escaped(data, quotes)]
    counts = np.diff(np.searchsorted(keys, ends), prepend=0)
    spaced = colons[np.isin(before, _SPACES)] - 1
    while len(spaced := spaced[spaced > 0]):
        spaced = spaced - 1
        open_ends = spaced[data[spaced] == _QUOTE]
        open_ends = open_ends[~_escaped(data, open_ends)]
        lines = np.searchsorted(ends, open_ends)
        counts[lines[lines < len(counts)]] = UNKNOWN
        spaced = spaced[np.isin(data[spaced], _SPACES)]
    found: list[int] = counts.tolist()
    return found


def _escaped(data: NDArray[np.uint8], places: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether an odd number of backslashes stands before each place."""
    odd = np.zeros(len(places), bool)
    running, distance = np.arange(len(places)), 1
    while len(running):
        at = places[running] - distance
        running = running[(at >= 0) & (data[np.maximum(at, 0)] == _BACKSLASH)]
        odd[running] ^= True
        distance += 1
    return odd

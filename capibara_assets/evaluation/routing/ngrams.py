"""Prompt features of routers of kind `ngrams`: hashed n-grams of bytes and words (arXiv 0902.2206), in NumPy.

Fast for single prompts: a few array operations compute the numbers of all n-grams, so that a router answers in a
fraction of a millisecond. Any white space counts as one blank. Features are equal to the bit on every machine.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

FEATURES = 1 << 13
"""Buckets; a power of two."""
BYTE_NGRAMS = (1, 2, 3, 4)
WORD_NGRAMS = (1, 2)
LONGEST = 8_192
"""Bytes of a prompt that are read: half from its beginning and half from its end, where the request usually is."""

_SHIFT = np.uint64(64 - (FEATURES.bit_length() - 1))
_MIX = np.uint64(0x9E3779B97F4A7C15)
_PRIME = 0x100000001B3
_WRAP = 1 << 64


def hashed(prompt: str) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """(buckets of a prompt's n-grams, ascending; their weights: square roots of counts, normalised to length 1)."""
    counts = np.bincount(_buckets(prompt), minlength=FEATURES)
    buckets = np.flatnonzero(counts)
    weights = np.sqrt(counts[buckets].astype(np.float32))
    return buckets, weights / np.sqrt(np.square(weights).sum())


def hashed_rows(prompts: Sequence[str]) -> csr_array:
    """Hashed n-grams of many prompts, a sparse matrix (prompts, FEATURES) of float32."""
    rows = [hashed(prompt) for prompt in prompts]
    ends = np.cumsum([0, *(len(buckets) for buckets, _ in rows)])
    indices = np.concatenate([buckets for buckets, _ in rows]) if rows else np.empty(0, np.int64)
    values = np.concatenate([weights for _, weights in rows]) if rows else np.empty(0, np.float32)
    return csr_array((values, indices, ends), shape=(len(rows), FEATURES))


def _buckets(prompt: str) -> NDArray[np.int64]:
    raw = " ".join(prompt.casefold().split()).encode("utf-8", "replace")
    if len(raw) > LONGEST:
        raw = raw[: LONGEST // 2] + raw[-LONGEST // 2 :]
    text = np.frombuffer(b" " + raw + b" ", np.uint8)
    codes, longer = [], text.astype(np.uint64)
    for n in BYTE_NGRAMS:
        if n > 1:
            longer = (longer[:-1] << np.uint64(8)) | text[n - 1 :]
        codes.append(longer * _MIX + _salt(n))
    codes += _words(text)
    every = np.concatenate(codes) if len(codes) > 1 else codes[0]
    every ^= every >> np.uint64(29)
    return ((every * _MIX) >> _SHIFT).astype(np.int64)


def _words(text: NDArray[np.uint8]) -> list[NDArray[np.uint64]]:
    """A number for each word and each pair of neighbours: differences of running sums of a polynomial modulo 2**64."""
    inside = _word_bytes()[text]
    edges = np.flatnonzero(inside[1:] != inside[:-1]) + 1  # the text begins and ends outside
    starts, ends = edges[::2], edges[1::2]
    if not len(starts):
        return []
    powers, inverses = _powers()
    sums = np.cumsum((text.astype(np.uint64) + np.uint64(1)) * powers[: len(text)])
    words = (sums[ends - 1] - sums[starts - 1]) * inverses[starts]
    pairs = words[:-1] * _MIX ^ words[1:]
    return [words * _MIX + _salt(16), pairs * _MIX + _salt(17)]


def _salt(kind: int) -> np.uint64:
    return np.uint64(kind * 0xC2B2AE3D27D4EB4F % _WRAP)


@cache
def _word_bytes() -> NDArray[np.bool_]:
    """Which bytes words are made of: letters, digits, the underscore and all beyond ASCII."""
    return np.array([chr(byte).isalnum() or byte == ord("_") or byte >= 0x80 for byte in range(256)])


@cache
def _powers() -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Powers of an odd number modulo 2**64, and of its inverse: 1 first."""
    inverse = pow(_PRIME, -1, _WRAP)
    bases, tables = (_PRIME, inverse), []
    for base in bases:
        powers = [1]
        for _ in range(LONGEST + 2):
            powers.append(powers[-1] * base % _WRAP)
        tables.append(np.array(powers, np.uint64))
    return tables[0], tables[1]

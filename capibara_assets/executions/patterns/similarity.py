"""How far programs are apart: edit distance of their tokens, and their diff."""

import difflib
import re
from collections.abc import Sequence

_MAX_TOKENS = 6_000
_TOKEN = re.compile(r"\w+|[^\w\s]")


def tokens(code: str) -> list[str]:
    """Words and signs of a program, at most as many as a comparison can handle."""
    return _TOKEN.findall(code)[:_MAX_TOKENS]


def distance(a: Sequence[str], b: Sequence[str]) -> int:
    """Levenshtein distance of two token lists; equal heads and tails cost nothing.

    Bit-parallel (Myers 1999, "A fast bit-vector algorithm for approximate string matching", in Hyyro's form): one step
    per token of `b` over integers of len(a) bits.
    """
    head, shorter = 0, min(len(a), len(b))
    while head < shorter and a[head] == b[head]:
        head += 1
    tail = 0
    while tail < shorter - head and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    a, b = a[head : len(a) - tail], b[head : len(b) - tail]
    if not a or not b:
        return len(a) + len(b)
    where: dict[str, int] = {}
    for i, token in enumerate(a):
        where[token] = where.get(token, 0) | 1 << i
    mask, last = (1 << len(a)) - 1, 1 << (len(a) - 1)
    up, down, score = mask, 0, len(a)
    for token in b:
        equal = where.get(token, 0)
        diagonal = (((equal & up) + up) ^ up) | equal | down
        right, left = down | ~(diagonal | up) & mask, diagonal & up
        score += bool(right & last) - bool(left & last)
        right = (right << 1 | 1) & mask
        left = left << 1 & mask
        up, down = left | ~(diagonal | right) & mask, diagonal & right
    return score


def similarity(a: Sequence[str], b: Sequence[str]) -> float:
    """1 - distance / length of the longer list, rounded; 0 when one is empty."""
    longer = max(len(a), len(b))
    if not min(len(a), len(b)):
        return 0.0
    return round(1 - distance(a, b) / longer, 4)


def unified_diff(failing: str, fixed: str) -> str:
    """Unified diff with three lines of context; its file headers bear no times."""
    lines = difflib.unified_diff(failing.split("\n"), fixed.split("\n"), "failing", "fixed", lineterm="")
    return "\n".join(lines) + "\n"

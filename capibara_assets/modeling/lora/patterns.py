"""Regular expressions of a stranger's config, matched in time that grows with the text and not with their wit.

PEFT's configs choose modules by regular expressions, and Python's matcher goes back and forth: `((a|[a-z])+)+X` takes
years on a module's name. Here all places that a part of the pattern can end at are followed at once, so that each is
visited once. That is exact for whole matches of what names modules in practice; looking around, references back and
flags are not read.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

_LONGEST = 4096  # characters of a pattern
_MOST_STEPS = 100_000  # one of PEFT's takes some thousand
_parser: Any = re._parser  # type: ignore[attr-defined]  # the standard library's own, which has no public name
_CLASSES = {"CATEGORY_DIGIT": r"\d", "CATEGORY_NOT_DIGIT": r"\D", "CATEGORY_SPACE": r"\s",
            "CATEGORY_NOT_SPACE": r"\S", "CATEGORY_WORD": r"\w", "CATEGORY_NOT_WORD": r"\W"}  # fmt: skip


def fits(pattern: str, text: str) -> bool:
    """As `re.fullmatch(pattern, text) is not None`, in bounded time.

    Raises:
        ValueError: it is no regular expression, has parts that are not read, or takes longer than any that names
            modules; the same on every machine.
    """
    parts = _parsed(pattern)
    return len(text) in _Walk(text).ends(parts, frozenset({0}))


@lru_cache(maxsize=256)
def _parsed(pattern: str) -> list[Any]:
    if len(pattern) > _LONGEST:
        raise ValueError(f"a regular expression of {len(pattern):,} characters")
    try:
        tree = _parser.parse(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{pattern[:80]!r} is no regular expression: {error}") from error
    if tree.state.flags & ~re.UNICODE:
        raise ValueError(f"{pattern[:80]!r} has flags")
    return list(tree)


class _Walk:
    """One text, and the steps that are left to match it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.left = _MOST_STEPS

    def ends(self, parts: Iterable[Any], starts: frozenset[int]) -> frozenset[int]:
        """Where a sequence of parts can end that begins at one of these places."""
        for operation, argument in parts:
            self.left -= 1 + len(starts)
            if self.left < 0:
                raise ValueError(f"a regular expression takes more than {_MOST_STEPS:,} steps on {self.text[:80]!r}")
            if not starts:
                break
            starts = self._ends_of(str(operation), argument, starts)
        return starts

    def _ends_of(self, operation: str, argument: Any, starts: frozenset[int]) -> frozenset[int]:
        text = self.text
        if operation in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            return frozenset(at + 1 for at in starts if at < len(text) and _is_one(operation, argument, text[at]))
        if operation == "AT":
            return frozenset(at for at in starts if _is_place(str(argument), text, at))
        if operation == "BRANCH":
            return frozenset[int]().union(*(self.ends(way, starts) for way in argument[1]))
        if operation == "SUBPATTERN" and not argument[1] and not argument[2]:
            return self.ends(argument[3], starts)
        if operation in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, repeated = argument
            return self._repeated(int(least), int(most), repeated, starts)
        raise ValueError(f"{operation.lower()} in a regular expression is not read here")

    def _repeated(self, least: int, most: int, parts: Iterable[Any], starts: frozenset[int]) -> frozenset[int]:
        ends, now, parts = frozenset[int](), starts, list(parts)
        for times in range(most + 1):
            ends = ends | now if times >= least else ends
            after = self.ends(parts, now) if times < most else frozenset[int]()
            if after == now:  # and so on for ever
                return ends | now
            if not after or (times >= least and after <= ends):
                return ends
            now = after
        return ends


def _is_one(operation: str, argument: Any, sign: str) -> bool:
    if operation == "ANY":
        return sign != "\n"
    if operation in ("LITERAL", "NOT_LITERAL"):
        return (ord(sign) == int(argument)) == (operation == "LITERAL")
    negated = str(argument[0][0]) == "NEGATE"
    return negated != any(_is_in(str(kind), value, sign) for kind, value in argument[negated:])


def _is_in(kind: str, value: Any, sign: str) -> bool:
    if kind == "LITERAL":
        return ord(sign) == int(value)
    if kind == "RANGE":
        return int(value[0]) <= ord(sign) <= int(value[1])
    return re.match(_CLASSES[str(value)], sign) is not None


def _is_place(where: str, text: str, at: int) -> bool:
    if where in ("AT_BEGINNING", "AT_BEGINNING_STRING"):
        return at == 0
    if where == "AT_END":
        return at == len(text) or text[at:] == "\n"
    if where == "AT_END_STRING":
        return at == len(text)
    inside = [0 <= place < len(text) and re.match(r"\w", text[place]) is not None for place in (at - 1, at)]
    return (inside[0] != inside[1]) == (where == "AT_BOUNDARY")

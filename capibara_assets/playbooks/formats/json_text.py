"""Parses the JSON of playbooks: exact integers, and objects that name a key twice are told, each where it stands."""

import json
from collections.abc import Mapping
from typing import Any

from capibara_assets.playbooks.formats.parsed import UnfitEntry

TWICE = "an object names a key twice"
_MOST_DIGITS_READ = 1000


class Doubled(dict[str, Any]):
    """An object that names a key twice; nobody knows which value was meant, and `items` has both."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self._pairs = pairs

    def items(self) -> list[tuple[str, Any]]:  # type: ignore[override]
        """All pairs, as they stand in the text."""
        return self._pairs

    @property
    def twice(self) -> str:
        """The first key that is named again."""
        known: set[str] = set()
        return next(name for name, _ in self._pairs if name in known or known.add(name))  # type: ignore[func-returns-value]


def parse_json(text: str) -> Any:
    """Parses JSON with exact integers. Raises ValueError (invalid), RecursionError (nested too deep)."""
    return json.loads(text, object_pairs_hook=_object, parse_int=whole_number)


def whole_number(digits: str) -> int:
    """An exact integer; of an absurd one only the first digits, more than any field accepts."""
    return int(digits[:_MOST_DIGITS_READ])


def doubled_key(value: Any, *, besides: Any = None, lists: bool = True) -> str | None:
    """The first key found that an object of `value` names twice; None: there is none.

    Args:
        besides: a value inside that is not searched.
        lists: whether lists are searched.
    """
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, Doubled):
            return each.twice
        if isinstance(each, Mapping):
            left += (held for held in each.values() if held is not besides)
        elif lists and isinstance(each, list):
            left += each
    return None


def object_of(entry: Any) -> Mapping[str, Any]:
    """The entry. Raises UnfitEntry where it is no object, or an object in it names a key twice."""
    if not isinstance(entry, Mapping):
        raise UnfitEntry("not_an_object", f"expected an object, found {type(entry).__name__}")
    if (twice := doubled_key(entry)) is not None:
        raise UnfitEntry(f"duplicate_key:{twice}", TWICE)
    return entry


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    return read if len(read) == len(pairs) else Doubled(pairs)

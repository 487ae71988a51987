"""orjson where it provably reads what the strict parser would, several times as fast; None where it might not.

orjson refuses NaN, infinities and lone surrogates (the strict parser takes over), but silently keeps the last of two
equal keys. So what it read only counts where as many keys, or strings, are counted in the bytes as in what was parsed.
It also turns integers above 64 bits into floats: whoever uses numbers asks `is_exact`. A test compares the parsers.
"""

from collections.abc import Iterable
from typing import Any

import orjson

from capibara_assets.executions.formats.strict_json import MAX_DEPTH

_SURELY_EXACT = float(2**53)
_TEXTS = frozenset({str})


def quick_object(data: bytes, keys: int) -> dict[str, Any] | None:
    """The JSON object in a line; `keys`: how many the line names, as `lines.key_ends` counts them, never too few."""
    if keys < 0:
        return None
    try:
        value = orjson.loads(data)
    except ValueError:
        return None
    return value if type(value) is dict and _count_keys(value) == keys else None


def quick_texts(text: str) -> dict[str, Any] | None:
    """The JSON object in a text, where its values are texts, lists of texts and what is neither object nor list."""
    try:
        value = orjson.loads(text)
    except ValueError:
        return None
    if type(value) is not dict:
        return None
    strings = len(value)
    for each in value.values():
        if type(each) is str:
            strings += 1
        elif type(each) is list and _TEXTS.issuperset(map(type, each)):
            strings += len(each)
        elif type(each) is list or type(each) is dict:
            return None
    # each string has two quotes: as many as were parsed means that none was dropped. A quote inside a string stands
    # behind an odd number of backslashes; without the double ones behind one
    plain = text.replace("\\\\", "") if "\\\\" in text else text
    return value if plain.count('"') - plain.count('\\"') == 2 * strings else None


def is_exact(values: Iterable[Any]) -> bool:
    """Whether the numbers among values are surely as they were written."""
    for value in values:  # noqa: SIM110 - a loop is three times as fast as any() with a generator, and this is hot
        if type(value) is float and not -_SURELY_EXACT <= value <= _SURELY_EXACT:
            return False
    return True


def _count_keys(value: dict[str, Any]) -> int:
    """Number of keys of all objects in `value`; -1 where it is nested deeper than a record may be."""
    count, depth = 0, 0
    level: list[Any] = [value]
    while level:
        depth += 1
        children = []
        for each in level:
            if type(each) is dict:
                count += len(each)
                each = each.values()
            for child in each:
                if type(child) is dict or type(child) is list:
                    children.append(child)
        level = children
    return count if depth <= MAX_DEPTH else -1

"""Texts that nearly match an expression, with a piece of them repeated: those on which backtracking takes longest."""

import random
import re
from collections.abc import Iterator
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

_SIGNS = "aZ3 -_.=\"'(/:,\n\t"
_VALUES = "aZ3k9QxW5tB7 -_.=\"'(/:,\n\t"  # of which a value is drawn that no rule takes for a placeholder
_CATEGORIES = {
    sre.CATEGORY_DIGIT: str.isdigit,
    sre.CATEGORY_SPACE: str.isspace,
    sre.CATEGORY_WORD: lambda sign: sign.isalnum() or sign == "_",
    sre.CATEGORY_NOT_DIGIT: lambda sign: not sign.isdigit(),
    sre.CATEGORY_NOT_SPACE: lambda sign: not sign.isspace(),
    sre.CATEGORY_NOT_WORD: lambda sign: not (sign.isalnum() or sign == "_"),
}
_REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)


def pumped(pattern: re.Pattern[str], draw: random.Random, length: int, texts: int, pieces: int) -> Iterator[str]:
    """Texts of about `length` characters: `pieces` of each of `texts` that the expression (nearly) matches."""
    tree = _parser.parse(pattern.pattern, pattern.flags)
    for _ in range(texts):
        text = _drawn(tree, draw, _SIGNS)[:200] or "a"
        for _ in range(pieces):
            start = draw.randrange(len(text))
            piece = text[start : start + draw.randint(1, 14)]
            many = piece * (length // len(piece) + 1)
            head = text[: start + len(piece)]
            yield draw.choice((text[:start] + many, many, (head + piece) * (length // len(head + piece) + 1)))


def drawn(pattern: re.Pattern[str], draw: random.Random, signs: str = _VALUES) -> str:
    """A text that the expression matches, unless what looks around or back refuses it; of `signs` where it may be."""
    return _drawn(_parser.parse(pattern.pattern, pattern.flags), draw, signs)


def _drawn(tree: Any, draw: random.Random, signs: str) -> str:
    """A text for a parsed expression; what looks around or back is passed over."""
    parts: list[str] = []
    for kind, value in tree:
        if kind is sre.LITERAL:
            parts.append(chr(value))
        elif kind is sre.NOT_LITERAL:
            parts.append(draw.choice([sign for sign in signs if ord(sign) != value]))
        elif kind is sre.ANY:
            parts.append(draw.choice("aZ3 -="))
        elif kind is sre.IN:
            parts.append(_of_class(value, draw, signs))
        elif kind is sre.BRANCH:
            parts.append(_drawn(draw.choice(value[1]), draw, signs))
        elif kind in (sre.SUBPATTERN, sre.ATOMIC_GROUP):
            parts.append(_drawn(value[3] if kind is sre.SUBPATTERN else value, draw, signs))
        elif kind in _REPEATS:
            fewest, most, inner = min(value[0], 40), value[1], value[2]
            times = draw.randint(fewest, max(fewest, min(most, fewest + draw.choice((0, 1, 3, 12)))))
            parts.extend(_drawn(inner, draw, signs) for _ in range(times))
        elif kind is sre.ASSERT and value[0] > 0 and draw.random() < 0.5:
            parts.append(_drawn(value[1], draw, signs))
    return "".join(parts)


def _of_class(items: Any, draw: random.Random, signs: str) -> str:
    fitting = [sign for sign in signs if _holds(items, sign)] or [sign for sign in _VALUES if _holds(items, sign)]
    if fitting:
        return draw.choice(fitting)
    kind, value = next(item for item in items if item[0] in (sre.LITERAL, sre.RANGE))
    return chr(value if kind is sre.LITERAL else draw.randint(*value))


def _holds(items: Any, sign: str) -> bool:
    negated = items[0][0] is sre.NEGATE
    held = False
    for kind, value in items[negated:]:
        if kind is sre.LITERAL:
            held |= ord(sign) == value
        elif kind is sre.RANGE:
            held |= value[0] <= ord(sign) <= value[1]
        elif kind is sre.CATEGORY:
            held |= _CATEGORIES[value](sign)
    return held is not negated

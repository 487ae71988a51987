"""Patterns over UTF-8 bytes, in Vectorscan's syntax, that match wherever a Python expression matches, or more often.

What its automata have no state for is left out or widened: what stands around a match, backreferences, possessive
repeats, large bounds. A class that holds letters beyond ASCII holds all bytes beyond ASCII, unless it names each.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from re import _constants as op  # type: ignore[attr-defined]  # the parser of `re` itself: no second syntax to keep up
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

VERSION = 1
"""Of what `byte_pattern` writes: automata are kept under it. A change of its results raises it (a test compares)."""
_Item = tuple[Any, Any]  # (opcode, argument)
_ASCII = range(128)
_WORD = frozenset(code for code in _ASCII if chr(code).isalnum() or chr(code) == "_")
_BEYOND = frozenset(range(128, 256))
_ALL = frozenset(range(256))
_SEPARATORS = frozenset(range(0x1C, 0x20))  # blanks, but not with re.ASCII
_ANY_BYTE = "[\\x00-\\xff]"
_CHARACTER = "{1,4}"  # bytes
_LARGE = 32  # repeats that are counted; more are taken for any number
_FOLDED = {"ı": "i", "İ": "i", "ſ": "s", "\u212a": "k"}
_FOLDS = frozenset(b"isk")
_CATEGORIES = {
    category: frozenset(code for code in _ASCII if re.match(letter, chr(code)))
    for category, letter in (
        (op.CATEGORY_DIGIT, r"\d"),
        (op.CATEGORY_NOT_DIGIT, r"\D"),
        (op.CATEGORY_SPACE, r"\s"),
        (op.CATEGORY_NOT_SPACE, r"\S"),
        (op.CATEGORY_WORD, r"\w"),
        (op.CATEGORY_NOT_WORD, r"\W"),
    )
}


def byte_pattern(expression: str, flags: int = 0) -> str:
    """The pattern, for texts as they are and, where it ignores case, for `folded` ones."""
    tree = parser.parse(expression, flags)
    flags = tree.state.flags
    return ("(?i)" if flags & re.IGNORECASE else "") + _sequence(_led(tree), flags)


def folded(text: str) -> str:
    """`text` with the letters beyond ASCII that `re.IGNORECASE` takes for letters of ASCII replaced by these."""
    if not text.isascii():
        for letter, plain in _FOLDED.items():
            text = text.replace(letter, plain)
    return text


def _led(items: Iterable[_Item]) -> list[_Item]:
    """Items of which those that have to stand before a match are looked for with it."""
    every = list(items)
    if not every:
        return []
    kind, argument = every[0]
    if kind is op.ASSERT and argument[0] < 0:
        every[:1] = argument[1]
    elif kind is op.BRANCH:
        every[0] = kind, (argument[0], [_led(branch) for branch in argument[1]])
    return every


def _sequence(items: Iterable[_Item], flags: int) -> str:
    every = list(items)
    return "".join(_written(every, at, flags) for at in range(len(every)))


def _written(items: Sequence[_Item], at: int, flags: int) -> str:
    kind, argument = items[at]
    if kind is op.LITERAL and argument > 127:
        return _beyond_ascii(chr(argument), flags)
    if kind is op.IN and any(_is_letter(one) for one in argument) and all(map(_is_narrow, argument)):
        narrow = [one for one in argument if not _is_letter(one)]
        letters = (_beyond_ascii(chr(code), flags) for one, code in filter(_is_letter, argument))
        return f"(?:{'|'.join((*letters, *((_written([(op.IN, narrow)], 0, flags),) if narrow else ())))})"
    if (members := _bytes_of(items[at], flags)) is not None:
        return _class(members) + (_CHARACTER if members >= _BEYOND else "")
    if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
        least, most, inner = argument
        return _repeated(least, most, inner, flags)
    if kind is op.BRANCH:
        return f"(?:{'|'.join(_sequence(branch, flags) for branch in argument[1])})"
    if kind is op.SUBPATTERN:
        _, added, removed, inner = argument
        inside = (flags | added) & ~removed
        case = "i" if inside & re.IGNORECASE else "-i"
        return f"(?{case}:{_sequence(inner, inside)})"
    if kind is op.ATOMIC_GROUP:
        return f"(?:{_sequence(argument, flags)})"
    if kind is op.AT:
        return _position(items, at, flags)
    if kind in (op.ASSERT, op.ASSERT_NOT):
        return ""
    return f"{_ANY_BYTE}*"  # a backreference, and what depends on one


def _is_letter(item: _Item) -> bool:
    """Whether an item of a class is one letter beyond ASCII."""
    return item[0] is op.LITERAL and item[1] > 127


def _is_narrow(item: _Item) -> bool:
    """Whether an item of a class is of letters that are known one by one."""
    kind, argument = item
    return kind is op.LITERAL or (kind is op.RANGE and argument[1] < 128)


@lru_cache(maxsize=256)
def _beyond_ascii(character: str, flags: int) -> str:
    """A character, or all forms of it where case is ignored, byte by byte."""
    if character in _FOLDED:
        return _FOLDED[character]
    forms = {character}
    if flags & re.IGNORECASE:
        forms |= set(filter(re.compile(re.escape(character), re.IGNORECASE).fullmatch, _cased_letters()))
    spelt = ("".join(f"\\x{byte:02x}" for byte in form.encode()) for form in sorted(forms))
    return f"(?:{'|'.join(spelt)})"


@cache
def _cased_letters() -> str:
    return "".join(c for c in map(chr, range(128, 0x1E944)) if c.lower() != c.upper())


def _repeated(least: int, most: int, inner: Sequence[_Item], flags: int) -> str:
    members = _bytes_of(inner[0], flags) if len(inner) == 1 else None
    wide = members is not None and members >= _BEYOND
    repeated = _class(members) if members is not None else f"(?:{_sequence(inner, flags)})"
    if repeated == "(?:)":
        return ""
    if wide or most > _LARGE:  # of a character of several bytes none is counted
        return repeated + {0: "*", 1: "+"}.get(least, f"{{{least},}}")
    return f"{repeated}{{{least},{most}}}"


def _bytes_of(item: _Item, flags: int) -> frozenset[int] | None:
    """The bytes of the one character that an item matches; None for other items."""
    kind, argument = item
    if kind is op.LITERAL:
        return frozenset([argument]) if argument < 128 else _BEYOND
    if kind is op.NOT_LITERAL:
        return _ALL - {argument} | _BEYOND
    if kind is op.ANY:
        return _ALL if flags & re.DOTALL else _ALL - {ord("\n")}
    if kind is not op.IN:
        return None
    negated = argument[0][0] is op.NEGATE
    if not negated:
        return frozenset().union(*(_members(*one) for one in argument))
    left_out = frozenset().union(*(_surely(*one) for one in argument[1:]))
    if flags & re.IGNORECASE:
        left_out |= {ord(chr(code).swapcase()) for code in left_out}
    return _ALL - left_out


def _surely(kind: Any, argument: Any) -> frozenset[int]:
    """The letters of ASCII that an item of a class matches whatever the flags."""
    if kind is op.LITERAL:
        return frozenset([argument] if argument < 128 else [])
    if kind is op.RANGE:
        return frozenset(range(argument[0], min(argument[1], 127) + 1))
    blanks = argument in (op.CATEGORY_SPACE, op.CATEGORY_NOT_SPACE)
    return _CATEGORIES[argument] - (_SEPARATORS if blanks else frozenset())


def _members(kind: Any, argument: Any) -> frozenset[int]:
    if kind is op.LITERAL:
        return frozenset([argument]) if argument < 128 else _BEYOND | _FOLDS
    if kind is op.RANGE:
        low, high = argument
        return frozenset(range(low, min(high, 127) + 1)) | (_BEYOND | _FOLDS if high > 127 else frozenset())
    return _CATEGORIES[argument] | _BEYOND | (_SEPARATORS if argument is op.CATEGORY_NOT_SPACE else frozenset())


@lru_cache(maxsize=1024)
def _class(members: frozenset[int]) -> str:
    codes = sorted(members)
    if len(codes) == 1:
        return f"\\x{codes[0]:02x}"
    ranges: list[list[int]] = []
    for code in codes:
        if ranges and code == ranges[-1][1] + 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "[" + "".join(f"\\x{low:02x}" + (f"-\\x{high:02x}" if high > low else "") for low, high in ranges) + "]"


def _position(items: Sequence[_Item], at: int, flags: int) -> str:
    where = items[at][1]
    if where is op.AT_BEGINNING:
        return "(?m:^)" if flags & re.MULTILINE else "\\A"
    if where is op.AT_BEGINNING_STRING:
        return "\\A"
    if where is op.AT_END:
        return "(?m:$)"
    if where is op.AT_END_STRING:
        return "\\z"
    # beside a letter of ASCII the end of a word is one in bytes, too
    beside = (items[at + 1 : at + 2], True), (items[max(at - 1, 0) : at], False)
    bounds = where is op.AT_BOUNDARY and any(_is_word(near, first, flags) for near, first in beside)
    return "\\b" if bounds else ""


def _is_word(items: Sequence[_Item], first: bool, flags: int) -> bool:
    """Whether a sequence begins (or ends) with a letter, digit or underscore of ASCII whatever it matches."""
    if not len(items):
        return False
    item = items[0 if first else -1]
    if (members := _bytes_of(item, flags)) is not None:
        return members <= _WORD
    kind, argument = item
    if kind is op.BRANCH:
        return all(_is_word(branch, first, flags) for branch in argument[1])
    if kind is op.SUBPATTERN:
        return _is_word(argument[3], first, flags)
    if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
        return argument[0] > 0 and _is_word(argument[2], first, flags)
    return False

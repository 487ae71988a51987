"""Expressions with values substituted for their parts, and which values a reader can infer."""

import ast
import re
from collections.abc import Mapping

from capibara_assets.datasets.code.one_line import in_one_line
from capibara_assets.datasets.code.python_source import CHANGING
from capibara_assets.datasets.code.steps import Part

_LONGEST_VALUE = 120
#: Texts that a reader cannot tell: floats of many digits, long integers, names of a library's own types.
_UNREADABLE = re.compile(r"\d\.\d{7,}|\d{13,}|\de[-+]?\d|\bnp\.|\b(?:nan|inf|NaN|Infinity)\b|\\x|<")
_WHOLE = re.compile(r"-?\d+")
#: Functions to which the order of a set makes no difference.
_ORDERLESS = frozenset(["sorted", "len", "sum", "max", "min", "any", "all", "set", "frozenset", "bool", "isinstance"])
_SET_METHODS = """add union intersection difference symmetric_difference update remove discard issubset issuperset
isdisjoint copy clear intersection_update difference_update"""
_CHANGING = "|".join(sorted(CHANGING | {"heappop", "heappush", "heappushpop", "heapreplace"}))
_OF_SETS = frozenset(_SET_METHODS.split())


class Substitution:
    """Expressions with their parts replaced by values."""

    def __init__(self, code: str) -> None:
        self.source = code.encode("utf-8", "surrogatepass")
        self.chosen: dict[str, bool] = {}  # place of a conditional expression -> its test

    def written(self, part: Part, operands: Mapping[str, str], *, keep: bool = False) -> str:
        """An expression with the values of its parts, but not its own value.

        Args:
            keep: the receiver of a call stays a name, since it is changed.
        """
        if part.sort == "choice" and (taken := self.taken(part)) is not None:
            return self.value(taken, operands)
        out, begin = b"", part.span[0]
        for number, each in sorted(enumerate(part.parts), key=lambda one: one[1].span):  # as they stand in the text
            receiver = number == 0 and (part.sort == "index" or (keep and part.sort == "call"))
            method = part.sort == "call" and _between(self.source, part, number).startswith(b".")
            kept = receiver and (part.sort == "index" or method)
            text = self.value(each, operands)
            if kept and each.sort in ("name", "index", "attribute"):
                text = self.written(each, operands) if each.sort == "index" else each.text
            text = f"({text})" if self._is_asked(each) and _WHOLE.fullmatch(text) else _bracketed(text, each)
            out += self.source[begin : each.span[0]] + text.encode()
            begin = each.span[1]
        return in_one_line((out + self.source[begin : part.span[1]]).decode("utf-8", "replace"))

    def value(self, part: Part, operands: Mapping[str, str]) -> str:
        """The value of a part; without one, the part with its own parts substituted."""
        if part.sort == "generator":
            return part.text
        return operands.get(part.place) or self.written(part, operands)

    def _is_asked(self, part: Part) -> bool:
        """Whether a method or a field of the part follows: `100.toString()` is no code."""
        return self.source[part.span[1] :].lstrip().startswith(b".")

    def taken(self, part: Part) -> Part | None:
        """The branch of a conditional expression that was evaluated."""
        truth = self.chosen.get(part.place)
        return None if truth is None or len(part.parts) != 3 else part.parts[1 if truth else 2]


def _between(source: bytes, part: Part, number: int) -> bytes:
    """The source after a part of a call, up to the next part."""
    after = part.parts[number + 1].span[0] if number + 1 < len(part.parts) else part.span[1]
    return source[part.parts[number].span[1] : after].strip()


def _bracketed(text: str, part: Part) -> str:
    return f"({text})" if part.loose and text.startswith("-") and not part.text.startswith("-") else text


def is_readable(text: str) -> bool:
    """Whether a reader could infer a value: no long number or text, no type of a library."""
    return _UNREADABLE.search(text) is None and len(text) <= _LONGEST_VALUE


def plain(text: str) -> str:
    """A text without spaces and brackets, for comparison."""
    return re.sub(r"[\s()]", "", text)


def is_set(text: str) -> bool:
    """Whether a value's text is a set of Python, whose order a reader cannot tell."""
    if not text.startswith("{"):
        return text.startswith("frozenset({")
    try:
        return isinstance(ast.parse(text, mode="eval").body, ast.Set)
    except (SyntaxError, ValueError):  # an object of JavaScript
        return False


def eats_its_own(root: Part) -> bool:
    """Whether a comprehension changes what it goes over: with that one's value in its place it gives something else."""
    for part in (*root.inside(), root):
        over = [re.escape(each.text) for each in part.parts if each.sort == "name"]
        if part.sort in ("comprehension", "generator") and over:
            names = "|".join(over)
            if re.search(rf"\b(?:{_CHANGING})\(\s*(?:{names})\b|\b(?:{names})\.(?:{_CHANGING})\(", part.text):
                return True
    return False


def shows_order(root: Part, operands: Mapping[str, str]) -> bool:
    """Whether the order of a set could show in the value of an expression."""
    for part in (*root.inside(), root):
        orderless = part.sort == "call" and part.function in _ORDERLESS | _OF_SETS
        follows = not orderless and part.sort in ("call", "comprehension", "generator", "index")
        if follows and any(is_set(operands.get(each.place, "")) for each in part.parts):
            return True
    return False

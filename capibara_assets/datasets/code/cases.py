"""Test cases in a text: the arguments of a call and its expected value, in one form for every language.

One tolerant parser reads calls and literals wherever they stand: in assertions, in the arguments of a test helper,
behind names that hold them, in doctests and in prose (`f(2) returns 4`). The name of what is called, quotes, kinds of
brackets and the words for true and nothing differ between languages and are dropped; values are what a problem fixes.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<text>(?<!\w)[rbfuRBFU]{0,2}(?:\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'
        |`(?:\\.|[^`\\])*`))
    |(?P<number>(?<![\w.])(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?n?(?!\w))
    |(?P<name>[^\W\d][\w$]*|\$[\w$]*)
    |(?P<line>\n\s*)
    |(?P<mark>>>>|===|!==|==|!=|=>|->|<=|>=|&&|\|\||[^\w\s])""",
    re.VERBOSE,
)
_CONSTANTS = {"true": "true", "false": "false", "none": "null", "null": "null", "undefined": "null", "nil": "null"}
_NUMBERS = {"nan": "nan", "infinity": "inf", "inf": "inf"}
_BRACKETS = {"[": "]", "(": ")", "{": "}"}
# what gives a value of the same content
_CONVERTS = """set list tuple frozenset array dict map sorted ordereddict counter float int number str string repr
stringify dumps freeze decimal bigint"""
_KEEPS = frozenset(_CONVERTS.split())
# between a call and what is expected of it
_EQUALS = frozenset({"==", "===", "=>", "->", "→", "➞", "⇒", "=", "≈", "is"})
_WORDS = "returns return should must equals equal be gives to evaluates yields output result outputs prints # // / :"
_SAYS = frozenset(_WORDS.split())
_MOST_SAID = 4
_ENDS = frozenset({",", ";", ")", "]", "}", "&&", "||", "and", "or", ".", "#", "/", "*", "`", "\\", "<", "?", ":"})
_INSIDE = 20  # characters of a string that may hold a text of its own: a docstring, a prompt
_DEEP, _LARGE = 12, 4_000  # nesting of values; tokens of one value


class Case(NamedTuple):
    """Canonical arguments and expected value of one call."""

    arguments: str
    expected: str


@dataclass(frozen=True)
class _Literal:
    form: str


@dataclass(frozen=True)
class _Call:
    arguments: str


class _Token(NamedTuple):
    kind: str
    text: str


_Value = _Literal | _Call | None


def cases(text: str) -> frozenset[Case]:
    """The cases of a program or a task, in any language."""
    return frozenset(_Reader.of(text).cases()) if "(" in text else frozenset()


def calls(text: str, name: str) -> list[str]:
    """The canonical arguments of each call of a function in a program, as far as they are values."""
    return list(_Reader.of(text).calls(name))


def _number(text: str) -> str:
    value = float(text.rstrip("n").replace("_", ""))
    return str(int(value)) if value.is_integer() and abs(value) < 2**63 else repr(value)


def _content(text: str) -> str:
    """What stands between the quotes of a string."""
    bare = text.lstrip("rbfuRBFU")
    quotes = 3 if bare.startswith(('"""', "'''")) else 1
    return re.sub(r"\\([\\'\"`])", r"\1", bare[quotes:-quotes])


class _Reader:
    """A cursor over the tokens of a text. Its methods give the value at a place and the place behind it."""

    def __init__(self, tokens: Sequence[_Token]):
        self.tokens = tokens
        self.names: dict[str, _Value] = {}

    @classmethod
    def of(cls, text: str) -> "_Reader":
        return cls([_Token(match.lastgroup or "", match.group()) for match in _TOKEN.finditer(text)])

    def cases(self) -> Iterator[Case]:
        """Every case from left to right; assignments give names their values on the way."""
        compared = {at for at, (_, text) in enumerate(self.tokens) if text in ("==", "===") and self._is(at + 2, "(")}
        at = 0
        while at < len(self.tokens):
            kind, text = self.tokens[at]
            if kind == "text" and len(text) > _INSIDE and "(" in text:
                yield from _Reader.of(_content(text)).cases()
            if kind == "name":
                if not self._assigned(at) and (self._is(at + 1, "(") or text in self.names):
                    yield from self._called(at)
            elif compared and (kind in ("number", "text") or text in _BRACKETS):
                yield from self._reversed(at)
            at += 1

    def calls(self, name: str) -> Iterator[str]:
        """The arguments of each call of a name; assignments give names their values on the way."""
        for at, (kind, text) in enumerate(self.tokens):
            if kind == "name" and not self._assigned(at) and text == name:
                value, _ = self._value(at)
                if isinstance(value, _Call):
                    yield value.arguments

    def _assigned(self, at: int) -> bool:
        """Whether a name is assigned to here; what is read later has its value."""
        if not self._is(at + 1, "=") or self._is(at + 2, "="):
            return False
        self.names[self.tokens[at].text] = self._value(at + 2)[0]
        return True

    def _is(self, at: int, text: str) -> bool:
        return at < len(self.tokens) and self.tokens[at].text == text

    def _is_line(self, at: int) -> bool:
        return at < len(self.tokens) and self.tokens[at].kind == "line"

    def _called(self, at: int) -> Iterator[Case]:
        """The cases of a call: what stands behind it, or a helper that gets a call and the value it should have."""
        if self._is(at + 1, "("):
            arguments, _ = self._items(at + 2, ")")
            calls = [value for value in arguments or () if isinstance(value, _Call)]
            literals = [value for value in arguments or () if isinstance(value, _Literal)]
            if len(calls) == 1 and literals:
                yield Case(calls[0].arguments, literals[0].form)
        value, end = self._value(at)
        if not isinstance(value, _Call):
            return
        while self._is(end, ".") and end + 1 < len(self.tokens) and self.tokens[end + 1].kind == "name":
            end += 2  # expect(call).to.equal(value)
            if self._is(end, "("):
                given, end = self._items(end + 1, ")")
                if given and isinstance(given[0], _Literal):
                    yield Case(value.arguments, given[0].form)
                    return
        expected = self._expected(at, end)
        if expected is not None:
            yield Case(value.arguments, expected)

    def _expected(self, at: int, end: int) -> str | None:
        """The value that the text says of the call between these places."""
        before = [token.text for token in self.tokens[max(0, at - 3) : at] if token.kind != "line"]
        begins = end
        if self._is(end, "-") and before[-1:] == ["("] and before[-2:-1] in (["abs"], ["fabs"]):
            value, _ = self._value(end + 1)  # abs(call - value) < tolerance
            return value.form if isinstance(value, _Literal) else None
        for _ in range(_MOST_SAID):
            if end < len(self.tokens) and (
                self.tokens[end].text.lower() in _EQUALS or self.tokens[end].text.lower() in _SAYS
            ):
                end += 1
        if end == begins and self._is_line(end):
            if not before or before[-1] not in (">>>", ">", "$"):
                return self._asserted(before)
            end += 1
            while end < len(self.tokens) and self.tokens[end].text in ("*", "#", "/", "//", "--"):
                end += 1  # the marks of a comment's next line
        elif end == begins:
            return self._asserted(before) if self._ended(end) else None
        if end > begins and self.tokens[end - 1].text in ("==", "===") and self._is_line(end):
            end += 1  # an expression goes on behind its operator
        value, end = self._value(end)
        return value.form if isinstance(value, _Literal) and self._ended(end) else None

    def _asserted(self, before: Sequence[str]) -> str | None:
        """The truth that an assertion claims of a call that stands alone in it."""
        if before[-1:] == ["assert"] or before[-2:] == ["assert", "("]:
            return "true"
        return "false" if before[-2:] == ["assert", "not"] or before[-3:] == ["assert", "(", "!"] else None

    def _ended(self, at: int) -> bool:
        return at >= len(self.tokens) or self.tokens[at].kind == "line" or self.tokens[at].text in _ENDS

    def _reversed(self, at: int) -> Iterator[Case]:
        """`4 == f(2)`."""
        literal, end = self._value(at)
        if isinstance(literal, _Literal) and end < len(self.tokens) and self.tokens[end].text in ("==", "==="):
            call, end = self._value(end + 1)
            if isinstance(call, _Call) and self._ended(end):
                yield Case(call.arguments, literal.form)

    def _value(self, at: int, depth: int = 0) -> tuple[_Value, int]:
        if at >= len(self.tokens) or depth > _DEEP:
            return None, at
        kind, text = self.tokens[at]
        if kind == "number":
            return self._quotient(at)
        if kind == "text":
            return _Literal(repr(_content(text))), at + 1
        if text in ("-", "+") and at + 1 < len(self.tokens) and self.tokens[at + 1].kind == "number":
            sign = "-" if text == "-" and float(self.tokens[at + 1].text.rstrip("n").replace("_", "")) else ""
            return _Literal(sign + _number(self.tokens[at + 1].text)), at + 2
        if text in _BRACKETS:
            return self._collection(at, depth)
        return self._named(at, depth) if kind == "name" else (None, at + 1)

    def _quotient(self, at: int) -> tuple[_Value, int]:
        """A number, or one divided by another."""
        above = _number(self.tokens[at].text)
        if not self._is(at + 1, "/") or at + 2 >= len(self.tokens) or self.tokens[at + 2].kind != "number":
            return _Literal(above), at + 1
        below = float(_number(self.tokens[at + 2].text))
        return (_Literal(repr(float(above) / below)) if below else None), at + 3

    def _collection(self, at: int, depth: int) -> tuple[_Value, int]:
        opening = self.tokens[at].text
        items, end = self._items(at + 1, _BRACKETS[opening], depth + 1)
        if items is None or not all(isinstance(item, _Literal) for item in items):
            alone = items[0] if items is not None and len(items) == 1 and opening == "(" else None
            return alone, end
        forms = [item.form for item in items if isinstance(item, _Literal)]
        if opening == "(" and len(forms) == 1 and not self._is(end - 2, ","):
            return _Literal(forms[0]), end
        return _Literal(f"[{','.join(sorted(forms) if opening == '{' else forms)}]"), end

    def _named(self, at: int, depth: int) -> tuple[_Value, int]:
        text = self.tokens[at].text
        while self._is(at + 1, ".") and at + 2 < len(self.tokens) and self.tokens[at + 2].kind == "name":
            at += 2
            text = self.tokens[at].text
        if text == "new" or text == "await":
            return self._value(at + 1, depth + 1)
        folded = text.lower()
        if not self._is(at + 1, "("):
            form = _CONSTANTS.get(folded) or _NUMBERS.get(folded)
            return (_Literal(form) if form else self.names.get(text)), at + 1
        items, end = self._items(at + 2, ")", depth + 1)
        if not items or any(item is None for item in items):
            return None, end
        inner = [item for item in items if isinstance(item, _Call)]
        if inner:  # sorted(f(x)), expect(f(x)), JSON.stringify(f(x))
            return (inner[0] if len(items) == 1 else None), end
        forms = [item.form for item in items if isinstance(item, _Literal)]
        if folded in _KEEPS and len(forms) == 1:
            return _Literal(forms[0]), end
        return _Call(",".join(forms)), end

    def _items(self, at: int, closing: str, depth: int = 0) -> tuple[list[_Value] | None, int]:
        """The values between here and the closing bracket, and the place behind it; None where one cannot be read."""
        items: list[_Value] = []
        started, readable = at, True
        while at < len(self.tokens) and at - started < _LARGE:
            kind, text = self.tokens[at]
            if text == closing:
                return (items if readable else None), at + 1
            if kind == "line" or text == ",":
                at += 1
                continue
            value, end = self._value(at, depth + 1)
            if value is None and kind == "name" and (self._is(end, ":") or self._is(end, "=")):
                value = _Literal(repr(text))  # a key of an object, a keyword
            if closing == "}" and isinstance(value, _Literal) and self._is(end, ":"):
                mapped, end = self._value(end + 1, depth + 1)
                value = _Literal(f"{value.form}:{mapped.form}") if isinstance(mapped, _Literal) else None
            elif closing == ")" and self._is(end, "=") and value is not None:
                value, end = self._value(end + 1, depth + 1)  # keyword arguments by their values
            items.append(value)
            if end < len(self.tokens) and not (
                self.tokens[end].kind == "line" or self.tokens[end].text in (",", closing)
            ):
                readable, end = False, self._skipped(end, closing)
            at = max(end, at + 1)
        return None, at

    def _skipped(self, at: int, closing: str) -> int:
        """The place of the comma or closing bracket that ends an expression which is no value, where it is near."""
        open_brackets, last = 0, min(at + _LARGE, len(self.tokens))
        while at < last:
            text = self.tokens[at].text
            if not open_brackets and text in (",", closing):
                return at
            open_brackets += text in _BRACKETS
            open_brackets -= text in _BRACKETS.values()
            if open_brackets < 0:
                return at
            at += 1
        return at

"""Detection of hard-coded answers: results that the cases expect, or a branch for the argument of each case."""

import re
from collections.abc import Collection, Iterable, Sequence

from capibara_assets.datasets.code.cases import Case, cases

_NUMBER = r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])"
_QUOTED = r"'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\""
_LITERAL = rf"(?:{_NUMBER}|{_QUOTED})"
_NUMBERS = re.compile(_NUMBER)
_LITERALS = re.compile(_LITERAL)
_COMPARED = re.compile(rf"(?:[=!]==?|\bcase)\s*({_LITERAL})|({_LITERAL})\s*[=!]==?|[{{,]\s*({_LITERAL})\s*:")
_MARKS = str.maketrans("()", "[]", " \t\n'\"")
_ORDINARY = frozenset({"-1", "0", "1", "2", "", "true", "false", "null", "[]"})  # what sound code holds, too
_TRUTH = frozenset({"true", "false", "null", "none"})
_WORDS = re.compile(r"\b(?:true|false|null|none)\b", re.IGNORECASE)
_MOSTLY = 0.75
_FEWEST = 2
_WHOLE_LIST = 5  # items of a list that nobody writes by chance


def is_hardcoded(code: str, name: str, statement: str, cases: Iterable[Case]) -> bool:
    """Whether a function tells its cases apart instead of computing what they expect.

    Args:
        name: of the function; what the statement says before it calls it (its examples) may be compared with.
    """
    asked = frozenset(cases)
    return _holds_results(code, asked) or branches_by_case(code, statement.split(f"{name}(")[0], asked)


def _holds_results(code: str, cases: frozenset[Case]) -> bool:
    """Whether the code holds the numbers that two of the cases expect, each with an argument of its case."""
    numbers = {text for text in _NUMBERS.findall(code) if len(text) > 1}
    written = _literals(code)
    literals = set[str]()
    for case in cases:
        expected = set(_NUMBERS.findall(case.expected)) & numbers
        if expected and (_literals(case.arguments) & written - expected or len(expected) > _FEWEST):
            literals |= {case.expected}
    return len(literals) >= _FEWEST


def is_spelled_out(code: str, returned: Sequence[str | None], statement: str, cases: Iterable[Case]) -> bool:
    """Whether code is made of what its cases expect, so that no agreement with others on other inputs excuses it.

    All that it returns are literals, chosen by the cases' arguments; or it holds a list that a case expects whole.

    Args:
        statement: what the task says, its cases excepted.
        returned: as `code.returned` reads it.
    """
    asked = frozenset(cases)
    chosen = bool(returned) and None not in returned and branches_by_case(code, statement, asked)
    text = code.translate(_MARKS)
    expected = [case.expected for case in asked if case.arguments and case.expected.count(",") + 1 >= _WHOLE_LIST]
    listed = {one.translate(_MARKS) for one in expected}
    return chosen or any(one[:1] == "[" and one in text for one in listed)


def is_constant(returned: Sequence[str | None], said: str, cases: Iterable[Case]) -> bool:
    """Whether code always returns the same literal that a case expects and the task does not mention.

    Args:
        returned: as `code.returned` reads it.
    """
    form = returned[0] if len(set(returned)) == 1 else None
    expected = {case.expected for case in cases if case.arguments}
    return form is not None and form in expected and not stands_in(form, said)


def is_told(form: str, said: str) -> bool:
    """Whether a literal is common in sound code, or appears in the prose of a task."""
    return form in _ORDINARY or stands_in(form, said)


def stands_in(form: str, said: str) -> bool:
    """Whether the prose of a task contains a literal."""
    content = re.escape(form.strip("'"))
    return re.search(rf"(?<!\w){content}(?!\w)", prose(said)) is not None


def prose(said: str) -> str:
    """The task's text without the lines that hold cases or an interpreter session."""
    kept, below = [], False
    for line in said.split("\n"):
        if not below and not cases(line) and not line.lstrip().startswith((">", "assert")):
            kept.append(line)
        below = line.lstrip().startswith(">")
    return "\n".join(kept)


def branches_by_case(code: str, said: str, cases: Collection[Case], before: str | None = None) -> bool:
    """Whether the code compares mostly with the arguments of its cases, and contains their results.

    A table of months or of digits has entries that no case asks for, or that the task names.

    Args:
        said: the task; what its prose names may be compared with.
        before: the code that an edit began with: then one case tells, and what it holds already does not.
    """
    text, old = prose(said), before or ""
    named = {*_ORDINARY, *_literals(text), *re.findall(r"\w+", text)}
    lists = _lists(cases, code) - _lists(cases, old)
    compared = {one for one in _compared(code) - named if one.translate(_MARKS) not in lists} | lists
    given = (set[str]().union(*(_literals(case.arguments) for case in cases)) - named) | lists
    branched = (compared - _compared(old)) & given
    fewest = min(_FEWEST, len(cases)) if before is None else 1
    if not branched or len(branched) < max(fewest, _MOSTLY * len(compared)):
        return False
    written = {*_literals(code), *map(str.lower, _WORDS.findall(code)), *(_TRUTH if before is None else ())}
    told = [case for case in cases if _arguments(case) & branched and _expected(case) & written]
    return len(told) >= fewest


def _compared(code: str) -> set[str]:
    return {_plain(a or b or key) for a, b, key in _COMPARED.findall(code)}


def _arguments(case: Case) -> set[str]:
    """The literals of a case's arguments, and its lists."""
    return {*_literals(case.arguments), *_listed(case)}


def _lists(cases: Iterable[Case], code: str) -> set[str]:
    """The lists among the arguments of cases that stand in the code as they are."""
    text = code.translate(_MARKS)
    listed = set[str]().union(*map(_listed, cases))
    return {one for one in listed if re.search(rf"(?<!\w){re.escape(one)}", text)}


def _listed(case: Case) -> set[str]:
    """The arguments of a case that are lists of several items, without quotes and spaces."""
    text = case.arguments.translate(_MARKS)
    depth, begin, listed = 0, 0, set[str]()
    for at, mark in enumerate(text):
        if mark == "[":
            begin, depth = at if depth == 0 else begin, depth + 1
        elif mark == "]":
            depth -= 1
            listed |= {text[begin : at + 1]} if depth == 0 and "," in text[begin:at] else set()
    return listed


def _expected(case: Case) -> set[str]:
    return {case.expected} if case.expected in _TRUTH else _literals(case.expected)


def _literals(text: str) -> set[str]:
    return {_plain(literal) for literal in _LITERALS.findall(text)}


def _plain(literal: str) -> str:
    return literal[1:-1] if literal[0] in "'\"" else literal

"""Answers that hold their tests: numbers that the cases expect, or a branch for the argument of each case."""

import re
from collections.abc import Iterable

from capibara_assets.datasets.code.cases import Case

_NUMBER = r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])"
_QUOTED = r"'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\""
_LITERAL = rf"(?:{_NUMBER}|{_QUOTED})"
_NUMBERS = re.compile(_NUMBER)
_LITERALS = re.compile(_LITERAL)
_COMPARED = re.compile(rf"(?:[=!]==?|\bcase)\s*({_LITERAL})|({_LITERAL})\s*[=!]==?|[{{,]\s*({_LITERAL})\s*:")
_ORDINARY = frozenset({"-1", "0", "1", "2", "", "true", "false"})  # what sound code compares with, too
_TRUTH = frozenset({"true", "false", "null", "none"})
_MOSTLY = 0.75
_FEWEST = 2


def is_hardcoded(code: str, name: str, statement: str, cases: Iterable[Case]) -> bool:
    """Whether a function tells its cases apart instead of computing what they expect.

    Args:
        name: of the function; what the statement says before it calls it (its examples) may be compared with.
    """
    asked = frozenset(cases)
    return _holds_results(code, asked) or _branches_by_case(code, statement.split(f"{name}(")[0], asked)


def _holds_results(code: str, cases: frozenset[Case]) -> bool:
    """Whether the code holds the numbers that two of the cases expect, each with an argument of its case."""
    numbers = {text for text in _NUMBERS.findall(code) if len(text) > 1}
    written = _literals(code)
    found = set[str]()
    for case in cases:
        expected = set(_NUMBERS.findall(case.expected)) & numbers
        if expected and (_literals(case.arguments) & written - expected or len(expected) > _FEWEST):
            found |= {case.expected}
    return len(found) >= _FEWEST


def _branches_by_case(code: str, prose: str, cases: frozenset[Case]) -> bool:
    """Whether the code compares with arguments of two cases, with hardly anything else, and holds their results.

    A table of months or of digits has entries that no case asks for, or that the task names.
    """
    named = {*_ORDINARY, *_literals(prose), *re.findall(r"\w+", prose)}
    compared = {_plain(a or b or key) for a, b, key in _COMPARED.findall(code)} - named
    given = set[str]().union(*(_literals(case.arguments) for case in cases)) - named
    if len(compared & given) < max(_FEWEST, _MOSTLY * len(compared)):
        return False
    written = _literals(code)
    told = [
        case
        for case in cases
        if _literals(case.arguments) & compared
        and (_literals(case.expected) & written or case.expected.lower() in _TRUTH)
    ]
    return len(told) >= _FEWEST


def _literals(text: str) -> set[str]:
    return {_plain(found) for found in _LITERALS.findall(text)}


def _plain(literal: str) -> str:
    return literal[1:-1] if literal[0] in "'\"" else literal

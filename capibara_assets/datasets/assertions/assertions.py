"""Assertions split into reported values and a comparison outside the process that runs the answer.

A program can do anything in its own process: exit before the assertions, change what `assert` compiles to, print that
all is well. So its process runs no assertion. For `assert f(2) == [1, 2]` it only reports the value of `f(2)`; the
expected value never reaches it, and the grader compares. To pass, a program has to report the right values, which is
what passing means. Values that an assertion needs besides the answer (`math.pi / 4`, a list in the tests) come from a
run of the reference in a process that the answer cannot reach.

A program may still claim truths: where an assertion only wants yes or no (`is_prime(8)`), it may report either, as any
wrong answer may. Tests that a program passes by reporting *True* for everything prove nothing and give no verdict
(`Observed.why_not`), nor do assertions that cannot be split (in a `while` loop, of objects).
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from capibara_assets.datasets.assertions.plain_values import NotPlain, Plain, decoded, holds_unknown

#: Around what a run reports: characters that no ordinary output holds.
BEGIN, END = "\x1e", "\x1f"
_REPORT = re.compile(f"{BEGIN}([0-9]+[gk][0-9]+) ([^{BEGIN}{END}]*){END}\n?")

_ORDERS = frozenset({"Lt", "LtE", "Gt", "GtE"})

Operation = Literal["value", "given", "known", "not", "isinstance", "compare", "arithmetic", "call"]


@dataclass(frozen=True)
class Term:
    """One node of the expression that the grader evaluates for an assertion.

    Attributes:
        operation: `value` (a literal), `given` (reported by the answer's run), `known` (reported by the trusted run),
            or what is done with `parts`.
        detail: the literal; the report's number; the comparisons, the operator, the function, the types by name.
    """

    operation: Operation
    detail: Any = None
    parts: tuple["Term", ...] = ()


@dataclass(frozen=True)
class Assertion:
    """One assertion: it holds when its term is true; `never` ones hold as long as nothing is reported for them."""

    source: str
    term: Term
    never: bool = False


@dataclass(frozen=True)
class Observed:
    """Tests whose assertions were replaced by reports.

    Attributes:
        code: runs after an answer: the tests, with reports in place of the assertions.
        trusted: runs after the reference: the same, and the values that assertions compare with are reported, too.
        assertions: in order; the number of an assertion is its position here.
        why_not: why these tests cannot be judged outside; None when they can.
        apart: runs without an answer, and reports what assertions compare with, where no answer has a part in it.
        prelude: what `code` begins with before the first statement of the tests: functions that report.
    """

    code: str
    trusted: str
    assertions: tuple[Assertion, ...]
    why_not: str | None = None
    apart: str = ""
    prelude: str = ""


Reports = Mapping[str, Plain]


def reports_in(stdout: str) -> tuple[Reports, str]:
    """(what was reported, by place; the rest of the output).

    Raises:
        NotPlain: a report that is none, or two for one place: no run of ours writes that.
    """
    reports: dict[str, Plain] = {}
    for match in _REPORT.finditer(stdout):
        if match[1] in reports:
            raise NotPlain(f"two reports of {match[1]}")
        reports[match[1]] = decoded(match[2])
    return reports, _REPORT.sub("", stdout)


def first_failing(assertions: Sequence[Assertion], given: Reports, known: Reports) -> str | None:
    """Source of the first assertion that does not hold, or that was never reached; None when all hold."""
    for number, assertion in enumerate(assertions):
        if assertion.never:
            if f"{number}g0" in given:
                return assertion.source
            continue
        try:
            holds = bool(_value(assertion.term, number, given, known))
        except (KeyError, TypeError, ValueError, ArithmeticError, RecursionError):
            return assertion.source  # not reported, or values that cannot be compared in this way
        if not holds:
            return assertion.source
    return None


def unreported(reports: Reports) -> set[int]:
    """Numbers of the assertions for which a value was reported that does not leave its process."""
    return {int(re.split("[gk]", place)[0]) for place, value in reports.items() if holds_unknown(value)}


def asks_for_truth(term: Term) -> bool:
    """Whether the process of the answer itself says whether an assertion holds."""
    return term.operation == "given" or (term.operation == "not" and asks_for_truth(term.parts[0]))


def claims_suffice(assertions: Sequence[Assertion], known: Reports) -> bool:
    """Whether a program that reports True for everything would pass."""

    class Yes(dict[str, Plain]):
        def __missing__(self, key: str) -> Plain:
            return True

        def __contains__(self, key: object) -> bool:
            return False

    return first_failing(assertions, Yes(), known) is None


def _value(term: Term, number: int, given: Reports, known: Reports) -> Any:
    match term.operation:
        case "value":
            return term.detail
        case "given":
            return given[f"{number}g{term.detail}"]
        case "known":
            return known[f"{number}k{term.detail}"]
    parts = [_value(part, number, given, known) for part in term.parts]
    match term.operation:
        case "not":
            return not parts[0]
        case "isinstance":
            return type(parts[0]).__name__ in term.detail or (type(parts[0]) is bool and "int" in term.detail)
        case "compare":
            return all(
                _compared(operator, left, right)
                for operator, left, right in zip(term.detail, parts, parts[1:], strict=False)
            )
        case "arithmetic":
            return _calculated(term.detail, parts[0], parts[1])
        case _:
            return _called(term.detail, parts)


def _compared(operator: str, left: Any, right: Any) -> bool:
    if holds_unknown(left) or holds_unknown(right):
        raise TypeError("a value that did not leave its process")
    if operator in _ORDERS and any(isinstance(part, float) and math.isnan(part) for part in (left, right)):
        raise ValueError("no number: neither less nor more, so that the opposite would hold")
    match operator:
        case "Eq":
            return bool(left == right)
        case "NotEq":
            return bool(left != right)
        case "Lt":
            return bool(left < right)
        case "LtE":
            return bool(left <= right)
        case "Gt":
            return bool(left > right)
        case "GtE":
            return bool(left >= right)
        case "Is":
            return left is right  # with None, True or False alone
        case "IsNot":
            return left is not right
        case "In":
            return left in right
        case "NotIn":
            return left not in right
    raise ValueError(operator)


def _calculated(operator: str, left: Any, right: Any) -> Any:
    if not all(isinstance(part, int | float | complex) for part in (left, right)):
        raise TypeError("only numbers are calculated with")  # "a" * n would be as long as the program says
    match operator:
        case "Add":
            return left + right
        case "Sub":
            return left - right
        case "Mult":
            return left * right
        case "Div":
            return left / right
    raise ValueError(operator)


def _called(name: str, parts: Sequence[Any]) -> Any:
    match name:
        case "abs":
            return abs(*parts)
        case "round":
            return round(*parts)
        case "isclose":
            left, right, relative, absolute = parts
            return left == right or abs(left - right) <= max(relative * max(abs(left), abs(right)), absolute)
    raise ValueError(name)

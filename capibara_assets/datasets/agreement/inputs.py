"""Inputs of test cases as values, and mutated inputs on which solutions of one problem can be compared.

Changes stay near the recorded inputs, where the problem is defined; `drawn.py` makes those farther away.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from random import Random
from typing import Any

from capibara_assets.datasets.agreement.common import Arguments, common, others
from capibara_assets.datasets.code.cases import Case

_TEXT = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"")
_WORDS = {"true": True, "false": False, "null": None}
_LONGEST = 2_000  # characters of a case's arguments


def value_of(form: str) -> Any:
    """The value of a case's canonical form, with lists for all that is ordered.

    Raises:
        ValueError: it is none, such as a mapping, whose form is that of no language.
    """
    try:
        tree = ast.parse(form.strip(), mode="eval").body
    except (SyntaxError, RecursionError) as error:
        raise ValueError(form) from error
    return _value(tree)


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=int() | float() | str() | None as value):
            return value
        case ast.Name(id=name) if name in _WORDS:
            return _WORDS[name]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item) for item in items]
    raise ValueError(ast.dump(node))


def arguments_of(case: Case) -> Arguments | None:
    """The arguments of a case as values; None if one is unknown."""
    if len(case.arguments) > _LONGEST:
        return None
    try:
        return tuple(value_of(f"[{case.arguments}]"))
    except ValueError:
        return None


def changed(recorded: Sequence[Arguments], seed: str, most: int, *, strict: bool = True) -> list[Arguments]:
    """At most `most` inputs that were not recorded: one argument changed, or arguments of two cases mixed.

    Args:
        recorded: inputs of one number of arguments, at least one.
        strict: lists that are sorted, or without duplicates, in every case stay so.
    """
    random, alike = Random(seed), common(recorded, strict=strict)
    pools: list[Iterator[Arguments]] = [_one_changed(each, random) for each in recorded]
    if len(recorded[0]) > 1 and len(recorded) > 1:
        pools.append(_mixed(recorded, random))
    made = (alike.kept(next(pool)) for pool in islice(cycle(pools), 20 * most))
    return others(made, recorded, most)


def _one_changed(case: Arguments, random: Random) -> Iterator[Arguments]:
    while True:
        place = random.randrange(len(case))
        yield (*case[:place], _other(case[place], random), *case[place + 1 :])


def _mixed(cases: Sequence[Arguments], random: Random) -> Iterator[Arguments]:
    while True:
        left, right = random.choice(cases), random.choice(cases)
        place = random.randrange(len(left))
        yield (*left[:place], right[place], *left[place + 1 :])


def _other(value: Any, random: Random) -> Any:
    """Another value of the same type, near to this one."""
    match value:
        case bool():
            return not value
        case int():
            return random.choice((value + 1, value - 1, value + 2, value * 2, value + 5, value // 2))
        case float():
            return round(random.choice((value + 0.5, value * 2, value - 1.0, value + 1.25)), 6)
        case str() if value:
            at = random.randrange(len(value))
            turned = value[at:] + value[:at]
            return random.choice(
                (
                    turned,
                    value[:-1],
                    value[1:],
                    value[: at + 1] + value[at:],
                    value[::-1],
                    value[:at] + value[at:].swapcase(),
                )
            )
        case list() if value:
            return _other_list(value, random)
    return value


def _other_list(value: list[Any], random: Random) -> list[Any]:
    at = random.randrange(len(value))
    changed_item = [*value[:at], _other(value[at], random), *value[at + 1 :]]
    choices = [
        changed_item,
        changed_item,
        [*value[at:], *value[:at]],
        value[::-1],
        [*value, value[at]],
        [*value, value[at]],
    ]
    if len(value) > 1:
        choices += [value[:-1], value[1:]]
    return random.choice(choices)

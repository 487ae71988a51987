"""Inputs of test cases as values, and mutated inputs on which solutions of one problem can be compared.

Changes stay near the recorded inputs, where the problem is defined: types stay, numbers keep their sign, sorted lists
stay sorted, and a number that is a list's length in every case stays its length.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from capibara_assets.datasets.code.cases import Case

Arguments = tuple[Any, ...]

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
        strict: lists that are sorted, or without duplicates, in every case stay so.
    """
    width = len(recorded[0])
    alike = [each for each in recorded if len(each) == width]
    random = Random(seed)
    lengths = _lengths(alike)
    rules = [_Rule(tuple(each[i] for each in alike), strict) for i in range(width)]
    distinct: dict[str, Arguments] = {repr(each): each for each in recorded}
    own = len(distinct)
    pools: list[Iterator[Arguments]] = [_one_changed(each, rules, random) for each in alike]
    if width > 1 and len(alike) > 1:
        pools.append(_mixed(alike, random))
    for _ in range(20 * most):
        if len(distinct) - own >= most or not pools:
            break
        pool = pools.pop(0)
        made = next(pool, None)
        if made is None:
            continue
        pools.append(pool)
        made = tuple(len(made[lengths[i]]) if i in lengths else value for i, value in enumerate(made))
        distinct.setdefault(repr(made), made)
    return list(distinct.values())[own:]


def _lengths(cases: Sequence[Arguments]) -> dict[int, int]:
    """Positions of numbers -> position of the list whose length each is in every case."""
    width = range(len(cases[0]))
    return {
        i: j
        for i in width
        for j in width
        if all(isinstance(case[j], list | str) and type(case[i]) is int and case[i] == len(case[j]) for case in cases)
    }


class _Rule:
    """What the values at one place have in common in every recorded case."""

    def __init__(self, values: Sequence[Any], strict: bool) -> None:
        flat = [number for value in values for number in _numbers(value)]
        self.least = 1 if flat and min(flat) >= 1 else 0 if flat and min(flat) >= 0 else None
        lists = [value for value in values if isinstance(value, list) and len(value) > 1]
        self.ascending = strict and bool(lists) and all(_is_sorted(one) for one in lists)
        self.distinct = strict and bool(lists) and all(len({repr(item) for item in one}) == len(one) for one in lists)

    def kept(self, value: Any) -> Any:
        """Adjust a value to the property that all inputs share."""
        if self.least is not None and isinstance(value, int | float) and not isinstance(value, bool):
            return type(value)(max(value, self.least))
        if isinstance(value, list):
            value = [self.kept(item) for item in value]
            if self.distinct:
                value = list({repr(item): item for item in value}.values())
            if self.ascending and _is_comparable(value):
                value = sorted(value)
        return value


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, list):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def _is_comparable(values: list[Any]) -> bool:
    return all(type(v) in (int, float) for v in values) or all(type(v) is str for v in values)


def _is_sorted(values: list[Any]) -> bool:
    return _is_comparable(values) and values == sorted(values)


def _one_changed(case: Arguments, rules: Sequence[_Rule], random: Random) -> Iterator[Arguments]:
    while True:
        place = random.randrange(len(case)) if case else 0
        if not case:
            return
        value = rules[place].kept(_other(case[place], random))
        yield (*case[:place], value, *case[place + 1 :])


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

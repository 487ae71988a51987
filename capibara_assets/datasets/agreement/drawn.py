"""Inputs farther from the recorded ones than `inputs.changed`: drawn anew from what these are made of, and at edges.

They keep what all recorded inputs have in common (`common.py`).
"""

import string
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from capibara_assets.datasets.agreement.common import Arguments, Common, common, others

_AGAIN = 0.25  # share of a list's items that repeat one before
_NEAR = 0.3  # share of numbers that are near a recorded one
_MEMBER = 0.5  # share of values that are an item of a list, where a case has one that is
_TRIES = 6
_EDGE_CASES = 3  # recorded inputs that are changed to ones at an edge
_ALPHABETS = (string.ascii_lowercase, string.ascii_uppercase)


def drawn(recorded: Sequence[Arguments], seed: str, most: int, *, strict: bool = True) -> list[Arguments]:
    """At most `most` inputs that were not recorded, with every argument drawn anew.

    Args:
        recorded: inputs of one number of arguments.
        strict: lists that are sorted, or without duplicates, in every case stay so.
    """
    random, alike = Random(seed), common(recorded, strict=strict)
    columns = list(zip(*recorded, strict=True))
    free = [i for i in range(len(columns)) if i not in alike.lengths and i not in alike.places]
    holders = {i: [j for j in range(len(columns)) if _is_member(recorded, i, j)] for i in free}
    made = (_drawn(columns, alike, holders, random) for _ in range(_TRIES * most))
    return others(made, recorded, most)


def edges(recorded: Sequence[Arguments], most: int) -> list[Arguments]:
    """At most `most` inputs with one argument at an edge: empty, of one or of equal items, doubled, 0 or 1."""
    alike = common(recorded, strict=False)
    made = (
        alike.kept((*case[:i], value, *case[i + 1 :]))
        for i in range(len(recorded[0]))
        for case in recorded[:_EDGE_CASES]
        for value in _edges(case[i])
    )
    return others(made, recorded, most)


def _drawn(
    columns: Sequence[Sequence[Any]], alike: Common, holders: Mapping[int, Sequence[int]], random: Random
) -> Arguments:
    """One input; `holders`: positions of values -> positions of lists that have the value as an item in some case."""
    made = list(alike.kept([_value(column, random) for column in columns]))
    for i, j in alike.places.items():
        least, size = alike.rules[i].least or 0, len(made[j])
        made[i] = random.randint(min(least, size), max(least, size - 1))
    for i, those in holders.items():
        lists = [made[j] for j in those if isinstance(made[j], list) and made[j]]
        if lists and not isinstance(made[i], list) and random.random() < _MEMBER:
            made[i] = random.choice(lists[0])
    return tuple(made)


def _is_member(recorded: Sequence[Arguments], i: int, j: int) -> bool:
    """Whether an argument is an item of another in some case."""
    return any(isinstance(case[j], list) and case[i] in case[j] for case in recorded)


def _value(values: Sequence[Any], random: Random) -> Any:
    """A value like the recorded ones at a place."""
    like = random.choice(values)
    alike = [value for value in values if type(value) is type(like)]
    match like:
        case bool():
            return random.random() < 1 / 2
        case int():
            return _integer(alike, random)
        case float():
            return round(random.uniform(min(0.0, 2 * min(alike)), 2 * max(0.5, *alike)), 2)
        case str():
            return _text(alike, random)
        case list():
            return _list(alike, random)
    return like


def _integer(values: Sequence[int], random: Random) -> int:
    low, high = min(values), max(values)
    if random.random() < _NEAR:
        return random.choice(values) + random.choice((-3, -2, -1, 1, 2, 3))
    return random.randint(low // 2 if low >= 0 else 2 * low, max(2 * high, high + 5))


def _list(values: Sequence[list[Any]], random: Random) -> list[Any]:
    items = [item for value in values for item in value]
    if not items:
        return []
    shortest, longest = min(map(len, values)), max(map(len, values))
    if all(isinstance(item, list) for item in items):
        table = _table(values, items, longest, random)
        if table is not None:
            return table
    made: list[Any] = []
    for _ in range(random.randint(min(shortest, 1), 2 * longest + 1)):
        made.append(random.choice(made) if made and random.random() < _AGAIN else _value(items, random))
    return made


def _table(
    values: Sequence[list[Any]], items: Sequence[list[Any]], longest: int, random: Random
) -> list[list[Any]] | None:
    """Pairs and the like, column by column, or rows of one length; None where the recorded lists are neither."""
    widths = {len(item) for item in items}
    if len(widths) == 1 and 0 not in widths:
        columns = list(zip(*items, strict=True))
        square = all(len(value) == len(columns) for value in values)
        count = len(columns) if square else random.randint(1, 2 * longest)
        return [[_value(column, random) for column in columns] for _ in range(count)]
    cells = [cell for item in items for cell in item]
    if not cells or any(len({len(item) for item in value}) > 1 for value in values):
        return None
    count = random.randint(1, longest + 2)
    across = (
        count if all(len(value) == len(value[0]) for value in values if value) else random.randint(1, max(widths) + 1)
    )
    return [[_value(cells, random) for _ in range(across)] for _ in range(count)]


def _text(values: Sequence[str], random: Random) -> str:
    """Words of the recorded texts in another number, two of them joined, or other characters of theirs."""
    words = [word for value in values for word in value.split()]
    way = random.random()
    if any(" " in value.strip() for value in values) and way < 0.6:
        count = random.randint(1, max(len(value.split()) for value in values) + 3)
        return " ".join(random.choice((word, _renamed(word, random))) for word in random.choices(words, k=count))
    if way < 0.8:
        left, right = random.choice(values), random.choice(values)
        joined = left[: random.randint(0, len(left))] + right[random.randint(0, max(len(right) - 1, 0)) :]
        return random.choice((joined, _renamed(joined, random), joined + joined[: len(joined) // 2]))
    characters = sorted({character for value in values for character in value})
    length = random.randint(1, max(map(len, values)) + 3) if characters else 0
    return _renamed("".join(random.choices(characters, k=length)), random)


def _renamed(text: str, random: Random) -> str:
    """The text with its letters and digits replaced, equal ones by equal ones; binary numbers stay binary."""
    kinds = [*_ALPHABETS, *([string.digits] if set(text) & set("23456789") else [])]
    table: dict[str, str] = {}
    for kind in kinds:
        if set(text) & set(kind):
            table |= dict(zip(kind, random.sample(kind, len(kind)), strict=True))
    return "".join(table.get(character, character) for character in text)


def _edges(value: Any) -> list[Any]:
    match value:
        case bool():
            return [not value]
        case int():
            return [0, 1, 2]
        case list() if value:
            return [[], value[:1], [value[0]] * 3, [*value, *value]]
        case str() if value:
            spaced = [value.replace(" ", "  ")] if " " in value else []
            return ["", value[0], value[0] * 3, value + value, *spaced]
    return []

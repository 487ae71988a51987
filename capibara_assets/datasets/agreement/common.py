"""What the recorded inputs of a problem have in common, which other inputs of it have to keep.

Types stay, numbers keep their sign, single characters stay single and texts without spaces around them, sorted lists
stay sorted and those without duplicates stay so, pairs stay pairs, lists of one length stay of one length, and a number
that is a list's length in every case stays its length.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Arguments = tuple[Any, ...]


class ValueRule:
    """What the values at one place have in common in every recorded case."""

    def __init__(self, values: Sequence[Any], strict: bool) -> None:
        flat = [number for value in values for number in _numbers(value)]
        self.least = 1 if flat and min(flat) >= 1 else 0 if flat and min(flat) >= 0 else None
        lists = [value for value in values if isinstance(value, list) and len(value) > 1]
        self.ascending = strict and bool(lists) and all(_is_sorted(one) for one in lists)
        self.distinct = strict and bool(lists) and all(len({repr(item) for item in one}) == len(one) for one in lists)
        texts = [value for value in values if isinstance(value, str)]
        self.single = min(texts) if texts and all(len(text) == 1 for text in texts) else None  # one of them
        self.stripped = all(text == text.strip() for text in texts)
        items = [item for value in values if isinstance(value, list) for item in value]
        self.items = ValueRule(items, strict) if items else None
        rows = [value for value in values if isinstance(value, list) and value]
        self.even = bool(items) and all(isinstance(item, list) for item in items) and all(map(_is_even, rows))
        widths = {len(item) for item in items} if self.even else set()
        self.width = widths.pop() if len(widths) == 1 else None

    def kept(self, value: Any) -> Any:
        """Adjust a value to the property that all inputs share."""
        if self.least is not None and isinstance(value, int | float) and not isinstance(value, bool):
            return type(value)(max(value, self.least))
        if isinstance(value, str):
            return self._kept_text(value)
        if isinstance(value, list):
            value = [self.items.kept(item) for item in value] if self.items is not None else value
            if self.even and value:
                width = self.width or min(map(len, value))
                value = [item[:width] for item in value if len(item) >= width]
            if self.distinct:
                value = list({repr(item): item for item in value}.values())
            if self.ascending and _is_comparable(value):
                value = sorted(value)
        return value

    def _kept_text(self, text: str) -> str:
        text = text.strip() if self.stripped else text
        return text if self.single is None else text[:1] or self.single


@dataclass(frozen=True)
class Common:
    """What all arguments of the recorded cases keep.

    Attributes:
        rules: of each position.
        lengths: positions of numbers -> position of the list or text whose length each is.
        places: positions of other numbers -> position of the list or text in which each is a place, or its end.
        as_long: positions of lists that are as long as each other, in sets of two or more.
    """

    rules: tuple[ValueRule, ...]
    lengths: dict[int, int]
    places: dict[int, int]
    as_long: list[list[int]]

    def kept(self, arguments: Sequence[Any]) -> Arguments:
        """Adjust arguments to what is common; `places` is left to who makes numbers."""
        made = [rule.kept(value) for rule, value in zip(self.rules, arguments, strict=True)]
        for together in self.as_long:
            shortest = min(len(made[i]) for i in together)
            for i in together:
                made[i] = made[i][:shortest]
        for i, j in self.lengths.items():
            made[i] = len(made[j])
        return tuple(made)


def common(cases: Sequence[Arguments], *, strict: bool) -> Common:
    """What cases of one number of arguments have in common.

    Args:
        strict: lists that are sorted, or without duplicates, in every case stay so.
    """
    columns = list(zip(*cases, strict=True))
    numbers = [i for i, column in enumerate(columns) if all(type(value) is int for value in column)]
    sized = [i for i, column in enumerate(columns) if all(isinstance(value, list | str) for value in column)]
    by_size: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for i in sized:
        if all(isinstance(value, list) for value in columns[i]):
            by_size[tuple(map(len, columns[i]))].append(i)

    def related(holds: Callable[[int, int], bool]) -> dict[int, int]:
        return {
            i: j
            for i in numbers
            for j in sized
            if all(holds(number, len(value)) for number, value in zip(columns[i], columns[j], strict=True))
        }

    lengths = related(lambda number, size: number == size)
    places = related(lambda number, size: 0 <= number <= size)
    return Common(
        rules=tuple(ValueRule(column, strict) for column in columns),
        lengths=lengths,
        places={i: j for i, j in places.items() if i not in lengths},
        as_long=[together for together in by_size.values() if len(together) > 1],
    )


def others(made: Iterable[Arguments], recorded: Iterable[Arguments], most: int) -> list[Arguments]:
    """At most `most` of the made inputs that were not recorded, each once; no more are made than that takes."""
    known = {repr(each) for each in recorded}
    found: dict[str, Arguments] = {}
    for each in made:
        if repr(each) not in known:
            found.setdefault(repr(each), each)
        if len(found) >= most:
            break
    return list(found.values())


def _is_even(rows: Sequence[Any]) -> bool:
    return len({len(row) for row in rows}) == 1


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

"""Copies of a JSON value with parts of it replaced or gone, the same at every call: readers must not raise for them."""

import copy
import random
from collections.abc import Iterator
from typing import Any

REPLACEMENTS: list[Any] = [
    None,
    True,
    -1,
    3.5,
    1e308,
    float("nan"),
    "",
    "x",
    "\n",
    "{",
    "\ud800",
    [],
    [1],
    [[]],
    {},
    {"a": 1},
    [{}],
]


def damaged_values(value: Any, count: int = 300) -> Iterator[Any]:
    """Copies of `value`, one to four places of each replaced by a value of another kind, or taken away."""
    drawn = random.Random(20)
    for _ in range(count):
        made = copy.deepcopy(value)
        for _ in range(drawn.randint(1, 4)):
            holder, key = drawn.choice(list(places_in([made])))
            if isinstance(holder, dict) and drawn.random() < 0.2:
                del holder[key]
            elif holder != [made]:
                holder[key] = copy.deepcopy(drawn.choice(REPLACEMENTS))
        yield made


def places_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """(holder, key) of each value in an object or a list, at any depth."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places_in(value[key])

"""Inputs far from the recorded ones, and at edges: what all recorded inputs have in common stays so."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.datasets.agreement.common import Arguments, common
from capibara_assets.datasets.agreement.drawn import drawn, edges
from capibara_assets.datasets.agreement.inputs import changed


def is_long(xs: list[Any], n: int) -> bool:
    return len(xs) == n


RELATED: list[tuple[list[Arguments], Callable[..., bool]]] = [
    ([([3, 3, 4], 3), ([1, 2, 2, 8], 4)], is_long),
    ([(5, [1, 2, 3, 4, 3]), (3, [3, 1, 2])], lambda n, xs: is_long(xs, n)),
    ([([1, 12], [2, 13], 2), ([2, 4, 8], [7, 13, 19], 3)], lambda a, b, n: len(a) == len(b) == n),
    ([([1, 12], [2, 13], [3, 9]), ([2, 4, 8], [7, 13, 19], [0, 5, 6])], lambda a, b, c: len(a) == len(b) == len(c)),
    ([([4, 2, 9],), ([7, 1],)], lambda xs: all(x >= 1 for x in xs)),
    ([([1, 4, 9], 4), ([2, 3], 2)], lambda xs, x: xs == sorted(xs) and len(set(xs)) == len(xs)),
    ([([[1, 4], [2, 2]],), ([[5, 6], [1, 1], [3, 9]],)], lambda pairs: all(len(pair) == 2 for pair in pairs)),
    ([([[1, 0, 1], [0, 0, 1]],), ([[1, 1]],)], lambda rows: len({len(row) for row in rows}) == 1),
    ([("ab c", "b"), ("d", "d")], lambda text, c: len(c) == 1 and text == text.strip()),
    ([(["b", "a"], 2.5), (["c"], 0.5)], lambda xs, x: all(isinstance(s, str) for s in xs) and x >= 0),
]


@pytest.mark.parametrize(("recorded", "holds"), RELATED)
def test_what_is_common_stays(recorded: list[Arguments], holds: Callable[..., bool]) -> None:
    for made in (changed(recorded, "seed", 40), drawn(recorded, "seed", 40)):
        assert len(made) > 10 and all(holds(*one) for one in made) and not any(one in recorded for one in made)


def test_a_place_in_a_list_stays_in_it() -> None:
    made = drawn([(["a", "b", "c"], 1), (["d", "e"], 0), (["f"], 0)], "seed", 40)
    assert all(0 <= at < len(xs) for xs, at in made) and len({at for _, at in made}) > 2


def test_drawn_inputs_go_where_changed_ones_do_not() -> None:
    """Letters that no case has, longer lists, items that repeat."""
    texts = {character for (text,) in drawn([("abab",), ("aab",)], "seed", 40) for character in text}
    assert len(texts) > 10
    lists = [xs for (xs,) in drawn([([1, 5],), ([7, 2, 9],)], "seed", 40, strict=False)]
    assert max(map(len, lists)) > 5 and any(len(set(xs)) < len(xs) for xs in lists)
    assert {character for (text,) in drawn([("0110",), ("10",)], "seed", 40) for character in text} == {"0", "1"}


def test_the_same_seed_draws_the_same() -> None:
    recorded: list[Arguments] = [([1, 2], "a b"), ([3], "c d e")]
    assert drawn(recorded, "seed", 20) == drawn(recorded, "seed", 20) != drawn(recorded, "other", 20)


def test_edges_are_empty_single_equal_and_doubled() -> None:
    assert edges([([4, 5],)], 12) == [([],), ([4],), ([4, 4, 4],), ([4, 5, 4, 5],)]
    assert edges([("a b",)], 12) == [("",), ("a",), ("aaa",), ("a ba b",), ("a  b",)]
    assert [n for (n,) in edges([(7,), (9,)], 12)] == [0 + 1, 2]  # none of the cases is below one
    assert edges([([1, 2], 2), ([3], 1)], 12)[0] == ([], 0)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(SCALARS, lambda items: st.lists(items, max_size=4), max_leaves=12)


@given(st.integers(1, 3).flatmap(lambda width: st.lists(st.tuples(*[VALUES] * width), min_size=1, max_size=4)))
def test_whatever_was_recorded_there_are_other_inputs_or_none(recorded: list[Arguments]) -> None:
    found = common(recorded, strict=True)
    for made in (changed(recorded, "seed", 6), drawn(recorded, "seed", 6), edges(recorded, 6)):
        assert len(made) <= 6 and all(len(one) == len(recorded[0]) for one in made)
        assert all(one[i] == len(one[j]) for one in made for i, j in found.lengths.items())


def test_what_cannot_be_varied_gives_nothing() -> None:
    assert drawn([(None,), ([],)], "seed", 5) == [] and edges([(None,), ([],)], 5) == []


def test_values_of_several_types_at_one_place_are_drawn_by_type() -> None:
    made = drawn([([1, [2, 3]], 2), (4, 4), ("ab", 1)], "seed", 30)
    assert {type(value) for value, _ in made} == {list, int, str}


def test_relations_are_told() -> None:
    found = common([([1, 2], 2, 1, [4, 5]), ([3], 1, 0, [6])], strict=True)
    assert (found.lengths, found.places, found.as_long) == ({1: 3}, {2: 3}, [[0, 3]])
    assert found.kept(([1, 2, 3], 9, 1, [7, 8])) == ([1, 2], 2, 1, [7, 8])

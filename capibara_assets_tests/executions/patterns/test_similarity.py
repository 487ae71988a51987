"""Edit distance and diff of programs."""

import random

from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.executions.patterns.similarity import distance, similarity, unified_diff

TOKENS = st.lists(st.sampled_from("abcd"), max_size=14)


def textbook(a: list[str], b: list[str]) -> int:
    previous = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        current = [i]
        for j, y in enumerate(b, 1):
            current.append(min(previous[j] + 1, current[-1] + 1, previous[j - 1] + (x != y)))
        previous = current
    return previous[-1]


@given(TOKENS, TOKENS)
def test_distance_is_levenshteins(a: list[str], b: list[str]) -> None:
    assert distance(a, b) == textbook(a, b) == distance(b, a)
    assert 0 <= similarity(a, b) <= 1


def test_distance_of_long_lists() -> None:
    draw = random.Random(5)
    for _ in range(5):
        a, b = (draw.choices("abcdefgh", k=draw.randrange(200, 400)) for _ in range(2))
        assert distance(a, b) == textbook(a, b)


@given(
    st.lists(st.sampled_from(["a = 1", "b = 2", "", "print(a)"]), max_size=8),
    st.lists(st.sampled_from(["a = 1", "c"]), max_size=8),
)
def test_a_diff_holds_both_sides(failing: list[str], fixed: list[str]) -> None:
    before, after = "\n".join(failing), "\n".join(fixed)
    diff = unified_diff(before, after).split("\n")[2:]
    added = [entry[1:] for entry in diff if entry.startswith("+")]
    removed = [entry[1:] for entry in diff if entry.startswith("-")]
    assert set(added) <= set(after.split("\n"))
    assert set(removed) <= set(before.split("\n"))
    assert len(added) - len(removed) == after.count("\n") - before.count("\n")

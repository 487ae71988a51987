"""Nobody has more than a share of what is kept; where that makes no sense it is said."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.datasets.poison.share import Author, Capped, most_each, within_share

Item = tuple[str, Author]


def items(**counts: int) -> list[Item]:
    return [(f"{agent}-{n:03}", Author(None, agent)) for agent, count in counts.items() for n in range(count)]


def capped(those: list[Item], most: float | None, floor: int = 0) -> Capped:
    return within_share(those, lambda item: item[1], lambda item: item[0], most, floor)


def kept(those: list[Item], most: float | None, floor: int = 0) -> dict[str | None, int]:
    return dict(Counter(author.agent for _, author in capped(those, most, floor).kept))


def test_the_surplus_of_the_largest_is_left_out_highest_digests_first() -> None:
    found = capped(items(a=80, b=10, c=10), 0.5)
    assert Counter(author.agent for _, author in found.kept) == {"a": 20, "b": 10, "c": 10}
    assert [name for name, author in found.kept if author.agent == "a"] == [f"a-{n:03}" for n in range(20)]
    assert found.notes == ()


def test_who_has_less_loses_nothing() -> None:
    assert kept(items(a=65, b=35), 0.7) == {"a": 65, "b": 35}
    assert kept(items(a=80, b=35), None) == {"a": 80, "b": 35}


def test_two_that_are_large_are_cut_alike() -> None:
    assert kept(items(a=50, b=40, c=10), 0.4) == {"a": 20, "b": 20, "c": 10}


@pytest.mark.parametrize(
    ("counts", "most"), [({"a": 9}, 0.7), ({"a": 9, "b": 1}, 0.4), ({"a": 9, "b": 1, "c": 1}, 0.3)]
)
def test_a_cap_below_equal_shares_is_said_and_not_applied(counts: dict[str, int], most: float) -> None:
    found = capped(items(**counts), most)
    assert len(found.kept) == sum(counts.values())
    assert found.notes == (f"{len(counts)} agent(s): each may have more than {most:.0%}, so that no share is capped",)


def test_the_domain_does_not_fall_below_its_floor_and_that_is_said() -> None:
    found = capped(items(a=90, b=10), 0.5, floor=40)
    assert Counter(author.agent for _, author in found.kept) == {"a": 30, "b": 10}
    assert found.notes == (
        "agent a has 75% of the training examples, more than 50%: with fewer than 40 the domain would be too small",
    )


def test_many_ids_of_one_tenant_are_one_author() -> None:
    those = [(f"{n:03}", Author("acme", f"id-{n}")) for n in range(80)]
    others = [(f"{n:03}", Author("other", f"id-{n}")) for n in range(80, 100)]
    found = within_share([*those, *others], lambda item: item[1], lambda item: item[0], 0.6, 0)
    assert Counter(author.tenant for _, author in found.kept) == {"acme": 30, "other": 20}


def test_who_names_no_agent_is_one_author_whatever_the_sandboxes() -> None:
    silent = [(f"{n:03}", Author(None, None)) for n in range(80)]
    assert kept([*silent, *items(a=10, b=10)], 0.5) == {None: 20, "a": 10, "b": 10}


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 40), min_size=2),
    st.sampled_from((0.5, 0.6, 0.9)),
    st.randoms(),
)
def test_the_order_does_not_matter_and_nobody_has_more(counts: dict[str, int], most: float, dice: object) -> None:
    those = items(**counts)
    found = capped(those, most).kept
    have = Counter(author for _, author in found)
    assert max(have.values()) <= most * len(found) + 1e-9
    dice.shuffle(those)  # type: ignore[attr-defined]
    assert sorted(capped(those, most).kept) == sorted(found)
    allowed = most_each(list(counts.values()), most, 0)
    more = [min(count, allowed + 1) for count in counts.values()]
    assert allowed == max(counts.values()) or max(more) > most * sum(more), "nothing is left out without need"

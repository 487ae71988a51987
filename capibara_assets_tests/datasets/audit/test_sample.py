"""The sample: the same examples each time, of every kind and source, no more than there are."""

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.datasets.audit.sample import draw
from capibara_assets.datasets.schema import Example, Kind
from capibara_assets.storage.records import table
from capibara_assets_tests.datasets.test_checks import example

KINDS: tuple[Kind, ...] = ("solve", "repair", "explain")


@given(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4), size=st.integers(0, 16), seed=st.integers(0, 99))
def test_each_kind_and_source_has_its_share(sizes: list[int], size: int, seed: int) -> None:
    examples = [
        example(f"{place}-{number}", "Write it.", kind=KINDS[place % 3], source=f"s{place}")
        for place, many in enumerate(sizes)
        for number in range(many)
    ]
    drawn = draw(table(Example, examples), size)
    Random(seed).shuffle(examples)
    assert [one.row["example_id"] for one in draw(table(Example, examples), size)] == [
        one.row["example_id"] for one in drawn
    ]
    found = Counter(one.row["source"] for one in drawn)
    assert found.total() == min(size, sum(sizes)) and all(found[f"s{i}"] <= many for i, many in enumerate(sizes))
    if size >= len(sizes):
        assert len(found) == len(sizes)
    places = range(len(sizes))
    smaller = [(one, other) for one in places for other in places if sizes[one] < sizes[other]]
    assert size < len(sizes) or all(found[f"s{one}"] <= found[f"s{other}"] for one, other in smaller)


def test_the_reason_says_how_many_there_are() -> None:
    rows = table(Example, [example(name, "Write it.", source="north") for name in "abcde"])
    assert [one.why for one in draw(rows, 2)] == [f"{n} of 2 drawn of 5 solve of north" for n in (1, 2)]

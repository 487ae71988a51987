"""Near-duplicates: exact Jaccard decides, MinHash only proposes."""

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capibara_assets.datasets.near_duplicates import jaccard, near_pairs
from capibara_assets.datasets.recipe import NearDuplicates

SETTINGS = NearDuplicates.model_validate({})
documents = st.lists(st.frozensets(st.sampled_from([f"w{i}" for i in range(12)])), max_size=12)


@given(documents)
@settings(max_examples=60, deadline=None)
def test_every_pair_found_reaches_the_threshold(found: list[frozenset[str]]) -> None:
    for left, right in near_pairs(found, SETTINGS):
        assert left < right
        assert jaccard(found[left], found[right]) >= SETTINGS.jaccard


@given(documents)
@settings(max_examples=60, deadline=None)
def test_equal_documents_are_always_found(found: list[frozenset[str]]) -> None:
    pairs = set(near_pairs([*found, *found], SETTINGS))
    assert all((i, i + len(found)) in pairs for i, document in enumerate(found) if document)


def test_recall_against_brute_force() -> None:
    base = [frozenset(f"{n}-{i}" for i in range(60)) for n in range(100)]
    near = [
        frozenset([*sorted(document)[: 60 - n % 9], *(f"new{n}-{i}" for i in range(n % 9))])
        for n, document in enumerate(base)
    ]
    found = [*base, *near]
    exact = {(i, j) for i in range(200) for j in range(i + 1, 200) if jaccard(found[i], found[j]) >= SETTINGS.jaccard}
    pairs = set(near_pairs(found, SETTINGS))
    assert pairs <= exact
    assert len(exact) > 50
    assert len(pairs) >= 0.9 * len(exact)


def test_thousands_of_equal_documents_take_linear_time() -> None:
    pairs = near_pairs([frozenset({"a", "b"})] * 1000, SETTINGS)
    assert len(pairs) < 1000 * 65
    assert {j for _, j in pairs} == set(range(1, 1000))


def test_bands_must_divide_the_permutations() -> None:
    with pytest.raises(pydantic.ValidationError, match="divide"):
        NearDuplicates.model_validate({"permutations": 100, "bands": 14})

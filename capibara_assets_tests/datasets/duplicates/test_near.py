"""Near-duplicates: exact Jaccard decides, the search only proposes, and misses nothing."""

import random

import numpy as np
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.datasets.duplicates.near import components, jaccard, near_pairs, near_texts
from capibara_assets.datasets.recipe import NearDuplicates

SETTINGS = NearDuplicates.model_validate({})
documents = st.lists(st.frozensets(st.sampled_from([f"w{i}" for i in range(12)])), max_size=12)


@given(documents)
def test_every_pair_found_reaches_the_threshold(found: list[frozenset[str]]) -> None:
    for left, right in near_pairs(found, SETTINGS):
        assert left < right
        assert jaccard(found[left], found[right]) >= SETTINGS.jaccard


@given(documents)
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
    assert len(exact) > 50
    assert pairs == exact


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.frozensets(st.integers(0, 30), max_size=5)).map(
            lambda drawn: frozenset(f"{drawn[0]}-{n}" for n in range(31) if n not in drawn[1])
        ),
        max_size=14,
    )
)
def test_no_pair_is_missed_in_a_small_crowd(found: list[frozenset[str]]) -> None:
    exact = [
        (i, j)
        for i in range(len(found))
        for j in range(i + 1, len(found))
        if jaccard(found[i], found[j]) >= SETTINGS.jaccard
    ]
    assert near_pairs(found, SETTINGS) == exact


@pytest.mark.parametrize("threshold", [0.5, 0.55, 0.75, 0.8, 0.95, 1.0])
def test_no_pair_is_missed_at_other_thresholds(threshold: float) -> None:
    settings_ = NearDuplicates.model_validate({"jaccard": threshold})
    chance = random.Random(7)
    words = [f"w{n}" for n in range(25)]
    found = [frozenset(chance.sample(words, chance.randrange(15, 25))) for _ in range(120)]
    exact = [(i, j) for j in range(120) for i in range(j) if jaccard(found[i], found[j]) >= threshold]
    assert near_pairs(found, settings_) == sorted(exact)


def test_a_subset_at_the_very_threshold_is_found() -> None:
    # 0.55 * 100 is 55.00000000000001 in floating point
    whole = [f"w{n}" for n in range(100)]
    settings_ = NearDuplicates.model_validate({"jaccard": 0.55})
    assert near_pairs([frozenset(whole), frozenset(whole[:55]), frozenset(whole[:54])], settings_) == [(0, 1), (1, 2)]


def test_texts_give_the_pairs_of_their_shingles() -> None:
    words = [f"w{n}" for n in range(70)]
    texts = [" ".join(words), " ".join([*words[:69], "x"]), "W0\nw1 " + " ".join(words[2:]), "w0 w1", "W0, w1!", ""]
    pairs = near_texts(texts, SETTINGS)
    assert list(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)) == [(0, 1), (0, 2), (1, 2), (3, 4)]
    assert pairs.similarity.tolist() == pytest.approx([65 / 67, 1, 65 / 67, 1])
    assert components(pairs.left, pairs.right, 6).tolist() == [0, 0, 0, 3, 3, 5]


@pytest.mark.parametrize("documents", [1000, pytest.param(2500, marks=pytest.mark.extended)])
def test_crowds_that_all_share_rare_shingles_take_linear_time_and_stay_connected(documents: int) -> None:
    # each has the frame of the template, and words of its own: all resemble all
    frame = frozenset(f"f{n}" for n in range(95))
    found = [frame | {f"own{n}-{i}" for i in range(5)} for n in range(documents)]
    pairs = near_pairs(found, SETTINGS)
    assert len(pairs) < documents * 65 * 4 < documents**2 / 3  # all pairs are more
    left, right = np.array(pairs).T
    assert set(components(left, right, len(found)).tolist()) == {0}


def test_thousands_of_equal_documents_take_linear_time() -> None:
    pairs = near_pairs([frozenset({"a", "b"})] * 1000, SETTINGS)
    assert len(pairs) < 1000 * 65
    assert {j for _, j in pairs} == set(range(1, 1000))


def test_bands_must_divide_the_permutations() -> None:
    with pytest.raises(pydantic.ValidationError, match="divide"):
        NearDuplicates.model_validate({"permutations": 100, "bands": 14})

"""Hashed n-grams: the same for equal text, the words and bytes of a prompt, bounded work."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.evaluation.routing import ngrams


@given(st.text(max_size=200))
def test_any_text_gives_sorted_buckets_of_length_one(text: str):
    found, weights = ngrams.hashed(text)
    assert (np.diff(found) > 0).all() and found.min() >= 0 and found.max() < ngrams.FEATURES
    assert np.square(weights, dtype=np.float64).sum() == pytest.approx(1.0, abs=1e-5) and (weights > 0).all()


@given(st.lists(st.text(max_size=50), max_size=4))
def test_many_prompts_are_the_rows_of_each_alone(prompts: list[str]):
    rows = ngrams.hashed_rows(prompts)
    assert rows.shape == (len(prompts), ngrams.FEATURES)
    for number, prompt in enumerate(prompts):
        found, weights = ngrams.hashed(prompt)
        dense = np.zeros(ngrams.FEATURES, np.float32)
        dense[found] = weights
        np.testing.assert_array_equal(rows[[number]].toarray()[0], dense)


def similarity(one: str, other: str) -> float:
    rows = ngrams.hashed_rows([one, other]).toarray()
    return float(rows[0] @ rows[1])


def test_case_and_white_space_do_not_count_but_order_and_words_do():
    assert similarity("Select  all\n ROWS", "select all rows") == pytest.approx(1.0)
    assert similarity("alpha beta gamma delta", "delta gamma beta alpha") < 0.99
    shared = similarity("count the orders of a customer", "count the orders of a harbour")
    assert 0.9 > shared > 2 * similarity("count the orders of a customer", "zig xylem quux")


def test_a_word_hashes_the_same_wherever_it_stands():
    """The numbers of words come out of running sums: their place must not show."""
    for text in ("a select", "something before it select", "select"):
        padded = np.frombuffer(f" {text} ".encode(), np.uint8)
        words = ngrams._words(padded)[0]
        alone = ngrams._words(np.frombuffer(b" select ", np.uint8))[0]
        assert words[-1] == alone[0]


def test_of_a_long_prompt_both_ends_are_read():
    middle = "x " * ngrams.LONGEST
    ends = f"begin {middle} end"
    assert similarity(ends, f"begin {middle} {middle} end") == pytest.approx(1.0)
    assert similarity(ends, f"begin {middle} other") < 1 - 1e-6

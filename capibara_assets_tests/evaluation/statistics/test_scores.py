"""pass@k against exact fractions, at the counts of papers and at large ones; and the likeness of texts."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.evaluation.grading.grade import Grade
from capibara_assets.evaluation.items.items import Check, CheckKind, Item
from capibara_assets.evaluation.statistics.scores import graded_scores, likeness, pass_at_k


def exact(n: int, c: int, k: int) -> float:
    return float(1 - Fraction(math.comb(n - c, k), math.comb(n, k)))


@pytest.mark.parametrize(
    ("n", "c", "k"),
    [
        *[(1, 0, 1), (1, 1, 1), (10, 3, 1), (200, 0, 100), (200, 7, 100), (200, 100, 10), (200, 200, 1), (5, 2, 5)],
        *[(50_000, 17, 20_000), (50_000, 20_000, 3), (50_000, 1, 1), (20_000, 9_999, 10_000), (20_000, 12, 11)],
    ],
)
def test_the_published_estimator(n: int, c: int, k: int) -> None:
    assert abs(pass_at_k(n, c, k) - exact(n, c, k)) < 1e-12


@given(st.data())
def test_any_counts(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 3000))
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    assert abs(pass_at_k(n, c, k) - exact(n, c, k)) < 1e-9
    assert pass_at_k(n, c, 1) == pytest.approx(c / n)


def test_it_is_unbiased() -> None:
    """The mean over all draws of n answers with chance p is 1 − (1 − p)^k, whatever n is."""
    p, n, k = 0.3, 12, 4
    mean = math.fsum(math.comb(n, c) * p**c * (1 - p) ** (n - c) * pass_at_k(n, c, k) for c in range(n + 1))
    assert mean == pytest.approx(1 - (1 - p) ** k, abs=1e-12)


def test_small_chances_keep_their_digits() -> None:
    assert pass_at_k(10**9, 1, 1) == pytest.approx(1e-9, rel=1e-12)


@pytest.mark.parametrize(("n", "c", "k"), [(0, 0, 1), (5, 6, 1), (5, -1, 1), (5, 1, 6), (5, 1, 0)])
def test_counts_that_make_no_sense(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match=f"n={n}, c={c}, k={k}"):
        pass_at_k(n, c, k)


def graded(check: CheckKind, kind: str, seen: bool | None, *verdicts: str) -> dict[str, float]:
    item = Item("i", "g", "sql", kind, "sql", (), "", Check(check), (), seen=seen)
    grades = [
        Grade(contender="base", item_id="i", sample=n, verdict=verdict, detail="", isolation="")  # type: ignore[arg-type]
        for n, verdict in enumerate(verdicts)
    ]
    return {one.metric: one.score for one in graded_scores([item], grades, [1])}


def test_whatever_runs_counts_and_families_apart() -> None:
    assert graded("exact", "predict", None, "passed") == {"pass@1": 1.0, "exact_match": 1.0}
    assert graded("output", "repair", True, "passed", "failed") == {
        "pass@1": 0.5,
        "pass@1/seen": 0.5,
        "repair_rate": 0.5,
    }
    assert graded("assertions", "solve", False, "error") == {"pass@1": 0.0, "pass@1/unseen": 0.0}
    assert graded("assertions", "solve", False, "ungraded") == {}


def test_the_same_text_is_alike_and_one_with_nothing_in_common_is_not() -> None:
    text = "It raises a KeyError because the name was never set."
    assert likeness(text, text) == {"chrf": 1.0, "bleu": 1.0, "rouge_l": 1.0}
    assert likeness("####", text) == {"chrf": 0.0, "bleu": 0.0, "rouge_l": 0.0}
    assert likeness("", text)["bleu"] == 0.0


def test_rouge_of_a_known_pair() -> None:
    # 3 of 4 words of the answer among the 6 of the reference, in order: P = 3/4, R = 1/2
    assert likeness("the cat sat quietly", "the cat sat on the mat")["rouge_l"] == pytest.approx(0.6)

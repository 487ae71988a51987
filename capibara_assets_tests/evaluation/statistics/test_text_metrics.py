"""BLEU, chrF and ROUGE: the same texts, texts with nothing in common, and published values."""

import pytest

pytest.importorskip("sacrebleu")
pytest.importorskip("rouge_score")

from capibara_assets.evaluation.statistics.text_metrics import text_scores

TEXT = "It raises a KeyError because the name was never set."


def test_the_same_text_scores_one() -> None:
    scores = text_scores(TEXT, TEXT)
    assert (scores.bleu, scores.chrf, scores.rouge1, scores.rougeL) == (1.0, 1.0, 1.0, 1.0)


def test_nothing_in_common_scores_zero() -> None:
    scores = text_scores("####", TEXT)
    assert (scores.rouge1, scores.rouge2, scores.rougeL) == (0.0, 0.0, 0.0)
    assert scores.bleu == scores.chrf == 0.0
    assert text_scores("", TEXT).bleu == 0.0


def test_rouge_of_a_known_pair() -> None:
    # 3 of 4 words of the answer among the 6 of the reference, in order: P = 3/4, R = 1/2
    scores = text_scores("the cat sat quietly", "the cat sat on the mat")
    assert scores.rouge1 == pytest.approx(0.6)
    assert scores.rougeL == pytest.approx(0.6)

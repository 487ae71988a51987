"""BLEU, chrF and ROUGE: the same texts, texts with nothing in common, and published values."""

import pytest

pytest.importorskip("sacrebleu")
pytest.importorskip("rouge_score")

from capibara_assets.errors import InputError
from capibara_assets.evaluation.statistics.text_metrics import corpus_scores, signatures, text_scores

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


def test_bleu_of_a_corpus_is_not_the_mean_of_its_sentences() -> None:
    answers = ["the dog bit the man", "it was not unexpected", "the man bit him first"]
    references = ["the dog bit the man", "it was no surprise", "the man had bitten the dog"]
    corpus = corpus_scores(answers, references).bleu
    assert 0 < corpus < 1
    mean = sum(text_scores(a, r).bleu for a, r in zip(answers, references, strict=True)) / 3
    assert corpus != pytest.approx(mean, abs=1e-3)


def test_every_answer_needs_a_reference() -> None:
    with pytest.raises(InputError, match="2 and 1"):
        corpus_scores(["a", "b"], ["a"])


def test_signatures_name_the_version() -> None:
    assert all("version:" in text for text in signatures().values())

"""Text similarity of an answer to its reference: BLEU and chrF (sacreBLEU), ROUGE (rouge-score).

Similarity does not say whether an answer is right; where an answer can run, its run decides.
"""

from dataclasses import dataclass
from functools import cache

from rouge_score.rouge_scorer import RougeScorer
from sacrebleu.metrics import BLEU, CHRF

_ROUGES = ("rouge1", "rouge2", "rougeL")


@dataclass(frozen=True)
class TextScores:
    """Similarities from 0 (nothing in common) to 1 (equal)."""

    bleu: float
    chrf: float
    rouge1: float
    rouge2: float
    rougeL: float


def text_scores(answer: str, reference: str) -> TextScores:
    """Score one text: sentence BLEU (smoothed, effective order), chrF, F of ROUGE-1, -2 and -L."""
    rouge = _rouge().score(reference, answer)
    return TextScores(
        _clipped(_sentence_bleu().sentence_score(answer, [reference]).score / 100),
        _clipped(CHRF().sentence_score(answer, [reference]).score / 100),
        *(float(rouge[name].fmeasure) for name in _ROUGES),
    )


def _clipped(value: float) -> float:
    return min(1.0, max(0.0, float(value)))  # 100.00000000000004


@cache
def _sentence_bleu() -> BLEU:
    return BLEU(effective_order=True)


@cache
def _rouge() -> RougeScorer:
    return RougeScorer(_ROUGES, use_stemmer=False)

"""How near a text is to its reference, by words and characters: BLEU, chrF (sacreBLEU) and ROUGE (rouge-score).

They say how alike texts are, not whether they are right; where an answer can be run, its run is what counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from rouge_score.rouge_scorer import RougeScorer
from sacrebleu.metrics import BLEU, CHRF

from capibara_assets.errors import InputError

_ROUGES = ("rouge1", "rouge2", "rougeL")


@dataclass(frozen=True)
class TextScores:
    """All from 0 (nothing in common) to 1 (the same)."""

    bleu: float
    chrf: float
    rouge1: float
    rouge2: float
    rougeL: float


def text_scores(answer: str, reference: str) -> TextScores:
    """Scores of one text: BLEU of a sentence (smoothed, effective order), chrF, F of ROUGE-1, -2 and -L."""
    found = _rouge().score(reference, answer)
    return TextScores(
        _clipped(_sentence_bleu().sentence_score(answer, [reference]).score / 100),
        _clipped(CHRF().sentence_score(answer, [reference]).score / 100),
        *(float(found[name].fmeasure) for name in _ROUGES),
    )


def corpus_scores(answers: Sequence[str], references: Sequence[str]) -> TextScores:
    """Scores of many texts: BLEU and chrF of the corpus (not the mean of its sentences'), mean F of ROUGE.

    Raises:
        InputError: no texts, or not one reference for each answer.
    """
    if not answers or len(answers) != len(references):
        raise InputError(f"text metrics need as many references as answers; got {len(answers)} and {len(references)}")
    scores = [_rouge().score(reference, answer) for answer, reference in zip(answers, references, strict=True)]
    return TextScores(
        _clipped(BLEU().corpus_score(list(answers), [list(references)]).score / 100),
        _clipped(CHRF().corpus_score(list(answers), [list(references)]).score / 100),
        *(sum(float(each[name].fmeasure) for each in scores) / len(scores) for name in _ROUGES),
    )


def signatures() -> dict[str, str]:
    """What makes the figures comparable with others': sacreBLEU's signatures (tokenizer, smoothing, version)."""
    bleu, chrf = BLEU(), CHRF()
    bleu.corpus_score(["a"], [["a"]])
    chrf.corpus_score(["a"], [["a"]])
    return {"bleu": str(bleu.get_signature()), "chrf": str(chrf.get_signature())}


def _clipped(value: float) -> float:
    return min(1.0, max(0.0, float(value)))  # 100.00000000000004


@cache
def _sentence_bleu() -> BLEU:
    return BLEU(effective_order=True)


@cache
def _rouge() -> RougeScorer:
    return RougeScorer(_ROUGES, use_stemmer=False)

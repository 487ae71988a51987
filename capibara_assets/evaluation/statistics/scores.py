"""Scores per item from losses, answers and grades: the input of the statistics and the decision.

A contender's figure is Σ score / Σ weight over the items, so that losses per token and shares of items are one thing.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, ClassVar

import polars as pl
from pydantic import Field
from sacrebleu.metrics import BLEU, CHRF

from capibara_assets.errors import InputError
from capibara_assets.evaluation.answering.answer import Answer
from capibara_assets.evaluation.grading.grade import Grade
from capibara_assets.evaluation.items.items import Item
from capibara_assets.evaluation.statistics.points import loss_scores
from capibara_assets.storage.records import Record, conform

if TYPE_CHECKING:
    from rouge_score.rouge_scorer import RougeScorer

LOSS = "loss_per_assistant_token"
EXACT = "exact_match"
REPAIRS = "repair_rate"
_LIKENESS = ("chrf", "bleu", "rouge_l")
SEEN, UNSEEN = "/seen", "/unseen"
"""Behind the name of a metric: of items whose family training has seen, or not."""
UNJUDGED = frozenset({"refused", "ungraded"})
"""Verdicts that do not judge the answer: it was not run, or its item cannot be checked."""


class Score(Record):
    """Score of one contender on one held-out item in one metric."""

    schema_name: ClassVar[str] = "score"
    schema_version: ClassVar[int] = 2
    key: ClassVar[tuple[str, ...]] = ("metric", "contender", "item_id")

    metric: str = Field(
        description="loss_per_assistant_token, pass@<k>, pass@<k>/seen, pass@<k>/unseen, exact_match, repair_rate, "
        "chrf, bleu, rouge_l."
    )
    contender: str = Field(description="As in example_loss.")
    item_id: str = Field(description="The held-out item.")
    group_id: str = Field(description="Its group: the unit of resampling.")
    score: float = Field(description="What is summed up: 0..1, or nats (loss).")
    weight: float = Field(description="What the sum is divided by: 1, or the tokens scored.", gt=0)
    kind: str = Field(description="Kind of the item: solve, repair, explain, predict, apply, chat or benchmark.")
    source: str = Field(default="", description="Source of its executions, where stated.")


def of_losses(losses: pl.DataFrame, items: Mapping[str, Item]) -> pl.DataFrame:
    """Rows of `Score` from losses: each example's summed loss, weighted with its tokens.

    Args:
        losses: rows of `ExampleLoss`.
        items: those of the losses, by id: their kind and source are the slices.
    """
    kinds, sources = ({name: getattr(one, of) for name, one in items.items()} for of in ("kind", "source"))
    return conform(Score, loss_scores(losses, kinds, sources).with_columns(metric=pl.lit(LOSS)))


def graded_scores(items: Sequence[Item], grades: Iterable[Grade], ks: Sequence[int]) -> list[Score]:
    """pass@k, repair rate and exact match from grades; an item that is unjudged for any contender is left out.

    Raises:
        InputError: contenders have different numbers of graded samples for an item, or fewer than k.
    """
    verdicts: dict[str, dict[str, list[str]]] = {}
    for grade in grades:
        verdicts.setdefault(grade.item_id, {}).setdefault(grade.contender, []).append(grade.verdict)
    scores = []
    for item in items:
        of_item = verdicts.get(item.item_id, {})
        if not of_item or UNJUDGED & {verdict for one in of_item.values() for verdict in one}:
            continue
        counts = {len(one) for one in of_item.values()}
        if len(counts) > 1 or min(counts) < max(ks):
            raise InputError(
                f"item {item.item_id} has {sorted(counts)} graded answers by contender: each needs equally many, and "
                f"pass@{max(ks)} at least {max(ks)}; answer and grade it again"
            )
        for contender, one in sorted(of_item.items()):
            passed = sum(verdict == "passed" for verdict in one)
            for metric, score in _graded(item, len(one), passed, ks):
                scores.append(item_score(metric, contender, item, score))
    return scores


def pass_at_k(n: int, c: int, k: int) -> float:
    """pass@k of one item, without bias: 1 − C(n−c, k) / C(n, k) (Chen et al. 2021, arXiv 2107.03374).

    The share of all draws of k from n answers that hold at least one of the c answers that passed.

    The quotient is a product of min(c, k) factors, summed as logarithms: exact to rounding for any counts.

    Args:
        n: answers to one item.
        c: those of them that passed.
        k: answers that may be drawn, at most n.

    Raises:
        ValueError: k is not within 1..n, or c not within 0..n.
    """
    if not 1 <= k <= n or not 0 <= c <= n:
        raise ValueError(f"pass@k needs 1 <= k <= n and 0 <= c <= n; got n={n}, c={c}, k={k}")
    if n - c < k:
        return 1.0
    fewer, more = sorted((c, k))
    return -math.expm1(math.fsum(math.log1p(-more / (n - i)) for i in range(fewer)))


def prose_scores(items: Sequence[Item], answers: Iterable[Answer]) -> list[Score]:
    """Text similarity of prose answers to the recorded ones; the mean over an item's samples."""
    prose = {item.item_id: item for item in items if item.check.kind == "text"}
    by_answer: dict[tuple[str, str], list[dict[str, float]]] = {}
    for answer in answers:
        if answer.item_id in prose:
            alike = likeness(answer.text, prose[answer.item_id].reference)
            by_answer.setdefault((answer.contender, answer.item_id), []).append(alike)
    return [
        item_score(metric, contender, prose[item_id], sum(one[metric] for one in samples) / len(samples))
        for metric in _LIKENESS
        for (contender, item_id), samples in sorted(by_answer.items())
    ]


def likeness(answer: str, reference: str) -> dict[str, float]:
    """Metric -> similarity of two texts, from 0 (nothing in common) to 1 (equal).

    That is chrF, sentence BLEU (smoothed, effective order) and the F of ROUGE-L. It does not say whether an answer is
    right; where an answer can run, its run decides.
    """
    chrf, bleu = (metric.sentence_score(answer, [reference]).score / 100 for metric in (CHRF(), _sentence_bleu()))
    rouge = _rouge().score(reference, answer)["rougeL"].fmeasure
    # 100.00000000000004 is clipped
    return {name: min(1.0, max(0.0, float(value))) for name, value in zip(_LIKENESS, (chrf, bleu, rouge), strict=True)}


@cache
def _sentence_bleu() -> BLEU:
    return BLEU(effective_order=True)


@cache
def _rouge() -> "RougeScorer":
    from rouge_score.rouge_scorer import RougeScorer  # brings NLTK, which takes half a second to import

    return RougeScorer(["rougeL"], use_stemmer=False)


def of_metric(scores: pl.DataFrame, metric: str) -> pl.DataFrame:
    """The scores of one metric, as rows of `ItemScore`: what `decide` takes."""
    return scores.filter(pl.col("metric") == metric).drop("metric")


def _graded(item: Item, n: int, passed: int, ks: Sequence[int]) -> list[tuple[str, float]]:
    families = [""] if item.seen is None else ["", SEEN if item.seen else UNSEEN]
    scores = [(f"pass@{k}{family}", pass_at_k(n, passed, k)) for k in ks for family in families]
    return scores + [(name, passed / n) for name in (EXACT, REPAIRS) if _has(item, name)]


def _has(item: Item, metric: str) -> bool:
    return item.check.kind == "exact" if metric == EXACT else item.kind == "repair"


def item_score(metric: str, contender: str, item: Item, score: float) -> Score:
    """The score of one item that counts as one."""
    return Score(
        metric=metric,
        contender=contender,
        item_id=item.item_id,
        group_id=item.group_id,
        score=score,
        weight=1.0,
        kind=item.kind,
        source=item.source,
    )

"""Run a whole evaluation: items, leaks, losses, answers, grades, scores, figures, decision (in this order)."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from capibara_assets.datasets.recipe import NearDuplicates
from capibara_assets.errors import InputError
from capibara_assets.evaluation.decision.decide import Arms, decide
from capibara_assets.evaluation.decision.deciding import deciding
from capibara_assets.evaluation.decision.test_uses import TestUse
from capibara_assets.evaluation.decision_rule import DecisionRule
from capibara_assets.evaluation.grading.grade import Grade, SandboxSettings, grade
from capibara_assets.evaluation.items.families import with_families
from capibara_assets.evaluation.items.items import Item
from capibara_assets.evaluation.items.leaks import Leak, find_leaks, refuse_leaks
from capibara_assets.evaluation.measuring.domain import DomainModels, measure
from capibara_assets.evaluation.measuring.measured import Measurements
from capibara_assets.evaluation.recipe import EvaluationRecipe
from capibara_assets.evaluation.report import Comparison, WorstExample
from capibara_assets.evaluation.reports.worst import Roles, worst_examples
from capibara_assets.evaluation.schema import Decision
from capibara_assets.evaluation.statistics.figures import Figures, figures
from capibara_assets.evaluation.statistics.points import NotComparable
from capibara_assets.evaluation.statistics.scores import (
    UNJUDGED,
    Score,
    graded_scores,
    item_score,
    of_losses,
    prose_scores,
)
from capibara_assets.storage.records import table

ARMS = Arms()
"""Names of the arms among a domain's contenders."""
GRADES = "grades.jsonl"
"""Journal of grades in the work folder."""


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation: tables per contender and item, figures with intervals, and the decision."""

    items: Sequence[Item]
    measured: Measurements
    grades: Sequence[Grade]
    scores: pl.DataFrame
    figures: Figures
    comparisons: Sequence[Comparison]
    decision: Decision | None
    judged: str
    crashed: Mapping[str, str]
    worst: Sequence[WorstExample]
    notes: Sequence[str]


@dataclass(frozen=True)
class Terms:
    """The recipe by which contenders are measured, and the rule by which they are judged.

    Attributes:
        test_use: this use of the test items, from the ledger; None: uses are not counted.
    """

    recipe: EvaluationRecipe
    rule: DecisionRule
    test_use: TestUse | None = None


def evaluate_domain(
    models: DomainModels,
    items: Sequence[Item],
    training: pl.DataFrame,
    terms: Terms,
    *,
    near: NearDuplicates,
    work: Path | None = None,
) -> Evaluation:
    """Evaluate one domain: refuse leaks, measure every contender, grade, compare, decide.

    Args:
        items: the held-out items.
        training: rows of `Example` that any contender was trained, voted or selected on.
        near: when texts are nearly the same.
        work: folder for journals, from which an interrupted evaluation resumes; None: no journals.

    Raises:
        InputError: an item was trained on (the message names them), or as `measure` and `judge`.
    """
    near_training = refuse_leaks(
        find_leaks(items, training, near), len(items), "the training examples of the contenders"
    )
    items = with_families(items, training)
    measured = measure(models, without(items, near_training), terms.recipe, work)
    measured = replace(measured, left_out={**measured.left_out, **{one.item_id: str(one) for one in near_training}})
    graded = grade_and_score(items, measured, terms.recipe, work=work)
    return judge(models.domain, items, measured, graded, terms)


def without(items: Sequence[Item], leaks: Sequence[Leak]) -> list[Item]:
    """The items that are in no leak."""
    leaking = {leak.item_id for leak in leaks}
    return [item for item in items if item.item_id not in leaking]


@dataclass(frozen=True)
class Graded:
    """The grades of all answers, and rows of `Score` in every metric that the items give."""

    grades: Sequence[Grade]
    scores: pl.DataFrame


def grade_and_score(
    items: Sequence[Item],
    measured: Measurements,
    recipe: EvaluationRecipe,
    *,
    work: Path | None = None,
    allow_weak_isolation: bool = False,
) -> Graded:
    """Grade the answers by running them, and compute the scores.

    Args:
        items: at least those that were scored or answered.
        work: folder for the journal of grades, from which an interrupted grading resumes; None: no journal.
    """
    answered = {answer.item_id for answer in measured.answers}
    grades = grade(
        [item for item in items if item.item_id in answered],
        measured.answers,
        SandboxSettings(recipe.workers or os.cpu_count() or 1, allow_weak_isolation=allow_weak_isolation),
        work / GRADES if work is not None else None,
    )
    return Graded(grades, score_table({item.item_id: item for item in items}, measured, grades, recipe))


def judge(
    domain: str,
    items: Sequence[Item],
    measured: Measurements,
    graded: Graded,
    terms: Terms,
    arms: Arms | None = ARMS,
) -> Evaluation:
    """Compute figures with intervals, comparisons, the worst examples, and the decision.

    Args:
        domain: name of the domain or file, which selects the score rule.
        arms: the contenders of the decision; None: no decision, and the first contender is the reference.

    Raises:
        InputError: no contender has the rule's metric.
    """
    rule, scores = terms.rule, graded.scores
    level = 1 - rule.confidence if terms.test_use is None else terms.test_use.level
    who = arms or ARMS
    chosen = deciding(domain, scores, rule, (who.base, who.playbook, who.tuned), level)
    metric = chosen.rule.metric
    if arms is not None and metric not in set(scores["metric"]) and not measured.crashed:
        known = ", ".join(sorted(set(scores["metric"]))) or "none"
        raise InputError(
            f"{domain}: the decision's metric is {metric}, which no item here gives (there are: {known}); "
            "name another in decision.yaml, or give items and answers that have it"
        )
    reference = arms.base if arms else measured.contenders[0]
    judged = arms.tuned if arms else measured.contenders[-1]
    references = (arms.base, arms.playbook) if arms else (reference,)
    figures_of_all, comparisons, crashed = _figures(scores, rule, measured, references)
    decision = None
    if arms:
        decision = decide(
            domain, chosen.scores, rule.deciding_by(chosen.rule), arms=arms, crashed=crashed,
            test_use=terms.test_use, beside=chosen.beside, why=chosen.why,
        )  # fmt: skip
    answered = {answer.item_id for answer in measured.answers}
    return Evaluation(
        items=items,
        measured=measured,
        grades=graded.grades,
        scores=scores,
        figures=figures_of_all,
        comparisons=comparisons,
        decision=decision,
        judged=judged,
        crashed=crashed,
        worst=worst_examples(
            [item for item in items if item.item_id in answered] or items,
            measured.losses,
            measured.answers,
            graded.grades,
            Roles(judged, reference, measured.contenders, terms.recipe.worst_examples),
        ),
        notes=notes(items, measured, graded.grades, crashed),
    )


def score_table(
    items: Mapping[str, Item], measured: Measurements, grades: Sequence[Grade], recipe: EvaluationRecipe
) -> pl.DataFrame:
    """Rows of `Score` in every metric that the items give."""
    rows = [
        *graded_scores(list(items.values()), grades, recipe.generation.k),
        *prose_scores(list(items.values()), measured.answers),
    ]
    scores = pl.concat([of_losses(measured.losses, items), table(Score, rows)])
    for name, (metric, own) in measured.stored.items():
        scores = _with_stored(scores, items, name, metric, own)
    return scores


def _with_stored(
    scores: pl.DataFrame, items: Mapping[str, Item], name: str, metric: str, own: Mapping[str, float]
) -> pl.DataFrame:
    """Add the scores of an earlier run; of its metric only the items that it holds remain."""
    rows = [item_score(metric, name, items[item_id], score) for item_id, score in own.items() if item_id in items]
    kept = scores.filter((pl.col("metric") != metric) | pl.col("item_id").is_in(list(own)))
    return pl.concat([kept, table(Score, rows)])


def notes(
    items: Sequence[Item], measured: Measurements, grades: Sequence[Grade], crashed: Mapping[str, str]
) -> list[str]:
    """Notes on the figures: contenders that crashed, items left out, answers not graded."""
    said = [f"{name} crashed: {why}" for name, why in sorted(crashed.items())]
    said += [
        f"{name} has no losses here: its tokenizer makes other tokens of the answers" for name in measured.other_tokens
    ]
    said += [
        f"{len(one)} of {len(items)} items left out for all contenders: {why}"
        for why, one in _grouped(measured.left_out).items()
    ]
    for name, (metric, own) in measured.stored.items():
        lost = sum(item.item_id not in own for item in items)
        said += [f"{lost} of {len(items)} items left out of {metric}: {name} holds no score"] * (lost > 0)
    unjudged = {grade.item_id: f"{grade.verdict}: {grade.detail}" for grade in grades if grade.verdict in UNJUDGED}
    prose = {item.item_id for item in items if item.check.kind == "text"}
    judged = {item_id: why for item_id, why in unjudged.items() if item_id not in prose}
    said += [f"{len(one)} answered items are not graded ({why})" for why, one in _grouped(judged).items()]
    said += [
        f"answers ran in {ran_in}"
        for ran_in in sorted({one.isolation for one in grades if "isolated" in one.isolation})
    ]
    return said


def _grouped(reasons: Mapping[str, str]) -> dict[str, list[str]]:
    by_reason: dict[str, list[str]] = {}
    for item_id, why in sorted(reasons.items()):
        by_reason.setdefault(why, []).append(item_id)
    return by_reason


def _figures(
    scores: pl.DataFrame, rule: DecisionRule, measured: Measurements, references: Sequence[str]
) -> tuple[Figures, list[Comparison], dict[str, str]]:
    """(figures, comparisons, contender -> why it could not be compared)."""
    crashed = dict(measured.crashed)
    names = [name for name in measured.contenders if name not in crashed]
    while names and names[0] == measured.contenders[0]:
        try:
            own, comparisons = figures(scores.filter(pl.col("contender").is_in(names)), rule, names, references)
        except NotComparable as unfit:
            crashed[unfit.contender] = unfit.why
            names.remove(unfit.contender)
        else:
            return own, comparisons, crashed
    return {}, [], crashed

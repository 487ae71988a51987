"""The output of an evaluation: typed tables, JSON documents, and the data of its report."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import polars as pl

from capibara_assets.evaluation.answering.answer import Answer
from capibara_assets.evaluation.contenders.losses import mean_losses
from capibara_assets.evaluation.decision_rule import DecisionRule
from capibara_assets.evaluation.evaluate import Evaluation, Terms
from capibara_assets.evaluation.grading.grade import Grade
from capibara_assets.evaluation.recipe import EvaluationRecipe
from capibara_assets.evaluation.report import EvaluationReport, ReportSource
from capibara_assets.evaluation.schema import ExampleLoss
from capibara_assets.evaluation.statistics.figures import as_document
from capibara_assets.evaluation.statistics.scores import Score
from capibara_assets.storage.records import Record, table

VOLATILE = ("usage.json", "report/*")
"""Files outside the data version: speeds and memory, and the page that shows them."""


def tables_of(evaluation: Evaluation) -> dict[str, tuple[type[Record], pl.DataFrame]]:
    """The tables of an evaluation: name -> (row type, table), a row per contender and item."""
    return {
        "losses": (ExampleLoss, evaluation.measured.losses),
        "answers": (Answer, table(Answer, evaluation.measured.answers)),
        "grades": (Grade, table(Grade, evaluation.grades)),
        "scores": (Score, evaluation.scores),
    }


def documents_of(evaluation: Evaluation) -> dict[str, Any]:
    """`decision`, `metrics` (figures, comparisons, notes), `means` (losses alone), `usage`."""
    return {
        **({"decision": evaluation.decision.model_dump(mode="json")} if evaluation.decision else {}),
        "metrics": as_document(evaluation.figures, evaluation.comparisons)
        | {
            "notes": list(evaluation.notes),
            "crashed": dict(evaluation.crashed),
            "left_out": dict(evaluation.measured.left_out),
        },
        "means": mean_losses(evaluation.measured.losses),
        "usage": {
            name: asdict(one) | {"tokens_per_second": one.tokens_per_second}
            for name, one in evaluation.measured.usage.items()
        },
    }


def validity_problems(
    tables: Mapping[str, pl.DataFrame], metrics: Mapping[str, Any], decision: Mapping[str, Any]
) -> list[str]:
    """Problems that make an evaluation invalid, in words; a model that lost is not one of them.

    Args:
        tables: losses, answers and grades, as published.
        metrics, decision: the documents.
    """
    losses, answers, grades = tables["losses"], tables["answers"], tables["grades"]
    problems = [f"{name} crashed: {why}" for name, why in sorted(metrics["crashed"].items())]
    if decision["outcome"] == "crashed_arm" and not problems:
        problems.append(decision["reason"])
    if not losses.height and not answers.height:  # models behind an endpoint have answers alone
        problems.append("nothing was scored")
    if not losses["nll"].is_finite().all():
        bad = losses.filter(~pl.col("nll").is_finite())["contender"].unique().sort().to_list()
        problems.append(f"losses that are not finite: {', '.join(bad)}")
    items = {str(name): frozenset(rows["example_id"].to_list()) for (name,), rows in losses.group_by("contender")}
    if len(set(items.values())) > 1:
        counts = ", ".join(f"{name} {len(own)}" for name, own in sorted(items.items()))
        problems.append(f"not all contenders were scored on the same examples: {counts}")
    key = ["contender", "item_id", "sample"]
    if (ungraded := answers.join(grades, on=key, how="anti")).height:
        problems.append(f"{ungraded.height} answers have no grade, such as {ungraded.row(0)[:3]}")
    return problems


@dataclass(frozen=True)
class ReportContext:
    """What a report shows besides the evaluation itself.

    Attributes:
        curves: voter -> (step, validation loss).
        router: the report of `expert_router`.
        sources: the results that the evaluation was made from.
    """

    curves: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    router: Mapping[str, Any] = field(default_factory=dict)
    sources: Sequence[ReportSource] = ()


def report_of(
    evaluation: Evaluation,
    title: str,
    terms: Terms,
    *,
    beside: ReportContext | None = None,
    settings: Mapping[str, Any] | None = None,
) -> EvaluationReport:
    """The data of the report page.

    Args:
        beside: further results of the domain; None: none.
        settings: further settings, shown before the recipe's.
    """
    beside = beside or ReportContext()
    return EvaluationReport(
        title=title,
        verdict=evaluation.decision.verdict if evaluation.decision else "",
        paragraph=evaluation.decision.reason if evaluation.decision else "",
        judged=evaluation.judged,
        metric=evaluation.decision.metric if evaluation.decision else "",
        figures=evaluation.figures,
        comparisons=[one for one in evaluation.comparisons if evaluation.judged in (one.candidate, one.reference)]
        + [one for one in evaluation.comparisons if evaluation.judged not in (one.candidate, one.reference)],
        usage=evaluation.measured.usage,
        curves=beside.curves,
        router=beside.router,
        worst=evaluation.worst,
        sources=beside.sources,
        settings={**(settings or {}), **_settings(terms.recipe, terms.rule, title)},
        confidence=terms.rule.confidence,
        notes=[*evaluation.notes, *_resumed(evaluation)],
    )


def _resumed(evaluation: Evaluation) -> list[str]:
    """A note for the page only: whether a run was interrupted is not part of its content."""
    measured = evaluation.measured
    silent = {answer.contender for answer in measured.answers} - measured.usage.keys()
    if not silent:
        return []
    return [f"no speed of {', '.join(sorted(silent))}: all answers are of an earlier run (journal or file)"]


def curves_of(summary: Mapping[str, Any]) -> dict[str, list[tuple[float, float]]]:
    """Voter -> (step, validation loss), from the summary of `trained_adapters`."""
    return {
        name: [(float(point["step"]), float(point["validation_loss"])) for point in voter["curve"]]
        for name, voter in sorted(summary["voters"].items())
        if voter.get("curve")
    }


def _settings(recipe: EvaluationRecipe, rule: DecisionRule, domain: str) -> dict[str, Any]:
    generation = recipe.generation
    score = rule.score(domain)
    return {
        "items answered, at most": generation.max_items,
        **{name.replace("_", " "): value for name, value in recipe.decoding.model_dump().items()},
        "longest example, tokens": recipe.max_length,
        "playbook budget, tokens": recipe.playbook_budget_tokens,
        "decided by": f"{score.metric}, range {list(score.range)}, {score.direction} is better",
        "needed": f"score {score.min_score:g}, gain {score.min_gain:g}",
        "resamples": rule.resamples,
        "seed of the resamples": rule.seed,
    }

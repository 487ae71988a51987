"""Choice of the deciding score in a domain: graded answers if they are numerous and informative, else the loss.

A share of solved items says what is wanted, and a loss only what resembles it; but of few items, or where (nearly) none
or (nearly) all are solved, no share can differ significantly. Losses of explanations, which are worded by templates, do
not decide where there are items of other kinds: they are judged beside them, and may only not get worse. So may
whatever else the deciding score does not see.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from capibara_assets.datasets.schema import CODE_KINDS
from capibara_assets.evaluation.decision_rule import LOWER, DecisionRule, ScoreRule
from capibara_assets.evaluation.statistics.scores import SEEN, UNSEEN, of_metric

GRADED_KINDS = CODE_KINDS | {"predict", "benchmark"}
"""Kinds whose answers can be graded."""


@dataclass(frozen=True)
class Beside:
    """A slice that does not decide but may not get worse: rows of `ItemScore`, and their conversion to points."""

    scores: pl.DataFrame
    rule: ScoreRule


@dataclass(frozen=True)
class Deciding:
    """The deciding score, its rows of `ItemScore`, the reason for the choice, and the slices judged beside it."""

    rule: ScoreRule
    scores: pl.DataFrame
    why: str = ""
    beside: Mapping[str, Beside] = field(default_factory=dict)


def deciding(domain: str, scores: pl.DataFrame, rule: DecisionRule, arms: tuple[str, ...], alpha: float) -> Deciding:
    """Choose the deciding score: the domain's, or `rule.graded` in place of a loss.

    Args:
        scores: rows of `Score`.
        arms: the contenders between whose answers it has to tell: the base first, the judged one last; others that have
            no answers are ignored.
        alpha: significance level of the decision.
    """
    usual, graded = rule.score(domain), rule.graded
    if graded is None or usual.metric not in LOWER:
        return Deciding(usual, of_metric(scores, usual.metric))
    ran, losses = of_metric(scores, graded.metric), of_metric(scores, usual.metric)
    ran = ran.filter(pl.lit({arms[0], arms[-1]} <= set(ran["contender"])))  # both answered, or it says nothing
    why_not = _why_not(ran.filter(pl.col("contender").is_in(arms)), rule.min_graded, alpha)
    told = pl.col("kind").is_in(sorted(GRADED_KINDS))
    kinds = sorted(set(losses.filter(~told)["kind"]) - {""})
    prose = {f"loss of {kind}": Beside(losses.filter(pl.col("kind") == kind), usual) for kind in kinds}
    if why_not is None:
        families = {"seen families": SEEN, "unseen families": UNSEEN}
        parts = {name: of_metric(scores, graded.metric + of) for name, of in families.items()}
        # the loss is also of arms that do not answer, such as the playbook's
        beside = (
            {"loss": Beside(losses.filter(told), usual)}
            | prose
            | {name: Beside(part, graded) for name, part in parts.items() if part.height}
        )
        return Deciding(graded, ran, f"Answers that ran decide: {_counted(ran)} are graded.", beside)
    own = losses.filter(told)
    solved = {graded.metric: Beside(ran, graded)} if ran.height else {}
    if own["group_id"].n_unique() < rule.min_groups:  # of a file of explanations, say
        return Deciding(usual, losses, f"The loss decides: {why_not}.", solved)
    return Deciding(usual, own, f"The loss of answers that can be graded decides: {why_not}.", prose | solved)


def fewest_telling(alpha: float) -> int:
    """Items that have to differ between two models before an exact McNemar test can be significant: 2 · 0.5^n ≤ α."""
    return max(1, math.ceil(math.log2(2 / alpha)))


def _why_not(ran: pl.DataFrame, enough: int, alpha: float) -> str | None:
    """Why answers cannot decide; None: they can."""
    by_item = ran.group_by("item_id").agg(pl.col("score").max().alias("best"), pl.col("score").min().alias("worst"))
    if by_item.height < enough:
        return f"{by_item.height} items are graded, and {enough} are needed for their answers to decide"
    fewest = fewest_telling(alpha)
    for number, what in (((by_item["best"] > 0).sum(), "solved"), ((by_item["worst"] < 1).sum(), "left unsolved")):
        if number < fewest:
            return (
                f"of {by_item.height} graded items {number} are {what} by any model, and a significant difference "
                f"takes {fewest}"
            )
    return None


def _counted(ran: pl.DataFrame) -> str:
    return f"{ran['item_id'].n_unique()} items in {ran['group_id'].n_unique()} groups"

"""Points of contenders from scores of items: the metric on the decision rule's range, with intervals.

Pass or fail with one item per group is compared by exact McNemar with Tango's interval, and a single share by Wilson's;
everything else by the cluster bootstrap over groups, because McNemar counts correlated items as if they were
independent ones. (Of the exact p-value and the score interval the former is the stricter: an interval may just exclude
0 where it is not significant.)
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from capibara_assets.evaluation.decision_rule import DecisionRule, ScoreRule
from capibara_assets.evaluation.schema import ExampleLoss, Interval, ItemScore
from capibara_assets.evaluation.statistics.bootstrap import Array, Resamples, holm, interval, p_value, resample
from capibara_assets.evaluation.statistics.paired import (
    mcnemar_exact,
    minimum_detectable_difference,
    paired_difference_interval,
    table_of,
    tango_p_value,
    wilson_interval,
    wilson_p_value,
)
from capibara_assets.storage.records import conform

_ALIKE = 1e-12  # resamples that differ by less do not differ


class NotComparable(ValueError):
    """A contender cannot be compared: it is missing, or was scored on other items. `contender` names it."""

    def __init__(self, contender: str, why: str) -> None:
        super().__init__(f"{contender}: {why}")
        self.contender, self.why = contender, why


def loss_scores(
    losses: pl.DataFrame, kinds: Mapping[str, str] | None = None, sources: Mapping[str, str] | None = None
) -> pl.DataFrame:
    """Convert losses (`ExampleLoss`) to `ItemScore` rows: nats, weighted by tokens.

    Args:
        kinds, sources: example → its kind and its source, which become slices.
    """
    frame = conform(ExampleLoss, losses).select(
        "contender",
        pl.col("example_id").alias("item_id"),
        "group_id",
        pl.col("nll").alias("score"),
        pl.col("tokens").cast(pl.Float64).alias("weight"),
    )
    names = frame["item_id"].to_list()
    slices = {"kind": kinds or {}, "source": sources or {}}
    columns = [pl.Series(of, [known.get(name, "") for name in names], pl.String) for of, known in slices.items()]
    return conform(ItemScore, frame.with_columns(columns))


@dataclass(frozen=True)
class ContenderPoints:
    """The points of contenders that were scored on the same items.

    Attributes:
        names: contenders, the base model first.
        scores: of each item under each contender, (items, contenders).
        weights, groups: of each item, (items,).
        rule: with the confidence of every interval.
    """

    names: tuple[str, ...]
    scores: Array
    weights: Array
    groups: NDArray[np.str_]
    score_rule: ScoreRule
    rule: DecisionRule

    @classmethod
    def of(
        cls, scores: pl.DataFrame, names: Collection[str], score_rule: ScoreRule, rule: DecisionRule
    ) -> "ContenderPoints":
        """From rows of `ItemScore` of `names`, of which the first is the base model.

        Raises:
            NotComparable: a contender has no rows, an item twice, other items, groups or weights than the base, or a
                score that is not finite or, where the metric is a share, outside 0..1.
        """
        parts = {name: scores.filter(pl.col("contender") == name).sort("item_id") for name in names}
        base = next(iter(parts.values()))
        for name, part in parts.items():
            if why := _unfit(part, base, score_rule):
                raise NotComparable(name, why)
        return cls(
            tuple(parts),
            np.column_stack([part["score"].to_numpy() for part in parts.values()]),
            base["weight"].to_numpy().astype(np.float64),
            base["group_id"].to_numpy().astype(np.str_),
            score_rule,
            rule,
        )

    @cached_property
    def group_count(self) -> int:
        """Independent groups of items."""
        return len(np.unique(self.groups))

    def value(self, name: str) -> float:
        """The metric over all items."""
        return float(self._figures(self._means)[self.names.index(name)])

    def score(self, name: str, needed: float | None = None) -> Interval:
        """The contender's score, 0..1 along the rule's range.

        Args:
            needed: a bar; the interval then has the p-value against it.
        """
        place = self.names.index(name)
        estimate = float(self._along(self._means, place))
        n, draws = len(self.groups), None
        if not self._exact:
            draws, n = self._along(self._drawn.draws, place), self.group_count
            if not self._alike(draws):
                return self._bootstrapped(draws, estimate, needed)
        passed = estimate * n
        result = Interval(
            **self._about(estimate, wilson_interval(passed, n, self.rule.confidence)),
            method="Wilson" if draws is None else "Wilson, of groups",
            p_value=wilson_p_value(passed, n, 0.0),
        )
        return result if needed is None else _with_needed(result, needed, wilson_p_value(passed, n, needed))

    def gain(self, name: str, over: str, needed: float | None = None) -> Interval:
        """The score of one contender minus that of another."""
        one, other = self.names.index(name), self.names.index(over)
        estimate = float(self._along(self._means, one) - self._along(self._means, other))
        n, draws = len(self.groups), None
        if self._exact:
            table = table_of(self.scores[:, one], self.scores[:, other])
            b, c = float(table.b), float(table.c)
            p_zero = mcnemar_exact(table.b, table.c)
        else:
            draws = self._along(self._drawn.draws, one) - self._along(self._drawn.draws, other)
            if not self._alike(draws):
                return self._bootstrapped(draws, estimate, needed)
            n = self.group_count
            b, c = max(estimate, 0.0) * n, max(-estimate, 0.0) * n
            p_zero = tango_p_value(b, c, n, 0.0)
        result = Interval(
            **self._about(estimate, paired_difference_interval(n - b - c, b, c, 0, self.rule.confidence)),
            method="exact McNemar, Tango's interval" if draws is None else "Tango, of groups",
            p_value=p_zero,
            detectable=minimum_detectable_difference((b + c) / n, n, 1 - self.rule.confidence),
        )
        return result if needed is None else _with_needed(result, needed, tango_p_value(b, c, n, needed))

    @cached_property
    def _means(self) -> Array:
        return np.asarray(self.scores.sum(axis=0) / self.weights.sum())

    @cached_property
    def _drawn(self) -> Resamples:
        return resample(self.scores, self.weights, self.groups, resamples=self.rule.resamples, seed=self.rule.seed)

    @property
    def _share(self) -> bool:
        return self.score_rule.range == (0.0, 1.0)

    @cached_property
    def _exact(self) -> bool:
        """Whether the scores are pass or fail, with one item per group."""
        alone = self._share and self.group_count == len(self.groups)
        return alone and bool(np.isin(self.scores, (0.0, 1.0)).all() and (self.weights == 1).all())

    def _alike(self, draws: Array) -> bool:
        """Whether a share is equal in all groups, so that resampling cannot estimate its variance."""
        return self._share and float(np.ptp(draws)) < _ALIKE

    def _figures(self, means: Array) -> Array:
        return np.exp(means) if self.score_rule.metric == "perplexity" else means

    def _along(self, means: Array, place: int) -> Array:
        """Score of the contender at `place`, (…,), from the means of all, (…, contenders)."""
        figures = self._figures(means)
        bad, good = (figures[..., 0] if e == "base" else float(e) for e in (self.score_rule.bad, self.score_rule.good))
        if np.any(bad == good):
            raise ValueError(f"{self.names[0]} is perfect: nothing is left to gain in range {self.score_rule.range}")
        return np.asarray((figures[..., place] - bad) / (good - bad))

    def _about(self, estimate: float, ends: tuple[float, float]) -> dict[str, Any]:
        counts = {"n": len(self.groups), "groups": self.group_count, "confidence": self.rule.confidence}
        return {"estimate": estimate, "low": ends[0], "high": ends[1], **counts}

    def _bootstrapped(self, draws: Array, estimate: float, needed: float | None) -> Interval:
        result = interval(draws, estimate, self._drawn, self.rule.confidence)
        if needed is None:
            return result
        return _with_needed(result, needed, p_value(draws, estimate, self._drawn.groups, needed))


def compared(points: ContenderPoints, reference: str) -> dict[str, tuple[Interval, float]]:
    """Gain of every other contender over the reference, with p-values adjusted by Holm."""
    gains = {name: points.gain(name, reference) for name in points.names if name != reference}
    adjusted = holm({name: gain.p_value if gain.p_value is not None else 1.0 for name, gain in gains.items()})
    return {name: (gain, adjusted[name]) for name, gain in gains.items()}


def _with_needed(interval: Interval, needed: float, p_of_needed: float) -> Interval:
    return interval.model_copy(update={"needed": needed, "needed_p_value": p_of_needed})


def _unfit(part: pl.DataFrame, base: pl.DataFrame, score_rule: ScoreRule) -> str | None:
    """Why a contender cannot be compared with the base model; None: it can."""
    if part.is_empty():
        return "was not scored"
    if part["item_id"].is_duplicated().any():
        return f"has item {part['item_id'].filter(part['item_id'].is_duplicated())[0]} scored twice"
    ours, theirs = set(part["item_id"]), set(base["item_id"])
    if ours != theirs:
        odd = sorted(ours ^ theirs)
        return f"was scored on other items ({len(ours)}) than the base model ({len(theirs)}), such as {odd[0]}"
    for column, what in (("group_id", "group"), ("weight", "weight")):
        if differing := part.filter(part[column] != base[column])["item_id"].to_list():
            return f"has item {differing[0]} with another {what} than the base model"
    if odd := part.filter(~pl.col("score").is_finite())["item_id"].to_list():
        return f"has no finite score of item {odd[0]}"
    outside = part.filter((pl.col("score") < 0) | (pl.col("score") > pl.col("weight")))["item_id"].to_list()
    if outside and score_rule.range == (0.0, 1.0):
        return f"has a score of item {outside[0]} that is no share between 0 and 1"
    return None

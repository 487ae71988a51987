"""Time and dollars of a training, with an interval: the raw prediction, and its correction by past runs on the target.

A prediction's error on one target is mostly the same from run to run (software, disks, other load), so the ratio of
measured to predicted seconds of past runs corrects the next prediction. With few runs the factor is shrunk towards 1,
depending on their scatter relative to the prediction's own spread (a normal mean of log ratios with a normal prior;
Gelman et al., Bayesian Data Analysis, 3rd ed., section 2.5).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, exp, isfinite, log, sqrt
from statistics import fmean, median, variance
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from capibara_assets.planning.hardware.declaration import Price

Span = tuple[float, float, float]
"""Low, middle and high estimate."""

LEAST_SCATTER = 0.05  # of log ratios: the difference of two equal runs on one machine
PRIOR_SPREAD = 0.35  # of the prediction's own log error on a target without past runs
_Z80 = 1.2816  # the middle 80 % of a normal


class Cost(BaseModel):
    """Seconds and dollars; None where unknown, with the reason in the note."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seconds: Span | None
    seconds_note: str
    usd: Span | None
    usd_note: str

    @property
    def hours(self) -> Span | None:
        return None if self.seconds is None else _each(self.seconds, 1 / 3600)

    def times(self, count: float) -> "Cost":
        """The cost of `count` identical trainings in sequence; their errors are common, so the interval scales too."""
        return self.model_copy(
            update={
                "seconds": None if self.seconds is None else _each(self.seconds, count),
                "usd": None if self.usd is None else _each(self.usd, count),
            }
        )


class TimedTraining(BaseModel):
    """Predicted and measured time of one adapter's training; recorded by a run, read by the next plan."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    target: str
    model: str
    flops: float = Field(gt=0, description="model FLOPs that the plan counted for one adapter")
    predicted: Span | None = Field(description="predicted seconds, before any correction")
    measured: float = Field(gt=0, description="seconds of one adapter: the median voter's")
    predicted_steps: int | None = None
    measured_steps: int | None = None

    @property
    def ratio(self) -> float | None:
        """Measured over the middle of the prediction."""
        return None if self.predicted is None else self.measured / self.predicted[1]


class Correction(BaseModel):
    """Factor by which past runs on a target correct its predictions."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    runs: int
    factor: float = Field(description="on predicted seconds; 1 where there are no runs")
    spread: float = Field(description="of the log of the next run's ratio around the factor's")
    note: str


class CostPlan(BaseModel):
    """Costs of one plan: an adapter (raw, and corrected by past runs), the domain, and a backfill of all domains."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: str
    model: str
    flops: float
    adapter_raw: Cost
    adapter: Cost
    domain: Cost
    backfill: Cost
    voters: int
    backfill_note: str
    correction: Correction


def priced(seconds: Span | None, seconds_note: str, price: Price) -> Cost:
    """The cost of `seconds` at a target's price; a price of 0 gives 0 dollars even where the time is unknown."""
    hourly = price.usd_per_hour
    if hourly is None:
        return Cost(seconds=seconds, seconds_note=seconds_note, usd=None, usd_note=f"no price: {price.note}")
    note = f"{hourly:g} $/h ({price.date}): {price.note}"
    if hourly == 0:
        return Cost(seconds=seconds, seconds_note=seconds_note, usd=(0.0, 0.0, 0.0), usd_note=note)
    if seconds is None:
        return Cost(seconds=None, seconds_note=seconds_note, usd=None, usd_note=f"no time is known: {seconds_note}")
    usd = _each(seconds, hourly / 3600)
    return Cost(seconds=seconds, seconds_note=seconds_note, usd=usd, usd_note=note)


def total(costs: Sequence[Cost]) -> Cost:
    """The sum of costs; None if a part is unknown. Interval ends add up, since the parts' errors are mostly common."""
    seconds = [cost.seconds for cost in costs if cost.seconds is not None]
    usd = [cost.usd for cost in costs if cost.usd is not None]
    notes = list(dict.fromkeys(cost.seconds_note for cost in costs))
    prices = list(dict.fromkeys(cost.usd_note for cost in costs))
    return Cost(
        seconds=_sum(seconds) if len(seconds) == len(costs) else None,
        seconds_note="; ".join(notes),
        usd=_sum(usd) if len(usd) == len(costs) else None,
        usd_note="; ".join(prices),
    )


def correction(outcomes: Iterable[TimedTraining], target: str) -> Correction:
    """The correction of a target's predictions, from its past runs that had a prediction.

    Of n log ratios with mean m and variance s² (at least LEAST_SCATTER²; pooled with the prior's for few runs) the
    posterior mean is m·n/(n + s²/τ²), with τ = PRIOR_SPREAD.
    """
    logs = [
        log(one.ratio)
        for one in outcomes
        if one.target == target and one.ratio is not None and one.ratio > 0 and isfinite(one.ratio)
    ]
    if not logs:
        return Correction(runs=0, factor=1.0, spread=PRIOR_SPREAD, note=f"no run on {target} had a prediction yet")
    scatter = max(LEAST_SCATTER**2, _scatter(logs))
    weight = len(logs) / (len(logs) + scatter / PRIOR_SPREAD**2)
    mean = fmean(logs) * weight
    left = 1 / (1 / PRIOR_SPREAD**2 + len(logs) / scatter)
    return Correction(
        runs=len(logs),
        factor=exp(mean),
        spread=sqrt(left + scatter),
        note=f"{len(logs)} runs on {target} took {exp(fmean(logs)):.2f} times their prediction on average; shrunk to"
        f" {exp(mean):.2f}",
    )


def _scatter(logs: Sequence[float]) -> float:
    """Variance of log ratios, mixed with a prior of (2·LEAST_SCATTER)² that counts as two runs."""
    guess, worth = (2 * LEAST_SCATTER) ** 2, 2
    own = variance(logs) if len(logs) > 1 else 0.0
    return ((len(logs) - 1) * own + worth * guess) / (len(logs) - 1 + worth)


def corrected(seconds: Span, correction: Correction) -> Span:
    """A predicted span after the correction: unchanged without runs, else with the width of the runs' spread."""
    if not correction.runs:
        return seconds
    middle = seconds[1] * correction.factor
    half = exp(_Z80 * correction.spread)
    return (middle / half, middle, middle * half)


def measured_rate(outcomes: Iterable[TimedTraining], target: str, model: str) -> tuple[float, float, int] | None:
    """FLOP/s sustained by past runs of this model on this target, the spread of their logs, and the number of runs.

    Used for targets without a prediction (a CPU's peak depends on its instructions). None without such runs.
    """
    logs = [log(one.flops / one.measured) for one in outcomes if one.target == target and one.model == model]
    if not logs:
        return None
    return exp(median(logs)), sqrt(max(LEAST_SCATTER**2, _scatter(logs)) * (1 + 1 / len(logs))), len(logs)


@dataclass(frozen=True)
class PlannedTraining:
    """One adapter's planned training.

    Attributes:
        flops: model FLOPs of all its steps.
        predicted: its seconds, if a prediction exists.
        note: what the prediction includes, or why there is none.
        price: of the whole target.
    """

    target: str
    model: str
    flops: float
    predicted: Span | None
    note: str
    price: Price
    domain: str = ""


@dataclass(frozen=True)
class CostContext:
    """Context of a plan's cost: the domain's voters, past runs, and the plans of other domains.

    Attributes:
        voters: adapters of a domain, trained `together` at a time.
        outcomes: timed trainings of past runs.
        others: domain -> the cost of its last plan, for the backfill.
        domains: all domains; one without a plan is assumed to cost as much as this one.
    """

    voters: int = 1
    outcomes: Sequence[TimedTraining] = ()
    others: Mapping[str, Cost] = field(default_factory=dict)
    domains: Sequence[str] = ()
    together: int = 1


def plan_cost(training: PlannedTraining, context: CostContext) -> CostPlan:
    """Costs of an adapter, of a domain (`context.voters` adapters) and of a backfill over all domains."""
    target, price = training.target, training.price
    raw = priced(training.predicted, training.note, price)
    learnt = correction(context.outcomes, target)
    if training.predicted is not None:
        note = f"{training.note}; {learnt.note}" if learnt.runs else training.note
        adapter = priced(corrected(training.predicted, learnt), note, price)
    elif rate := measured_rate(context.outcomes, target, training.model):
        speed, spread, runs = rate
        half, middle = exp(_Z80 * spread), training.flops / speed
        note = f"measured: {runs} runs of {training.model} on {target} sustained {speed / 1e9:.4g} GFLOP/s"
        adapter = priced((middle / half, middle, middle * half), note, price)
    else:
        adapter = raw
    whole = adapter.times(ceil(context.voters / context.together))
    backfill, note = _backfill(whole, training.domain, context)
    return CostPlan(
        target=target,
        model=training.model,
        flops=training.flops,
        adapter_raw=raw,
        adapter=adapter,
        domain=whole,
        backfill=backfill,
        voters=context.voters,
        backfill_note=note,
        correction=learnt,
    )


def _backfill(whole: Cost, domain: str, context: CostContext) -> tuple[Cost, str]:
    """The cost of all domains, of which `whole` is one, and a note on how many of them have a plan."""
    others = {name: cost for name, cost in context.others.items() if name in context.domains and name != domain}
    missing = [name for name in context.domains if name != domain and name not in others]
    note = f"{1 + len(others)} of {max(1, len(context.domains))} domains have a plan"
    if missing:
        note += f"; {', '.join(missing)} are taken to be as large as {domain or 'this one'}"
    return total([whole, *others.values(), *([whole.times(len(missing))] if missing else [])]), note


def read_outcomes(documents: Iterable[Any]) -> list[TimedTraining]:
    """Timed trainings among recorded JSON documents; documents of another form (an older version's) are skipped."""
    outcomes = []
    for document in documents:
        try:
            outcomes.append(TimedTraining.model_validate(document))
        except ValidationError:
            continue
    return outcomes


def outcome_of(cost: CostPlan, voters: Mapping[str, Mapping[str, Any]], steps: int | None) -> TimedTraining | None:
    """The time of a finished training (the median voter's) beside its plan's prediction; None where nothing was timed.

    Args:
        cost: cost of the plan that was run.
        voters: rows of the training's summary: `seconds` and `steps` of each finished voter.
        steps: planned optimizer steps of one adapter.
    """
    seconds = [float(row["seconds"]) for row in voters.values() if row.get("seconds")]
    if not seconds:
        return None
    done = [int(row["steps"]) for row in voters.values() if row.get("steps")]
    return TimedTraining(
        target=cost.target,
        model=cost.model,
        flops=cost.flops,
        predicted=cost.adapter_raw.seconds,
        measured=median(seconds),
        predicted_steps=steps,
        measured_steps=round(median(done)) if done else None,
    )


def _each(span: Span, factor: float) -> Span:
    return (span[0] * factor, span[1] * factor, span[2] * factor)


def _sum(spans: Sequence[Span]) -> Span:
    return (sum(span[0] for span in spans), sum(span[1] for span in spans), sum(span[2] for span in spans))

"""How wrong are predictions of runs that the fit has never seen: by model, by chip, beside a naive answer.

Every figure is of log step times predicted by a fit from which the whole group (a model's rows, a chip's rows) was left
out. Spreads of effects are fixed beforehand (`effects`), so nothing is chosen by looking at the group. The interval's
width for a group comes from the residuals of the other groups.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from benchmarks.planning.fit import Array, Problem, estimate, solve, step_seconds
from benchmarks.planning.published import PublishedRun
from capibara_assets.planning.prediction.calibration import EfficiencyCalibration

Label = str | int
COVERAGE = 0.90  # aimed at; the promise is 80 to 95 %
ENOUGH_RUNS, ENOUGH_MODELS = 40, 5  # below this no calibration is made of a file
ENOUGH_NEAR = 15  # runs that say how regular a source is


@dataclass(frozen=True)
class HeldOut:
    """Predictions of each run by fits that left its group out.

    Attributes:
        logs: predicted log step times (runs,).
        spreads: from effects' uncertainty (runs,), noise left out.
        noise: root mean square of what remains inside the fits.
        widths: multiples of the spread that cover `COVERAGE` of the other groups' runs (runs,).
        width: the same over all runs.
    """

    logs: Array
    spreads: Array
    noise: float
    widths: Array
    width: float

    def covered(self, measured: Array) -> Array:
        """Which measured log step times lie in their interval: ones and zeros (runs,)."""
        return np.asarray(np.abs(self.logs - measured) <= self.widths * self.spreads, dtype=np.float64)


@dataclass(frozen=True)
class Prior:
    """A fit to other runs, and the groups that may rely on it: those of whose model it saw no run."""

    calibration: EfficiencyCalibration
    groups: frozenset[Label]


def leave_out(task: Problem, groups: Sequence[Label], own: int | None = None, prior: Prior | None = None) -> HeldOut:
    """Predict each group by a fit to the others.

    Args:
        task: measured runs of at least two groups.
        groups: of each run, what is left out together.
        own: the first so many runs are of one source, which may be less regular than the rest: an interval among them
            is as wide as either all others or, where they are enough, those of its source demand. Default: all.
        prior: where the runs that it was fitted to are not at hand; it also says how wide intervals are where
            the other groups' runs are too few to.
    """
    logs, spreads = predicted(task, groups, set(groups), prior)
    few = prior if len(groups) < ENOUGH_RUNS else None
    noise = in_sample_noise(task) if few is None else few.calibration.noise
    spreads = np.sqrt(spreads**2 + noise**2)
    ratios = np.abs(logs - task.logs) / spreads
    widths = np.zeros(len(groups))
    for name in set(groups):
        inside = [row for row, one in enumerate(groups) if one == name]
        outside = [row for row, one in enumerate(groups) if one != name]
        near = [row for row in outside if own is None or row < own]
        if prior is not None and len(outside) < ENOUGH_RUNS:
            widths[inside] = prior.calibration.width
            continue
        widths[inside] = quantile_of(ratios[outside])
        if len(near) >= ENOUGH_NEAR:
            widths[inside] = max(quantile_of(ratios[outside]), quantile_of(ratios[near]))
    width = quantile_of(ratios) if few is None else few.calibration.width
    return HeldOut(logs=logs, spreads=spreads, noise=noise, widths=widths, width=width)


def predicted(
    task: Problem, groups: Sequence[Label], wanted: Collection[Label], prior: Prior | None = None
) -> tuple[Array, Array]:
    """Log step times and their spreads without noise (runs,), each by a fit without the run's group.

    Groups that are not `wanted` stay at zero.
    """
    logs, spreads = np.zeros(len(groups)), np.zeros(len(groups))
    informed = task if prior is None else task.informed(prior.calibration)
    for name in dict.fromkeys(one for one in groups if one in wanted):
        inside = [row for row, one in enumerate(groups) if one == name]
        outside = [row for row, one in enumerate(groups) if one != name]
        whole = informed if prior is not None and name in prior.groups else task
        logs[inside], spreads[inside] = estimate(task.rows(inside), solve(whole.rows(outside)))
    return logs, spreads


def in_sample_noise(task: Problem) -> float:
    """Root mean square of the residuals of a fit to all runs, outliers held to three times their median."""
    logs, _ = estimate(task, solve(task))
    residuals = np.abs(logs - task.logs)
    return max(float(np.sqrt(np.mean(np.minimum(residuals, 3 * np.median(residuals)) ** 2))), 0.01)


def quantile_of(ratios: Array) -> float:
    """The conformal quantile for `COVERAGE`: the (n + 1)·coverage-th smallest."""
    rank = min(len(ratios), int(np.ceil((len(ratios) + 1) * COVERAGE)))
    return float(np.sort(ratios)[rank - 1])


def speed_errors(predicted: Array, runs: Sequence[PublishedRun]) -> Array:
    """|predicted / measured - 1| of the speeds, from predicted log step times (runs,)."""
    measured = np.array([step_seconds(run) for run in runs])
    errors: Array = np.abs(measured / np.exp(predicted) - 1)
    return errors


def naive_errors(runs: Sequence[PublishedRun], groups: Sequence[Label]) -> list[float | None]:
    """The same errors of the answer "the median MFU of other models on that chip".

    MFU is of the peak of the run's number format, as published tables have it. Where no other model ran on the chip,
    other models on chips of its kind are asked, and where there are none either, other models. None: there are none.
    """
    shares = [mfu(run) for run in runs]
    errors: list[float | None] = []
    for run, share, own in zip(runs, shares, groups, strict=True):
        others = [(one, theirs) for one, theirs, group in zip(runs, shares, groups, strict=True) if group != own]
        nearest = [theirs for one, theirs in others if one.machine.family == run.machine.family]
        nearest = nearest or [theirs for one, theirs in others if one.machine.kind == run.machine.kind]
        nearest = nearest or [theirs for _, theirs in others]
        errors.append(abs(median(nearest) / share - 1) if nearest else None)
    return errors


def mfu(run: PublishedRun) -> float:
    """A measured run's model FLOPs over the peak of its format, attention counted as its source does."""
    load = run.workload
    flops = load.tokens / load.chips * load.flops_per_token(causal=run.causal)
    return flops / step_seconds(run) / run.machine.peak(load.format)

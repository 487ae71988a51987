"""Fits the efficiencies of `effects` to measured runs.

The fit is the maximum of the posterior: squared errors of log step times (in units of `NOISE`, flattened for outliers)
and squared effects (in units of their spreads). With spreads as priors, effects that few runs show stay near zero.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from threadpoolctl import threadpool_limits

from benchmarks.planning.published import PublishedRun, model_keys
from capibara_assets.errors import InputError
from capibara_assets.planning.prediction.calibration import (
    CalibrationSource,
    EfficiencyCalibration,
    FittedEffect,
    with_bubble,
)
from capibara_assets.planning.prediction.effects import effects, expected_logs
from capibara_assets.planning.prediction.roofline import TERMS, work

Array = np.ndarray[Any, np.dtype[np.float64]]
NOISE = 0.05  # what runs of one setting differ by for reasons outside the settings, in logarithms
OUTLIER = 2.0  # residuals beyond this many NOISEs pull linearly, not quadratically
STEPS, STEP_LIMIT, CLOSE = 60, 1.0, 1e-6
SMALLEST = 1e-3  # effects below this are left out of the file


@dataclass(frozen=True)
class Problem:
    """Runs as arrays: seconds (runs, terms), expected logs (runs, terms), measured log step times `logs` (runs,).

    Effects: `means` and `spreads` (effects,) are what is known of them before; `member` (runs, effects) of zeros and
    ones says whose they are, `places` (effects, terms + 1) of zeros and ones which term they work on; the last place
    is all of them.
    """

    names: tuple[str, ...]
    means: Array
    spreads: Array
    places: Array
    member: Array
    seconds: Array
    expected: Array
    logs: Array

    def informed(self, calibration: EfficiencyCalibration) -> "Problem":
        """The same, with a fit to other runs as what is known before."""
        known = [calibration.effects.get(name) for name in self.names]
        return replace(
            self,
            means=np.array([0.0 if one is None else one.value for one in known]),
            spreads=np.array(
                [prior if one is None else one.spread for one, prior in zip(known, self.spreads, strict=True)]
            ),
        )

    def rows(self, index: Sequence[int]) -> "Problem":
        """The same effects on some of the runs."""
        chosen = list(index)
        return replace(
            self,
            member=self.member[chosen],
            seconds=self.seconds[chosen],
            expected=self.expected[chosen],
            logs=self.logs[chosen],
        )

    def costs(self, theta: Array) -> tuple[Array, Array]:
        """Step times (runs,) under effects of these values, and the derivatives of their logarithms (runs, effects)."""
        by_place = self.member * theta @ self.places
        costs = np.exp(self.expected + by_place[:, :-1] + by_place[:, -1:]) * self.seconds
        totals = costs.sum(1)
        shares = np.column_stack((costs / totals[:, None], np.ones(len(totals))))
        return totals, self.member * (shares @ self.places.T)


def problem(runs: Sequence[PublishedRun]) -> Problem:
    """Arrays of measured runs.

    Raises:
        InputError: a run without a measurement.
    """
    works = [work(run.workload, run.machine) for run in runs]
    listed = [list(effects(run.workload, run.machine)) for run in runs]
    known = {effect.name: effect for one in listed for effect in one}
    names = tuple(sorted(known))
    index = {name: position for position, name in enumerate(names)}
    places, member = np.zeros((len(names), len(TERMS) + 1)), np.zeros((len(runs), len(names)))
    for name, effect in known.items():
        places[index[name], len(TERMS) if effect.term is None else effect.term] = 1.0
    for row, one in enumerate(listed):
        member[row, [index[effect.name] for effect in one]] = 1.0
    return Problem(
        names=names,
        means=np.zeros(len(names)),
        spreads=np.array([known[name].spread for name in names]),
        places=places,
        member=member,
        seconds=np.array([with_bubble(one) for one in works]),
        expected=np.array([expected_logs(run.workload, run.machine) for run in runs]),
        logs=np.log([step_seconds(run) for run in runs]),
    )


def step_seconds(run: PublishedRun) -> float:
    """Measured seconds of one step.

    Raises:
        InputError: the run measured nothing.
    """
    if run.tokens_per_second is None:
        raise InputError(f"row {run.row} has no measured speed: it can be predicted, not fitted")
    return run.workload.tokens / run.workload.chips / run.tokens_per_second


@dataclass(frozen=True)
class Solution:
    """Effects in the order of `Problem.names`, and their posterior spreads."""

    values: Array
    spreads: Array


def solve(task: Problem) -> Solution:
    """The posterior's maximum by damped Gauss-Newton steps with Cauchy-like weights; deterministic."""
    theta = task.means
    precision = 1 / task.spreads**2
    with threadpool_limits(limits=1):  # the matrices are small, and beside other work threads wait for each other
        for _ in range(STEPS):
            totals, jacobian = task.costs(theta)
            residuals = np.log(totals) - task.logs
            weights = 1 / np.sqrt(1 + (residuals / NOISE / OUTLIER) ** 2) / NOISE**2
            curvature = (jacobian * weights[:, None]).T @ jacobian + np.diag(precision)
            step = np.linalg.solve(
                curvature, (jacobian * weights[:, None]).T @ residuals + precision * (theta - task.means)
            )
            step *= min(1.0, STEP_LIMIT / max(float(np.abs(step).max()), 1e-12))
            theta = theta - step
            if float(np.abs(step).max()) < CLOSE:
                break
        spreads = np.sqrt(np.diag(np.linalg.inv(curvature)))
    return Solution(values=theta, spreads=spreads)


def estimate(task: Problem, solution: Solution) -> tuple[Array, Array]:
    """Log step times (runs,) and their spreads from the effects' own (runs,), noise left out."""
    totals, jacobian = task.costs(solution.values)
    return np.log(totals), np.sqrt(jacobian**2 @ solution.spreads**2)


def file_digest(file: Path) -> str:
    """SHA-256 of a file's bytes.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error


def calibrate(
    runs: Sequence[PublishedRun], *, width: float, noise: float, coverage: float, provenance: Mapping[str, Any]
) -> EfficiencyCalibration:
    """Effects fitted to all of `runs`, for shipping.

    Args:
        runs: measured runs.
        width: half of the interval over the predicted spread, from cross-validation.
        noise: spread of what effects do not explain, from cross-validation.
        coverage: what `width` was chosen to cover.
        provenance: command, words and digest of the file.
    """
    task = problem(runs)
    solution = solve(task)
    kept = {
        name: FittedEffect(value=round(float(value), 4), spread=round(float(spread), 4))
        for name, value, spread, prior in zip(task.names, solution.values, solution.spreads, task.spreads, strict=True)
        # What neither moved nor became surer says nothing that the prior does not.
        if abs(value) >= SMALLEST or spread < prior * (1 - SMALLEST)
    }
    origin = CalibrationSource(
        **provenance,
        runs=len(runs),
        models=len({run.model for run in runs}),
        seen=tuple(sorted({key for run in runs for key in model_keys(run)})),
    )
    return EfficiencyCalibration(
        provenance=origin, noise=round(noise, 4), width=round(width, 4), coverage=coverage, effects=kept
    )


def write_calibration(calibration: EfficiencyCalibration, file: Path) -> None:
    """Write the calibration as YAML, effects sorted, so that equal fits give equal bytes."""
    document = calibration.model_dump(mode="json")
    document["effects"] = {name: document["effects"][name] for name in sorted(document["effects"])}
    head = (
        "# Efficiencies fitted to published training runs; planning/prediction/effects.py says what each is.\n"
        "# Written by the command below; do not edit by hand.\n"
    )
    body = yaml.safe_dump(document, sort_keys=False, width=120, default_flow_style=None)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(head + body, encoding="utf-8")

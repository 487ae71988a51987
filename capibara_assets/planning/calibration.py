"""Fits the efficiencies of `effects` to measured runs, and keeps them with their provenance.

The fit is the maximum of the posterior: squared errors of log step times (in units of `NOISE`, flattened for outliers)
and squared effects (in units of their spreads). With spreads as priors, effects that few runs show stay near zero.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from pydantic import Field

from capibara_assets.declarations import Declared, declared, read_mapping
from capibara_assets.errors import InputError
from capibara_assets.locations import resources_root
from capibara_assets.planning.effects import effects, expected_logs
from capibara_assets.planning.machine import Machine
from capibara_assets.planning.published import PublishedRun
from capibara_assets.planning.roofline import TERMS, Work, work
from capibara_assets.planning.workload import Workload

Array = np.ndarray[Any, np.dtype[np.float64]]
NOISE = 0.05  # what runs of one setting differ by for reasons outside the settings, in logarithms
OUTLIER = 2.0  # residuals beyond this many NOISEs pull linearly, not quadratically
STEPS, STEP_LIMIT, CLOSE = 60, 1.0, 1e-6
SMALLEST = 1e-3  # effects below this are left out of the file


class Fitted(Declared):
    """An effect's value and its posterior spread."""

    value: float
    spread: float = Field(ge=0)


class Provenance(Declared):
    """Where a calibration comes from."""

    command: str
    rows: str = Field(description="what the runs are, in words")
    sha256: str = Field(description="digest of the file of runs")
    runs: int = Field(ge=0)
    models: int = Field(ge=0)


class Calibration(Declared):
    """Fitted effects; what is not named is zero with its prior spread.

    `width` times the predicted spread is half of the interval, in logarithms (conformal: the quantile that covers the
    wanted share of runs of models left out).
    """

    provenance: Provenance
    noise: float = Field(gt=0, description="spread of what no effect explains, in logarithms")
    width: float = Field(gt=0)
    coverage: float = Field(gt=0, lt=1, description="share of runs that an interval is made to cover")
    effects: dict[str, Fitted]


@dataclass(frozen=True)
class Rates:
    """A run's logarithmic factors by term, and how uncertain the sum of effects on each is known."""

    logs: tuple[float, ...]
    shared: tuple[tuple[int | None, float], ...]  # (term or all, variance) of each effect


def rates(load: Workload, machine: Machine, calibration: Calibration) -> Rates:
    """Each term's factor (logarithm) for this run, and the variances of the effects behind it."""
    logs = expected_logs(load, machine)
    shared = []
    for effect in effects(load, machine):
        known = calibration.effects.get(effect.name)
        value, spread = (known.value, known.spread) if known is not None else (0.0, effect.spread)
        shared.append((effect.term, spread**2))
        if effect.term is None:
            logs = [one + value for one in logs]
        else:
            logs[effect.term] += value
    return Rates(logs=tuple(logs), shared=tuple(shared))


@cache
def shipped() -> Calibration:
    """The calibration that ships.

    Raises:
        InputError: the file is damaged.
    """
    return read_calibration(resources_root() / "planning" / "calibration.yaml")


def read_calibration(file: Path) -> Calibration:
    """A calibration from its YAML file.

    Raises:
        InputError: unreadable, or a key that is unknown or missing.
    """
    return declared(Calibration, read_mapping(file), file)


def write_calibration(calibration: Calibration, file: Path) -> None:
    """The calibration as YAML, sorted, so that equal fits give equal bytes."""
    document = calibration.model_dump(mode="json")
    document["effects"] = {name: document["effects"][name] for name in sorted(document["effects"])}
    head = (
        "# Efficiencies fitted to published training runs; capibara_assets/planning/effects.py says what each is.\n"
        "# Written by the command below; do not edit by hand.\n"
    )
    body = yaml.safe_dump(document, sort_keys=False, width=120, default_flow_style=None)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(head + body, encoding="utf-8")


@dataclass(frozen=True)
class Problem:
    """Runs as arrays: seconds (runs, terms), expected logs (runs, terms), measured log step times `logs` (runs,).

    Effects: `member` (runs, effects) of zeros and ones says whose they are, `places` (effects, terms + 1) of zeros and
    ones which term they work on; the last place is all of them.
    """

    names: tuple[str, ...]
    spreads: Array
    places: Array
    member: Array
    seconds: Array
    expected: Array
    logs: Array

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
        spreads=np.array([known[name].spread for name in names]),
        places=places,
        member=member,
        seconds=np.array([waiting(one) for one in works]),
        expected=np.array([expected_logs(run.workload, run.machine) for run in runs]),
        logs=np.log([step_seconds(run) for run in runs]),
    )


def waiting(one: Work) -> Array:
    """A step's terms with the pipeline's waiting laid on each."""
    return np.array(one.seconds) * (1 + one.bubble)


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
    theta = np.zeros(len(task.names))
    precision = 1 / task.spreads**2
    for _ in range(STEPS):
        totals, jacobian = task.costs(theta)
        residuals = np.log(totals) - task.logs
        weights = 1 / np.sqrt(1 + (residuals / NOISE / OUTLIER) ** 2) / NOISE**2
        curvature = (jacobian * weights[:, None]).T @ jacobian + np.diag(precision)
        step = np.linalg.solve(curvature, (jacobian * weights[:, None]).T @ residuals + precision * theta)
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
) -> Calibration:
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
        name: Fitted(value=round(float(value), 4), spread=round(float(spread), 4))
        for name, value, spread, prior in zip(task.names, solution.values, solution.spreads, task.spreads, strict=True)
        # What neither moved nor became surer says nothing that the prior does not.
        if abs(value) >= SMALLEST or spread < prior * (1 - SMALLEST)
    }
    origin = Provenance(**provenance, runs=len(runs), models=len({run.model for run in runs}))
    return Calibration(provenance=origin, noise=round(noise, 4), width=round(width, 4), coverage=coverage, effects=kept)

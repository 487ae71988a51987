"""Calibration of the step-time prediction: fitted efficiencies and their provenance, applied to a workload."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pydantic import Field

from capibara_assets.deployment.declarations import Declared, declared, read_mapping
from capibara_assets.deployment.locations import resources_root
from capibara_assets.planning.hardware.machine import Machine
from capibara_assets.planning.prediction.effects import effects, expected_logs
from capibara_assets.planning.prediction.roofline import Work
from capibara_assets.planning.workload import Workload


class FittedEffect(Declared):
    """Fitted value of an effect and its posterior spread."""

    value: float
    spread: float = Field(ge=0)


class CalibrationSource(Declared):
    """Provenance of a calibration: the command and the runs that it was fitted to."""

    command: str
    rows: str = Field(description="what the runs are, in words")
    sha256: str = Field(description="digest of the file of runs")
    runs: int = Field(ge=0)
    models: int = Field(ge=0)
    seen: tuple[str, ...] = Field(default=(), description="names and sizes of the models, as `model_keys` has them")


class EfficiencyCalibration(Declared):
    """Fitted effects; an effect that is not listed is zero with its prior spread.

    `width` times the predicted spread is half of the interval, in logarithms (conformal: the quantile that covers the
    wanted share of runs of models left out).
    """

    provenance: CalibrationSource
    noise: float = Field(gt=0, description="spread of what no effect explains, in logarithms")
    width: float = Field(gt=0)
    coverage: float = Field(gt=0, lt=1, description="share of runs that an interval is made to cover")
    effects: dict[str, FittedEffect]


@dataclass(frozen=True)
class Rates:
    """Logarithmic factor of each term for one run, and the variances of the effects behind them."""

    logs: tuple[float, ...]
    shared: tuple[tuple[int | None, float], ...]  # (term or all, variance) of each effect


def rates(load: Workload, machine: Machine, calibration: EfficiencyCalibration) -> Rates:
    """The calibrated factors of a workload on a machine."""
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
def shipped() -> EfficiencyCalibration:
    """The shipped calibration.

    Raises:
        InputError: the file is damaged.
    """
    return read_calibration(resources_root() / "planning" / "calibration.yaml")


def read_calibration(file: Path) -> EfficiencyCalibration:
    """Read a calibration from its YAML file.

    Raises:
        InputError: the file is unreadable, or a key is unknown or missing.
    """
    return declared(EfficiencyCalibration, read_mapping(file), file)


def with_bubble(work: Work) -> tuple[float, ...]:
    """A step's seconds by term, each increased by the pipeline bubble."""
    return tuple(seconds * (1 + work.bubble) for seconds in work.seconds)

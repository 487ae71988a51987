"""Calibrated probabilities: temperature scaling, isotonic regression, the abstention threshold, calibration errors.

Temperature scaling and the expected calibration error are those of Guo et al. 2017 (arXiv 1706.04599); the isotonic map
is that of Zadrozny and Elkan 2002; the rule for abstaining is that of Chow 1970.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from sklearn.isotonic import IsotonicRegression

Floats = NDArray[np.floating[Any]]
_LOG_RANGE = (-3.0, 3.0)  # of the temperature


def softmax(logits: Floats, temperature: float = 1.0) -> NDArray[np.float64]:
    """Softmax over the last axis, float64."""
    scaled = np.asarray(logits, np.float64) / temperature
    shifted = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))


def fit_temperature(logits: Floats, shares: Floats) -> float:
    """The temperature under which the softmax has the least cross entropy to `shares`, within e**-3 to e**3.

    Args:
        logits: (prompts, experts).
        shares: (prompts, experts), each row a distribution: half each where two experts are right.

    Raises:
        ValueError: no prompt, or shapes that differ.
    """
    if not len(logits) or np.shape(logits) != np.shape(shares):
        raise ValueError(f"a temperature needs logits and as many shares, not {np.shape(logits)}, {np.shape(shares)}")

    def loss(log_temperature: float) -> float:
        probabilities = softmax(logits, float(np.exp(log_temperature)))
        return float(-(shares * np.log(np.maximum(probabilities, 1e-300))).sum() / len(shares))

    minimum = minimize_scalar(loss, bounds=_LOG_RANGE, method="bounded", options={"xatol": 1e-6})
    return float(np.exp(minimum.x))


@dataclass(frozen=True)
class Isotonic:
    """A non-decreasing map: linear between its knots, constant beyond them."""

    x: tuple[float, ...]
    y: tuple[float, ...]

    def __call__(self, values: Floats) -> NDArray[np.float64]:
        return np.asarray(np.interp(np.asarray(values, np.float64), self.x, self.y))


def fit_isotonic(scores: Floats, right: NDArray[np.bool_]) -> Isotonic:
    """Fit the non-decreasing least-squares map from scores to the frequency of being right; never exactly 0 or 1.

    Raises:
        ValueError: no score, or not one outcome each.
    """
    if not len(scores) or len(scores) != len(right):
        raise ValueError(f"{len(scores)} scores need as many outcomes, at least one, not {len(right)}")
    edge = 1 / (len(scores) + 2)  # n equal outcomes do not prove certainty (Laplace)
    model = IsotonicRegression(y_min=edge, y_max=1 - edge, out_of_bounds="clip")
    model.fit(np.asarray(scores, np.float64), np.asarray(right, np.float64))
    return Isotonic(tuple(map(float, model.X_thresholds_)), tuple(map(float, model.y_thresholds_)))


def choose_threshold(confidence: Floats, right: NDArray[np.bool_], abstain_cost: float) -> float:
    """The confidence below which to abstain at the least total cost, where a wrong answer costs 1; 0: never abstain.

    Of equal costs the lowest threshold is chosen. Equal confidences are treated alike.
    """
    levels, place = np.unique(np.asarray(confidence, np.float64), return_inverse=True)
    wrong = np.bincount(place, weights=~np.asarray(right, bool), minlength=len(levels))
    below = np.concatenate([[0], np.cumsum(np.bincount(place, minlength=len(levels)))])
    answered_wrong = wrong.sum() - np.concatenate([[0.0], np.cumsum(wrong)])
    best = int(np.argmin(np.round(answered_wrong + abstain_cost * below, 9)))
    if best == 0:
        return 0.0
    if best == len(levels):
        return float(np.nextafter(levels[-1], 2.0))
    return float((levels[best - 1] + levels[best]) / 2)


@dataclass(frozen=True)
class ConfidenceBin:
    """Predictions of similar confidence: their number, mean confidence and accuracy."""

    low: float
    high: float
    confidence: float
    accuracy: float
    count: int


@dataclass(frozen=True)
class ConfidenceCalibration:
    """Calibration errors of confidences against outcomes.

    Attributes:
        ece: expected calibration error: mean distance of confidence and accuracy, weighted by bin size.
        brier: mean squared distance of confidence and outcome.
        bins: those that are not empty: a reliability diagram.
    """

    n: int
    ece: float
    brier: float
    bins: tuple[ConfidenceBin, ...]

    def diagram(self) -> list[dict[str, float]]:
        """The bins, as JSON."""
        return [asdict(one) for one in self.bins]


def calibration(confidence: Floats, right: Sequence[bool] | NDArray[np.bool_], bins: int) -> ConfidenceCalibration:
    """Measure the calibration of confidences in `bins` bins of equal width; a confidence of 1 is in the last.

    Raises:
        ValueError: no confidences, or not one outcome each.
    """
    values, outcomes = np.asarray(confidence, np.float64), np.asarray(right, np.float64)
    if not len(values) or len(values) != len(outcomes):
        raise ValueError(f"{len(values)} confidences need as many outcomes, at least one, not {len(outcomes)}")
    place = np.clip((values * bins).astype(np.int64), 0, bins - 1)
    filled = []
    for number in np.unique(place):
        own = place == number
        filled.append(
            ConfidenceBin(
                float(number / bins),
                float((number + 1) / bins),
                float(values[own].mean()),
                float(outcomes[own].mean()),
                int(own.sum()),
            )
        )
    ece = sum(one.count * abs(one.confidence - one.accuracy) for one in filled) / len(values)
    return ConfidenceCalibration(len(values), float(ece), float(np.square(values - outcomes).mean()), tuple(filled))

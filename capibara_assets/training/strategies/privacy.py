"""Differential privacy of sums of clipped vectors: the Gaussian mechanism, its accounting, and its signal-to-noise.

Central model: a trusted server clips and sums the clients' changes, adds noise, and only the result leaves it.
All statements on a client and its change also hold for a train example and its gradient (DP-SGD, `private_sgd`).

Sensitivity. Each change u is scaled by min(1, C / |u|), so no term of the sum is longer than the clip C. With one
client more or less the sum moves by one such term: by at most C in the 2-norm (add-or-remove-one adjacency, whatever
the clients computed and however many answered). Noise N(0, (z C)^2) on each coordinate of the sum makes it a Gaussian
mechanism of noise multiplier z; dividing by a constant that does not depend on who took part is post-processing.
Exchanging one client's data for other data (also: one record of a client that stays) moves the sum by up to 2 C;
`replace_one` gives what still holds then, by group privacy.

Privacy over rounds is accounted by privacy loss distributions (Koskela et al. 2020, arXiv 1906.03049; Doroshenko et
al. 2022, arXiv 2207.04380) in dp-accounting, whose pessimistic discretisation never gives too small an epsilon;
clients drawn independently with probability q (Poisson sampling) are amplified there.

It lies below `consensus` because federated training needs it; `consensus.api` exports it to callers.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

Vector = NDArray[np.float64]
Unit = Literal["client", "example"]
ADJACENCY: dict[Unit, str] = {"client": "add_or_remove_one_client", "example": "add_or_remove_one_example"}
SUM: dict[Unit, str] = {"client": "round", "example": "step"}  # the period over which a unit's vectors are summed
_OF: dict[Unit, str] = {"client": "update", "example": "gradient"}
ACCOUNTANT = "pld"
MOST_STEPS = 100_000
"""Steps that are accounted: no adapter takes more, and a certificate's statement is computed again in a second."""
_MOST_VOTERS = 64  # of a certificate
_LIBRARY = "dp-accounting"
_INTERVAL = 1e-4  # of privacy losses: dp-accounting's own
_LITTLE, _CELLS = 0.2, 5e5  # below this noise, so many intervals at most


@lru_cache(maxsize=512)
def dp_epsilon(noise_multiplier: float, sampling_rate: float, steps: int, delta: float) -> float:
    """Epsilon at `delta` of so many steps of the (Poisson-sampled) Gaussian mechanism, one client more or less.

    Args:
        noise_multiplier: standard deviation of the noise on the sum over the clip; 0: no noise, epsilon is infinite.
        sampling_rate: probability with which each client takes part in a step, independently and in secret; 1: all.

    Raises:
        ValueError: a number out of its range.
    """
    _check(sampling_rate, steps, delta)
    if not noise_multiplier >= 0:
        raise ValueError(f"noise_multiplier {noise_multiplier}: at least 0")
    if steps == 0 or math.isinf(noise_multiplier):
        return 0.0
    if noise_multiplier == 0:
        return math.inf
    import dp_accounting  # type: ignore[import-untyped]  # takes seconds
    from dp_accounting import pld

    # With hardly any noise a privacy loss is of the order 1 / noise^2: its grid has to be coarser, or it fills the
    # memory. Losses are rounded up all the same, so epsilon is never too small.
    losses = steps * (noise_multiplier**-2 + 20 / noise_multiplier)
    interval = _INTERVAL if noise_multiplier >= _LITTLE else max(_INTERVAL, losses / _CELLS)
    accountant = pld.PLDAccountant(
        dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=interval
    )
    event = dp_accounting.GaussianDpEvent(noise_multiplier)
    if sampling_rate < 1:
        event = dp_accounting.PoissonSampledDpEvent(sampling_rate, event)
    accountant.compose(event, steps)
    return float(accountant.get_epsilon(delta))


@lru_cache(maxsize=64)
def dp_noise_multiplier(epsilon: float, sampling_rate: float, steps: int, delta: float) -> float:
    """The least noise multiplier, to 1e-6 of itself, whose epsilon after so many steps is at most `epsilon`.

    Raises:
        ValueError: a number out of its range.
    """
    _check(sampling_rate, steps, delta)
    if not epsilon > 0:
        raise ValueError(f"epsilon {epsilon}: more than 0")
    if steps == 0 or math.isinf(epsilon):
        return 0.0
    # Without sampling it is the analytic Gaussian; sampling amplifies, so that much noise is always enough.
    high = analytic_noise(epsilon, delta) * math.sqrt(steps)
    while (reached := dp_epsilon(high, sampling_rate, steps, delta)) > epsilon:
        high *= 1 + 1e-6
    low = high * min(1 - 1e-6, reached / epsilon)  # epsilon falls about as 1 / noise
    while (reached := dp_epsilon(low, sampling_rate, steps, delta)) <= epsilon:
        low, high = low * min(1 - 1e-6, 0.97 * reached / epsilon), low
    if high - low > 1e-6 * high:

        def over(noise: float) -> float:
            return dp_epsilon(float(noise), sampling_rate, steps, delta) - epsilon

        high = float(brentq(over, low, high, xtol=1e-7 * high))
        while over(high) > 0:
            high *= 1 + 2e-7
    return high


def analytic_noise(epsilon: float, delta: float) -> float:
    """The noise multiplier of one Gaussian step that is (epsilon, delta)-private (Balle and Wang 2018, 1805.06530)."""

    def above(log_noise: float) -> float:
        mu = math.exp(-log_noise)
        tail = math.exp(epsilon + float(log_ndtr(-epsilon / mu - mu / 2)))
        return float(ndtr(mu / 2 - epsilon / mu)) - tail - delta

    return math.exp(brentq(above, -10.0, 40.0, xtol=1e-12))


def affordable_steps(epsilon: float, noise_multiplier: float, sampling_rate: float, steps: int, delta: float) -> int:
    """The most steps, up to `steps`, with an epsilon of at most `epsilon`; 0 if even one step exceeds it."""
    if dp_epsilon(noise_multiplier, sampling_rate, steps, delta) <= epsilon:  # as a rule; epsilon grows with the steps
        return steps
    low, high = 0, steps
    while high - low > 1:
        middle = (low + high) // 2
        if dp_epsilon(noise_multiplier, sampling_rate, middle, delta) <= epsilon:
            low = middle
        else:
            high = middle
    return low


def replace_one(epsilon: float, delta: float) -> dict[str, float]:
    """The guarantee for exchanging one client's data, given add-or-remove-one (epsilon, delta): group privacy of two.

    (2 epsilon, (1 + e^epsilon) delta), Dwork and Roth 2014; it also covers one record of a client that stays.
    """
    factor = 1 + math.exp(epsilon) if epsilon < 700 else math.inf
    return {"epsilon": 2 * epsilon, "delta": min(1.0, factor * delta)}


def clip_factor(norm: float, clip: float) -> float:
    """The factor that reduces a change of this norm to a norm of at most `clip`: min(1, clip / norm).

    Raises:
        ValueError: the norm is not finite, so no factor bounds it.
    """
    if not math.isfinite(norm):
        raise ValueError(
            f"a change of norm {norm} cannot be clipped: leave that client out, the noise suffices for fewer"
        )
    return 1.0 if norm <= clip else clip / norm


def dp_clipped_mean(
    vectors: ArrayLike | Sequence[ArrayLike],
    clip: float,
    noise_multiplier: float,
    *,
    base: ArrayLike | None = None,
    denominator: float | None = None,
    seed: int | None = None,
) -> Vector:
    """The noised mean of clipped vectors, (sum of min(1, clip / |v|) v + N(0, (noise_multiplier clip)²)) / denominator.

    For the proof of its sensitivity see the module. The sum is float64 in an order that depends on the vectors only.

    Args:
        vectors: (n, d), one row for each client that answered.
        clip: most length of a row in the sum, in the rows' unit.
        noise_multiplier: standard deviation of the noise on each coordinate of the sum, over `clip`; 0: no privacy.
        base: (d,) what all clients started from, where the rows are weights: v is then a row minus the base, and the
            result is the base plus that mean. None: the rows are changes already.
        denominator: what the sum is divided by; None: n. Under add-or-remove-one n itself tells who is there: where
            privacy counts, give a constant (clients times sampling rate), as federated training does.
        seed: None draws the noise from the operating system's entropy. A seed that anyone else can know makes the noise
            known and voids the guarantee: only for tests. Either way the generator is a statistical one in floating
            point, so attacks on the noise's low bits (Mironov 2012) are not defended against.

    Returns:
        (d,) float64.

    Raises:
        ValueError: a clip, multiplier or denominator that is not positive (the multiplier may be 0), rows that are not
            finite, or no row and so no d.
    """
    rows = np.asarray(vectors, dtype=np.float64)
    if rows.ndim != 2 or not len(rows):
        raise ValueError(f"vectors of shape {rows.shape}: expected (n, d) with at least one row")
    if not (0 < clip < math.inf and 0 <= noise_multiplier < math.inf):
        raise ValueError(f"clip {clip} must be positive, noise_multiplier {noise_multiplier} at least 0, both finite")
    origin = np.zeros(rows.shape[1]) if base is None else np.asarray(base, dtype=np.float64)
    if origin.shape != rows.shape[1:]:
        raise ValueError(f"base of shape {origin.shape}: expected {rows.shape[1:]}")
    rows = rows - origin
    if denominator is not None and not 0 < denominator < math.inf:
        raise ValueError(f"denominator {denominator}: more than 0, finite")
    norms = np.linalg.norm(rows, axis=1)
    if not np.isfinite(norms).all():
        at = int(np.flatnonzero(~np.isfinite(norms))[0])
        raise ValueError(f"row {at} is not finite, or too long for float64: leave that client out, as a dropout")
    factors = np.array([clip_factor(float(norm), clip) for norm in norms])
    order = sorted(range(len(rows)), key=lambda index: hashlib.sha256(rows[index].tobytes()).digest())
    total = np.zeros(rows.shape[1])
    for index in order:
        total += factors[index] * rows[index]
    total += noise_multiplier * clip * np.random.default_rng(seed).standard_normal(rows.shape[1])
    mean: Vector = origin + total / (len(rows) if denominator is None else denominator)
    return mean


@dataclass(frozen=True)
class NoisePrediction:
    """The noise of a round (or step), known before any training.

    Attributes:
        noise_multiplier, clip: of the mechanism.
        denominator: expected number of clients (or examples) in a round (or step).
        dimensions: number of trained values that a client submits.
        unit: whose vectors are summed.
        noise_norm: root mean square length of the noise on the mean, in the clip's unit.
        snr: clip / noise_norm: the longest that the mean of clipped updates can be, over the noise's length.
    """

    noise_multiplier: float
    clip: float
    denominator: float
    dimensions: int
    unit: Unit = "client"

    @property
    def noise_norm(self) -> float:
        return self.noise_multiplier * self.clip * math.sqrt(self.dimensions) / self.denominator

    @property
    def snr(self) -> float:
        return self.clip / self.noise_norm if self.noise_norm else math.inf

    def arithmetic(self) -> str:
        """The arithmetic of the signal-to-noise ratio, for people."""
        return (
            f"noise of {self.noise_multiplier:.3g} x clip x sqrt({self.dimensions:,} trained numbers) / "
            f"{self.denominator:g} {self.unit}s = {self.noise_norm / self.clip:.3g} x clip a {SUM[self.unit]}, a mean "
            f"{_OF[self.unit]} at most 1 x clip: signal-to-noise at most {self.snr:.2g}"
        )


def predicted_snr(
    clip: float, noise_multiplier: float, clients: float, dimensions: int, *, sampling_rate: float = 1.0
) -> NoisePrediction:
    """The highest signal-to-noise ratio of a round, reached if all clients agree.

    Args:
        clients: of whom each takes part with probability `sampling_rate`.
        dimensions: trained numbers.

    Raises:
        ValueError: a number that is not positive (the multiplier may be 0).
    """
    if min(clip, clients, dimensions, sampling_rate) <= 0 or noise_multiplier < 0:
        raise ValueError("clip, clients, dimensions and sampling_rate must be more than 0, noise_multiplier at least 0")
    return NoisePrediction(noise_multiplier, clip, clients * sampling_rate, dimensions)


@dataclass(frozen=True)
class NoisedSums:
    """Parameters of sums of clipped vectors that the Gaussian mechanism released.

    Attributes:
        noise_multiplier: noise on a sum over the clip.
        sampling_rate: probability that a vector is part of a sum.
        steps: number of sums.
        delta: for which epsilon holds.
        clip: most length of a vector.
    """

    noise_multiplier: float
    sampling_rate: float
    steps: int
    delta: float
    clip: float

    @property
    def epsilon(self) -> float:
        """Epsilon for one vector more or less, over all sums."""
        return dp_epsilon(self.noise_multiplier, self.sampling_rate, self.steps, self.delta)


def privacy_document(
    sums: NoisedSums, *, clients: int | None = None, examples: int | None = None, **further: Any
) -> dict[str, Any]:
    """The privacy document of a certificate; `recomputed_epsilon` computes its epsilon again from its parameters.

    Args:
        clients, examples: their number; epsilon is for one more or less of the one that is given.
        further: more entries.

    Raises:
        ValueError: both or neither are given, or a number is out of its range.
    """
    if (clients is None) == (examples is None):
        raise ValueError("give either clients or examples: epsilon is for one more or less of them")
    of: Unit = "example" if clients is None else "client"
    epsilon = sums.epsilon
    return {
        "mechanism": f"gaussian_on_sum_of_clipped_{_OF[of]}s",
        "noise_multiplier": sums.noise_multiplier,
        "sampling_rate": sums.sampling_rate,
        "steps": sums.steps,
        "delta": sums.delta,
        "epsilon": epsilon,
        "clip": sums.clip,
        f"{of}s": examples if clients is None else clients,
        "adjacency": ADJACENCY[of],
        "replace_one": replace_one(epsilon, sums.delta),
        "accountant": ACCOUNTANT,
        "library": f"{_LIBRARY} {version(_LIBRARY)}",
        **further,
    }


def recomputed_epsilon(document: Mapping[str, Any]) -> float:
    """Compute epsilon again, from the parameters of a privacy document alone.

    Raises:
        ValueError: a parameter is missing or out of range, or another accountant was used.
    """
    if document.get("accountant") != ACCOUNTANT or document.get("adjacency") not in ADJACENCY.values():
        raise ValueError(
            f"accounted by {document.get('accountant')!r} for {document.get('adjacency')!r}: only {ACCOUNTANT!r} for "
            f"{' or '.join(map(repr, ADJACENCY.values()))} can be computed again here"
        )
    names = ("noise_multiplier", "sampling_rate", "steps", "delta")
    if missing := [name for name in names if name not in document]:
        raise ValueError(f"the privacy document lacks {', '.join(missing)}")
    noise_multiplier, sampling_rate, steps, delta = (document[name] for name in names)
    return dp_epsilon(float(noise_multiplier), float(sampling_rate), int(steps), float(delta))


def combined_privacy(documents: Mapping[str, Mapping[str, Any] | None]) -> dict[str, Any]:
    """The privacy document of a model made of several voters: their budgets add up (basic composition).

    Voters' clients hold the same data, so no better composition is assumed. Where one voter was trained without privacy
    (None) there is no guarantee: epsilon and delta are null, and `without` names such voters. Where some voters protect
    clients and others single examples, only examples are protected by all: the former count by `replace_one`, since an
    example more or less is an exchange of its client's data.
    """
    without = sorted(name for name, document in documents.items() if document is None)
    private = {name: dict(document) for name, document in sorted(documents.items()) if document is not None}
    kinds = {document["adjacency"] for document in private.values()}
    adjacency = ADJACENCY["example"] if ADJACENCY["example"] in kinds else ADJACENCY["client"]
    spent = [one if one["adjacency"] == adjacency else one["replace_one"] for one in private.values()]
    return {
        "voters": private,
        "without": without,
        "epsilon": None if without else math.fsum(one["epsilon"] for one in spent),
        "delta": None if without else min(1.0, math.fsum(one["delta"] for one in spent)),
        "adjacency": adjacency,
        "composition": "basic",
    }


def privacy_problems(document: Mapping[str, Any], tolerance: float = 1e-3) -> list[str]:
    """The wrong statements in a privacy document (one voter's, or `combined_privacy`); empty if it is right.

    Args:
        tolerance: relative; versions of the accountant may round differently.
    """
    try:
        if "voters" in document:
            voters, without = document["voters"], document["without"]
            if len(voters) > _MOST_VOTERS or any("voters" in one for one in voters.values()):
                return [f"it is of {len(voters)} voters or of voters of voters: at most {_MOST_VOTERS} are computed"]
            problems = [f"{name}: {text}" for name, one in voters.items() for text in privacy_problems(one, tolerance)]
            again = combined_privacy(voters | dict.fromkeys(without))
            wrong = [key for key in ("epsilon", "delta", "adjacency") if document[key] != again[key]]
            return problems + [f"{key} is {again[key]} by its voters, not {document[key]}" for key in wrong]
        recomputed, stated = recomputed_epsilon(document), float(document["epsilon"])
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, MemoryError) as error:
        return [f"epsilon cannot be computed again: {type(error).__name__}: {error}"]
    if not math.isclose(recomputed, stated, rel_tol=tolerance):
        return [f"epsilon is {recomputed:.6g} by its parameters, not {stated:.6g}"]
    again_replaced = replace_one(stated, float(document["delta"]))
    if "replace_one" in document and document["replace_one"] != again_replaced:
        return [f"replace_one is {again_replaced} by epsilon and delta, not {document['replace_one']}"]
    return []


def _check(sampling_rate: float, steps: int, delta: float) -> None:
    if not 0 < sampling_rate <= 1:
        raise ValueError(f"sampling_rate {sampling_rate}: more than 0, at most 1")
    if not 0 <= steps <= MOST_STEPS or steps != int(steps):
        raise ValueError(f"steps {steps}: a whole number from 0 to {MOST_STEPS:,}")
    if not 0 < delta < 1:
        raise ValueError(f"delta {delta}: between 0 and 1")

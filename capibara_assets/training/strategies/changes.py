"""Clients' weight changes as vectors whose sum is exact, and the server's step on them.

Coordinates by what is trained: `factors`: the product scale * B @ A itself, (out, in) of each module, since averaging A
and B apart gives another adapter; the result is cut to the trained rank. `b_only`: B, (out, r): with one A for all the
products are linear in it. `scales`: (r,) per module, sqrt(out) * s for B = S diag(s), so that lengths are those of B.
The last two lose nothing. Clients are read one after the other, so that only one of them is in memory.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capibara_assets.errors import InputError
from capibara_assets.modeling.low_rank import truncated
from capibara_assets.training.loop.client import along, lora_only, signs, spread
from capibara_assets.training.loop.products import Average, Product
from capibara_assets.training.step.subject import Subject
from capibara_assets.training.strategies.privacy import clip_factor
from capibara_assets.training.strategies.privacy_plan import dimensions
from capibara_assets.training.strategy import FederatedServer, TrainedNumbers

Vector = NDArray[np.float64]
Coordinates = dict[str, Vector]
_MOST = 1 << 28  # numbers of a client's change: 2 GiB, of which several are held
_SECOND = ".v"


@dataclass(frozen=True)
class Space:
    """The coordinates of a model's weight changes."""

    trained: TrainedNumbers
    parts: tuple[Product, ...]

    @classmethod
    def of(cls, trained: TrainedNumbers, subject: Subject) -> "Space":
        """The space of a subject. Raises InputError: more is trained than LoRA's products, or they are too large."""
        parts = tuple(lora_only(subject))
        shapes = [(len(subject.trainable[part.b]), subject.trainable[part.a].shape[1]) for part in parts]
        numbers = dimensions(trained, shapes, parts[0].rank)
        if numbers > _MOST:
            raise InputError(
                f"the clients' exact products are {numbers:,} numbers, above {_MOST:,}: set trained: b_only or scales"
            )
        return cls(trained, parts)

    def read(self, weights: Mapping[str, Tensor]) -> Coordinates:
        """The coordinates of weights by the names of trained parameters; float64."""
        coordinates = {}
        for part in self.parts:
            b, a = (weights[name].detach().cpu().double() for name in (part.b, part.a))
            match self.trained:
                case "factors":
                    value = part.scale * (b @ a)
                case "b_only":
                    value = b
                case "scales":
                    value = along(b, signs(part.module, b.shape))
            coordinates[part.module] = value.numpy()
        return coordinates

    def write(self, point: Coordinates, start: Mapping[str, Tensor]) -> Average:
        """The weights at a point; untrained ones are copied from `start`."""
        weights, lost, whole = {name: value.detach().cpu().clone() for name, value in start.items()}, 0.0, 0.0
        for part in self.parts:
            value, shape = point[part.module], start[part.b].shape
            match self.trained:
                case "factors":
                    (b, a), singular = truncated(value, np.eye(value.shape[1]), part.rank)
                    lost += float(np.square(singular[part.rank :]).sum())
                    whole += float(np.square(singular).sum())
                    missing = part.rank - len(a)
                    weights[part.a] = _float32(np.pad(a, ((0, missing), (0, 0))))
                    weights[part.b] = _float32(np.pad(b, ((0, 0), (0, missing))) / part.scale)
                case "b_only":
                    weights[part.b] = _float32(value)
                case "scales":
                    weights[part.b] = _float32(spread(torch.from_numpy(value), signs(part.module, shape)).numpy())
        return Average(weights, math.sqrt(lost / whole) if whole else 0.0)


@dataclass(frozen=True)
class Mechanism:
    """The Gaussian mechanism of a round; the proof of its sensitivity is in `strategies.privacy`.

    Attributes:
        denominator: a constant, the expected number of clients; not how many answered, which would be information on
            clients.
        seed: of this round's noise.
    """

    clip: float
    noise_multiplier: float
    denominator: float
    seed: tuple[int, ...]


def mean_change(
    space: Space,
    start: Mapping[str, Tensor],
    clients: Iterable[Mapping[str, Tensor]],
    how: Sequence[float] | Mechanism,
) -> Coordinates:
    """The clients' mean change from `start`, exact in the space's coordinates.

    Args:
        clients: weights of each, in an order that is always the same.
        how: shares of the clients, or the mechanism that clips their changes (over all modules together) and adds
            noise to the sum: the same for few clients as for all, so dropouts do not reduce privacy.
    """
    origin = space.read(start)
    total = {module: np.zeros_like(value) for module, value in origin.items()}
    for position, weights in enumerate(clients):
        change = {module: value - origin[module] for module, value in space.read(weights).items()}
        factor = clip_factor(length(change), how.clip) if isinstance(how, Mechanism) else how[position]
        for module, value in change.items():
            total[module] += factor * value
    return noised(total, how) if isinstance(how, Mechanism) else total


def noised(total: Coordinates, how: Mechanism) -> Coordinates:
    """Add the mechanism's noise to a sum of clipped vectors, and divide by its denominator."""
    generator = np.random.default_rng(how.seed)
    mean = {}
    for name in sorted(total):
        noise = generator.standard_normal(total[name].shape)
        mean[name] = (total[name] + how.noise_multiplier * how.clip * noise) / how.denominator
    return mean


def length(change: Coordinates) -> float:
    """The 2-norm of a change over all modules."""
    return math.sqrt(math.fsum(float(np.square(value).sum()) for value in change.values()))


def clipped_for_sum(change: Coordinates, clip: float, levels: int) -> Vector:
    """A change as one vector, clipped so that it is within `clip` after rounding to one of `levels`.

    Secure aggregation adds whole numbers: it divides -clip to clip into so many steps and rounds to one of the two
    nearest, so that each number moves by less than a step. The rounding error is subtracted from the clip beforehand.

    Raises:
        InputError: so many numbers that the steps alone are as long as the clip.
        ValueError: the change is not finite.
    """
    vector = flattened(change)
    allowed = clip * (1 - 2 * math.sqrt(vector.size) / levels)
    if allowed <= 0:
        raise InputError(f"{vector.size:,} numbers are too many for {levels:,} levels: set trained: b_only or scales")
    return clip_factor(length(change), allowed) * vector


def flattened(change: Coordinates) -> Vector:
    """All numbers as one vector, by the modules' names."""
    return np.concatenate([change[name].ravel() for name in sorted(change)])


def shaped(vector: Vector, like: Coordinates) -> Coordinates:
    """The reverse of `flattened`. Raises InputError: another number of numbers."""
    if vector.size != (wanted := sum(value.size for value in like.values())):
        raise InputError(f"a sum of {vector.size:,} numbers, where {wanted:,} are trained: the clients' base differs")
    result, start = {}, 0
    for name in sorted(like):
        end = start + like[name].size
        result[name], start = vector[start:end].reshape(like[name].shape), end
    return result


def server_step(
    server: FederatedServer, point: Coordinates, change: Coordinates, state: Coordinates
) -> tuple[Coordinates, Coordinates]:
    """The server's step: its new point and its new state.

    FedAvg: point + rate * change. FedAdam (Reddi et al. 2021, algorithm 2): m = b1 m + (1 - b1) change, v = b2 v +
    (1 - b2) change^2, point + rate * m / (sqrt(v) + tau), with m = 0 and v = tau^2 before the first round.
    """
    if server.optimizer == "average":
        return {module: value + server.rate * change[module] for module, value in point.items()}, {}
    after, new = {}, {}
    first, second = server.betas
    for module, value in point.items():
        m = first * state.get(module, 0.0) + (1 - first) * change[module]
        v = second * state.get(module + _SECOND, server.tau**2) + (1 - second) * np.square(change[module])
        new[module], new[module + _SECOND] = m, v
        after[module] = value + server.rate * m / (np.sqrt(v) + server.tau)
    return after, new


def _float32(values: NDArray[np.float64]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))

"""Initial gate rows of a mixture from hidden states: one linear discriminant per domain.

Plain means of hidden states nearly coincide (every token shares one large component), so a gate made of them sends
everything to one expert. The rows here are the centred means, whitened by the covariance within the domains.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


@dataclass(frozen=True)
class ClassStatistics:
    """Mean (hidden,) and covariance (hidden, hidden) of one domain's hidden states in one layer."""

    mean: Vector
    covariance: Matrix


def class_statistics(layers: "Sequence[Tensor]") -> list[ClassStatistics]:
    """Mean and covariance of hidden states (tokens, hidden), float64, per layer."""
    statistics = []
    for states in layers:
        values = states.numpy()
        mean = values.mean(axis=0)
        centred = values - mean
        statistics.append(ClassStatistics(mean, centred.T @ centred / len(values)))
    return statistics


def gate_rows(domains: Sequence[ClassStatistics], shrinkage: float, spread: float) -> Matrix:
    """(domains, hidden) rows whose products with a hidden state are the gate's logits.

    Row d is W^-1 (mean_d - mean) with W the covariance within the domains, shrunk towards a multiple of the identity.
    A gate has no bias: the part along the overall mean stands for it, since every hidden state has much of that.

    Args:
        shrinkage: share of the mean variance that is added to every direction.
        spread: standard deviation of the logits over all domains' tokens.
    """
    means = np.stack([domain.mean for domain in domains])
    centre = means.mean(axis=0)
    within = np.mean([domain.covariance for domain in domains], axis=0)
    within += np.eye(len(within)) * (shrinkage * np.trace(within) / len(within) + np.finfo(np.float64).tiny)
    rows = np.linalg.solve(within, (means - centre).T).T
    # Discriminant analysis puts the threshold half-way between a domain's mean and the overall one
    offsets = -0.5 * np.einsum("dh,dh->d", rows, means + centre)
    rows += offsets[:, None] * centre[None, :] / max(float(centre @ centre), np.finfo(np.float64).tiny)
    between = (means - centre).T @ (means - centre) / len(means)
    variance = np.einsum("dh,hk,dk->d", rows, within + between, rows).mean()
    return rows * (spread / np.sqrt(variance)) if variance > 0 else rows

"""The integrated strategy: merges voters of several strategies into one adapter, weighted per strategy.

A strategy's voters share its weight equally, and the adapter is the exact sum of weight * delta. It is accepted where
its quality on validation reaches the threshold: clip(1 - (loss - best) / (base - best), 0, 1), with the best voter's
loss and the base's, as in the vote. So 0.8 means that of the best voter's gain over the base a fifth may be missing.
Weights and threshold are the consensus recipe's (`candidates.integrated`).
"""

import math
from collections.abc import Mapping
from pathlib import Path

from capibara_assets.consensus.election.voting import quality
from capibara_assets.errors import InputError
from capibara_assets.training.voter_manifest import VoterManifest

_ROUNDING = 1e-9


def strategy_weights(strategies: Mapping[str, str], weights: Mapping[str, float]) -> dict[str, float]:
    """Weight of each voter.

    Args:
        strategies: voter -> kind of its strategy; voters of others than the weighted ones get 0.
        weights: kind -> weight, >= 0, summing to 1.

    Raises:
        ValueError: weights that are negative or do not sum to 1.
        InputError: no voter of a weighted strategy.
    """
    if min(weights.values(), default=-1.0) < 0 or abs(math.fsum(weights.values()) - 1.0) > _ROUNDING:
        raise ValueError(f"weights of strategies have to be >= 0 and sum to 1: {dict(weights)}")
    of_kind = {kind: [voter for voter, own in strategies.items() if own == kind] for kind in weights}
    if lacking := [kind for kind, voters in of_kind.items() if not voters and weights[kind] > 0]:
        raise InputError(
            f"no voter of strategy {', '.join(lacking)}: the integrated adapter needs {', '.join(weights)}, as the "
            "recipe strategies/integrated trains them"
        )
    return {voter: weights[kind] / len(of_kind[kind]) if kind in weights else 0.0 for voter, kind in strategies.items()}


def integrated_verdict(loss: float, best: float, base: float, threshold: float) -> tuple[bool, float, str]:
    """Whether an integrated adapter is accepted, its quality, and the verdict as text.

    Args:
        loss, best, base: validation losses of the adapter, of the best voter in it, of the base; nats per token.
    """
    reached = quality(loss, best, base)
    accepted = reached >= threshold
    return (
        accepted,
        reached,
        f"quality {reached:.3f} {'reaches' if accepted else 'is below'} the threshold {threshold:g}",
    )


def read_strategies(folders: Mapping[str, Path]) -> dict[str, str]:
    """Read each voter's kind of strategy from its manifest; voters without one are omitted."""
    stated = {name: VoterManifest.readable(folder).strategy for name, folder in sorted(folders.items())}
    return {name: kind for name, kind in stated.items() if kind is not None}

"""The ingredients of a model soup: their shares by validation, and the greedy choice among them.

Wortsman et al. 2022, arXiv 2203.05482; the greedy choice is its recipe 1.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

SoupMetric = Literal["perplexity", "loss"]
"""What the shares of a weighted soup go by. Both rank models alike: perplexity is exp(loss)."""
T = TypeVar("T")


def soup_shares(losses: Sequence[float], metric: SoupMetric = "perplexity") -> list[float]:
    """Shares of a weighted soup, summing to 1: in proportion to 1 / perplexity or to 1 / loss.

    Args:
        losses: on validation, nats per token, finite and >= 0.
    """
    best = min(losses)
    if metric == "loss":
        raw = [best / loss if loss > 0 else 1.0 for loss in losses]
    else:
        raw = [math.exp(best - loss) for loss in losses]
    return [value / math.fsum(raw) for value in raw]


@dataclass(frozen=True)
class GreedyStep(Generic[T]):
    """One attempt: the ingredients with the newcomer last, the score of their average, and whether it was kept."""

    tried: tuple[T, ...]
    score: float
    kept: bool


def greedy_choice(
    best_first: Sequence[T], first_score: float, score: Callable[[tuple[T, ...]], float]
) -> tuple[tuple[T, ...], float, tuple[GreedyStep[T], ...]]:
    """Choose ingredients greedily: each one in turn joins if the average with it is no worse than without.

    Args:
        best_first: the ingredients, at least one.
        first_score: of the first alone.
        score: of the average of some; higher is better, NaN never stays.

    Returns:
        The ingredients in the order in which they joined, their average's score, and every attempt.
    """
    members, best, steps = tuple(best_first[:1]), first_score, []
    for newcomer in best_first[1:]:
        tried = (*members, newcomer)
        value = score(tried)
        kept = value >= best
        steps.append(GreedyStep(tried, value, kept))
        if kept:
            members, best = tried, value
    return members, best, tuple(steps)

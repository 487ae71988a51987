"""Search for a dense merge over methods, scales and weights that maximises the smallest gain of any domain.

A merge that improves five domains and spoils one is not wanted. Every candidate is recorded; measuring one stops at the
domain that gains least so far, where that already shows it to be no better.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from capibara_assets.consensus.choose.lanes import Lanes
from capibara_assets.consensus.merging.delta_sums import DeltaSum, sum_experts
from capibara_assets.consensus.recipe import MergeMethod, MergeRecipe
from capibara_assets.domains import Domain
from capibara_assets.modeling.adapters import LoraAdapter, applied
from capibara_assets.modeling.base import Base

if TYPE_CHECKING:
    from capibara_assets.datasets.tokens.tokenising import Encoded

_FIRST_SCALE = 0.3  # where the climb over the scales begins
_LEAST_STEP = 0.02  # relative: smaller changes of the weights are not measured
_LOST = -1e9  # JSON has no infinity: stands for the gain of a diverged candidate


@dataclass(frozen=True)
class MeasuredMerge:
    """One candidate of the search, measured.

    Attributes:
        losses: nats per token, of the domains measured before the measurement was stopped.
        worst: least relative gain over the base among them.
        relative_error: of a lower rank (`DeltaSum`).
    """

    method: MergeMethod
    scale: float
    weights: dict[Domain, float]
    losses: dict[Domain, float]
    worst: float
    relative_error: float = 0.0

    def report(self, domains: int) -> dict[str, Any]:
        """The candidate's entry in the merge's report, as JSON; `domains`: how many there are in all."""
        return {
            "method": self.method,
            "scale": self.scale,
            "weights": {str(domain): weight for domain, weight in self.weights.items()},
            "losses": {str(domain): loss for domain, loss in self.losses.items()},
            "smallest_relative_gain": self.worst,
            "given_up_early": len(self.losses) < domains,
            **({"relative_error": self.relative_error} if self.method == "svd" else {}),
        }


class DenseSearch:
    """A deterministic hill climb that measures at most methods * scales + weight_steps + 1 candidates.

    Attributes:
        base_losses: domain -> nats per token of the base.
        tried: every candidate measured, in order.
    """

    def __init__(
        self,
        base: Base,
        experts: Mapping[Domain, LoraAdapter],
        examples: Mapping[Domain, Sequence["Encoded"]],
        recipe: MergeRecipe,
        lanes: Lanes,
    ) -> None:
        self.base, self.experts, self.examples, self.recipe, self.lanes = base, experts, examples, recipe, lanes
        self.base_losses = lanes.by_domain(base.model, examples)
        self.tried: list[MeasuredMerge] = []

    def run(self) -> MeasuredMerge:
        """Run the search and return the best candidate.

        The scale of the first method is searched, then its weights; the other methods start from there. Where another
        method wins, its weights are searched for one more step.
        """
        first, *others = self.recipe.methods if len(self.experts) > 1 else self.recipe.methods[:1]
        start = min(self.recipe.scales, key=lambda scale: (abs(scale - _FIRST_SCALE), scale))
        best = self._weighted(
            self._climb(first, dict.fromkeys(self.experts, 1.0), start, None), self.recipe.weight_steps
        )
        for method in others:
            best = self._climb(method, best.weights, best.scale, best)
        return best if best.method == first else self._weighted(best, min(1, self.recipe.weight_steps))

    def _climb(
        self, method: MergeMethod, weights: dict[Domain, float], start: float, best: MeasuredMerge | None
    ) -> MeasuredMerge:
        """Search the scales upwards from `start` while they improve; downwards only where the first step up did not."""
        summed = sum_experts(method, self.experts, weights, self.recipe)
        scales = sorted(self.recipe.scales)
        at = scales.index(start)
        best = self._try(method, scales[at], weights, summed, best)
        for direction in (scales[at + 1 :], scales[:at][::-1]):
            before = best
            for scale in direction:
                better = self._try(method, scale, weights, summed, best)
                if better is best:
                    break
                best = better
            if best is not before:
                break
        return best

    def _weighted(self, best: MeasuredMerge, steps: int) -> MeasuredMerge:
        """Raise the weights of domains that gain less than the others, in steps that shrink where one does not help."""
        exponent = 0.5
        for _ in range(steps if len(self.experts) > 1 else 0):
            weights = _balanced(best, self.base_losses, exponent)
            if all(abs(weight / best.weights[domain] - 1.0) < _LEAST_STEP for domain, weight in weights.items()):
                break
            summed = sum_experts(best.method, self.experts, weights, self.recipe)
            better = self._try(best.method, best.scale, weights, summed, best)
            if better is best:
                exponent /= 2
            best = better
        return best

    def _try(
        self,
        method: MergeMethod,
        scale: float,
        weights: dict[Domain, float],
        summed: DeltaSum,
        best: MeasuredMerge | None,
    ) -> MeasuredMerge:
        """The better of `best` and this candidate; measuring stops as soon as a domain shows it to be no better."""
        losses: dict[Domain, float] = {}
        worst = math.inf
        with applied(self.base.model, summed.deltas, scale):
            for domains in self._most_telling_first(best):
                losses |= self.lanes.by_domain(self.base.model, {domain: self.examples[domain] for domain in domains})
                gains = [1.0 - losses[domain] / self.base_losses[domain] for domain in domains]
                worst = min(worst, *(gain if math.isfinite(gain) else -math.inf for gain in gains))
                if best is not None and worst <= best.worst:
                    break
        finite = {domain: loss if math.isfinite(loss) else -_LOST for domain, loss in losses.items()}
        candidate = MeasuredMerge(method, scale, weights, finite, max(worst, _LOST), summed.relative_error)
        self.tried.append(candidate)
        return candidate if best is None or candidate.worst > best.worst else best

    def _most_telling_first(self, best: MeasuredMerge | None) -> list[list[Domain]]:
        """Domains in groups to measure: first the one that gains least so far, where most candidates are no better."""
        if best is None:
            return [list(self.experts)]
        least = min(self.experts, key=lambda d: (-best.losses[d] / self.base_losses[d], d))
        others = [domain for domain in self.experts if domain != least]
        return [[least], others] if others else [[least]]


def _balanced(best: MeasuredMerge, base_losses: Mapping[Domain, float], exponent: float) -> dict[Domain, float]:
    """Each weight times (mean gain / gain) ** exponent, within 2/3 and 3/2; a domain that loses gets the most.

    Where the domains gain nothing on average, the weights stay.
    """
    gains = {domain: 1.0 - best.losses[domain] / base_losses[domain] for domain in best.weights}
    mean = sum(gains.values()) / len(gains)
    if mean <= 0.0:
        return dict(best.weights)
    most = 1.5 ** (2 * exponent)
    factors = {d: (mean / gain) ** exponent if gain > 0.0 else most for d, gain in gains.items()}
    return {d: min(max(factor, 1 / most), most) * best.weights[d] for d, factor in factors.items()}

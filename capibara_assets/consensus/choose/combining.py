"""Robust aggregation of LoRA adapters: apply a rule to their deltas and factor the result as LoRA again."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from capibara_assets.consensus.aggregation.aggregate import LINEAR_RULES, coordinate_reducer, linear_weights
from capibara_assets.consensus.aggregation.geometry import distances_of
from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.modeling.low_rank import MergedAdapter, from_factors, inner_products, merge_adapters, stacked

_DIGITS = 12  # of the weights: the last bits of a float64 depend on the linear-algebra library


@dataclass(frozen=True)
class Combination:
    """An adapter aggregated from several by a rule.

    Attributes:
        adapter: the aggregate.
        weights: one per adapter where the rule is linear, else None.
        evidence: figures the rule used: norms, distances between the voters, selected voters.
    """

    adapter: MergedAdapter
    weights: tuple[float, ...] | None
    evidence: dict[str, Any]


def combine(
    adapters: Sequence[LoraAdapter], rule: str, *, f: int, pre: str | None = None, rank: int | None = None
) -> Combination:
    """Aggregate the deltas scale * B @ A of adapters that change the same modules.

    A linear rule needs only their inner products, and its result is exact with the ranks added up. A coordinate-wise
    one works on dense deltas, one module at a time, and is cut to `rank` (default: the ranks added up).

    Raises:
        ValueError: unknown rule, its precondition does not hold for (n, f), or the modules differ.
    """
    modules = adapters[0].modules
    if any(adapter.modules != modules for adapter in adapters):
        raise ValueError("the adapters change different modules: attest them first")
    gram = inner_products(adapters)
    evidence = {"norms": np.sqrt(np.diag(gram)).tolist(), "distances": np.sqrt(distances_of(gram)).tolist()}
    if rule in LINEAR_RULES:
        choice = linear_weights(gram, rule, f=f, pre=pre)
        weights = tuple(round(float(weight), _DIGITS) for weight in choice.weights)
        return Combination(merge_adapters(adapters, weights, rank), weights, {**evidence, **choice.evidence})
    reduce, rule_evidence = coordinate_reducer(gram, rule, f=f, pre=pre)
    widths = {module: rank or sum(int(adapter.a(module).shape[0]) for adapter in adapters) for module in modules}
    factors = {}
    for module in modules:
        rows = []
        for adapter in adapters:
            b, a = stacked([(adapter, 1.0)], module)
            rows.append((b @ a).ravel())
        dense = reduce(np.stack(rows)).reshape(adapters[0].b(module).shape[0], adapters[0].a(module).shape[1])
        smaller = min(dense.shape)
        # `from_factors` takes two factors and does the SVD: the identity is the second
        factors[module] = (dense, np.eye(smaller)) if smaller == dense.shape[1] else (np.eye(smaller), dense)
    return Combination(from_factors(factors, adapters[0].config, widths), None, {**evidence, **rule_evidence})

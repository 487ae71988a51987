"""Combinations under robust rules: coordinate-wise ones on dense deltas, and what cannot be combined."""

import numpy as np
import pytest
import torch

from capibara_assets.consensus.choose.combining import combine
from capibara_assets.modeling.adapters import LoraAdapter


@pytest.mark.parametrize("rule", ["trimmed_mean", "median", "meamed"])
def test_coordinate_rules_on_deltas(rule: str, honest: dict[str, LoraAdapter]) -> None:
    from capibara_assets.consensus.aggregation.aggregate import aggregate

    adapters = list(honest.values())
    modules = adapters[0].modules
    combination = combine(adapters, rule, f=1, pre="nnm", rank=32)
    assert combination.weights is None
    dense = np.stack([torch.cat([a.delta(m).flatten() for m in modules]).numpy() for a in adapters])
    expected = aggregate(dense, rule, f=1, pre="nnm").vector
    found = torch.cat([combination.adapter.delta(m).flatten() for m in modules]).numpy()
    assert np.abs(found - expected).max() < 1e-5
    assert combination.adapter.relative_error < 1e-6
    smaller = combine(adapters, rule, f=1, pre="nnm", rank=2).adapter
    assert 0.0 < smaller.relative_error < 1.0
    lost = np.linalg.norm(torch.cat([smaller.delta(m).flatten() for m in modules]).numpy() - expected)
    assert smaller.relative_error == pytest.approx(lost / np.linalg.norm(expected), rel=1e-3)


def test_every_module_keeps_the_sum_of_its_own_ranks(honest: dict[str, LoraAdapter]) -> None:
    """Voters may have cut modules to different ranks: the first module's says nothing of the others'."""
    adapters = []
    for adapter in honest.values():
        first = adapter.modules[0]
        tensors = dict(adapter.tensors)
        for name, value in adapter.tensors.items():
            if value is adapter.a(first):
                tensors[name] = value[:1]
            elif value is adapter.b(first):
                tensors[name] = value[:, :1]
        scale = adapter.scale(first)
        config = adapter.config | {"rank_pattern": {first: 1}, "alpha_pattern": {first: scale}}
        adapters.append(LoraAdapter(config, tensors))
    combination = combine(adapters, "median", f=1).adapter
    first, *others = combination.modules
    assert combination.a(first).shape[0] == 4
    assert all(combination.a(module).shape[0] == min(32, *combination.delta(module).shape) for module in others)


def test_combine_needs_the_same_modules(honest: dict[str, LoraAdapter]) -> None:
    first, second = list(honest.values())[:2]
    part = LoraAdapter(second.config, {n: t for n, t in second.tensors.items() if ".q_proj." not in n})
    with pytest.raises(ValueError, match="different modules"):
        combine([first, part], "mean", f=0)

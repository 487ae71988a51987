"""Sparse merges: which entries of a difference are kept, and what is made of them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from capibara_assets.consensus.merging.checkpoint_merge import merge_checkpoints
from capibara_assets_tests.consensus.small_checkpoints import model, result, saved


@settings(deadline=None, max_examples=15)
@given(density=st.floats(0.05, 0.95), seed=st.integers(0, 1000), rounded=st.booleans())
def test_ties_keeps_exactly_the_largest_entries(
    tmp_path_factory: pytest.TempPathFactory, density: float, seed: int, rounded: bool
) -> None:
    place = tmp_path_factory.mktemp("ties")
    base, one = model(seed), model(seed + 1)
    if rounded:  # many equal magnitudes
        base, one = ({n: (8 * t).round() / 8 for n, t in tensors.items()} for tensors in (base, one))
    paths = saved(place / "base", base), saved(place / "m", one)
    merge_checkpoints([paths[1]], "ties", place / "out", base=paths[0], density=density)
    for name, got in result(place / "out").items():
        delta, change = (one[name] - base[name]).flatten(), (got - base[name]).flatten()
        kept = max(1, int(density * delta.numel()))
        largest = delta.abs().sort(descending=True).values[:kept]
        assert torch.allclose(change.abs().sort(descending=True).values[:kept], largest, atol=1e-6)
        assert int((change != 0).sum()) <= kept


def test_ties_of_agreeing_models_is_their_mean(tmp_path: Path) -> None:
    base = model(0)
    up = [{n: base[n] + (0.1 + 0.1 * k) * model(k)[n].abs() for n in base} for k in (1, 2, 3)]
    paths = [saved(tmp_path / f"m{k}", tensors) for k, tensors in enumerate(up)]
    merge_checkpoints(paths, "ties", tmp_path / "out", base=saved(tmp_path / "base", base))
    for name, got in result(tmp_path / "out").items():
        assert torch.allclose(got, torch.stack([tensors[name] for tensors in up]).mean(0), atol=1e-6)


def test_random_masks_depend_on_seed_tensor_and_model(checkpoints: tuple[Path, list[Path]], tmp_path: Path) -> None:
    base, models = checkpoints
    for number, seed in enumerate((1, 1, 2)):
        merge_checkpoints(models[:1], "dare_linear", tmp_path / f"o{number}", base=base, density=0.5, seed=seed)
    first, again, other = (result(tmp_path / f"o{number}") for number in range(3))
    assert all(torch.equal(first[name], again[name]) for name in first)
    origin = load_file(base / "model.safetensors")
    a, b = ((made["a.weight"] != origin["a.weight"]).flatten().double() for made in (first, other))
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.15
    c = (first["b.weight"] != origin["b.weight"]).flatten().double()
    assert abs(np.corrcoef(a, c)[0, 1]) < 0.15


def test_arcee_fusion_ranks_rows_that_hardly_changed(tmp_path: Path) -> None:
    """Their divergence is rounding, of either sign; the quartiles are those of the numbers as they are."""
    random = torch.Generator().manual_seed(4)
    base = 0.03 * torch.randn(18, 18, generator=random)
    changed = base + 3e-4 * torch.randn(18, 18, generator=random)
    paths = saved(tmp_path / "base", {"w": base}), saved(tmp_path / "m", {"w": changed})
    merge_checkpoints([paths[1]], "arcee_fusion", tmp_path / "out", base=paths[0])
    p, q = (torch.softmax(tensor, -1) + 1e-8 for tensor in (changed, base))
    divergence = (p * torch.log(p / q)).sum(-1, keepdim=True)
    assert bool((divergence < 0).any())
    importance = (changed - base).abs() * divergence
    q1, median, q3 = importance.flatten().sort().values[[80, 161, 242]]
    kept = importance >= median + 1.5 * (q3 - q1)
    assert 0 < int(kept.sum()) < 162
    assert torch.equal(result(tmp_path / "out")["w"], torch.where(kept, changed, base))

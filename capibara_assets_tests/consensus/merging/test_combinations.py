"""Combinations of models: sums as torch rounds them, means, interpolation by row and column."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capibara_assets.consensus.merging.checkpoint_merge import merge_checkpoints
from capibara_assets.errors import InputError
from capibara_assets_tests.consensus.small_checkpoints import model, result, saved


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 6])
def test_combinations_are_summed_in_float64_and_rounded_as_torch_rounds(tmp_path: Path, count: int, dtype: str) -> None:
    """Rounded once to float32, from there to bfloat16; across the ends of the compiled loops' pieces."""
    random = torch.Generator().manual_seed(count)
    kind = getattr(torch, dtype)
    tensors = [torch.randn(3, 2049, generator=random).to(kind) for _ in range(count)]
    paths = [saved(tmp_path / f"m{n}", {"w": tensor}) for n, tensor in enumerate(tensors)]
    weights = torch.rand(count, generator=random).double().tolist()
    merge_checkpoints(paths, "linear", tmp_path / "out", weights=weights, normalize=False)
    order = sorted(range(count), key=weights.__getitem__)
    total = torch.zeros(3, 2049, dtype=torch.float64)
    for n in order:
        total = total + weights[n] * tensors[n].double()
    assert torch.equal(result(tmp_path / "out")["w"], total.float().to(kind))


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    weights=st.lists(st.floats(0.01, 10), min_size=2, max_size=4),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    seed=st.integers(0, 1000),
)
def test_linear_is_the_weighted_mean(
    tmp_path_factory: pytest.TempPathFactory, weights: list[float], dtype: torch.dtype, seed: int
) -> None:
    place = tmp_path_factory.mktemp("linear")
    models = [model(seed + n, dtype=dtype) for n in range(len(weights))]
    paths = [saved(place / f"m{n}", tensors) for n, tensors in enumerate(models)]
    merge_checkpoints(paths, "linear", place / "out", weights=weights)
    for name, got in result(place / "out").items():
        exact = sum(w * m[name].double() for w, m in zip(weights, models, strict=True)) / sum(weights)
        assert torch.allclose(got.double(), exact, rtol=torch.finfo(dtype).eps, atol=1e-7)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["nuslerp", "model_stock"])
def test_interpolation_by_row_is_that_of_each_row_alone(tmp_path: Path, method: str) -> None:
    base, tensors = model(0), [model(n, model(0)) for n in (1, 2)]
    asked: dict[str, Any] = {"flatten": False} if method == "nuslerp" else {"filter_wise": True}
    paths = [saved(tmp_path / f"m{n}", t) for n, t in enumerate(tensors)]
    merge_checkpoints(paths, method, tmp_path / "out", base=saved(tmp_path / "base", base), **asked)
    rows = [saved(tmp_path / f"r{n}", {"a.weight": t["a.weight"][7]}) for n, t in enumerate(tensors)]
    row = saved(tmp_path / "row", {"a.weight": base["a.weight"][7]})
    merge_checkpoints(rows, method, tmp_path / "one", base=row)
    assert torch.allclose(result(tmp_path / "out")["a.weight"][7], result(tmp_path / "one")["a.weight"], atol=1e-7)


def test_nuslerp_by_column_is_by_row_of_the_transpose(tmp_path: Path) -> None:
    tensors = [model(n)["a.weight"] for n in (1, 2)]
    straight = [saved(tmp_path / f"s{n}", {"w": t}) for n, t in enumerate(tensors)]
    turned = [saved(tmp_path / f"t{n}", {"w": t.T.contiguous()}) for n, t in enumerate(tensors)]
    merge_checkpoints(straight, "nuslerp", tmp_path / "columns", weights=[0.7, 0.3], flatten=False, row_wise=True)
    merge_checkpoints(turned, "nuslerp", tmp_path / "rows", weights=[0.7, 0.3], flatten=False)
    assert torch.allclose(result(tmp_path / "columns")["w"], result(tmp_path / "rows")["w"].T, atol=1e-7)


@pytest.mark.parametrize("by_column", [False, True])
def test_a_value_that_spoils_a_row_or_column_is_named_though_other_blocks_come_first(
    tmp_path: Path, by_column: bool
) -> None:
    tensors = [torch.ones(3, 100_000), torch.ones(3, 100_000)]  # rows and columns that lie in several blocks
    tensors[0][2, 99_999] = torch.nan
    paths = [saved(tmp_path / f"m{n}", {"w": tensor}) for n, tensor in enumerate(tensors)]
    with pytest.raises(InputError, match=r"w of .*m0.* not finite, at \[2, 99999\]"):
        merge_checkpoints(paths, "nuslerp", tmp_path / "out", flatten=False, row_wise=by_column)

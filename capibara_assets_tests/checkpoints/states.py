"""States of every kind that a store must give back bit for bit, and how to tell."""

import math
from collections import OrderedDict
from typing import Any

import pytest
import torch
from hypothesis import strategies as st

from capibara_assets.checkpoints.content import DTYPES, torch_dtype
from capibara_assets.checkpoints.store import files


def same(left: Any, right: Any) -> bool:
    """Whether two states are equal: types, order, shapes, and bits of every number."""
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and left.shape == right.shape and bits(left) == bits(right)
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and math.isnan(left):
        return math.isnan(right)
    if isinstance(left, float):
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    return bool(left == right)


def bits(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor, row-major."""
    plain = tensor.detach().contiguous()
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """Any element type, 0 to 3 dimensions, empty ones too, any bits (NaN payloads, -0.0), sometimes transposed."""
    dtype = torch_dtype(draw(st.sampled_from(DTYPES)))
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    count = math.prod(shape)
    if dtype == torch.bool:
        data = bytes(draw(st.lists(st.integers(0, 1), min_size=count, max_size=count)))
    else:
        size = count * dtype.itemsize
        data = draw(st.binary(min_size=size, max_size=size))
    if not count:
        return torch.empty(shape, dtype=dtype)
    tensor = torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape)
    return tensor.transpose(0, -1) if len(shape) > 1 and draw(st.booleans()) else tensor


def states() -> st.SearchStrategy[Any]:
    """Nested states as optimizers and models have them; the same tensor may stand in several places."""
    keys = st.one_of(st.text(st.characters(codec="utf-8"), max_size=6), st.integers(-3, 10**12))
    shared = st.shared(tensors(), key="tied")
    leaves = st.one_of(
        tensors(),
        shared,
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(st.characters(codec="utf-8"), max_size=8),
        st.binary(max_size=8),
    )

    def nest(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        # an integer key and its own text cannot both be: their tensors would have one name
        items = st.lists(st.tuples(keys, inner), max_size=4, unique_by=lambda item: str(item[0]))
        return st.one_of(
            items.map(dict),
            items.map(OrderedDict),
            st.lists(inner, max_size=3),
            st.lists(inner, max_size=3).map(tuple),
        )

    return st.recursive(leaves, nest, max_leaves=12)


def adapter(seed: int, size: int = 64) -> dict[str, Any]:
    """A small LoRA adapter with its optimizer's state, different for every seed, on a base that is always the same."""
    base = torch.Generator().manual_seed(0)
    own = torch.Generator().manual_seed(seed + 1)
    names = [f"layers.{layer}.lora_{which}" for layer in range(2) for which in "AB"]
    moments = {i: {"step": torch.tensor(float(seed)), "exp_avg": torch.randn(8, size, generator=own)} for i in range(4)}
    return {
        "base": {"embed": torch.randn(4 * size, size, generator=base).bfloat16()},
        "model": {name: torch.randn(8, size, generator=own) for name in names},
        "optimizer": {"state": moments},
    }


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for the disk: for tests of many saves in which no power cut occurs."""
    monkeypatch.setattr(files, "sync", lambda fd: None)
    monkeypatch.setattr(files, "sync_folder", lambda path: None)

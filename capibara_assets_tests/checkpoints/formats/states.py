"""Random states as torch saves them, for hypothesis: every element type, odd shapes, odd keys, nested and flat."""

from collections import OrderedDict
from typing import Any

import torch
from hypothesis import strategies as st

DTYPES = (
    *(torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.uint64),
    *(torch.int64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.bfloat16, torch.float32),
    *(torch.float64, torch.complex64),
)


@st.composite
def tensors(draw: st.DrawFn, dtypes: tuple[torch.dtype, ...] = (*DTYPES, torch.complex128)) -> torch.Tensor:
    """Any bits of any type: NaN with payloads, -0.0, infinities; 0-d, empty, transposed."""
    dtype = draw(st.sampled_from(dtypes))
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    count = torch.Size(shape).numel() * dtype.itemsize
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    raw = torch.randint(0, 2 if dtype == torch.bool else 256, (count,), generator=random, dtype=torch.uint8)
    tensor = raw.view(dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype)
    return tensor.T if len(shape) == 2 and draw(st.booleans()) else tensor


KEYS = st.one_of(st.text(max_size=6), st.sampled_from(["a/b", "a~1b", "layers.0.weight", "0", ""]))


def flat(dtypes: tuple[torch.dtype, ...] = (*DTYPES, torch.complex128)) -> st.SearchStrategy[dict[str, torch.Tensor]]:
    return st.dictionaries(KEYS, tensors(dtypes), max_size=5)


@st.composite
def nested(draw: st.DrawFn) -> dict[Any, Any]:
    """A dictionary of all that `tree` knows, in which the same tensor may occur under several names."""
    shared = draw(st.lists(tensors(), min_size=1, max_size=3))
    leaves = st.one_of(
        tensors(),
        st.sampled_from(shared),
        st.sampled_from(shared).filter(torch.is_floating_point).map(torch.nn.Parameter),
        st.integers(-(2**63), 2**63),
        st.floats(),
        st.booleans(),
        st.none(),
        st.text(max_size=5),
        st.just(torch.Size([2, 3])),
        st.sampled_from([torch.bfloat16, torch.float32]),
    )
    keys = st.one_of(KEYS, st.integers(0, 9))
    values = st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.lists(inner, max_size=3).map(tuple),
            st.dictionaries(keys, inner, max_size=3),
            st.dictionaries(keys, inner, max_size=3).map(OrderedDict),
        ),
        max_leaves=8,
    )
    state: dict[Any, Any] = draw(st.dictionaries(keys, values, max_size=4))
    return state

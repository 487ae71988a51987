"""Random contents as JAX formats can hold them, for hypothesis, and how two are compared."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from capibara_assets.checkpoints.content import Content, PieceSource, of_torch, to_bytes
from capibara_assets.checkpoints.tree import flatten
from capibara_assets_tests.checkpoints.formats.states import DTYPES, tensors

ALL = (*DTYPES, torch.complex128)
WORDS = st.text("abz~ é0_-", min_size=1, max_size=4)


@st.composite
def flat_contents(draw: st.DrawFn, *, empty: bool) -> Content:
    """Tensors under names with points, no name a folder of another; one tied name, sometimes."""
    names = draw(st.lists(st.tuples(WORDS, WORDS, WORDS).map(".".join), min_size=1, max_size=4, unique=True))
    found = {name: draw(tensors(ALL).filter(lambda t: empty or t.numel() > 0)) for name in names}
    ties = {"tied.to": names[0]} if draw(st.booleans()) else {}
    return Content({name: of_torch(tensor) for name, tensor in found.items()}, kind="model", ties=ties)


@st.composite
def nested_contents(draw: st.DrawFn, *, empty: bool, tuples: bool) -> Content:
    """A nested dictionary of tensors and plain values, keys with points among them."""
    leaves = st.one_of(
        tensors(ALL).filter(lambda t: empty or t.numel() > 0),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(),
        st.booleans(),
        st.none(),
        st.text("ab c", max_size=5),
    )
    # A number after each key: two paths cannot become one when keys are joined by points.
    keys = st.integers(0, 9).map(lambda number: f"k{number}")

    def grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        lists = st.lists(inner, max_size=3)
        either = st.one_of(lists, lists.map(tuple)) if tuples else lists
        return st.one_of(either, st.dictionaries(keys, inner, max_size=3))

    state = draw(st.dictionaries(keys, st.recursive(leaves, grow, max_leaves=8), min_size=1, max_size=4))
    found, tree, ties = flatten(state)
    return Content({name: of_torch(tensor) for name, tensor in found.items()}, tree=tree, ties=ties)


def values(sources: Mapping[str, PieceSource]) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    return {name: (source.dtype, tuple(source.shape), to_bytes(source)) for name, source in sources.items()}


def ordered(tree: Any) -> Any:
    """A tree whose dictionaries are in the order of their keys: JAX sorts them, and their order means nothing there."""
    if isinstance(tree, dict) and len(tree) == 1:
        [(kind, value)] = tree.items()
        if kind in ("dict", "odict"):
            return {kind: sorted(([key, ordered(child)] for key, child in value), key=lambda pair: str(pair[0]))}
        if kind in ("list", "tuple"):
            return {kind: [ordered(child) for child in value]}
    return tree


def assert_same(one: Content, other: Content) -> None:
    assert values(one.tensors) == values(other.tensors)
    assert ordered(one.tree) == ordered(other.tree)
    assert one.ties == other.ties
    assert one.kind == other.kind
    assert {name: to_bytes(file) for name, file in one.files.items()} == {
        name: to_bytes(file) for name, file in other.files.items()
    }


def bits(array: Any) -> tuple[str, tuple[int, ...], bytes]:
    plain = np.asarray(array)
    return plain.dtype.name, plain.shape, plain.tobytes()

"""A key-value cache of slots: rows of different lengths side by side, added and removed one by one.

Rows are not padded on the left: a row's tokens lie at their own positions from 0 on, and a mask hides what lies behind
its end. So a new row can join at any step, and one that is done makes room at once.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class SlotCache(Cache):  # type: ignore[misc]  # transformers is untyped here
    """A cache of Transformers over `rows` slots of `capacity` tokens; memory is used only where tokens are.

    Before each pass one of `prefill` and `decode` says which rows it is about; `fork` and `remove` move whole rows.
    """

    def __init__(self, layers: int, rows: int, capacity: int):
        super().__init__(layers=[SlotLayer(rows, capacity) for _ in range(layers)])

    def prefill(self, rows: range, start: int) -> None:
        """The next pass brings tokens `start`, `start + 1`, … of these rows, which hold `start` tokens already."""
        for layer in self.layers:
            layer.rows, layer.start, layer.ends = rows, start, None

    def decode(self, index: Tensor, ends: Tensor, longest: int) -> None:
        """The next pass brings one token of each of the first rows.

        Args:
            index: 0, 1, … rows - 1.
            ends: where each row's token goes, (rows,): its length so far.
            longest: of the rows with that token.
        """
        for layer in self.layers:
            layer.rows, layer.start, layer.ends, layer.index = range(len(index)), longest - 1, ends, index

    @torch.inference_mode()  # type: ignore[untyped-decorator]  # torch is untyped here
    def fork(self, source: int, rows: Sequence[int], length: int) -> None:
        """Copy the first `length` tokens of a row to other rows."""
        for layer in self.layers:
            for held in layer.held:
                held[list(rows), :, :length] = held[source, :, :length]

    def remove(self, row: int, last: int, length: int) -> None:
        """Remove a row: the last row, of that length, is copied into its slot."""
        if row != last:
            self.fork(last, [row], length)


class SlotLayer(CacheLayerMixin):  # type: ignore[misc]  # transformers is untyped here
    """One layer's keys and values, (rows, heads, capacity, width) each; made when the first ones arrive."""

    is_compileable = False
    is_sliding = False
    is_croppable = False

    def __init__(self, rows: int, capacity: int):
        super().__init__()
        self._rows, self._capacity = rows, capacity
        self.rows, self.start = range(0), 0
        self.ends: Tensor | None = None
        self.index: Tensor | None = None

    @property
    def held(self) -> tuple[Tensor, ...]:
        """Keys and values; nothing before the first pass."""
        return (self.keys, self.values) if self.is_initialized else ()

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Slots for heads of this shape. Zeros, since a product with what memory happens to hold might be NaN."""
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys, self.values = (
            torch.zeros(self._rows, like.shape[1], self._capacity, like.shape[3], dtype=like.dtype, device=like.device)
            for like in (key_states, value_states)
        )
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Store (rows, heads, new tokens, width) and give all that these rows hold, up to the longest."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.start + key_states.shape[2]
        rows = slice(self.rows.start, self.rows.stop)
        for held, new in ((self.keys, key_states), (self.values, value_states)):
            if self.ends is None:
                held[rows, :, self.start : end] = new
            else:
                held[self.index, :, self.ends] = new[:, :, 0]
        return self.keys[rows, :, :end], self.values[rows, :, :end]

    def get_seq_length(self) -> int:
        """Tokens before those of the pass."""
        return self.start

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """(length, offset) of the keys that the pass sees."""
        return self.start + query_length, 0

    def get_max_length(self) -> int:
        """Tokens that a row may have."""
        return self._capacity

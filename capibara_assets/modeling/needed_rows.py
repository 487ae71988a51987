"""The last layer on the rows whose outputs are read, where losses are measured.

A loss reads the last hidden states of the positions that predict a supervised token, often a third of them. The last
layer's keys and values are needed of all positions, its queries, what they are mixed to and its feed-forward block of
those alone: a tenth of a small model's products.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

#: Layers of q_proj, k_proj, v_proj, o_proj and gate_proj, up_proj, down_proj, which add what o_proj and down_proj give.
_KNOWN = frozenset({"LlamaDecoderLayer", "MistralDecoderLayer", "Qwen2DecoderLayer"})
_MOST_SHARE = 0.9  # of rows needed: above, copying costs what is saved


def only_rows(model: nn.Module, rows: Tensor, of: int) -> AbstractContextManager[object]:
    """Context in which this thread's passes without gradients give some rows of the last hidden states alone.

    The other rows are wrong in it. Layers of unknown kinds, and those that do not hold plain weights, compute all rows.

    Args:
        rows: flat indices into (batch * length), in any order.
        of: batch * length.
    """
    layer = _last_layer(model)
    if layer is None or torch.is_grad_enabled():
        return nullcontext()
    needed = torch.unique(rows)
    return _Rows(layer, needed) if 0 < len(needed) <= _MOST_SHARE * of else nullcontext()


class _Rows(TorchFunctionMode):  # type: ignore[misc]
    """Linear layers of one decoder layer, on some rows: told by their weights."""

    def __init__(self, layer: Any, needed: Tensor) -> None:
        super().__init__()
        self._needed, self._shape = needed, torch.Size()
        attention, block = layer.self_attn, layer.mlp
        self._apart = {id(attention.q_proj.weight), id(attention.o_proj.weight)}
        self._first, self._last = {id(block.gate_proj.weight), id(block.up_proj.weight)}, id(block.down_proj.weight)

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if function is functional.linear and not kwargs:
            x, weight, *bias = args
            if id(weight) in self._apart:
                self._shape = x.shape
                return self._put_back(function(self._picked(x), weight, *bias))
            if id(weight) in self._first:
                self._shape = x.shape
                return function(self._picked(x), weight, *bias)
            if id(weight) == self._last:
                return self._put_back(function(x, weight, *bias))
        return function(*args, **(kwargs or {}))

    def _picked(self, x: Tensor) -> Tensor:
        return x.reshape(-1, x.shape[-1])[self._needed]

    def _put_back(self, product: Tensor) -> Tensor:
        """The rows where they were, and zeros where none was computed."""
        whole = product.new_zeros(self._shape[:-1].numel(), product.shape[-1])
        whole[self._needed] = product
        return whole.view(*self._shape[:-1], product.shape[-1])


def _last_layer(model: nn.Module) -> Any:
    """The last decoder layer where its parts are known and plain; else None."""
    layers = getattr(getattr(model, "base_model", None), "layers", None)
    if not isinstance(layers, nn.ModuleList) or not len(layers) or type(layers[-1]).__name__ not in _KNOWN:
        return None
    attention, block = layers[-1].self_attn, layers[-1].mlp
    parts = (attention.q_proj, attention.o_proj, block.gate_proj, block.up_proj, block.down_proj)
    return layers[-1] if all(type(part) is nn.Linear for part in parts) else None

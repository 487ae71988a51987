"""LoRA projections of one input as one product.

A projection and its LoRA are one product: its weight lies in memory as [W | s*B], its input as [x | x @ A^T].
Projections of the same input (query, key and value; gate and up) are one product together. In 16 bits the frozen
weights are held so once, instead of being rounded in every pass: the very same numbers. Parameters, their names and
PEFT's files do not change.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from capibara_assets.modeling.cpu.blocks import lengthened, whole_blocks
from capibara_assets.modeling.light_imports import LoraLinear

_TILE = 32  # bf16 products of strided inputs of other widths gave NaN (torch 2.13 on a processor with AMX)


class Projections:
    """Projections of one input, with their LoRA, as one product."""

    def __init__(self, layers: Sequence[LoraLinear], adapter: str, dtype: torch.dtype):
        """The layers' base weights become views of the stacked `[W | s*B]`."""
        self._layers = list(layers)
        self._factors = [p for layer in layers for p in (layer.lora_A[adapter].weight, layer.lora_B[adapter].weight)]
        self._scales = [float(layer.scaling[adapter]) for layer in layers]
        self._rows = [layer.base_layer.out_features for layer in layers]
        self._inputs = layers[0].base_layer.in_features
        self._ranks = [a.shape[0] for a in self._factors[::2]]
        self._width = _whole_tiles(self._inputs)
        columns, device = self._width + _whole_tiles(sum(self._ranks)), layers[0].base_layer.weight.device
        self._both = torch.zeros(sum(self._rows), columns, dtype=dtype, device=device)
        row = 0
        for layer in layers:
            base = layer.base_layer
            view = self._both[row : row + base.out_features, : self._inputs]
            view.copy_(base.weight.detach())
            base.weight = nn.Parameter(view, requires_grad=False)
            row += base.out_features
        self._seen: Tensor | None = None
        self._parts: dict[int, Tensor] = {}

    def forward_of(self, number: int, before: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """The forward pass of layer `number`; `before` is PEFT's own, for disabled or merged adapters."""
        layer = self._layers[number]

        def forward(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            if layer.disable_adapters or layer.merged or args or kwargs:
                return before(x, *args, **kwargs)
            if x is not self._seen or number not in self._parts:
                # Unsafe: as tensors of their own, which a model may change in place; nobody else has the whole.
                self._parts = dict(enumerate(self._project(x).unsafe_split_with_sizes(self._rows, dim=-1)))
                self._seen = x
            part = self._parts.pop(number)
            if not self._parts:
                self._seen = None  # else the whole graph would stay referenced here
            bias = layer.base_layer.bias
            return part if bias is None else part + bias

        return forward

    def _project(self, x: Tensor) -> Tensor:
        self._refresh()
        product: Tensor = _Projected.apply(x, self._both, self._width, self._rows, self._scales, *self._factors)
        return product

    def _refresh(self) -> None:
        """Write the current s*B beside the weights, block by block, so that each layer meets its own A only."""
        row, column = 0, self._width
        with torch.no_grad():
            for number, (rows, rank) in enumerate(zip(self._rows, self._ranks, strict=True)):
                block = self._both[row : row + rows, column : column + rank]
                torch.mul(self._factors[2 * number + 1], self._scales[number], out=block)
                row, column = row + rows, column + rank


class _Projected(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped here
    """[x | x @ A^T] @ [W | s*B]^T with frozen W."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, both: Tensor, width: int, rows: list[int], scales: list[float], *factors: Tensor
    ) -> Tensor:
        inputs, ranks = x.shape[-1], [a.shape[0] for a in factors[::2]]
        downs = both.new_zeros(both.shape[1] - width, width)
        downs[: sum(ranks), :inputs] = torch.cat(factors[::2])
        tokens = x.numel() // inputs
        rows_here = whole_blocks(tokens, both.dtype) if both.device.type == "cpu" else tokens
        wide = both.new_empty(rows_here, both.shape[1])
        wide[:tokens, :inputs] = x.reshape(-1, inputs)
        wide[tokens:, :inputs] = 0
        wide[:, inputs:width] = 0
        wide[:, width:] = wide[:, :width] @ downs.T
        ctx.save_for_backward(wide, downs)
        # Not saved as a tensor of the graph: it is written to, with equal values, before the next forward pass.
        ctx.both, ctx.rows, ctx.scales, ctx.ranks = both, rows, scales, ranks
        ctx.width, ctx.shape, ctx.kind = width, x.shape, x.dtype
        ctx.kinds = [value.dtype for value in factors]
        return (wide @ both.T)[:tokens].view(*x.shape[:-1], both.shape[0])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        wide, downs = ctx.saved_tensors
        inputs, width, tokens = ctx.shape[-1], ctx.width, ctx.shape[:-1].numel()
        gradient = lengthened(gradient.reshape(-1, sum(ctx.rows)), len(wide))
        back = gradient @ ctx.both  # [towards x | towards x @ A^T]
        towards, of_input = back[:, width:].contiguous(), None
        if ctx.needs_input_grad[0]:
            of_input = torch.addmm(back[:, :width], towards, downs)[:tokens, :inputs].to(ctx.kind).reshape(ctx.shape)
        of_downs = (towards.T @ wide[:, :width])[:, :inputs]
        of_ups = gradient.T @ wide[:, width:]
        of_factors: list[Tensor] = []
        row, column = 0, 0
        for rows, rank, scale in zip(ctx.rows, ctx.ranks, ctx.scales, strict=True):
            of_factors.append(of_downs[column : column + rank])
            of_factors.append(of_ups[row : row + rows, column : column + rank] * scale)
            row, column = row + rows, column + rank
        typed = (value.to(kind) for value, kind in zip(of_factors, ctx.kinds, strict=True))
        return (of_input, None, None, None, None, *typed)


def _whole_tiles(width: int) -> int:
    return -(-width // _TILE) * _TILE


def is_plain(layer: nn.Module, adapter: str) -> bool:
    """Whether a layer is LoRA of the kind that this module fuses."""
    return (
        type(layer) is LoraLinear
        and type(layer.base_layer) is nn.Linear
        and layer.base_layer.weight.device.type in ("cpu", "cuda")
        and not layer.base_layer.weight.requires_grad
        and list(layer.lora_A) == [adapter]
        and adapter not in layer.lora_variant
        and isinstance(layer.lora_dropout[adapter], nn.Identity)
        and layer.lora_A[adapter].bias is None
        and layer.lora_B[adapter].bias is None
    )

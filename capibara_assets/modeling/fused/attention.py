"""Fused rotary embedding and attention in bf16 for CPUs, where casting and copying cost more than the products.

Transformers' eager attention under autocast holds scores and weights in float32 and in bf16 by turns, forward and
backward. Here the products and what is kept for the backward pass are bf16; the rotation and the softmax compute in
float32 inside and round once. Queries, keys and values stay in the layout that the projections gave them.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

_KNOWN = frozenset({"LlamaAttention", "MistralAttention", "Qwen2Attention"})  # rotary halves, one mask for all heads


def fuse_attention(model: nn.Module) -> int:
    """Replace eager attention on the CPU by the fused forward pass; returns the number of replaced layers."""
    fused = 0
    for module in model.modules():
        if type(module).__name__ in _KNOWN and _is_eager(module):
            module.forward = _Attention(module, module.forward)
            fused += 1
    return fused


def _is_eager(module: nn.Module) -> bool:
    config = module.config
    return (
        config._attn_implementation == "eager"
        and not module.attention_dropout
        and next(module.parameters()).device.type == "cpu"
    )


class _Attention:
    """An attention layer's fused forward pass under bf16 autocast; in other cases the original, `before`, runs."""

    def __init__(self, module: nn.Module, before: Callable[..., Any]):
        self._module, self._before = module, before

    def __call__(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        layer = self._module
        rounded = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
        if not rounded or past_key_values is not None or position_embeddings is None or attention_mask is None:
            result: tuple[Tensor, Tensor | None] = self._before(
                hidden_states,
                position_embeddings=position_embeddings,
                attention_mask=attention_mask,
                past_key_values=past_key_values,
                **kwargs,
            )
            return result
        query, key, value = layer.q_proj(hidden_states), layer.k_proj(hidden_states), layer.v_proj(hidden_states)
        cos, sin = position_embeddings
        mixed = _Attended.apply(query, key, value, cos, sin, attention_mask, layer.scaling, layer.head_dim)
        return layer.o_proj(mixed), None


class _Attended(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped here
    """Attention over (rows, length, heads * width) queries, and keys and values with as many heads or fewer.

    The result has the queries' shape.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, cos: Tensor, sin: Tensor, mask: Tensor, scaling: float,
        width: int,
    ) -> Tensor:  # fmt: skip
        half = width // 2
        turn = cos[..., None, :half].float(), sin[..., None, :half].float()
        rows, length = query.shape[:2]
        q = _rotated(query.view(rows, length, -1, width), turn, scaling)
        k = _rotated(key.view(rows, length, -1, width), turn, 1.0)
        v = value.view(rows, length, -1, width).transpose(1, 2).to(torch.bfloat16)
        groups = q.shape[1] // k.shape[1]
        k, v = (_flat(each.repeat_interleave(groups, dim=1)) for each in (k, v))
        heads, q = q.shape[1], _flat(q)
        scores = torch.bmm(q, k.transpose(1, 2)).view(rows, heads, length, length)
        scores.add_(mask.to(torch.bfloat16))
        weights = torch.softmax(scores, dim=-1).view(-1, length, length)
        mixed = torch.bmm(weights, v).view(rows, heads, length, width)
        ctx.save_for_backward(q, k, v, weights, *turn)
        ctx.scaling, ctx.groups, ctx.rows = scaling, groups, rows
        ctx.kinds = query.dtype, key.dtype, value.dtype
        return mixed.transpose(1, 2).reshape(rows, length, heads * width)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        q, k, v, weights, cos, sin = ctx.saved_tensors
        length, width, rows = q.shape[1], q.shape[2], ctx.rows
        towards = _flat(gradient.view(rows, length, -1, width).transpose(1, 2).to(torch.bfloat16))
        of_v = torch.bmm(weights.transpose(1, 2), towards)
        of_weights = torch.bmm(towards, v.transpose(1, 2))
        of_scores = torch._softmax_backward_data(of_weights, weights, -1, torch.bfloat16)
        of_q = torch.bmm(of_scores, k)
        of_k = torch.bmm(of_scores.transpose(1, 2), q)
        back = cos, -sin
        gradients = (
            _rotated_back(of_q.view(rows, -1, length, width), back, ctx.scaling),
            _rotated_back(_summed(of_k, rows, ctx.groups), back, 1.0),
            _summed(of_v, rows, ctx.groups).transpose(1, 2),
        )
        typed = (each.to(kind).reshape(rows, length, -1) for each, kind in zip(gradients, ctx.kinds, strict=True))
        return (*typed, None, None, None, None, None)


def _rotated(x: Tensor, turn: tuple[Tensor, Tensor], scale: float) -> Tensor:
    """Rotate each pair (i, i + width / 2): (rows, length, heads, width) -> (rows, heads, length, width) in bf16."""
    out = torch.empty(x.shape[0], x.shape[2], x.shape[1], x.shape[3], dtype=torch.bfloat16)
    _turn(x, turn, scale, out.transpose(1, 2))
    return out


def _rotated_back(x: Tensor, turn: tuple[Tensor, Tensor], scale: float) -> Tensor:
    """Backward pass of `_rotated`: (rows, heads, length, width) -> (rows, length, heads, width) in bf16."""
    out = torch.empty(x.shape[0], x.shape[2], x.shape[1], x.shape[3], dtype=torch.bfloat16)
    _turn(x.transpose(1, 2), turn, scale, out)
    return out


def _turn(x: Tensor, turn: tuple[Tensor, Tensor], scale: float, out: Tensor) -> None:
    cos, sin = (each * scale for each in turn) if scale != 1.0 else turn
    half = x.shape[-1] // 2
    one, other = x[..., :half].float(), x[..., half:].float()
    out[..., :half] = (one * cos).addcmul_(other, sin, value=-1.0)
    out[..., half:] = (other * cos).addcmul_(one, sin)


def _flat(x: Tensor) -> Tensor:
    return x.reshape(-1, *x.shape[2:])


def _summed(x: Tensor, rows: int, groups: int) -> Tensor:
    """Sum the gradients of repeated heads: (rows * heads, length, width) -> (rows, heads / groups, length, width)."""
    each = x.view(rows, -1, groups, *x.shape[1:])
    return each[:, :, 0] if groups == 1 else each.sum(dim=2)

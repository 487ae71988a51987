"""What makes a tiny model train fast on few CPU cores: attention by blocks, a fused loss, memory that stays ours."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

BLOCK = 256
ATTENTION = "causal_blocks"


def keep_freed_memory() -> None:
    """Tell glibc to reuse freed buffers instead of returning them, so that a step does not fault every page anew."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "mallopt"):
            m_trim_threshold, m_mmap_max = -1, -4
            libc.mallopt(m_mmap_max, 0)
            libc.mallopt(m_trim_threshold, 2**31 - 1)


def causal_blocks(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **_: Any
) -> tuple[Tensor, None]:
    """Causal attention as plain matrix products, one block of queries at a time, skipping what lies ahead of it.

    On CPUs with bfloat16 products this takes half the time of ``scaled_dot_product_attention`` at 1,024 tokens.

    Args:
        query: (batch, heads, tokens, width); key and value alike, with as many heads.
        attention_mask: must be None or hide nothing but the future: sequences are packed, without padding.

    Returns:
        (batch, tokens, heads, width), as Transformers expects of an attention function.
    """
    length, width = query.shape[2], query.shape[3]
    ahead = torch.full((BLOCK, BLOCK), float("-inf"), dtype=query.dtype).triu(1)
    outputs = []
    for start in range(0, length, BLOCK):
        stop = min(start + BLOCK, length)
        scores = (query[:, :, start:stop] * width**-0.5) @ key[:, :, :stop].transpose(-1, -2)
        scores[..., start:] += ahead[: stop - start, : stop - start]
        outputs.append(torch.softmax(scores, -1) @ value[:, :, :stop])
    return torch.cat(outputs, 2).transpose(1, 2).contiguous(), None


AttentionInterface.register(ATTENTION, causal_blocks)


class _CrossEntropy(torch.autograd.Function):  # type: ignore[misc]
    """Mean cross-entropy whose backward pass reuses the probabilities (in float32) of the forward pass."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        probabilities = torch.softmax(logits.float(), -1)
        ctx.save_for_backward(probabilities, targets)
        ctx.dtype = logits.dtype
        chosen = probabilities.gather(1, targets[:, None])
        return -chosen.clamp_min(torch.finfo(torch.float32).tiny).log().mean()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        probabilities, targets = ctx.saved_tensors
        ones = torch.ones(len(targets), 1)
        # In place: the graph is used once.
        probabilities.scatter_add_(1, targets[:, None], -ones)
        return probabilities.mul_(gradient / len(targets)).to(ctx.dtype), None


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy in nats of (tokens, vocabulary) logits against (tokens,) ids; one backward pass at most."""
    loss: Tensor = _CrossEntropy.apply(logits, targets)
    return loss

"""RMS norms with a frozen weight: y = w * x / sqrt(mean(x^2) + eps)."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

NORMS = frozenset({"LlamaRMSNorm", "MistralRMSNorm", "Qwen2RMSNorm"})  # only matrix products are behind them


class OneKernelNorm:
    """An RMS norm on a GPU as torch's one kernel; Transformers' own takes several, each to be started."""

    def __init__(self, module: nn.Module):
        self._weight, self._eps = module.weight, float(module.variance_epsilon)

    def __call__(self, hidden_states: Tensor) -> Tensor:
        kind = hidden_states.dtype
        with torch.autocast(hidden_states.device.type, enabled=False):
            return functional.rms_norm(hidden_states, self._weight.shape, self._weight.to(kind), self._eps)


class RoundedNorm:
    """An RMS norm on a CPU whose output is already rounded as the matrix products after it would round it."""

    def __init__(self, module: nn.Module):
        self._weight, self._eps = module.weight, float(module.variance_epsilon)

    def __call__(self, hidden_states: Tensor) -> Tensor:
        normed: Tensor = _Normed.apply(hidden_states, self._weight, self._eps, torch.is_autocast_enabled("cpu"))
        return normed


class _Normed(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped here
    """w * x / sqrt(mean(x^2) + eps)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float, rounded: bool) -> Tensor:
        ctx.kind = x.dtype
        x = x.float()
        mean = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1])
        inverse = mean.add_(eps).rsqrt_()
        ctx.save_for_backward(x, inverse, weight)
        scaled = (x * inverse).mul_(weight)
        return scaled.to(torch.bfloat16) if rounded else scaled.to(ctx.kind)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        x, inverse, weight = ctx.saved_tensors
        towards = gradient * weight  # float32, as the weight is
        mean = torch.linalg.vecdot(towards, x).unsqueeze(-1).mul_(inverse.pow(3)).div_(-x.shape[-1])
        return towards.mul_(inverse).addcmul_(x, mean).to(ctx.kind), None, None, None

"""Fused layers of a small or short step, most of which is moving memory on a CPU and starting kernels on a GPU."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from capibara_assets.modeling.fused.attention import fuse_attention
from capibara_assets.modeling.fused.projections import Projections, is_plain

SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))  # of one parent, called with one input
NORMS = frozenset({"LlamaRMSNorm", "MistralRMSNorm", "Qwen2RMSNorm"})  # only matrix products are behind them


def fuse(model: nn.Module, adapter: str, dtype: torch.dtype) -> int:
    """Replace the forward passes by fused ones; returns the number of replaced projections.

    Only plain LoRA without dropout on plain `nn.Linear` on a CPU or a GPU is fused; layers of other kinds are left
    alone. Base weights become views of larger tensors, in `dtype`.

    Args:
        model: a base model that carries PEFT's LoRA layers, on its device.
        adapter: PEFT's name of the adapter that is trained.
        dtype: dtype of matrix products under autocast; float32 without.
    """
    fused = 0
    # The keys and values of an encoder-decoder's cross-attention have another input than its queries.
    siblings = SIBLINGS[1:] if getattr(model.config, "is_encoder_decoder", False) else SIBLINGS
    for parent in list(model.modules()):
        children = {name: child for name, child in parent.named_children() if is_plain(child, adapter)}
        groups = [[children.pop(name) for name in names] for names in siblings if all(n in children for n in names)]
        for layers in [*groups, *([child] for child in children.values())]:
            group = Projections(layers, adapter, dtype)
            for number, layer in enumerate(layers):
                layer.forward = group.forward_of(number, layer.forward)
            fused += len(layers)
    if fused and dtype != torch.float32:
        _fuse_norms(model, dtype)
    if fused and dtype == torch.bfloat16:
        _hold_embedding(model)
        fuse_attention(model)
    return fused


def _fuse_norms(model: nn.Module, dtype: torch.dtype) -> None:
    for module in model.modules():
        if type(module).__name__ not in NORMS or module.weight.requires_grad:
            continue
        own = module.weight, float(module.variance_epsilon)
        if module.weight.device.type == "cuda":
            module.forward = partial(one_kernel_norm, *own)
        elif module.weight.device.type == "cpu" and dtype == torch.bfloat16:
            module.forward = partial(rounded_norm, *own)


def _hold_embedding(model: nn.Module) -> None:
    """Hold embedding and head in bf16 where that is lossless; embeddings still come out as float32."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    tied = head is not None and head.weight is embedding.weight
    for module in dict.fromkeys([embedding, *([head] if type(head) is nn.Linear else [])]):
        weight = module.weight
        if weight.requires_grad or weight.dtype != torch.float32 or not torch.equal(weight.bfloat16().float(), weight):
            continue
        if module is embedding:
            if type(embedding) is not nn.Embedding:
                continue
            embedding.register_forward_hook(lambda _module, _inputs, output: output.float())
        module.weight = nn.Parameter(weight.detach().bfloat16(), requires_grad=False)
        if tied:
            embedding.weight = head.weight = module.weight


def one_kernel_norm(weight: Tensor, eps: float, hidden_states: Tensor) -> Tensor:
    """An RMS norm on a GPU as torch's one kernel; Transformers' own takes several, each to be started."""
    kind = hidden_states.dtype
    with torch.autocast(hidden_states.device.type, enabled=False):
        return functional.rms_norm(hidden_states, weight.shape, weight.to(kind), eps)


def rounded_norm(weight: Tensor, eps: float, hidden_states: Tensor) -> Tensor:
    """An RMS norm on a CPU whose output is already rounded as the matrix products after it would round it."""
    normed: Tensor = _Normed.apply(hidden_states, weight, eps, torch.is_autocast_enabled("cpu"))
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

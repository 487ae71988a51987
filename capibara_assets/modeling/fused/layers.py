"""Fused layers of a small or short step, most of which is moving memory on a CPU and starting kernels on a GPU."""

import torch
from torch import nn

from capibara_assets.modeling.fused.attention import fuse_attention
from capibara_assets.modeling.fused.norms import NORMS, OneKernelNorm, RoundedNorm
from capibara_assets.modeling.fused.projections import Projections, is_plain

SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))  # of one parent, called with one input


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
        if module.weight.device.type == "cuda":
            module.forward = OneKernelNorm(module)
        elif module.weight.device.type == "cpu" and dtype == torch.bfloat16:
            module.forward = RoundedNorm(module)


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

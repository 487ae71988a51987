"""A LoRA adapter of random factors for a model."""

import torch
from torch import nn

from capibara_assets.modeling.adapters import LoraAdapter

CONFIG = {"peft_type": "LORA", "bias": "none", "target_modules": ["q_proj", "down_proj"]}


def adapter(model: nn.Module, seed: int, rank: int, leaves: tuple[str, ...]) -> LoraAdapter:
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear) and name.rpartition(".")[2] in leaves:
            out, wide = layer.weight.shape
            tensors[f"base_model.model.{name}.lora_A.weight"] = torch.randn(rank, wide, generator=generator) * 0.3
            tensors[f"base_model.model.{name}.lora_B.weight"] = torch.randn(out, rank, generator=generator) * 0.3
    return LoraAdapter({**CONFIG, "r": rank, "lora_alpha": 2 * rank, "target_modules": list(leaves)}, tensors)

"""Gradient checkpointing of some of a model's layers."""

from typing import Any


def keep_every_nth(model: Any, n: int) -> None:
    """Restrict gradient checkpointing, where it is enabled, to every n-th layer of a Transformers model."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    blocks = [layer for layer in model.modules() if isinstance(layer, GradientCheckpointingLayer)]
    for number, layer in enumerate(blocks):
        layer.gradient_checkpointing = number % n == 0

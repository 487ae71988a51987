"""What a store does to a checkpoint, and what two checkpoints have to have in common to be the same."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from capibara_assets.checkpoints.content import Content, InMemory, PieceSource, to_bytes


def kept(content: Content) -> Content:
    """The content after its bytes, and as JSON all the rest, were put away and taken out again."""

    def copies(sources: Mapping[str, PieceSource]) -> dict[str, PieceSource]:
        # a store gives names back in an order of its own
        return {
            name: InMemory(source.dtype, tuple(source.shape), memoryview(to_bytes(source)))
            for name, source in sorted(sources.items())
        }

    tree, ties, origin = json.loads(json.dumps([content.tree, content.ties, content.origin]))
    return replace(
        content, tensors=copies(content.tensors), files=copies(content.files), tree=tree, ties=ties, origin=origin
    )


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def same(one: Any, other: Any) -> bool:
    """Equal in type, order and every bit, tensors included; NaN equals itself."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return (
            one.dtype == other.dtype
            and one.shape == other.shape
            and one.requires_grad == other.requires_grad
            and _bits(one) == _bits(other)
        )
    if isinstance(one, dict):
        return (
            list(one) == list(other)
            and all(same(a, b) for a, b in zip(one.values(), other.values(), strict=True))
            and getattr(one, "_metadata", None) == getattr(other, "_metadata", None)
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, float):
        return repr(one) == repr(other)
    return bool(one == other)


def _bits(tensor: torch.Tensor) -> bytes:
    if not tensor.numel():
        return b""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()

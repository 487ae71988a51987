"""Checkpoints of four small tensors, and options with which each merge method has something to do."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from capibara_assets.consensus.merging.methods import METHODS

SHAPES = {"model.embed_tokens.weight": (48, 24), "a.weight": (40, 24), "b.weight": (24, 40), "norm.weight": (24,)}
NEEDS = {
    "slerp": {"t": 0.35},
    "convex": {"weights": [0.5, 0.3, 0.2]},
    "ties": {"density": 0.5},
    "dare_linear": {"density": 0.5, "seed": 3},
    "dare_ties": {"density": 0.5, "seed": 3},
    "della": {"density": 0.5, "epsilon": 0.1, "seed": 3},
    "breadcrumbs": {"density": 0.8, "gamma": 0.05},
    "breadcrumbs_ties": {"density": 0.8, "gamma": 0.05},
    "sce": {"select_topk": 0.4},
}
COUNTS = {"slerp": 2, "nuslerp": 2, "arcee_fusion": 1}


def model(
    seed: int, around: Mapping[str, Tensor] | None = None, dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(seed)
    made = {name: 0.1 * torch.randn(shape, generator=random) for name, shape in SHAPES.items()}
    if around is not None:
        made = {name: around[name] + 0.2 * made[name] for name in SHAPES}
    return {name: tensor.to(dtype) for name, tensor in made.items()}


def saved(folder: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any] | None = None) -> Path:
    folder.mkdir(parents=True)
    save_file(dict(tensors), folder / "model.safetensors", {"format": "pt"})
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def result(folder: Path) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        found |= load_file(path)
    return found


def options_of(method: str, base: Path, models: Sequence[Path]) -> dict[str, Any]:
    wanted = dict(NEEDS.get(method, {}))
    if "weights" in wanted:
        wanted["weights"] = wanted["weights"][: len(models)]
    return wanted | ({"base": base} if METHODS[method].base == "required" else {})

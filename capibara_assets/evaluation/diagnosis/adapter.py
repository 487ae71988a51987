"""Checks of an adapter: never trained, scaled to zero, or made for another base."""

from pathlib import Path

import torch
from safetensors.torch import load_file

from capibara_assets.evaluation.contenders.model_folder import ModelFolder, adapter_config
from capibara_assets.evaluation.diagnosis.catalogue import Diagnosis
from capibara_assets.evaluation.diagnosis.files import shapes_of
from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.modeling.files import ADAPTER_WEIGHTS, base_digest

_PREFIX = "base_model.model."


def pairs_of(folder: Path) -> LoraAdapter:
    """Read an adapter without checking that config and weights agree. Raises SafetensorError: torn files."""
    return LoraAdapter(adapter_config(folder), load_file(folder / ADAPTER_WEIGHTS))


def check_factors(adapter: LoraAdapter) -> list[Diagnosis]:
    """Check that B and the scale are not zero, and that ranks are those of the config."""
    b = {name: tensor for name, tensor in adapter.tensors.items() if ".lora_B." in name}
    zero = [name for name, tensor in b.items() if not bool(tensor.any())]
    if b and len(zero) == len(b):
        words = f"all {len(b)} B are zero: B @ A changes nothing"
        return [Diagnosis("adapter_b_zero", words, {"zero": len(zero), "of": len(b)})]
    stated = {module: (adapter.rank(module), adapter.a(module).shape[0]) for module in adapter.modules}
    other = {module: pair for module, pair in stated.items() if pair[0] != pair[1]}
    if other:
        module, (wanted, there) = next(iter(other.items()))
        words = f"adapter_config.json says rank {wanted}, {module} has {there} ({len(other)} of {len(stated)} modules)"
        return [Diagnosis("adapter_factors_differ", words, {"stated": wanted, "rank": there, "modules": len(other)})]
    off = [module for module in adapter.modules if adapter.scale(module) == 0]
    if adapter.modules and len(off) == len(adapter.modules):
        words = f"lora_alpha is {adapter.config.get('lora_alpha')}: the change is multiplied by 0"
        evidence = {"lora_alpha": adapter.config.get("lora_alpha"), "r": adapter.config.get("r")}
        return [Diagnosis("adapter_scale_zero", words, evidence)]
    return []


def check_fits(adapter: LoraAdapter, base: Path) -> list[Diagnosis]:
    """Check modules and shapes against the base's matrices, by the names in the base's files."""
    shapes = {name: shape for name, (shape, _) in shapes_of(base).items()}
    stems = {name.removesuffix(".weight") for name in shapes if name.endswith(".weight")}
    missing = [module for module in adapter.modules if module not in stems]
    if missing and not any("experts" in name for name in shapes):  # experts' names change while they are loaded
        words = (
            f"{len(missing)} of the adapter's {len(adapter.modules)} modules are not in the base: "
            f"{', '.join(missing[:3])}; the base has {', '.join(sorted(stems)[:3])}, …"
        )
        evidence = {"missing": len(missing), "of": len(adapter.modules), "first": missing[:5]}
        return [Diagnosis("adapter_targets_missing", words, evidence)]
    odd = {}
    for module in adapter.modules:
        shape = shapes.get(f"{module}.weight")
        change = (adapter.b(module).shape[0], adapter.a(module).shape[1])
        if shape is not None and len(shape) == 2 and change not in (tuple(shape), tuple(reversed(shape))):
            odd[module] = (change, tuple(shape))
    if not odd:
        return []
    module, (change, shape) = next(iter(odd.items()))
    words = f"{len(odd)} changes have other shapes than the base's weights: {module} {change}, the base {shape}"
    return [Diagnosis("base_mismatch", words, {"modules": len(odd), "adapter": change, "base": shape})]


def check_base(model: ModelFolder) -> list[Diagnosis]:
    """Check the base's digest against the one recorded beside the adapter, else its name."""
    base = model.whole
    if model.base_digest is not None:
        there = base_digest(base)
        if there == model.base_digest:
            return []
        words = f"trained on {model.base_digest[:12]} ({model.digest_from}), the base {base} is {there[:12]}"
        return [Diagnosis("base_mismatch", words, {"wanted": model.base_digest[:12], "base": there})]
    named = str(adapter_config(model.folder).get("base_model_name_or_path") or "")
    if named and Path(named).name != base.name:
        words = f"adapter_config.json names {named}, the base is {base.name}, and no digest says which is right"
        return [Diagnosis("base_unverified", words, {"named": named, "base": str(base)})]
    return []


def check_effect(plain: torch.Tensor, adapted: torch.Tensor) -> list[Diagnosis]:
    """Check that logits of the same tokens differ without and with the adapter (equal shapes)."""
    apart = float((plain - adapted).abs().max())
    if apart > 0:
        return []
    words = f"{plain.numel():,} logits are the same with and without the adapter, to the bit"
    return [Diagnosis("adapter_without_effect", words, {"logits": plain.numel(), "largest_difference": apart})]

"""Validation of adapter config options: none may change what PEFT loads, none may be decided by one voter."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.modeling.lora.patterns import fits

#: What a config says of itself, or what is read here as PEFT reads it (rank, scale, the modules).
_KNOWN = frozenset(
    (
        *("peft_type", "peft_version", "task_type", "base_model_name_or_path", "revision", "auto_mapping"),
        *("r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora", "target_modules", "fan_in_fan_out"),
        *("lora_dropout", "init_lora_weights", "inference_mode"),
        *("megatron_core", "qalora_group_size"),  # of options that are off
    )
)
_OFF: tuple[object, ...] = (None, False, "", "none", [], {})
#: Neither changes a weight; the majority says what it is, so that no single voter writes it into what is published.
_COMMON = ("base_model_name_or_path", "task_type", "fan_in_fan_out", "peft_version", "target_modules")
_NOBODYS = ("auto_mapping", "revision")


def option_problem(adapter: LoraAdapter) -> str:
    """The first option under which PEFT would compute other weights than scale * B @ A; empty if none.

    What is not known here has to be off, so that an option of a later PEFT is refused rather than overlooked.
    """
    for name, value in sorted(adapter.config.items()):
        if name not in _KNOWN and value not in _OFF:
            return f"{name} is {json.dumps(value, default=str)[:80]}: PEFT would make something else of its tensors"
    targets = adapter.config.get("target_modules")
    unnamed = [module for module in adapter.modules if targets is not None and not _selects(targets, module)]
    if unnamed:
        return f"target_modules does not select {unnamed[0]}, and PEFT would drop its tensors ({len(unnamed)} modules)"
    return ""


def common_options(adapters: Sequence[LoraAdapter]) -> dict[str, Any]:
    """Shared options by majority of the adapters; ties go to the first as JSON.

    With f liars among 2f + 1 accepted voters it is what the honest ones state, where these agree.
    """
    chosen: dict[str, Any] = {}
    for name in _COMMON:
        held = [_plain(adapter.config[name]) for adapter in adapters if name in adapter.config]
        stated = [json.dumps(value, sort_keys=True) for value in held]
        if stated:
            most = max(Counter(stated).values())
            chosen[name] = json.loads(min(value for value, times in Counter(stated).items() if times == most))
    if chosen.get("target_modules") is None:  # PEFT's defaults for the architecture would drop some
        chosen["target_modules"] = sorted({module for adapter in adapters for module in adapter.modules})
    return chosen | {name: None for name in _NOBODYS if any(name in adapter.config for adapter in adapters)}


def with_common_options(config: Mapping[str, Any], adapters: Sequence[LoraAdapter]) -> dict[str, Any]:
    """Adapter config for a combination of these adapters, with the majority's shared options."""
    return {**config, **common_options(adapters)}


def _selects(targets: Any, module: str) -> bool:
    """As PEFT does: a list by ends of names, a text as a pattern of whole names, all-linear every linear layer."""
    if isinstance(targets, str):
        try:
            return targets == "all-linear" or fits(targets, module)
        except ValueError:
            return False
    named = targets if isinstance(targets, Sequence | set | frozenset) else ()
    return any(isinstance(end, str) and (module == end or module.endswith(f".{end}")) for end in named)


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, set | frozenset) else value

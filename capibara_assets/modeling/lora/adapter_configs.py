"""What a stranger's `adapter_config.json` may say before anything is computed or loaded by it."""

from collections.abc import Callable, Mapping
from typing import Any

from capibara_assets.modeling.lora.patterns import fits

LARGEST = (2 - 2**-23) * 2.0**111
"""Of what a product of factors may reach: sums of it stay finite in float32."""
_NUMBERS = {1: "whole number from 1", None: "finite number"}
_SWITCHES = ("use_rslora", "use_dora", "fan_in_fan_out", "lora_bias", "inference_mode")
#: Options by which PEFT imports a module that they name, or builds a model of any depth.
_BUILDS = ("megatron_config", "layer_replication")


def config_problem(config: Mapping[str, Any], is_name: Callable[[str], bool] | None = None) -> str:
    """Why ranks and scale cannot be computed from a config; empty where they can.

    Args:
        is_name: whether a key of `rank_pattern` and `alpha_pattern` may name modules; default: what `fits` reads.
    """
    if not _is_number(config.get("r")) or config["r"] != int(config["r"]) or config["r"] < 1:
        return f"r is {_shown(config.get('r'))}, expected a whole number from 1"
    if not _is_number(config.get("lora_alpha")):
        return f"lora_alpha is {_shown(config.get('lora_alpha'))}, expected a finite number"
    if problem := _options_problem(config):
        return problem
    for pattern, least in (("rank_pattern", 1), ("alpha_pattern", None)):
        values = config.get(pattern) or {}
        if not isinstance(values, dict):
            return f"{pattern} is no object"
        for key, value in values.items():
            if not (is_name or _is_pattern)(key):
                return f"{pattern} names {key[:80]!r}, which is no module's name"
            if not _is_number(value) or (least is not None and (value < least or value != int(value))):
                return f"{pattern} of {key[:80]!r} is {_shown(value)}, expected a {_NUMBERS[least]}"
    return ""


def _options_problem(config: Mapping[str, Any]) -> str:
    for name in _SWITCHES:
        if not isinstance(config.get(name), bool | None):
            return f"{name} is {_shown(config[name])}, expected true or false"
    dropout, layers = config.get("lora_dropout"), config.get("layers_to_transform")
    if dropout is not None and not (_is_number(dropout) and 0 <= dropout <= 1):
        return f"lora_dropout is {_shown(dropout)}, expected a number from 0 to 1"
    if not all(type(layer) is int and layer >= 0 for layer in (layers if isinstance(layers, list) else [layers or 0])):
        return f"layers_to_transform is {_shown(layers)}, expected numbers of layers"
    return ""


def lora_problem(config: Mapping[str, Any]) -> str:
    """Why a config is not that of a LoRA with the change scale * B @ A; empty where it may be."""
    if config.get("peft_type") != "LORA":
        return f"peft_type is {_shown(config.get('peft_type'))}, expected 'LORA'"
    return config_problem(config)


def loading_problem(config: Mapping[str, Any], rank: int) -> str:
    """Why PEFT must not be given a config: it would run, build or match what has no end; empty where it may.

    Args:
        rank: the largest of the adapter's tensors.
    """
    if problem := config_problem(config, str.isascii):
        return problem
    for name in _BUILDS:
        if config.get(name):
            return f"{name} is set, by which PEFT would load or build something else than an adapter"
    stated = max(config["r"], *(config.get("rank_pattern") or {0: 0}).values())
    if stated > rank:
        return f"a rank of {stated} is stated, the tensors have {rank}"
    texts = [*(config.get("rank_pattern") or {}), *(config.get("alpha_pattern") or {})]
    texts += [config[name] for name in ("target_modules", "exclude_modules", "layers_pattern")
              if isinstance(config.get(name), str)]  # fmt: skip
    for text in texts:
        if text != "all-linear" and not _is_quick(text):
            return f"{text[:80]!r} chooses modules by a pattern that may take for ever: list their names"
    return ""


def _shown(value: Any) -> str:
    return repr(value)[:80]


def _is_pattern(key: str) -> bool:
    try:
        fits(key, "")
    except ValueError:
        return False
    return True


def _is_quick(text: str) -> bool:
    """Whether Python's matcher is quick on a pattern, too: nothing repeated, or at most twice and not in brackets."""
    repeated = sum(text.count(sign) for sign in "*+?{")
    return _is_pattern(text) and (repeated == 0 or (repeated <= 2 and not any(f"){sign}" in text for sign in "*+?{")))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST

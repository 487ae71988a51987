"""What a stranger's `config.json` may say before anything is computed or built by it."""

import math
import re
import sys
from collections.abc import Mapping
from typing import Any

from capibara_assets.modeling.configs.numbers import shown

LARGEST_SIZES = {"vocab_size": 1 << 24, "hidden_size": 1 << 20, "intermediate_size": 1 << 22, "d_model": 1 << 20,
                 "num_hidden_layers": 4096, "num_layers": 4096, "n_layer": 4096, "num_attention_heads": 1 << 16,
                 "num_local_experts": 1 << 16, "num_experts": 1 << 16, "max_position_embeddings": 1 << 30,
                 "num_key_value_heads": 1 << 16, "head_dim": 1 << 16, "num_heads": 1 << 16, "n_head": 1 << 16,
                 "n_embd": 1 << 20, "d_ff": 1 << 22, "d_kv": 1 << 16, "num_labels": 1 << 20}  # fmt: skip
"""By the ends of their names: other sizes than the model's own, as `type_vocab_size`, have the same bound."""

_ELEMENTS = frozenset(
    (
        *("auto", "float64", "double", "float32", "float", "float16", "half", "bfloat16", "int8", "uint8"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2"),
    )
)
# queries with parts of other widths, the dense models of a family of mixtures, models without a classifier
_MAY_BE_NONE = ("head_dim", "num_local_experts", "num_experts", "num_labels")
# others are repositories of kernels, which Transformers fetches and imports
_IMPLEMENTATIONS = (
    "eager",
    "sdpa",
    "flash_attention_2",
    "flash_attention_3",
    "flex_attention",
    "grouped_mm",
    "batched_mm",
)
_CHOOSES = re.compile(r"_?(?:attn|experts)_implementation(?:_internal)?")
_EPSILONS = ("norm_eps", "norm_epsilon")
_POSITIVE = ("rope_theta", "factor", "short_factor", "long_factor", "low_freq_factor", "high_freq_factor")
_OBJECTS = ("rope_parameters", "rope_scaling")
_DEEPEST = 64
_MOST_ENTRIES = 1 << 16  # of a list or object: libraries walk them many times over, names of classes by the thousand
_TOKEN_IDS = "_token_id"
_SINGLE = ("pad_token_id", "bos_token_id")  # a list of them is none that any tokenizer or embedding takes
_OF_TEXT = ("eos_token_id", *_SINGLE)  # others may be of an image or a sound, beside the vocabulary


def value_problem(config: Mapping[str, Any]) -> str:
    """Why no model can be computed from a config's values, those of its parts included; empty where one may be.

    What only the architecture's own code can say (whether heads divide the width) is left to it.
    """
    for name in ("model_type", "hidden_act"):
        if not isinstance(config.get(name), str | None):
            return _expected(name, config[name], "a name")
    for name in ("dtype", "torch_dtype"):
        value = config.get(name)
        if value is not None and not (isinstance(value, str) and value.removeprefix("torch.") in _ELEMENTS):
            return _expected(name, value, "a type of weights, such as bfloat16")
    return _parts_problem(config, _DEEPEST)


def token_problem(config: Mapping[str, Any], of: Mapping[str, Any]) -> str:
    """Why the ids of the tokens that begin, end or pad a text are none of a model's vocabulary; empty where they are.

    Args:
        config: a model's, or that of its generation; its other values need not be sound.
        of: the model's config, which states the size of its vocabulary, itself or for its text.
    """
    text = of.get("text_config")
    stated = of.get("vocab_size") or (text.get("vocab_size") if isinstance(text, dict) else None)
    largest = LARGEST_SIZES["vocab_size"]
    rows = stated if isinstance(stated, int) and 0 < stated <= largest else largest
    for name in _OF_TEXT:
        if problem := _id_problem(name, value := config.get(name)):
            return problem
        if any(one is not None and one >= rows for one in (value if isinstance(value, list) else [value])):
            return _expected(name, value, f"tokens of the model's vocabulary, 0 to {rows - 1:,}")
    return ""


def _parts_problem(config: Mapping[str, Any], deepest: int) -> str:
    if not deepest:
        return f"its values are nested more than {_DEEPEST} deep"
    for name, value in config.items():
        if isinstance(value, dict | list) and len(value) > _MOST_ENTRIES:
            return f"{name} has {len(value):,} entries, models have up to {_MOST_ENTRIES:,}"
        if name.endswith(_TOKEN_IDS) and (problem := _id_problem(name, value)):
            return problem
        if name in _OBJECTS and not isinstance(value, dict | None):
            return _expected(name, value, "an object")
        if _CHOOSES.fullmatch(name) and value is not None and value not in _IMPLEMENTATIONS:
            return _expected(name, value, f"one of {', '.join(_IMPLEMENTATIONS)}")
        problem = _parts_problem(value, deepest - 1) if isinstance(value, dict) else ""
        if problem := problem or _size_problem(name, value) or _number_problem(name, value):
            return problem
    return ""


def _size_problem(name: str, value: Any) -> str:
    ending = next((ending for ending in LARGEST_SIZES if f"_{name}".endswith(f"_{ending}")), "")
    if not ending or value is None:
        return ""
    own, most = name in LARGEST_SIZES, LARGEST_SIZES[ending]
    least = int(own and name not in _MAY_BE_NONE)
    for one in value if isinstance(value, list) else [value]:  # some architectures have a size for each layer
        if own and not (isinstance(one, dict) or _is_whole(one)):
            return _expected(name, value, "a whole number")
        if isinstance(one, int | float) and not least <= one <= most:
            return f"{name} is {shown(value)}, models have {least} to {most:,}"
    return ""


def _number_problem(name: str, value: Any) -> str:
    if name.endswith(_EPSILONS):
        return "" if value is None or _is_finite(value, 0.0) else _expected(name, value, "a finite number from 0")
    if name not in _POSITIVE or value is None:
        return ""
    sound = all(_is_finite(one, math.ulp(0.0)) for one in (value if isinstance(value, list) else [value]))
    return "" if sound else _expected(name, value, "a finite number above 0")


def _id_problem(name: str, value: Any) -> str:
    """Why a value is no token's number, nor some; null, and -1 alone, say that there is none."""
    if value is None or (isinstance(value, int) and value == -1):
        return ""
    single, most = name in _SINGLE, LARGEST_SIZES["vocab_size"]
    listed = value if isinstance(value, list) and not single else [value]
    if all(isinstance(one, int) and not isinstance(one, bool) and 0 <= one < most for one in listed):
        return ""
    return _expected(name, value, "the number of a token" + ("" if single else ", or a list of such"))


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1


def _is_finite(value: Any, least: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= sys.float_info.max


def _expected(name: str, value: Any, what: str) -> str:
    return f"{name} is {shown(value)}, expected {what}"

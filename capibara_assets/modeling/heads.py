"""Kinds of language models: causal, sequence-to-sequence (T5) and masked (BERT), as the config of a base names them."""

from collections.abc import Mapping
from typing import Any, Literal

from capibara_assets.errors import InputError

Head = Literal["causal", "seq2seq", "masked"]
HEADS: tuple[Head, ...] = ("causal", "seq2seq", "masked")

# head -> (title, PEFT's task type, Transformers' class that loads it)
_NAMES: dict[Head, tuple[str, str | None, str]] = {
    "causal": ("causal language model", "CAUSAL_LM", "AutoModelForCausalLM"),
    "seq2seq": ("sequence-to-sequence model", "SEQ_2_SEQ_LM", "AutoModelForSeq2SeqLM"),
    "masked": ("masked language model", None, "AutoModelForMaskedLM"),
}


def architectures(config: Mapping[str, Any]) -> list[str]:
    """The classes that a model's `config.json` names; what is no list of names names none."""
    stated = config.get("architectures")
    return [name for name in stated if isinstance(name, str)] if isinstance(stated, list) else []


def head_of(config: Mapping[str, Any]) -> Head | None:
    """The head that a model's `config.json` names; None where it is not supported."""
    for name in architectures(config):
        if "CausalLM" in name or name.endswith("LMHeadModel"):
            return "causal"
        if name.endswith("ForMaskedLM"):
            return "masked"
        if config.get("is_encoder_decoder") and name.endswith(("ForConditionalGeneration", "ForSeq2SeqLM")):
            return "seq2seq"
    return None


def chosen_head(config: Mapping[str, Any], requested: Head | Literal["auto"]) -> Head:
    """The head to train: the requested one, checked against the base.

    Args:
        requested: the recipe's `model.head`; `auto` takes the base's own.

    Raises:
        InputError: the base has none of the heads, or another than the requested one.
    """
    own = head_of(config)
    named = ", ".join(architectures(config)) or "none named"
    if own is None:
        raise InputError(f"the base is not a language model that can be trained here (architectures: {named})")
    if requested not in ("auto", own):
        raise InputError(f"model.head is {requested}, but the base is a {title(own)} ({named}): say {own}, or auto")
    return own


def title(head: Head) -> str:
    """The kind of model in words, such as `causal language model`."""
    return _NAMES[head][0]


def task_type(head: Head) -> str | None:
    """PEFT's name of the task; it has none for masked models."""
    return _NAMES[head][1]


def model_class(head: Head) -> Any:
    """The Transformers class that loads such a base."""
    import transformers

    return getattr(transformers, _NAMES[head][2])

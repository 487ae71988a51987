"""PEFT imported without bitsandbytes, which costs over a second of every start and only quantised bases need."""

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_NAME = "bitsandbytes"


@contextmanager
def without_bitsandbytes() -> Iterator[None]:
    """Context in which PEFT finds no bitsandbytes, unless it was imported before, as a quantised base does.

    A None in `sys.modules` is how Python marks a module that must not be imported. PEFT's cached answers
    are cleared before and after, so that a later quantised base gets its layers.
    """
    if _NAME in sys.modules or importlib.util.find_spec(_NAME) is None:
        yield
        return
    sys.modules[_NAME] = None  # type: ignore[assignment]  # as documented: importing it is then a ModuleNotFoundError
    _forget()
    try:
        yield
    finally:
        del sys.modules[_NAME]
        _forget()


def _forget() -> None:
    """Clear PEFT's cached answers about bitsandbytes, where PEFT is imported already."""
    if remembered := sys.modules.get("peft.import_utils"):
        remembered.is_bnb_available.cache_clear()
        remembered.is_bnb_4bit_available.cache_clear()


with without_bitsandbytes():
    from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
    from peft.tuners.lora.layer import Linear as LoraLinear

    # PEFT's own rules on names; it has no public function that answers for them.
    from peft.tuners.tuners_utils import _check_lora_target_modules_mamba as taken_by_mamba
    from peft.utils.transformers_weight_conversion import convert_peft_config_for_transformers as taken_for_experts

__all__ = [
    "LoraConfig",
    "LoraLinear",
    "get_peft_model",
    "get_peft_model_state_dict",
    "taken_by_mamba",
    "taken_for_experts",
    "without_bitsandbytes",
]

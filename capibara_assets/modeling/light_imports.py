"""PEFT imported without bitsandbytes, which costs over a second of every start and only quantised bases need."""

from capibara_assets.processes.hidden_libraries import without_bitsandbytes

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
]

"""Models of many architectures with a few thousand random weights, from Transformers' configs, and tokenizers."""

import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    PreTrainedTokenizerFast,
)

from capibara_assets_tests.modeling.tiny_heads import word_tokenizer

SIZES: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "d_model": 32, "d_ff": 48, "d_kv": 16, "num_layers": 2, "num_heads": 2, "n_layer": 2,
    "n_embd": 32, "n_head": 2, "ffn_dim": 48, "max_position_embeddings": 256, "n_positions": 256,
}  # fmt: skip
_EXPERTS = {"moe_intermediate_size": 24, "num_experts_per_tok": 2}
_LATENT = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 16}
_ENCODER_DECODER = {
    "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
}  # fmt: skip
# model_type -> settings of its own; the first five are named by users, the planner has formulas for none but mt5.
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "gpt_oss": {**_EXPERTS, "num_local_experts": 4, "head_dim": 16, "layer_types": ["full_attention"] * 2},
    "cohere": {},
    "roberta": {"type_vocab_size": 1},
    "mt5": {"dropout_rate": 0.0, "decoder_start_token_id": 0, "feed_forward_proj": "gated-gelu"},
    "deepseek_v3": {**_EXPERTS, **_LATENT, "n_routed_experts": 4, "n_group": 1, "topk_group": 1,
                    "first_k_dense_replace": 1, "head_dim": 8},
    "gpt2": {},
    "bloom": {},
    "falcon": {"alibi": False},
    "bart": _ENCODER_DECODER,
    "mamba": {"state_size": 8, "time_step_rank": 4},
    "qwen2_moe": {**_EXPERTS, "num_experts": 4, "shared_expert_intermediate_size": 24},
    "granite": {},
}  # fmt: skip
_MASKED, _SEQ2SEQ = ("roberta",), ("mt5", "bart")


def config_of(kind: str, vocabulary: int = 128) -> Any:
    """A small Transformers config of an architecture, with the class that trains it."""
    tokens = {"vocab_size": vocabulary, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = AutoConfig.for_model(kind, **{**SIZES, **tokens, **ARCHITECTURES[kind]})
    config.architectures = [_class(kind)._model_mapping[type(config)].__name__]
    return config


def _class(kind: str) -> Any:
    return (
        AutoModelForMaskedLM if kind in _MASKED else AutoModelForSeq2SeqLM if kind in _SEQ2SEQ else AutoModelForCausalLM
    )


def random_model(kind: str, vocabulary: int = 128) -> Any:
    """A model of the architecture with random weights."""
    torch.manual_seed(7)
    return _class(kind).from_config(config_of(kind, vocabulary))


def save_random(kind: str, folder: Path, tokenizer_of: Path) -> Path:
    """Write a random model and a tokenizer of words (causal ones get another model's); returns the folder."""
    if kind in (*_MASKED, *_SEQ2SEQ):
        tokenizer = _words(kind)
        random_model(kind, len(tokenizer)).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder
    random_model(kind, 4096).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(tokenizer_of / name, folder / name)
    return folder


def _words(kind: str) -> PreTrainedTokenizerFast:
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    if kind in _MASKED:
        special |= {"cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>"}
        return word_tokenizer(special, "<s> $A </s>")
    return word_tokenizer(special, "$A </s>")

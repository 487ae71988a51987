"""A Llama of a few thousand random weights with the shipped tokenizer: everything a test needs of a base model."""

import shutil
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

KINDS = {"llama": (LlamaConfig, LlamaForCausalLM), "mistral": (MistralConfig, MistralForCausalLM)}
MODULES = ("down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj")


def save_tiny(
    folder: Path, tokenizer_of: Path, dtype: torch.dtype = torch.float32, positions: int = 256, kind: str = "llama",
    layers: int = 2,
) -> Path:  # fmt: skip
    """Write a random model (width 32, 4,096 tokens) and the tokenizer of another; returns the folder."""
    torch.manual_seed(7)
    make_config, make_model = KINDS[kind]
    config = make_config(
        vocab_size=4096,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=positions,
        initializer_range=0.3,  # logits large enough to learn from: the embedding stays frozen
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=5,
        pad_token_id=1,
    )
    make_model(config).to(dtype).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(tokenizer_of / name, folder / name)
    return folder

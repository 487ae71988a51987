"""The model, its optimisers and its checkpoints as Transformers reads them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from workshop.base_model.fast import ATTENTION
from workshop.base_model.settings import CONTEXT, Settings
from workshop.base_model.tokenizer import DOCUMENT_END, PADDING, TURN_END, wrap


def make_config(bpe: Tokenizer, settings: Settings) -> LlamaConfig:
    """The architecture: Llama with tied embeddings."""
    return LlamaConfig(
        vocab_size=settings.vocabulary,
        hidden_size=settings.hidden,
        intermediate_size=settings.intermediate,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.heads,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=bpe.token_to_id(DOCUMENT_END),
        eos_token_id=bpe.token_to_id(TURN_END),
        pad_token_id=bpe.token_to_id(PADDING),
    )


def make_model(config: LlamaConfig, seed: int) -> LlamaForCausalLM:
    """A float32 model with the seed's initial weights."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config)
    model.set_attn_implementation(ATTENTION)
    return model


def first_model(bpe: Tokenizer, settings: Settings) -> LlamaForCausalLM:
    """What a run begins with: the weights of `settings.start`, or random ones."""
    model = make_model(make_config(bpe, settings), settings.seed)
    if settings.start:
        model.load_state_dict(LlamaForCausalLM.from_pretrained(settings.start, dtype=torch.float32).state_dict())
    return model


def forward_pass(model: LlamaForCausalLM, settings: Settings) -> Callable[[torch.Tensor], torch.Tensor]:
    """Ids (batch, tokens) to logits (batch, tokens, vocabulary) in bfloat16, compiled where the settings say so."""

    def logits(ids: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result: torch.Tensor = model(input_ids=ids, use_cache=False).logits
        return result

    return torch.compile(logits, dynamic=False) if settings.compiled else logits


def make_optimizers(model: LlamaForCausalLM, settings: Settings) -> list[torch.optim.Optimizer]:
    """Muon (Jordan et al. 2024) for the layers' matrices, AdamW for embeddings and norms."""
    matrices = [weight for name, weight in model.named_parameters() if weight.ndim == 2 and "embed" not in name]
    others = [weight for name, weight in model.named_parameters() if weight.ndim < 2 or "embed" in name]
    return [
        torch.optim.Muon(matrices, lr=settings.matrix_rate, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=settings.vector_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
    ]


def rate(progress: float, warm_up: float = 0.02, decay: float = 0.5) -> float:
    """Trapezoid: the factor of the learning rate after a share ``progress`` in [0, 1] of the budget."""
    if progress < warm_up:
        return max(progress / warm_up, 0.01)
    return min(1.0, max((1.0 - progress) / decay, 0.0))


def save_checkpoint(model: LlamaForCausalLM, out: Path) -> None:
    """Write weights (bfloat16) and configuration as Transformers reads them, file by file."""
    # A model of its own: the loop goes on with its float32 weights and its own attention.
    config = LlamaConfig(**{key: value for key, value in model.config.to_diff_dict().items() if key != "dtype"})
    copy = LlamaForCausalLM(config).to(torch.bfloat16)
    copy.load_state_dict(model.state_dict())
    copy.generation_config = GenerationConfig(
        bos_token_id=config.bos_token_id,
        eos_token_id=[config.eos_token_id, config.bos_token_id],
        pad_token_id=config.pad_token_id,
        max_new_tokens=256,
    )
    _publish(copy.save_pretrained, out)


def save_tokenizer(bpe: Tokenizer, out: Path) -> None:
    """Write the tokenizer's files, file by file."""
    _publish(wrap(bpe, CONTEXT).save_pretrained, out)


def _publish(save: Callable[[Path], object], out: Path) -> None:
    """Let ``save`` write into a folder beside, then rename its files into ``out``."""
    staging = out / ".staging"
    shutil.rmtree(staging, ignore_errors=True)  # of a run that was killed while saving
    save(staging)
    for file in sorted(staging.iterdir()):
        file.chmod(0o644)  # safetensors writes files that only their owner may read
        file.replace(out / file.name)
    staging.rmdir()

"""Attention in bf16 as one function: as near to float32 as Transformers' own under autocast; gradients, too."""

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM

from capibara_assets.modeling.fused.attention import fuse_attention

SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}
KINDS = {
    "llama": (LlamaForCausalLM, LlamaConfig, 4),
    "llama, grouped": (LlamaForCausalLM, LlamaConfig, 2),
    "mistral, one for all": (MistralForCausalLM, MistralConfig, 1),
    "qwen2, biases": (Qwen2ForCausalLM, Qwen2Config, 2),
}


def made(kind: str) -> Any:
    model, config, heads = KINDS[kind]
    torch.manual_seed(3)
    found = model(config(**SIZES, num_key_value_heads=heads, attn_implementation="eager", initializer_range=0.2))
    return found.float()


def outcome(
    model: Any, ids: torch.Tensor, *, bf16: bool, **inputs: Any
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        logits = model(input_ids=ids, use_cache=False, **inputs).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())
    loss.backward()
    return logits.detach().float(), {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def distance(found: dict[str, torch.Tensor], truth: dict[str, torch.Tensor]) -> float:
    assert found.keys() == truth.keys()
    return float(sum((found[name] - truth[name]).square().sum() for name in truth) ** 0.5)


@pytest.mark.parametrize("kind", KINDS)
def test_no_further_from_float32_than_eager_attention(kind: str) -> None:
    model, ids = made(kind), torch.randint(64, (3, 29), generator=torch.Generator().manual_seed(1))
    exact, truth = outcome(model, ids, bf16=False)
    before, theirs = outcome(model, ids, bf16=True)
    assert fuse_attention(model) == 2
    after, ours = outcome(model, ids, bf16=True)
    assert (after - exact).norm() <= 1.2 * (before - exact).norm()
    assert distance(ours, truth) <= 1.2 * distance(theirs, truth)
    alone, _ = outcome(model, ids, bf16=False)
    assert torch.equal(alone, exact)  # without autocast it is the layer's own


def test_masks_of_padding_and_of_packed_rows_are_kept() -> None:
    model, ids = made("llama, grouped"), torch.arange(24).view(2, 12)
    fuse_attention(model)
    padding = torch.ones(2, 12, dtype=torch.int64)
    padding[1, 8:] = 0
    changed = ids.clone()
    changed[1, 8:] = 63
    one, _ = outcome(model, ids, bf16=True, attention_mask=padding)
    other, _ = outcome(model, changed, bf16=True, attention_mask=padding)
    assert torch.equal(one[0], other[0]) and torch.equal(one[1, :8], other[1, :8])

    blocks = torch.full((1, 1, 12, 12), torch.finfo(torch.float32).min).triu(1)
    blocks[..., 5:, :5] = torch.finfo(torch.float32).min
    places = torch.cat([torch.arange(5), torch.arange(7)])[None]
    packed, _ = outcome(model, ids[:1], bf16=True, attention_mask=blocks, position_ids=places)
    alone, _ = outcome(model, ids[:1, 5:], bf16=True)
    torch.testing.assert_close(packed[0, 5:], alone[0], rtol=0.02, atol=0.02)


def test_a_cache_and_other_attention_are_left_alone() -> None:
    model, ids = made("llama"), torch.arange(10)[None]
    fuse_attention(model)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        whole = model(input_ids=ids, use_cache=False).logits[:, -1].float()
        cached = model(input_ids=ids[:, :-1], use_cache=True).past_key_values
        last = model(input_ids=ids[:, -1:], past_key_values=cached, use_cache=True).logits[:, -1].float()
    torch.testing.assert_close(last, whole, rtol=0.05, atol=0.05)
    model.set_attn_implementation("sdpa")
    assert fuse_attention(model) == 0

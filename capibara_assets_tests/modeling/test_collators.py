"""Batches: packed rows give each example the loss that it has alone, whatever its neighbours."""

import random
from typing import Any

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from capibara_assets.datasets.tokens.tokenising import Encoded
from capibara_assets.errors import InputError
from capibara_assets.modeling.collators import Packing, collate_packed, collate_seq2seq, collator, rows_of
from capibara_assets.modeling.losses import collate, token_nll

SIZES: dict[str, Any] = {
    "vocab_size": 300, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "max_position_embeddings": 128,
}  # fmt: skip


def model_of(kind: str, attention: str) -> PreTrainedModel:
    """A random model; gpt2 and opt have learned absolute positions."""
    torch.manual_seed(3)
    with torch.no_grad():
        made: dict[str, tuple[Any, Any]] = {
            "llama": (LlamaForCausalLM, LlamaConfig(**SIZES, initializer_range=0.3)),
            "qwen2": (Qwen2ForCausalLM, Qwen2Config(**SIZES, initializer_range=0.3)),
            "gpt2": (
                GPT2LMHeadModel,
                GPT2Config(vocab_size=300, n_embd=32, n_layer=2, n_head=2, n_positions=128, initializer_range=0.3),
            ),
            "opt": (
                OPTForCausalLM,
                OPTConfig(**SIZES, ffn_dim=64, word_embed_proj_dim=32, init_std=0.3, do_layer_norm_before=True),
            ),
        }
        cls, config = made[kind]
        return cls._from_config(config, attn_implementation=attention).eval()  # type: ignore[no-any-return]


def examples(lengths: list[int], seed: int = 0) -> list[Encoded]:
    draw = random.Random(seed)
    found = []
    for length in lengths:
        ids = draw.choices(range(5, 300), k=length)
        found.append(Encoded(ids, [-100] * (length // 2) + ids[length // 2 :], length - length // 2))
    return found


def by_example(model: torch.nn.Module, batch: Any, count: int) -> list[torch.Tensor]:
    """Losses of each example's tokens."""
    losses = token_nll(model, batch)
    return [losses[batch.owners == one] for one in range(count)]


LENGTHS = [17, 5, 40, 9, 23, 30, 12]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2", "opt"])
@torch.no_grad()
def test_packed_examples_have_the_losses_that_they_have_alone(kind: str, attention: str) -> None:
    model, given = model_of(kind, attention), examples(LENGTHS)
    alone = [token_nll(model, collate([one])) for one in given]
    batch = collate_packed(given, packing=Packing(48, attention))
    assert batch.input_ids.shape[0] < len(given)  # there are rows of several
    for packed, expected in zip(by_example(model, batch, len(given)), alone, strict=True):
        torch.testing.assert_close(packed, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@torch.no_grad()
def test_another_neighbour_changes_nothing(kind: str, attention: str) -> None:
    model, given, other = model_of(kind, attention), examples(LENGTHS), examples(LENGTHS, seed=9)
    packing = Packing(64, attention)
    before = by_example(model, collate_packed(given, packing=packing), len(given))
    for changed in range(len(given)):
        mixed = [*given[:changed], other[changed], *given[changed + 1 :]]
        after = by_example(model, collate_packed(mixed, packing=packing), len(given))
        for one in range(len(given)):
            assert torch.equal(before[one], after[one]) == (one != changed)


def test_flash_attention_gets_one_row_without_padding_and_positions_that_begin_again() -> None:
    given = examples(LENGTHS)
    batch = collate_packed(given, packing=Packing(48, "flash_attention_2"))
    assert batch.input_ids.shape == (1, sum(LENGTHS))
    assert list(batch.inputs) == ["position_ids"]
    assert batch.inputs["position_ids"][0].tolist() == [at for length in LENGTHS for at in range(length)]
    plain = collate(given)
    assert batch.targets.tolist() == plain.targets.tolist() and batch.owners.tolist() == plain.owners.tolist()


def test_rows_hold_each_example_once_in_its_order() -> None:
    assert rows_of([5, 4, 3, 9, 1], 9) == [[0, 1], [2], [3], [4]]
    assert rows_of([], 9) == []


def test_packing_is_refused_where_the_model_looks_back_less_far() -> None:
    config = Qwen2Config(**SIZES, sliding_window=16, use_sliding_window=True)
    with pytest.raises(InputError, match="attends only 16 tokens back"):
        collator(config, "causal", Packing(48, "sdpa"))
    config = Qwen2Config(**SIZES, sliding_window=16, use_sliding_window=False)
    assert collator(config, "causal", Packing(48, "sdpa"))([*examples([9])], torch.device("cpu")).input_ids.numel() == 9


def test_a_decoder_sees_the_labels_shifted_right() -> None:
    given = [Encoded([7, 8, 9, 20, 21], [-100, -100, -100, 20, 21], 2), Encoded([7, 30, 31, 32], [-100, 30, 31, 32], 3)]
    batch = collate_seq2seq(given, start=2)
    assert batch.input_ids.tolist() == [[7, 8, 9], [7, 0, 0]]
    assert batch.inputs["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch.inputs["decoder_input_ids"].tolist() == [[2, 20, 21], [2, 30, 31]]
    assert batch.targets.tolist() == [20, 21, 30, 31, 32] and batch.owners.tolist() == [0, 0, 1, 1, 1]

"""Losses: equal to the model's own, whatever the batches, chunks and padding."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, LlamaForCausalLM

from capibara_assets.datasets.tokens.tokenising import Encoded
from capibara_assets.errors import InputError
from capibara_assets.modeling import losses
from capibara_assets.modeling.base import Base
from capibara_assets.modeling.losses import assistant_losses, collate, token_nll


def example(length: int, supervised: int, seed: int) -> Encoded:
    ids = random.Random(seed).choices(range(10, 4096), k=length)
    return Encoded(ids, [-100] * (length - supervised) + ids[length - supervised :], supervised)


EXAMPLES = [example(length, 1 + length // 2, seed) for seed, length in enumerate([30, 7, 55, 12, 40, 7, 21])]


@torch.no_grad()
def expected(base: Base, one: Encoded) -> float:
    """The example alone through the model's own forward pass and the textbook cross-entropy."""
    logits = base.model(torch.tensor([one.input_ids])).logits[0].double()
    log_p = torch.log_softmax(logits, -1)
    return -sum(float(log_p[at - 1, label]) for at, label in enumerate(one.labels) if label != -100)


@pytest.mark.parametrize("batch_tokens", [1, 60, 100_000])
def test_each_example_has_the_loss_that_it_has_alone(tiny: Base, batch_tokens: int) -> None:
    found = assistant_losses(tiny.model, EXAMPLES, batch_tokens=batch_tokens)
    np.testing.assert_allclose(found.nll, [expected(tiny, one) for one in EXAMPLES], rtol=1e-5)
    assert found.tokens.tolist() == [one.supervised for one in EXAMPLES]
    assert found.mean == pytest.approx(found.nll.sum() / found.tokens.sum())


def test_a_batch_of_a_longer_length_has_the_same_losses(tiny: Base) -> None:
    longer = collate(EXAMPLES, multiple=32)
    assert longer.input_ids.shape[1] == 64
    torch.testing.assert_close(token_nll(tiny.model, longer), token_nll(tiny.model, collate(EXAMPLES)))


def test_blocks_of_a_bf16_head_change_neither_losses_nor_gradients(tiny: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = tiny.model.get_output_embeddings().weight.requires_grad_(True)
    batch = collate(EXAMPLES)

    def read() -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            nll = token_nll(tiny.model, batch)
            return nll.detach(), torch.autograd.grad(nll.sum(), weight)[0]

    in_blocks, gradient = read()
    monkeypatch.setattr(losses, "whole_blocks", lambda rows, dtype: rows)
    plain, plain_gradient = read()
    assert in_blocks.shape == batch.targets.shape
    torch.testing.assert_close(in_blocks, plain)
    assert float((gradient - plain_gradient).norm() / plain_gradient.norm()) < 0.01


def test_the_order_of_examples_does_not_matter(tiny: Base) -> None:
    forward = assistant_losses(tiny.model, EXAMPLES)
    backward = assistant_losses(tiny.model, EXAMPLES[::-1])
    np.testing.assert_allclose(forward.nll, backward.nll[::-1], rtol=1e-6)


def test_logits_in_chunks_give_the_same_losses_and_gradients(tiny: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = tiny.model.get_submodule("model.layers.0.mlp.up_proj").weight.requires_grad_(True)
    batch = collate(EXAMPLES)
    whole = token_nll(tiny.model, batch)
    (gradient,) = torch.autograd.grad(whole.sum(), weight)
    monkeypatch.setattr(losses, "_CHUNK_ELEMENTS", 4096 * 5)  # five rows at a time
    chunked = token_nll(tiny.model, batch)
    (chunked_gradient,) = torch.autograd.grad(chunked.sum(), weight)
    torch.testing.assert_close(chunked, whole)
    torch.testing.assert_close(chunked_gradient, gradient)


def test_the_mode_is_restored_and_a_poll_can_stop(tiny: Base) -> None:
    tiny.model.train()

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        assistant_losses(tiny.model, EXAMPLES, poll=stop)
    assert tiny.model.training


def test_no_examples_have_no_mean(tiny: Base) -> None:
    assert np.isnan(assistant_losses(tiny.model, []).mean)


def test_impossible_labels_are_refused() -> None:
    with pytest.raises(InputError, match="first token"):
        collate([Encoded([5, 6], [5, 6], 2)])
    with pytest.raises(InputError, match="2 tokens but 1 labels"):
        collate([Encoded([5, 6], [-100], 0)])


class Largest(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
    """Notes the most elements of a tensor whose last dimension is the vocabulary."""

    def __init__(self, vocabulary: int):
        super().__init__()
        self.vocabulary, self.most = vocabulary, 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        for value in found if isinstance(found, (tuple, list)) else [found]:
            if isinstance(value, torch.Tensor) and value.ndim and value.shape[-1] == self.vocabulary:
                self.most = max(self.most, value.numel())
        return found


def test_logits_are_never_whole_with_a_vocabulary_of_32k(monkeypatch: pytest.MonkeyPatch) -> None:
    """Value and gradient are the whole one's, and no tensor ever holds (tokens x vocabulary)."""
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=32_000, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
                         num_attention_heads=2, tie_word_embeddings=False, initializer_range=0.3)  # fmt: skip
    model = LlamaForCausalLM(config)
    draw = random.Random(1)
    ids = [draw.choices(range(32_000), k=150) for _ in range(4)]
    batch = collate([Encoded(one, [-100, *one[1:]], 149) for one in ids])
    weight = model.get_submodule("model.layers.0.mlp.up_proj").weight

    def run() -> tuple[torch.Tensor, torch.Tensor, int]:
        with Largest(32_000) as seen:
            found = token_nll(model, batch)
            (gradient,) = torch.autograd.grad(found.sum(), weight)
        return found, gradient, seen.most

    monkeypatch.setattr(losses, "_CHUNK_ELEMENTS", 1 << 30)
    whole, whole_gradient, whole_most = run()
    assert whole_most == 4 * 149 * 32_000
    monkeypatch.setattr(losses, "_CHUNK_ELEMENTS", 1 << 21)
    chunked, gradient, most = run()
    assert most <= max(1 << 21, model.lm_head.weight.numel())
    torch.testing.assert_close(chunked, whole, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(gradient, whole_gradient, atol=1e-4, rtol=1e-4)

"""The fast paths compute what PyTorch's own functions compute."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from workshop.base_model.fast import causal_blocks, cross_entropy


@pytest.mark.parametrize("length", [1, 7, 256, 300, 600])
def test_attention_by_blocks_is_causal_attention(length: int) -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 3, length, 8, requires_grad=True) for _ in range(3))
    ours, _ = causal_blocks(nn.Module(), query, key, value, None)
    theirs = functional.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    weights = torch.randn_like(ours)
    ours_gradients = torch.autograd.grad((ours * weights).sum(), (query, key, value))
    theirs_gradients = torch.autograd.grad((theirs * weights).sum(), (query, key, value))
    torch.testing.assert_close(ours_gradients, theirs_gradients, rtol=1e-4, atol=1e-5)


def test_cross_entropy_and_its_gradient() -> None:
    torch.manual_seed(0)
    logits = (torch.randn(50, 40) * 3).requires_grad_()
    targets = torch.randint(0, 40, (50,))
    ours, theirs = cross_entropy(logits, targets), functional.cross_entropy(logits, targets)
    torch.testing.assert_close(ours, theirs)
    (ours_gradient,) = torch.autograd.grad(ours * 0.25, logits)
    (theirs_gradient,) = torch.autograd.grad(theirs * 0.25, logits)
    torch.testing.assert_close(ours_gradient, theirs_gradient, rtol=1e-4, atol=1e-7)


def test_an_impossible_target_costs_much_but_stays_finite() -> None:
    logits = torch.tensor([[0.0, 1000.0]], requires_grad=True)
    loss = cross_entropy(logits, torch.tensor([0]))
    loss.backward()
    assert 80 < loss.item() < 1000
    assert torch.isfinite(logits.grad).all()

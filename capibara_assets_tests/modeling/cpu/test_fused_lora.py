"""Fused projections and norms: the same function and the same gradients as PEFT's and Transformers' own."""

from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from capibara_assets.modeling.cpu.fused_lora import Projections, fuse
from capibara_assets_tests.modeling.tiny import MODULES, save_tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, nano: Path) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny"), tokenizer_of=nano, dtype=torch.bfloat16)


def gradients(
    folder: Path, fused: bool, dtype: torch.dtype, dropout: float = 0.0
) -> tuple[float, dict[str, torch.Tensor], int]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model.requires_grad_(False)
    torch.manual_seed(1)
    adapted = get_peft_model(model, LoraConfig(r=3, lora_alpha=5, lora_dropout=dropout, target_modules=list(MODULES)))
    for name, value in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(value, std=0.1)
    taken = fuse(model, "default", dtype) if fused else 0
    ids = torch.arange(2 * 37).view(2, 37) * 31 % 4096
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        loss = adapted(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    found = {name: value.grad for name, value in adapted.named_parameters() if value.requires_grad}
    return float(loss.detach()), found, taken


def test_float32_is_the_same_function_with_the_same_gradients(folder: Path) -> None:
    expected, theirs, _ = gradients(folder, False, torch.float32)
    loss, ours, taken = gradients(folder, True, torch.float32)
    assert taken == 14
    assert loss == pytest.approx(expected, abs=1e-5)
    assert ours.keys() == theirs.keys()
    for name, gradient in theirs.items():
        torch.testing.assert_close(ours[name], gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_16_bits_are_no_further_from_float32_than_before(folder: Path, kind: torch.dtype) -> None:
    """Each rounds; the fused one, which rounds less often, is at least as near."""
    exact, truth, _ = gradients(folder, False, torch.float32)
    before, theirs, _ = gradients(folder, False, kind)
    after, ours, _ = gradients(folder, True, kind)
    assert abs(after - exact) <= abs(before - exact) + 2e-3

    def distance(found: dict[str, torch.Tensor]) -> float:
        return float(sum((found[name] - truth[name]).square().sum() for name in truth) ** 0.5)

    assert distance(ours) <= 1.2 * distance(theirs)


def test_the_frozen_base_is_held_in_bf16_once_and_the_trained_weights_are_not(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.requires_grad_(False)
    get_peft_model(model, LoraConfig(r=2, target_modules=list(MODULES)))
    fuse(model, "default", torch.bfloat16)
    matrices = [m for m in model.modules() if isinstance(m, torch.nn.Linear | torch.nn.Embedding)]
    frozen = {m.weight.dtype for m in matrices if not m.weight.requires_grad}
    assert frozen == {torch.bfloat16}
    assert {value.dtype for value in model.parameters() if value.requires_grad} == {torch.float32}
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert model.model.embed_tokens(torch.tensor([3])).dtype == torch.float32


def test_dropout_is_left_to_peft(folder: Path) -> None:
    assert gradients(folder, True, torch.float32, dropout=0.5)[2] == 0


@pytest.mark.parametrize("rows", [1, 7, 37, 1003])
def test_no_product_reads_memory_that_nobody_wrote(rows: int) -> None:
    """An intermediate width of 688 (21.5 tiles) made NaN of unwritten memory; freed NaN lies about here."""
    base = torch.nn.Sequential()
    base.add_module("down_proj", torch.nn.Linear(688, 256, bias=False))
    base.requires_grad_(False)
    adapted = get_peft_model(base, LoraConfig(r=8, target_modules=["down_proj"]))
    layer = base.down_proj
    torch.nn.init.normal_(layer.lora_B["default"].weight)
    layer.forward = Projections([layer], "default", torch.bfloat16).forward_of(0, layer.forward)
    x = torch.randn(rows, 688, requires_grad=True)
    for _ in range(4):
        freed = [torch.full((size,), float("nan")).bfloat16() for size in (10**6, 10**5, 8000, 2000)]
        del freed
        y = layer(x)
        y.float().sum().backward()
        assert y.isfinite().all()
        assert all(value.grad.isfinite().all() for value in [x, *(p for p in adapted.parameters() if p.requires_grad)])

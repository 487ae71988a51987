"""Fused projections and norms: the same function and the same gradients as PEFT's and Transformers' own."""

from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from capibara_assets.modeling.fused.layers import fuse, one_kernel_norm
from capibara_assets.modeling.fused.projections import Projections
from capibara_assets_tests.modeling.tiny import MODULES, save_tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, nano: Path) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny"), tokenizer_of=nano, dtype=torch.bfloat16)


# What ran on an H100: benchmarks/RESULTS.md.
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")),
]


def gradients(
    folder: Path, fused: bool, dtype: torch.dtype, dropout: float = 0.0, device: str = "cpu"
) -> tuple[float, dict[str, torch.Tensor], int]:
    attention = "eager" if device == "cpu" else "sdpa"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention)
    model.to(device)
    model.requires_grad_(False)
    torch.manual_seed(1)
    adapted = get_peft_model(model, LoraConfig(r=3, lora_alpha=5, lora_dropout=dropout, target_modules=list(MODULES)))
    for name, value in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(value, std=0.1)
    taken = fuse(model, "default", dtype) if fused else 0
    ids = torch.arange(2 * 37, device=device).view(2, 37) * 31 % 4096
    with torch.autocast(device, dtype, enabled=dtype != torch.float32):
        loss = adapted(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    found = {name: value.grad.cpu() for name, value in adapted.named_parameters() if value.requires_grad}
    return float(loss.detach()), found, taken


@pytest.mark.parametrize("device", DEVICES)
def test_float32_is_the_same_function_with_the_same_gradients(folder: Path, device: str) -> None:
    expected, theirs, _ = gradients(folder, False, torch.float32, device=device)
    loss, ours, taken = gradients(folder, True, torch.float32, device=device)
    assert taken == 14
    assert loss == pytest.approx(expected, abs=1e-5)
    assert ours.keys() == theirs.keys()
    for name, gradient in theirs.items():
        torch.testing.assert_close(ours[name], gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_16_bits_are_no_further_from_float32_than_before(folder: Path, kind: torch.dtype, device: str) -> None:
    """Each rounds; the fused one, which rounds less often, is at least as near."""
    exact, truth, _ = gradients(folder, False, torch.float32, device=device)
    before, theirs, _ = gradients(folder, False, kind, device=device)
    after, ours, _ = gradients(folder, True, kind, device=device)
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


def test_the_norm_of_one_kernel_is_transformers_own_and_rounds_less_often() -> None:
    norm = LlamaRMSNorm(64, eps=1e-5).requires_grad_(False)
    norm.weight.uniform_(0.5, 2.0)

    def result(fused: bool, kind: torch.dtype) -> torch.Tensor:
        x = torch.randn(3, 5, 64, generator=torch.Generator().manual_seed(1)).to(kind).requires_grad_()
        norm.to(kind)
        y = one_kernel_norm(norm.weight, norm.variance_epsilon, x) if fused else norm(x)
        assert y.dtype == kind
        y.float().square().sum().backward()
        return torch.cat([y.detach().float(), x.grad.float()])

    truth = result(False, torch.float32)
    torch.testing.assert_close(result(True, torch.float32), truth)
    after, before = ((result(fused, torch.bfloat16) - truth).norm() for fused in (True, False))
    assert after <= before


def test_a_model_may_change_a_projection_in_place(folder: Path) -> None:
    """As those do that clip queries, keys and values."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.requires_grad_(False)
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=list(MODULES)))
    fuse(model, "default", torch.float32)
    clipped = [module for name, module in model.named_modules() if name.endswith("k_proj")]
    for module in clipped:
        module.register_forward_hook(lambda _module, _inputs, output: output.clamp_(-0.1, 0.1))
    ids = torch.arange(20).view(1, 20)
    adapted(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    assert clipped and all(module.lora_B["default"].weight.grad.isfinite().all() for module in clipped)


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

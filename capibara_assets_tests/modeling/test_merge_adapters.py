"""Merges of adapters that PEFT wrote and reads: what it merges into the base itself is the yardstick."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, applied, read_adapter, write_adapter
from capibara_assets.modeling.low_rank import inner_products, merge_adapters


@pytest.fixture(scope="module")
def llama() -> nn.Module:
    torch.manual_seed(1)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=50,
            hidden_size=24,
            intermediate_size=40,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            initializer_range=0.3,
        )
    ).eval()


@pytest.fixture(scope="module")
def gpt2() -> nn.Module:
    torch.manual_seed(2)
    return GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=24, n_layer=2, n_head=2, n_positions=32)).eval()


def saved(model: nn.Module, folder: Path, seed: int, **settings: Any) -> Path:
    """An adapter as PEFT writes it, all its numbers moved away from their start."""
    torch.manual_seed(seed)
    adapted = get_peft_model(copy.deepcopy(model), LoraConfig(task_type="CAUSAL_LM", **settings))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_magnitude" in name:
                parameter.mul_(1 + 0.3 * torch.randn_like(parameter))
            elif parameter.requires_grad:
                parameter.copy_(0.3 * torch.randn_like(parameter))
    adapted.save_pretrained(folder)
    return folder


def weights_with(model: nn.Module, folder: Path) -> dict[str, torch.Tensor]:
    """The base's weights with an adapter merged in by PEFT."""
    merged = PeftModel.from_pretrained(copy.deepcopy(model), folder).merge_and_unload()
    return {name: value.double() for name, value in merged.state_dict().items()}


def distance(model: nn.Module, folders: Sequence[Path], weights: Sequence[float], result: Path) -> tuple[float, float]:
    """How far a merge is from the sum of weight * change: the largest difference, and Frobenius relative to the sum."""
    base = {name: value.double() for name, value in model.state_dict().items()}
    right = {name: torch.zeros_like(value) for name, value in base.items()}
    for folder, weight in zip(folders, weights, strict=True):
        for name, value in weights_with(model, folder).items():
            right[name] += weight * (value - base[name])
    found = weights_with(model, result)
    apart = {name: found[name] - base[name] - right[name] for name in base}
    squares = sum(float(value.square().sum()) for value in apart.values())
    whole = sum(float(value.square().sum()) for value in right.values())
    return max(float(value.abs().max()) for value in apart.values()), (squares / whole) ** 0.5


LLAMA = [
    {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]},
    {"r": 2, "lora_alpha": 3, "target_modules": ["q_proj", "down_proj"], "use_rslora": True},
    {
        "r": 3,
        "lora_alpha": 6,
        "target_modules": ["q_proj", "v_proj", "up_proj"],
        "rank_pattern": {"v_proj": 5, r"layers\.1\..*up_proj": 1},
        "alpha_pattern": {"layers.1.self_attn.q_proj": 20},
        "layers_to_transform": [1],
    },
]
DORA = [
    {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], "use_dora": True},
    {"r": 2, "lora_alpha": 3, "target_modules": ["q_proj", "down_proj"], "use_dora": True, "use_rslora": True},
    {"r": 3, "lora_alpha": 6, "target_modules": ["q_proj", "v_proj"]},
]
CONV1D = [
    {"r": 4, "lora_alpha": 8, "target_modules": ["c_attn"], "fan_in_fan_out": True},
    {"r": 2, "lora_alpha": 8, "target_modules": ["c_attn", "c_fc"], "fan_in_fan_out": True},
]
CONV1D_DORA = [{**settings, "use_dora": True} for settings in CONV1D]


@pytest.mark.parametrize(
    ("kind", "settings", "weights"),
    [
        ("llama", LLAMA, [0.5, 0.3, 0.2]),
        ("llama", LLAMA, [1.0, -0.7, 0.0]),
        ("llama", DORA, [0.5, 0.3, 0.2]),
        ("llama", DORA, [0.8, -0.4, 0.3]),
        ("gpt2", CONV1D, [0.6, 0.4]),
        ("gpt2", CONV1D_DORA, [0.6, 0.4]),
    ],
    ids=["lora", "negative-and-zero", "dora", "dora-negative", "conv1d", "conv1d-dora"],
)
def test_peft_computes_the_sum_of_the_changes(
    kind: str,
    settings: list[dict[str, Any]],
    weights: list[float],
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    model: nn.Module = request.getfixturevalue(kind)
    folders = [saved(model, tmp_path / str(n), n, **own) for n, own in enumerate(settings)]
    merged = merge_adapters(folders, weights, base=model)
    assert merged.relative_error == 0.0
    write_adapter(merged, tmp_path / "merged")
    largest, _ = distance(model, folders, weights, tmp_path / "merged")
    assert largest < 2e-6
    ids = torch.arange(12)[None]
    torch.manual_seed(0)
    with torch.no_grad():
        theirs = PeftModel.from_pretrained(copy.deepcopy(model), tmp_path / "merged").eval()(ids).logits
        unmerged = copy.deepcopy(model)
        unmerged.load_state_dict({n: v.float() for n, v in weights_with(model, tmp_path / "merged").items()})
        assert torch.allclose(theirs, unmerged(ids).logits, atol=1e-4)
        if not merged.is_dora:
            with applied(model, read_adapter(tmp_path / "merged")):
                assert torch.allclose(theirs, model(ids).logits, atol=1e-4)


@pytest.mark.parametrize("settings", [LLAMA, DORA], ids=["lora", "dora"])
def test_a_smaller_rank_says_what_it_lost(settings: list[dict[str, Any]], llama: nn.Module, tmp_path: Path) -> None:
    folders = [saved(llama, tmp_path / str(n), n, **own) for n, own in enumerate(settings)]
    errors = []
    for rank in (1, 3, 5, 20):
        merged = merge_adapters(folders, [0.5, 0.3, 0.2], rank, base=llama)
        assert max(merged.rank(module) for module in merged.modules) <= rank
        write_adapter(merged, tmp_path / f"rank{rank}")
        _, relative = distance(llama, folders, [0.5, 0.3, 0.2], tmp_path / f"rank{rank}")
        assert merged.relative_error == pytest.approx(relative, abs=1e-6)
        errors.append(relative)
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-6


def test_dora_needs_the_base(llama: nn.Module, tmp_path: Path) -> None:
    folders = [saved(llama, tmp_path / str(n), n, **own) for n, own in enumerate(DORA)]
    with pytest.raises(ValueError, match=r"an adapter is a DoRA: .* merge_adapters\(\.\.\., base=model\)"):
        merge_adapters(folders, [0.5, 0.3, 0.2])
    adapter = read_adapter(folders[0], dora=True)
    with pytest.raises(InputError, match="DoRA's change of a weight depends on that weight"):
        adapter.deltas()
    with pytest.raises(InputError, match="DoRA"):
        inner_products([adapter])
    with pytest.raises(InputError, match="use_dora set: such an adapter is more than"):
        read_adapter(folders[0])
    with pytest.raises(InputError, match="the base model has no module"):
        merge_adapters(folders, [0.5, 0.3, 0.2], base=nn.Linear(2, 2))


def test_a_row_that_nothing_is_left_of() -> None:
    """A magnitude of zero takes the row away, and no DoRA can put anything else there."""
    base = nn.Sequential(nn.Linear(3, 2, bias=False))
    tensors = {
        "base_model.model.0.lora_A.weight": torch.ones(1, 3),
        "base_model.model.0.lora_B.weight": torch.zeros(2, 1),
        "base_model.model.0.lora_magnitude_vector": torch.tensor([0.0, 1.0]),
    }
    config = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "use_dora": True}
    with pytest.raises(ValueError, match="these weights cancel row 0 of the base"):
        merge_adapters([LoraAdapter(config, tensors)], [1.0], base=base)
    with torch.no_grad():
        base[0].weight[1] = 0
    with pytest.raises(ValueError, match="row 1 of the weight with its LoRA is zero"):
        merge_adapters([LoraAdapter(config, tensors)], [0.5], base=base)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"bias": "all"}, "bias"),
        ({"lora_bias": True}, "lora_bias"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights=pissa"),
        ({"trainable_token_indices": [1, 2]}, "trainable_token_indices"),
        ({"target_modules": ["q_proj", "embed_tokens"]}, "lora_embedding_A"),
    ],
)
def test_what_is_more_than_its_pairs_is_refused_by_name(
    settings: dict[str, Any], words: str, llama: nn.Module, gpt2: nn.Module, tmp_path: Path
) -> None:
    model = gpt2 if "lora_bias" in settings else llama
    modules = ["c_attn"] if model is gpt2 else ["q_proj"]
    folder = saved(model, tmp_path / "odd", 0, **{"r": 2, "target_modules": modules, **settings})
    with pytest.raises(InputError, match=words):
        merge_adapters([folder], [1.0])


def of(rank: int, *modules: str, stated: int | None = None, out: int = 5) -> LoraAdapter:
    random = torch.Generator().manual_seed(rank)
    tensors = {}
    for module in modules:
        tensors[f"base_model.model.{module}.lora_A.weight"] = torch.randn(rank, 4, generator=random)
        tensors[f"base_model.model.{module}.lora_B.weight"] = torch.randn(out, rank, generator=random)
    return LoraAdapter({"peft_type": "LORA", "r": stated or rank, "lora_alpha": 4}, tensors)


def test_factors_that_do_not_fit() -> None:
    with pytest.raises(InputError, match="adapter 0: the rank of l is 3, its factors have 2"):
        merge_adapters([of(2, "l", stated=3)], [1.0])
    with pytest.raises(ValueError, match=r"different shapes, \[\(5, 4\), \(6, 4\)\]"):
        merge_adapters([of(2, "l"), of(2, "l", out=6)], [0.5, 0.5])
    with pytest.raises(ValueError, match="weights have to be finite"):
        merge_adapters([of(2, "l")], [float("nan")])
    with pytest.raises(ValueError, match="a rank has to be 1 at least, not 0"):
        merge_adapters([of(2, "l")], [1.0], 0)
    with pytest.raises(ValueError, match="no rank is given for module m"):
        merge_adapters([of(2, "l", "m")], [1.0], {"l": 1})
    odd = of(2, "l")
    odd.tensors["base_model.model.l.bias"] = torch.ones(5)
    with pytest.raises(InputError, match=r"adapter 0: not LoRA pairs only: base_model\.model\.l\.bias"):
        merge_adapters([odd], [1.0])


def test_modules_whose_names_end_alike_keep_their_ranks() -> None:
    """PEFT's patterns match ends of names: a rank for `fc` must not be one for `head.fc`."""
    adapters = [of(2, "fc", "head.fc", "a", "b"), of(3, "fc"), of(1, "a", "b", "head.fc")]
    merged = merge_adapters(adapters, [0.2, 0.3, 0.5])
    assert {module: merged.rank(module) for module in merged.modules} == {"fc": 5, "head.fc": 3, "a": 3, "b": 3}
    for module in merged.modules:
        right = sum(
            weight * adapter.delta(module)
            for adapter, weight in zip(adapters, (0.2, 0.3, 0.5), strict=True)
            if module in adapter.modules
        )
        assert torch.allclose(merged.delta(module), torch.as_tensor(right), atol=1e-5)


@pytest.mark.parametrize("rank", [None, 2])
def test_the_order_does_not_show(rank: int | None) -> None:
    adapters, weights = [of(2, "l", "m"), of(3, "l"), of(4, "m")], [0.2, 0.3, 0.5]
    first = merge_adapters(adapters, weights, rank)
    other = merge_adapters(adapters[::-1], weights[::-1], rank)
    assert first.config == other.config
    assert all(torch.equal(first.tensors[name], other.tensors[name]) for name in first.tensors | other.tensors)


def test_in_half_precision_and_float64() -> None:
    adapter = of(2, "l")
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        same = LoraAdapter(adapter.config, {name: tensor.to(dtype) for name, tensor in adapter.tensors.items()})
        merged = merge_adapters([same, same], [0.5, 0.5], 2)
        assert torch.allclose(merged.delta("l"), same.delta("l"), atol=1e-5)

"""Adapters: PEFT's format in and out, deltas by the formula, and a base that is the same afterwards, bit for bit."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, applied, read_adapter, write_adapter
from capibara_assets.modeling.base import Base, load_base
from capibara_assets.modeling.lora.adapter_configs import loading_problem
from capibara_assets_tests.modeling.tiny import MODULES

IDS = torch.arange(24).reshape(2, 12)


def peft_adapter(base: Base, folder: Path, **options: Any) -> PeftModel:
    """A LoRA adapter that PEFT made and saved, with B not zero."""
    config = LoraConfig(**{"r": 4, "lora_alpha": 12, "target_modules": list(MODULES)} | options)
    torch.manual_seed(3)
    adapted = get_peft_model(base.model, config)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.05)
    adapted.eval().save_pretrained(folder)
    return adapted


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_rslora": True},
        {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"v_proj": 5}},
        {"target_modules": ["v_proj"], "layers_to_transform": [1]},
    ],
    ids=["plain", "rslora", "patterns", "one layer"],
)
def test_applied_deltas_give_the_outputs_that_peft_gives(
    tiny: Base, tiny_folder: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    with torch.no_grad():
        expected = peft_adapter(load_base(tiny_folder), tmp_path / "peft", **options)(IDS).logits
        before = tiny.model(IDS).logits
        with applied(tiny.model, read_adapter(tmp_path / "peft")):
            found = tiny.model(IDS).logits
    assert not torch.allclose(expected, before, atol=1e-3)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_what_is_written_peft_loads_and_the_bytes_repeat(tiny_folder: Path, tmp_path: Path) -> None:
    with torch.no_grad():
        expected = peft_adapter(load_base(tiny_folder), tmp_path / "peft")(IDS).logits
        adapter = read_adapter(tmp_path / "peft")
        write_adapter(adapter, tmp_path / "one")
        shuffled = LoraAdapter(dict(reversed(adapter.config.items())), dict(reversed(adapter.tensors.items())))
        write_adapter(shuffled, tmp_path / "two")
        loaded = PeftModel.from_pretrained(load_base(tiny_folder).model, tmp_path / "one").eval()
        assert torch.equal(loaded(IDS).logits, expected)
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@given(rank=st.integers(1, 5), alpha=st.floats(0.5, 64), rslora=st.booleans(), seed=st.integers(0, 1000))
def test_delta_is_scale_times_b_times_a(rank: int, alpha: float, rslora: bool, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    a, b = torch.randn(rank, 6, generator=random), torch.randn(3, rank, generator=random)
    adapter = LoraAdapter(
        {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "use_rslora": rslora},
        {"base_model.model.x.lora_A.weight": a, "base_model.model.x.lora_B.weight": b},
    )
    scale = alpha / (math.sqrt(rank) if rslora else rank)
    assert adapter.modules == ("x",)
    torch.testing.assert_close(adapter.delta("x"), scale * (b @ a))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_base_is_the_same_afterwards_bit_for_bit_even_after_an_error(
    tiny_folder: Path, tmp_path: Path, dtype: torch.dtype
) -> None:
    peft_adapter(load_base(tiny_folder), tmp_path / "peft")
    adapter = read_adapter(tmp_path / "peft")
    base = load_base(tiny_folder, dtype=dtype)
    before = {name: value.clone() for name, value in base.model.state_dict().items()}
    with pytest.raises(ZeroDivisionError), applied(base.model, adapter, scale=1e8):
        changed = [name for name, value in base.model.state_dict().items() if not torch.equal(value, before[name])]
        assert {name.removesuffix(".weight") for name in changed} == set(adapter.modules)
        raise ZeroDivisionError
    assert all(torch.equal(value, before[name]) for name, value in base.model.state_dict().items())


def test_gpt2_keeps_its_weights_transposed(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=64, n_embd=16, n_layer=1, n_head=2, n_positions=32)
    model = GPT2LMHeadModel(config).eval()
    delta = torch.randn(48, 16)  # c_attn maps 16 to 48: (out, in)
    with torch.no_grad():
        weight = model.get_submodule("transformer.h.0.attn.c_attn").weight
        assert weight.shape == (16, 48)
        before = weight.clone()
        with applied(model, {"transformer.h.0.attn.c_attn": delta}, scale=0.5):
            torch.testing.assert_close(weight, before + 0.5 * delta.T)
        assert torch.equal(weight, before)


@pytest.mark.parametrize(
    ("deltas", "message"),
    [
        ({"model.layers.9.mlp.up_proj": torch.zeros(64, 32)}, "made for another model"),
        ({"model.layers.0.mlp.up_proj": torch.zeros(32, 64)}, r"the delta is \(32, 64\), the base's weight \(64, 32\)"),
        ({"lm_head": torch.zeros(4096, 32)}, "shares its weight"),
        ({"model.norm": torch.zeros(32, 32)}, "no matrix"),
    ],
)
def test_deltas_that_do_not_fit_are_refused(tiny: Base, deltas: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(InputError, match=message), applied(tiny.model, deltas):
        pass


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"peft_type": "IA3"}, "peft_type"),
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "bias"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
    ],
)
def test_adapters_that_are_more_than_deltas_are_refused(
    tiny: Base, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    peft_adapter(tiny, tmp_path)
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(InputError, match=message):
        read_adapter(tmp_path)


@pytest.mark.parametrize(
    ("part", "shape", "words"),
    [
        ("A", (3, 16), r"lora_A is \(3, \d+\) and lora_B \(\d+, 4\), expected \(r, in\) and \(out, r\)"),
        ("A", (64,), r"lora_A is \(64,\) and lora_B"),
        ("B", (16, 5), r"and lora_B \(16, 5\), expected"),
        ("B", (), r"and lora_B \(\), expected"),
        ("A", (4, 2, 8), r"lora_A is \(4, 2, 8\) and"),
    ],
)
def test_factors_that_have_no_product_are_named(
    part: str, shape: tuple[int, ...], words: str, tiny_folder: Path, tmp_path: Path
) -> None:
    peft_adapter(load_base(tiny_folder), tmp_path)
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    odd = next(name for name in sorted(tensors) if f"lora_{part}" in name)
    save_file(tensors | {odd: torch.ones(shape)}, tmp_path / "adapter_model.safetensors")
    module = odd.removeprefix("base_model.model.").partition(".lora")[0]
    with pytest.raises(InputError, match=rf"adapter_config\.json: of {module} .*{words}"):
        read_adapter(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"r": 3}, r"the rank of .* is 3, its factors have 4"),
        ({"rank_pattern": {"q_proj": 2}}, r"the rank of .*q_proj is 2, its factors have 4"),
        ({"use_rslora": "no"}, "use_rslora is 'no', expected true or false"),
        ({"fan_in_fan_out": 1}, "fan_in_fan_out is 1, expected true or false"),
        ({"lora_dropout": "x"}, "lora_dropout is 'x', expected a number from 0 to 1"),
        ({"lora_dropout": 1.5}, "lora_dropout is 1.5"),
        ({"layers_to_transform": "x"}, "layers_to_transform is 'x', expected numbers of layers"),
        ({"layers_to_transform": [0, True]}, r"layers_to_transform is \[0, True\]"),
    ],
)
def test_a_config_that_is_not_its_tensors_is_refused(
    change: dict[str, Any], words: str, tiny_folder: Path, tmp_path: Path
) -> None:
    peft_adapter(load_base(tiny_folder), tmp_path)
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(InputError, match=words):
        read_adapter(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text[:-1] + ', "r": 1}', "ambiguous: 'r' is there twice"),
        (lambda text: text[:-1] + ', "lora_alpha": 400}', "ambiguous: 'lora_alpha' is there twice"),
        (lambda text: "\ufeff" + text, "byte order mark"),
        (lambda text: text.replace("LORA", "EVIL"), "peft_type is 'EVIL', expected 'LORA'"),
    ],
)
def test_a_config_that_programs_read_differently_is_refused(
    change: Callable[[str], str], words: str, tiny_folder: Path, tmp_path: Path
) -> None:
    peft_adapter(load_base(tiny_folder), tmp_path)
    file = tmp_path / "adapter_config.json"
    file.write_text(change(file.read_text().strip()), "utf-8")
    with pytest.raises(InputError, match=rf"adapter_config\.json(: | is ).*{words}"):
        read_adapter(tmp_path)


def test_an_a_without_its_b_and_a_missing_file_are_named(tiny: Base, tmp_path: Path) -> None:
    peft_adapter(tiny, tmp_path / "peft")
    adapter = read_adapter(tmp_path / "peft")
    gone = next(name for name in adapter.tensors if "lora_B" in name)
    write_adapter(
        LoraAdapter(adapter.config, {k: v for k, v in adapter.tensors.items() if k != gone}), tmp_path / "half"
    )
    with pytest.raises(InputError, match=gone):
        read_adapter(tmp_path / "half")
    (tmp_path / "half" / "adapter_config.json").unlink()
    with pytest.raises(InputError, match=r"adapter_config\.json is missing"):
        read_adapter(tmp_path / "half")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"r": 0}, "r is 0"),
        ({"r": "8"}, "r is '8'"),
        ({"r": 10**400}, "r is 1000"),
        ({"lora_alpha": math.nan}, "lora_alpha is nan"),
        ({"lora_alpha": None}, "lora_alpha is None"),
        ({"rank_pattern": ["q_proj"]}, "rank_pattern is no object"),
        ({"alpha_pattern": {"((((": 4}}, "which is no module's name"),
    ],
)
def test_a_config_by_which_nothing_can_be_computed_is_refused(
    tmp_path: Path, values: dict[str, Any], words: str
) -> None:
    name = "base_model.model.lm_head.lora_{}.weight"
    write_adapter(LoraAdapter({}, {name.format("A"): torch.ones(4, 8), name.format("B"): torch.ones(8, 4)}), tmp_path)
    plain = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["lm_head"]}
    (tmp_path / "adapter_config.json").write_text(json.dumps(plain))
    assert read_adapter(tmp_path).scale("lm_head") == 2
    (tmp_path / "adapter_config.json").write_text(json.dumps(plain | values))
    with pytest.raises(InputError, match=re.escape(words)):
        read_adapter(tmp_path)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"megatron_config": {"a": 1}, "megatron_core": "os"}, "megatron_config is set"),
        ({"layer_replication": [[0, 10**9]]}, "layer_replication is set"),
        ({"r": 1 << 40}, "a rank of 1099511627776 is stated, the tensors have 4"),
        ({"rank_pattern": {"q_proj": 1 << 30}}, "a rank of 1073741824 is stated"),
        ({"target_modules": "((a|[a-z_.0-9])+)+X$"}, "list their names"),
        ({"exclude_modules": ".*.*.*.*.*.*X"}, "list their names"),
        ({"rank_pattern": {"((a|[a-z_.0-9])+)+X": 4}}, "list their names"),
    ],
)
def test_what_peft_would_run_build_or_match_for_ever(values: dict[str, Any], words: str) -> None:
    plain = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "bias": "all"}
    assert loading_problem(plain | {"target_modules": r".*\.(q_proj|v_proj)$"}, 4) == ""
    assert loading_problem(plain | {"target_modules": "all-linear", "megatron_core": "megatron.core"}, 4) == ""
    assert words in loading_problem(plain | values, 4)

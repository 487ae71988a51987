"""What is found out about an adapter before anyone computes with it."""

from pathlib import Path

import pytest
import torch
from torch import nn

from capibara_assets.checkpoints.inspect.verify import adapter_digest, attest, delta_norm, module_shapes
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, write_adapter

SHAPES = {"block.up": (6, 5), "block.down": (5, 6)}


def adapter(rank: int = 2, shapes: dict[str, tuple[int, int]] = SHAPES, seed: int = 0, **config: object) -> LoraAdapter:
    random = torch.Generator().manual_seed(seed)
    tensors = {}
    for module, (rows, columns) in shapes.items():
        tensors[f"base_model.model.{module}.lora_A.weight"] = torch.randn(rank, columns, generator=random)
        tensors[f"base_model.model.{module}.lora_B.weight"] = torch.randn(rows, rank, generator=random)
    return LoraAdapter({"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, **config}, tensors)


def with_tensor(source: LoraAdapter, name: str, value: torch.Tensor) -> LoraAdapter:
    return LoraAdapter(source.config, {**source.tensors, f"base_model.model.{name}.weight": value})


@pytest.mark.parametrize("rslora", [False, True])
def test_a_sound_adapter_and_its_norm(rslora: bool) -> None:
    sound = adapter(use_rslora=rslora)
    found = attest(sound, SHAPES)
    dense = torch.cat([sound.delta(module).flatten() for module in SHAPES])
    assert found.problems == ()
    assert found.norm == pytest.approx(float(dense.double().norm()), rel=1e-6)
    assert delta_norm(sound) == found.norm


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_one_number_that_is_not_finite_is_enough(bad: float) -> None:
    sound = adapter()
    b = sound.b("block.up").clone()
    b[5, 1] = bad
    found = attest(with_tensor(sound, "block.up.lora_B", b), SHAPES)
    assert found.norm is None
    assert found.problems == (
        "not finite: 1 of 4 tensors hold NaN or Inf, first base_model.model.block.up.lora_B.weight",
    )


def test_a_change_beyond_float64_is_not_finite() -> None:
    huge = LoraAdapter(adapter().config, {n: t.double() * 1e200 for n, t in adapter().tensors.items()})
    assert attest(huge, SHAPES).problems == ("not finite: the weight change overflows float64",)


def test_modules_shapes_and_ranks() -> None:
    sound = adapter()
    assert "modules missing: block.gate" in attest(sound, {**SHAPES, "block.gate": (2, 2)}).problems[0]
    assert "not to be adapted: block.down" in attest(sound, {"block.up": (6, 5)}).problems[0]
    assert "A is (2, 5), B is (6, 2), the weight is (7, 5)" in attest(sound, {**SHAPES, "block.up": (7, 5)}).problems[0]
    assert "block.down: rank 6 is beyond the weight (5, 6)" in attest(adapter(rank=6), SHAPES).problems[0]
    odd = with_tensor(sound, "block.up.lora_A", torch.ones(3, 5))
    assert "A is (3, 5), B is (6, 2)" in attest(odd, SHAPES).problems[0]


def test_shapes_come_from_the_model() -> None:
    block = nn.ModuleDict({"up": nn.Linear(5, 6), "down": nn.Linear(6, 5), "norm": nn.LayerNorm(5)})
    model = nn.ModuleDict({"block": block})
    assert module_shapes(model, ("block.up", "block.down", "block.norm", "other")) == SHAPES


def test_the_digest_is_of_config_and_weights(tmp_path: Path) -> None:
    write_adapter(adapter(), tmp_path)
    first = adapter_digest(tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    assert adapter_digest(tmp_path) == first
    write_adapter(adapter(lora_dropout=0.5), tmp_path)
    assert adapter_digest(tmp_path) != first, "alpha and rank decide the delta, so the config counts"
    (tmp_path / "adapter_config.json").unlink()
    with pytest.raises(InputError, match=r"adapter_config\.json is missing"):
        adapter_digest(tmp_path)

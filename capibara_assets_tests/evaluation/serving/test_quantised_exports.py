"""Models in few bits: they load with Transformers, as near as their bits allow, and GPTQ is nearer than rounding."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM

from capibara_assets.errors import InputError
from capibara_assets.evaluation.serving.quantised_exports import KINDS, export, exporter, rounded
from capibara_assets.modeling.base import load_base
from capibara_assets_tests.modeling.tiny import save_tiny


def four_bits(bits: int = 4) -> SimpleNamespace:
    return SimpleNamespace(quantization_scheme=SimpleNamespace(weights=SimpleNamespace(num_bits=bits)))


@pytest.mark.parametrize("seed", range(5))
def test_gptq_loses_less_of_what_the_layer_gives_than_rounding(seed: int):
    torch.manual_seed(seed)
    inputs = torch.randn(400, 8, dtype=torch.float64) @ torch.randn(8, 160, dtype=torch.float64)  # columns go together
    weight = torch.randn(24, 160)
    scale = weight.abs().amax(dim=1, keepdim=True) / 7.5
    nearest = (weight / scale).round().clamp(-8, 7) * scale
    found = rounded(weight, inputs.T @ inputs, scale, four_bits())
    assert torch.equal((found / scale).round(), (found / scale).round().clamp(-8, 7))
    torch.testing.assert_close((found / scale).round() * scale, found, atol=1e-5, rtol=1e-5)  # on the grid

    def lost(one: torch.Tensor) -> float:
        return float(((weight - one).double() @ inputs.T).square().sum())

    assert lost(found) < 0.5 * lost(nearest)


def test_inputs_that_do_not_go_together_are_rounded_to_the_nearest():
    weight = torch.randn(6, 130, generator=torch.Generator().manual_seed(1))
    scale = weight.abs().amax(dim=1, keepdim=True) / 7
    expected = (weight / scale).round().clamp(-8, 7) * scale
    torch.testing.assert_close(rounded(weight, torch.eye(130, dtype=torch.float64), scale, four_bits()), expected)


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory, nano: Path) -> Path:
    return save_tiny(tmp_path_factory.mktemp("plain"), tokenizer_of=nano)


def logits(folder: Path) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        return model(input_ids=torch.tensor([[7, 9, 200, 31, 5, 80, 3, 15]])).logits.float()


def test_each_kind_loads_and_generates_and_more_bits_are_nearer(tiny_model: Path, tmp_path: Path):
    pytest.importorskip("compressed_tensors")
    plain, off = logits(tiny_model), {}
    for kind in KINDS:
        said = exporter(kind)(tiny_model, tmp_path / kind)
        assert said["layers"] == 14 and said["rounding"] == "nearest" and said["bytes"] < said["bytes_before"]
        off[kind] = float((logits(tmp_path / kind) - plain).square().mean() / plain.square().mean())
        base = load_base(tmp_path / kind)
        ids = torch.tensor([base.tokenizer("select name")["input_ids"]])
        with torch.no_grad():
            assert base.model.generate(ids, max_new_tokens=2, do_sample=False).shape[1] > ids.shape[1]
    assert off["int8"] < 1e-3 < off["int4"] < 0.2


def test_calibrated_exports_are_the_same_bytes_and_say_so(tiny_model: Path, tmp_path: Path):
    pytest.importorskip("compressed_tensors")
    texts = ["select name from orders where id = 3", "def reverse(items): return items[::-1]"]
    said = export(tiny_model, tmp_path / "one", kind="int4", texts=texts)
    export(tiny_model, tmp_path / "two", kind="int4", texts=texts)
    assert (said["rounding"], said["calibration_texts"]) == ("gptq", 2)
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two and torch.isfinite(logits(tmp_path / "one")).all()
    with pytest.raises(InputError, match="none of the calibration texts has a token"):
        export(tiny_model, tmp_path / "three", kind="int4", texts=[""])


def test_without_the_library_it_says_what_to_install(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "compressed_tensors.quantization", None)
    with pytest.raises(InputError, match=r"need compressed-tensors: pip install 'capibara-assets\[serving\]'"):
        export(tiny_model, tmp_path / "out", kind="int8")
    assert not (tmp_path / "out").exists()

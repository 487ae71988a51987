"""Merging into 8 and 4 bits: what PEFT makes of it, said aloud, and the base as it was afterwards."""

import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

from capibara_assets.consensus.merging.experts_merge import ExpertsMerge, write_merged
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import applied, read_adapter
from capibara_assets.modeling.base import Base, load_base
from capibara_assets.modeling.quantised import QuantisedMergeWarning, is_quantised, plain_weight
from capibara_assets_tests.late import late

late("bitsandbytes", reason="bitsandbytes is an extra")

IDS = torch.arange(24).reshape(2, 12)
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
SETTINGS = {
    "4 bits": {
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
    },
    "8 bits": {"load_in_8bit": True},
}


@pytest.fixture(scope="module")
def wide(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model as wide as one block of NF4, which the tiny one is not."""
    folder = tmp_path_factory.mktemp("wide")
    torch.manual_seed(7)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=4096, **sizes, tie_word_embeddings=True)).save_pretrained(folder)
    for name in TOKENIZER:
        shutil.copyfile(tiny_folder / name, folder / name)
    return folder


@pytest.fixture(scope="module", params=list(SETTINGS))
def quantised(request: pytest.FixtureRequest, wide: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, saved in few bits."""
    folder = tmp_path_factory.mktemp("quantised") / str(request.param)
    settings = BitsAndBytesConfig(**SETTINGS[request.param])
    AutoModelForCausalLM.from_pretrained(wide, quantization_config=settings).save_pretrained(folder)
    for name in TOKENIZER:
        shutil.copyfile(wide / name, folder / name)
    return folder


def adapter_for(base: Base, folder: Path, std: float) -> Path:
    torch.manual_seed(3)
    adapted: Any = get_peft_model(base.model, LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "up_proj"]))
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=std)
    adapted.save_pretrained(folder)
    return folder


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(IDS).logits
        return found


def test_a_merge_is_what_peft_makes_of_it_and_it_warns(quantised: Path, tmp_path: Path) -> None:
    adapter = adapter_for(load_base(quantised), tmp_path / "adapter", std=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PEFT's own
        expected = logits(PeftModel.from_pretrained(load_base(quantised).model, adapter).merge_and_unload().eval())
    base = load_base(quantised)
    bits = quantised.name[0]
    with (
        pytest.warns(
            QuantisedMergeWarning, match=f"merging into 4 weights.* in {bits} bits loses.*half a step"
        ) as told,
        applied(base.model, read_adapter(adapter)),
    ):
        found = logits(base.model)
    assert [warning.filename for warning in told if warning.category is QuantisedMergeWarning] == [__file__]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(found, logits(load_base(quantised).model), atol=1e-2)


def test_the_base_is_the_same_afterwards(quantised: Path, tmp_path: Path) -> None:
    adapter = read_adapter(adapter_for(load_base(quantised), tmp_path / "adapter", std=0.5))
    base = load_base(quantised)
    before = logits(base.model)
    found = []
    for _ in range(2):
        with pytest.warns(QuantisedMergeWarning), applied(base.model, adapter):
            found.append(logits(base.model))
        assert torch.equal(logits(base.model), before)
    assert torch.equal(*found)


def test_what_is_smaller_than_half_a_step_is_lost_as_the_warning_says(quantised: Path, tmp_path: Path) -> None:
    adapter = read_adapter(adapter_for(load_base(quantised), tmp_path / "adapter", std=1e-6))
    base = load_base(quantised)
    levels = {module: base.model.get_submodule(module).weight.data.clone() for module in adapter.modules}
    assert all(bool(adapter.delta(module).any()) for module in adapter.modules)
    with pytest.warns(QuantisedMergeWarning, match="gone"), applied(base.model, adapter):
        for module, before in levels.items():
            assert torch.equal(base.model.get_submodule(module).weight.data, before)


def test_a_merged_model_is_written_in_float_as_it_computes(quantised: Path, tmp_path: Path) -> None:
    base = load_base(quantised)
    adapter = read_adapter(adapter_for(load_base(quantised), tmp_path / "adapter", std=0.5))
    with pytest.warns(QuantisedMergeWarning), applied(base.model, adapter):
        expected = {module: plain_weight(base.model.get_submodule(module)) for module in adapter.modules}
    with pytest.warns(QuantisedMergeWarning):
        write_merged(base, ExpertsMerge(adapter.deltas(), {}), tmp_path / "merged")
    written = load_base(tmp_path / "merged").model
    for module, weight in expected.items():
        assert torch.equal(written.get_submodule(module).weight.data, weight)
    with pytest.warns(QuantisedMergeWarning), applied(base.model, adapter):  # computes with fewer digits
        torch.testing.assert_close(logits(base.model), logits(written), atol=0.05, rtol=0.05)
    assert not any(is_quantised(layer) for layer in written.modules())


def test_plain_weights_do_not_warn(tiny: Base, tmp_path: Path, tiny_folder: Path) -> None:
    adapter = read_adapter(adapter_for(load_base(tiny_folder), tmp_path / "adapter", std=0.5))
    with warnings.catch_warnings():
        warnings.simplefilter("error", QuantisedMergeWarning)
        with applied(tiny.model, adapter):
            pass


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int8, torch.uint8])
def test_few_bits_of_an_unknown_kind_are_refused(
    tiny: Base, tmp_path: Path, tiny_folder: Path, dtype: torch.dtype
) -> None:
    adapter = read_adapter(adapter_for(load_base(tiny_folder), tmp_path / "adapter", std=0.5))
    layer = tiny.model.get_submodule(adapter.modules[0])
    layer.weight = torch.nn.Parameter(layer.weight.to(dtype), requires_grad=False)
    refused = pytest.raises(InputError, match=f"is kept as {dtype} by Linear: nothing can be merged into it")
    with refused, applied(tiny.model, adapter):
        pass

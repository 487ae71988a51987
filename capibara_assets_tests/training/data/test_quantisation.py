"""Frozen bases in few bits, and other forms of LoRA: they learn, go on to the bit, and PEFT loads what comes out."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import read_adapter
from capibara_assets.modeling.base import load_base
from capibara_assets.modeling.quantised import QuantisedLoading
from capibara_assets.training.data.voter_run import Interrupted
from capibara_assets_tests.modeling.tiny import save_tiny
from capibara_assets_tests.training.conftest import MakeRequest
from capibara_assets_tests.training.loop.test_train import StopAt, digests, manifest, train

QUIET = {"rank": 2, "alpha": 4, "dropout": 0.0, "use_rslora": False}
ALONE = [{"name": "only", "seed": 0, "shard": 0}]


@pytest.fixture(scope="session")
def wide(tmp_path_factory: pytest.TempPathFactory, nano: Path) -> Path:
    """A base as wide as a block of NF4: 64 weights."""
    folder = save_tiny(tmp_path_factory.mktemp("wide"), nano)
    torch.manual_seed(7)
    config = LlamaConfig(vocab_size=4096, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                         num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=256,
                         initializer_range=0.3, tie_word_embeddings=True, eos_token_id=5)  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    "kind", [*(pytest.param(kind, marks=pytest.mark.extended) for kind in ("bf16", "int8")), "nf4"]
)
def test_it_learns_and_its_weights_are_float32(make_request: MakeRequest, wide: Path, kind: str) -> None:
    events = list[dict[str, Any]]()
    request = make_request(base=wide, quantization=kind, epochs=10, max_steps=24, evaluate_every=12, lora=QUIET)
    result = train(request, events=events)
    found = manifest(result)
    assert found["validation_loss"] < 0.85 * found["base_validation_loss"]
    adapter = read_adapter(result)
    assert all(value.dtype == torch.float32 for value in adapter.tensors.values())
    assert all(bool(adapter.b(module).any()) for module in adapter.modules)  # gradients reach every layer
    assert next(event for event in events if event["event"] == "started")["quantization"] == kind
    assert PeftModel.from_pretrained(load_base(wide).model, result)


@pytest.mark.resume
@pytest.mark.parametrize("kind", [pytest.param("int8", marks=pytest.mark.extended), "nf4"])
def test_stopped_and_resumed_it_is_the_same_to_the_bit(make_request: MakeRequest, wide: Path, kind: str) -> None:
    expected = digests(train(make_request(base=wide, work="whole", quantization=kind, max_steps=5)))
    request, stops = make_request(base=wide, work="stopped", quantization=kind, max_steps=5), 0
    while True:
        try:
            result = train(request, poll=StopAt(11))
            break
        except Interrupted:
            stops += 1
    assert stops > 1 and digests(result) == expected


def test_a_validation_does_not_cut_the_gradient_of_nf4(wide: Path) -> None:
    """bitsandbytes reorders weights in a forward pass without gradients, and has no backward pass for that order."""
    bits = QuantisedLoading.of("nf4", torch.device("cpu"), "fp32")
    model = load_base(wide, quantised=bits).model
    tokens = torch.arange(12)[None]

    def gradient() -> torch.Tensor:
        inputs = model.get_input_embeddings()(tokens).requires_grad_(True)
        (found,) = torch.autograd.grad(model.train()(inputs_embeds=inputs).logits.sum(), inputs)
        return found

    before = gradient()
    with torch.no_grad():
        model.eval()(tokens)
    assert torch.equal(gradient(), before) and bool(before.any())


def test_dora_trains_alone_and_is_refused_among_voters(make_request: MakeRequest) -> None:
    dora = QUIET | {"use_dora": True}
    with pytest.raises(ValueError, match="use_dora with 4 voters: such an adapter is more than"):
        make_request(lora=dora)
    request = make_request(lora=dora, voters=ALONE, learning_rate=0.05)
    result = train(request)
    assert manifest(result)["validation_loss"] < manifest(result)["base_validation_loss"]
    assert PeftModel.from_pretrained(load_base(request.base_model).model, result)
    with pytest.raises(InputError, match="use_dora set"):
        read_adapter(result)


def test_rank_stabilised_lora_trains(make_request: MakeRequest) -> None:
    result = train(make_request(lora=QUIET | {"use_rslora": True}))
    assert read_adapter(result).scale(read_adapter(result).modules[0]) == pytest.approx(4 / 2**0.5)
    assert manifest(result)["validation_loss"] < manifest(result)["base_validation_loss"]


def test_experts_train_and_are_not_read_as_what_they_are_not(
    make_request: MakeRequest, nano: Path, tmp_path: Path
) -> None:
    folder = save_tiny(tmp_path / "mixture", nano)
    torch.manual_seed(1)
    config = MixtralConfig(vocab_size=4096, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
                           num_attention_heads=2, num_key_value_heads=2, num_local_experts=4,
                           initializer_range=0.3)  # fmt: skip
    MixtralForCausalLM(config).save_pretrained(folder)
    lora = QUIET | {"modules": ["q_proj", "v_proj", "experts.gate_up_proj", "experts.down_proj"]}
    with pytest.raises(ValueError, match="experts with 4 voters"):
        make_request(base=folder, lora=lora)
    request = make_request(base=folder, lora=lora, voters=ALONE, learning_rate=0.05)
    result = train(request)
    assert manifest(result)["validation_loss"] < manifest(result)["base_validation_loss"]
    config_of = json.loads((result / "adapter_config.json").read_text())
    assert sorted(config_of["target_parameters"]) == ["experts.down_proj", "experts.gate_up_proj"]
    assert PeftModel.from_pretrained(load_base(folder).model, result)
    with pytest.raises(InputError, match="target_parameters set"):
        read_adapter(result)

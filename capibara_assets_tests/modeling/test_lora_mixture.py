"""Adapters summed as the model runs: what one merged adapter does where one could, prompt by prompt, token by token."""

import pytest
import torch
from torch import Tensor, nn

from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, applied
from capibara_assets.modeling.base import Base
from capibara_assets.modeling.lora_mixture import PromptWeights, TokenGates, mixed
from capibara_assets.modeling.low_rank import merge_adapters

IDS = torch.tensor([[7, 9, 200, 31, 5], [80, 3, 15, 44, 2]])
CONFIG = {"peft_type": "LORA", "bias": "none", "target_modules": ["q_proj", "down_proj"]}


def adapter(model: nn.Module, seed: int, rank: int, leaves: tuple[str, ...]) -> LoraAdapter:
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear) and name.rpartition(".")[2] in leaves:
            out, wide = layer.weight.shape
            tensors[f"base_model.model.{name}.lora_A.weight"] = torch.randn(rank, wide, generator=generator) * 0.3
            tensors[f"base_model.model.{name}.lora_B.weight"] = torch.randn(out, rank, generator=generator) * 0.3
    return LoraAdapter({**CONFIG, "r": rank, "lora_alpha": 2 * rank, "target_modules": list(leaves)}, tensors)


@pytest.fixture
def experts(tiny: Base) -> dict[str, LoraAdapter]:
    return {"sql": adapter(tiny.model, 1, 2, ("q_proj", "down_proj")), "python": adapter(tiny.model, 2, 3, ("q_proj",))}


def logits(model: nn.Module, ids: Tensor = IDS) -> Tensor:
    with torch.no_grad():
        return model(input_ids=ids).logits


def test_weights_alike_for_all_are_the_merged_adapter(tiny: Base, experts: dict[str, LoraAdapter]):
    merged = merge_adapters(list(experts.values()), [0.7, 0.3])
    with applied(tiny.model, merged):
        expected = logits(tiny.model)
    with mixed(tiny.model, experts, PromptWeights(torch.tensor([0.7, 0.3]))):
        torch.testing.assert_close(logits(tiny.model), expected, atol=2e-4, rtol=1e-4)


def test_each_prompt_has_its_own_weights(tiny: Base, experts: dict[str, LoraAdapter]):
    plain = logits(tiny.model)
    with applied(tiny.model, experts["python"]):
        python = logits(tiny.model)
    with mixed(tiny.model, experts, PromptWeights(torch.tensor([[0.0, 1.0], [0.0, 0.0]]))):
        found = logits(tiny.model)
    torch.testing.assert_close(found[0], python[0], atol=2e-4, rtol=1e-4)
    torch.testing.assert_close(found[1], plain[1])
    torch.testing.assert_close(logits(tiny.model), plain, atol=0, rtol=0)  # nothing is left behind


def test_gates_that_cannot_tell_mix_half_and_half(tiny: Base, experts: dict[str, LoraAdapter]):
    with applied(tiny.model, merge_adapters(list(experts.values()), [0.5, 0.5])):
        expected = logits(tiny.model)
    with mixed(tiny.model, experts, TokenGates([torch.zeros(2, 32)] * 2)):
        torch.testing.assert_close(logits(tiny.model), expected, atol=2e-4, rtol=1e-4)


def test_tokens_have_weights_of_their_own(tiny: Base, experts: dict[str, LoraAdapter]):
    """A gate that separates two tokens by their embeddings: the first layer's first token is one expert's alone."""
    states = tiny.model.get_input_embeddings()(IDS[:1])[0].detach()
    row = 60 * (states[0] - states[1]) / (states[0] - states[1]).square().sum()
    token = TokenGates([torch.stack([row, -row])] * 2)
    with token.install(tiny.model), torch.no_grad():
        tiny.model(input_ids=IDS[:1])
        weights = token.of("model.layers.0.self_attn.q_proj", states)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(1, 5))
    assert abs(float(weights[0, 0, 0] - weights[0, 1, 0])) > 0.9


def test_of_the_best_gate_alone_one_expert_answers_each_token(tiny: Base, experts: dict[str, LoraAdapter]):
    torch.manual_seed(3)
    token = TokenGates([torch.randn(2, 32)] * 2, top=1)
    with token.install(tiny.model), torch.no_grad():
        tiny.model(input_ids=IDS)
        weights = token.of("model.layers.1.mlp.down_proj", IDS)
    assert set(weights.flatten().tolist()) == {0.0, 1.0}


def test_generating_with_a_cache_gives_what_reading_at_once_gives(tiny: Base, experts: dict[str, LoraAdapter]):
    torch.manual_seed(3)
    token = TokenGates([torch.randn(2, 32) for _ in range(2)])
    with mixed(tiny.model, experts, token), torch.no_grad():
        written = tiny.model.generate(
            IDS[:1],
            attention_mask=torch.ones(1, 5, dtype=torch.long),
            max_new_tokens=6,
            do_sample=False,
            eos_token_id=None,
        )
        again = logits(tiny.model, written)
    assert written[0, 5:].tolist() == again[0, 4:-1].argmax(dim=-1).tolist()


def test_what_does_not_fit_is_refused(tiny: Base, experts: dict[str, LoraAdapter]):
    with pytest.raises(InputError, match="nothing to mix"), mixed(tiny.model, {}, PromptWeights(torch.ones(0))):
        pass
    three = TokenGates([torch.zeros(2, 32)] * 3)
    with pytest.raises(InputError, match="gates of 3 layers for a model of 2"), mixed(tiny.model, experts, three):
        pass
    with (
        mixed(tiny.model, experts, PromptWeights(torch.ones(3, 2))),
        pytest.raises(ValueError, match="3 prompts for a batch"),
    ):
        logits(tiny.model)
    wrong = {"x": LoraAdapter({**CONFIG, "r": 1, "lora_alpha": 1}, {
        "base_model.model.model.layers.0.mlp.down_proj.lora_A.weight": torch.ones(1, 3),
        "base_model.model.model.layers.0.mlp.down_proj.lora_B.weight": torch.ones(32, 1),
    })}  # fmt: skip
    with (
        pytest.raises(InputError, match=r"the adapters fit \(32, 3\)"),
        mixed(tiny.model, wrong, PromptWeights(torch.ones(1))),
    ):
        pass
    other = {"x": LoraAdapter({**CONFIG, "r": 1, "lora_alpha": 1}, {
        "base_model.model.h.0.lora_A.weight": torch.ones(1, 3), "base_model.model.h.0.lora_B.weight": torch.ones(3, 1),
    })}  # fmt: skip
    with (
        pytest.raises(InputError, match=r"has no module 'h\.0'"),
        mixed(tiny.model, other, PromptWeights(torch.ones(1))),
    ):
        pass
    dora = {"x": LoraAdapter({**CONFIG, "r": 1, "lora_alpha": 1, "use_dora": True}, {})}
    with pytest.raises(InputError, match="DoRA"), mixed(tiny.model, dora, PromptWeights(torch.ones(1))):
        pass

"""Mixing by a router: what it is sure of, it gets; what it does not know, the base answers; tokens choose too."""

from pathlib import Path

import pytest
import torch

from capibara_assets.errors import InputError
from capibara_assets.evaluation.routing.mixing import mixed_adapter, prompt_weights, token_gates
from capibara_assets.evaluation.routing.router import Router, train_router
from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.modeling.base import Base, load_base
from capibara_assets.modeling.lora_mixture import mixed
from capibara_assets_tests.evaluation.routing.test_router import ASKED, MANY, calibrating
from capibara_assets_tests.modeling.test_lora_mixture import adapter

KNOWN, STRANGE = ASKED["sql"].format("tables"), "Wie wird das Wetter in Lissabon?"


@pytest.fixture(scope="module")
def base(nano: Path) -> Base:
    return load_base(nano)


@pytest.fixture(scope="module")
def experts(base: Base) -> dict[str, LoraAdapter]:
    return {name: adapter(base.model, seed, 2, ("q_proj",)) for seed, name in enumerate(sorted(ASKED))}


@pytest.fixture(scope="module")
def router() -> Router:
    return train_router(calibrating(*ASKED), list(ASKED), seed=1)


def test_a_prompts_adapter_is_the_weighted_sum_of_its_best(router: Router, experts: dict[str, LoraAdapter]):
    [shares] = router.shares([KNOWN], 2)
    found = mixed_adapter(router, experts, KNOWN)
    assert found is not None and found.relative_error == 0.0
    module = found.modules[0]
    expected = sum(share * experts[name].delta(module) for name, share in shares.items())
    torch.testing.assert_close(found.delta(module), expected, atol=1e-5, rtol=1e-4)
    assert mixed_adapter(router, experts, STRANGE) is None
    with pytest.raises(InputError, match="which is not among the experts given: javascript"):
        mixed_adapter(router, {"javascript": experts["javascript"]}, KNOWN)


def test_a_batch_has_a_row_of_weights_per_prompt(router: Router, experts: dict[str, LoraAdapter]):
    values = prompt_weights(router, experts, [KNOWN, STRANGE], top=1).values
    assert values.tolist() == [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]


def test_gates_learn_whose_tokens_are_whose(base: Base, experts: dict[str, LoraAdapter]):
    prompts = {name: [ASKED[name].format(noun) for noun in MANY[:12]] for name in experts}
    gates = token_gates(base, prompts)
    right = []
    with mixed(base.model, experts, gates), torch.no_grad():
        for place, name in enumerate(experts):
            ids = torch.tensor([base.tokenizer(ASKED[name].format("candles and spoons"))["input_ids"]])
            base.model(input_ids=ids)
            right.append((gates.of("model.layers.5.self_attn.q_proj", ids)[0].argmax(dim=-1) == place).float().mean())
    assert min(right) > 0.5  # chance is a third
    with pytest.raises(InputError, match="no prompts for sql"):
        token_gates(base, {**prompts, "sql": []})

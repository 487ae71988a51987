"""DeepSpeed's JSON: generated from the recipe; a user's own says the same or `auto`, or each difference is named."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.errors import InputError
from capibara_assets.training.parallel.deepspeed_config import engine_config, recipe_config, require_same
from capibara_assets.training.step.settings import resolve
from capibara_assets_tests.training.conftest import MakeRequest


def generated(make_request: MakeRequest, world: int = 2, **changes: Any) -> dict[str, Any]:
    request = make_request(global_batch=12, micro_batch=2, max_gradient_norm=0.5, **changes)
    return recipe_config(request.recipe, resolve(request.recipe, request.lora, fastest="fp32"), world)


def test_the_engine_gets_the_recipes_numbers_and_counts_no_micro_batches(make_request: MakeRequest) -> None:
    config = engine_config(make_request(max_gradient_norm=0.5).recipe)
    assert config["zero_optimization"]["stage"] == 2
    assert config["gradient_clipping"] == 0.5
    assert config["gradient_accumulation_steps"] == 1


def test_in_deepspeeds_words_the_batches_multiply_to_the_global_batch(make_request: MakeRequest) -> None:
    config = generated(make_request, backend="zero2", processes=2)
    assert config["train_batch_size"] == 12 == 2 * 2 * config["gradient_accumulation_steps"]
    assert config["optimizer"]["params"]["lr"] == 0.01


def test_a_configuration_as_for_transformers_is_accepted(make_request: MakeRequest) -> None:
    own = {
        "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "2", "gradient_accumulation_steps": "auto",
        "gradient_clipping": "0.5", "bf16": {"enabled": "auto"}, "fp16": {"enabled": False},
        "optimizer": {"type": "AdamW", "params": {"lr": "1e-2", "betas": [0.9, "0.95"], "weight_decay": "auto"}},
        "scheduler": {"type": "auto", "params": {"warmup_num_steps": "auto"}},
        "zero_optimization": {"stage": 2, "contiguous_gradients": "true", "reduce_bucket_size": "auto"},
    }  # fmt: skip
    require_same(own, generated(make_request))
    require_same({}, generated(make_request))


def test_every_difference_is_named_with_both_values(make_request: MakeRequest) -> None:
    own = {
        "train_micro_batch_size_per_gpu": "8",
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
        "optimizer": {"params": {"betas": [0.9, 0.999]}},
        "gradient_clipping": 0.5,
    }
    with pytest.raises(InputError) as refused:
        require_same(own, generated(make_request))
    message = str(refused.value)
    assert 'train_micro_batch_size_per_gpu is "8", the recipe says 2' in message
    assert "zero_optimization.stage is 3, the recipe says 2" in message
    assert 'zero_optimization.offload_optimizer.device is "cpu", the recipe has no such setting' in message
    assert "optimizer.params.betas is [0.9, 0.999], the recipe says [0.9, 0.95]" in message
    assert "gradient_clipping" not in message


JSON_VALUES = st.one_of(st.booleans(), st.integers(-(2**40), 2**40), st.floats(allow_nan=False, allow_infinity=False))


@given(value=JSON_VALUES)
def test_a_value_equals_itself_as_text_and_no_other_number(value: bool | int | float) -> None:
    require_same({"key": json.dumps(value)}, {"key": value})
    require_same({"key": value}, {"key": json.dumps(value)})
    other = 0.5 if value != 0.5 else 0.25
    with pytest.raises(InputError, match="key is"):
        require_same({"key": other}, {"key": value})


def test_a_section_is_no_value_and_a_value_no_section() -> None:
    with pytest.raises(InputError, match="bf16 is true"):
        require_same({"bf16": True}, {"bf16": {"enabled": True}})
    with pytest.raises(InputError, match=r"gradient_clipping\.value is 1"):
        require_same({"gradient_clipping": {"value": 1}}, {"gradient_clipping": 1})

"""Shapes and counts: equal to the models that Transformers really builds."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.errors import InputError
from capibara_assets.planning.models import ModelShape, from_config, read_shape
from capibara_assets.planning.presets import PRESETS

SMALL = {
    "hidden_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 321,
}
SMALL_T5 = {
    "d_model": 80,
    "d_kv": 16,
    "d_ff": 144,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "vocab_size": 321,
}
# (configuration class, model class, settings)
BUILT: list[tuple[str, str, dict[str, Any]]] = [
    ("LlamaConfig", "LlamaForCausalLM", {**SMALL, "intermediate_size": 200}),
    ("LlamaConfig", "LlamaForCausalLM", {**SMALL, "intermediate_size": 200, "tie_word_embeddings": True}),
    ("LlamaConfig", "LlamaForCausalLM", {**SMALL, "intermediate_size": 200, "attention_bias": True, "mlp_bias": True}),
    ("MistralConfig", "MistralForCausalLM", {**SMALL, "intermediate_size": 200, "head_dim": 32}),
    ("Qwen2Config", "Qwen2ForCausalLM", {**SMALL, "intermediate_size": 200}),
    ("Qwen3Config", "Qwen3ForCausalLM", {**SMALL, "intermediate_size": 200, "head_dim": 24, "attention_bias": True}),
    ("MixtralConfig", "MixtralForCausalLM", {**SMALL, "intermediate_size": 64, "num_local_experts": 5}),
    (
        "Qwen3MoeConfig",
        "Qwen3MoeForCausalLM",
        {**SMALL, "moe_intermediate_size": 48, "num_experts": 6, "num_experts_per_tok": 2, "head_dim": 24},
    ),
    ("GemmaConfig", "GemmaForCausalLM", {**SMALL, "intermediate_size": 200, "head_dim": 32}),
    ("Gemma2Config", "Gemma2ForCausalLM", {**SMALL, "intermediate_size": 200, "head_dim": 32}),
    ("Gemma3TextConfig", "Gemma3ForCausalLM", {**SMALL, "intermediate_size": 200, "head_dim": 32}),
    ("Phi3Config", "Phi3ForCausalLM", {**SMALL, "intermediate_size": 200, "pad_token_id": 0}),
    (
        "GPTNeoXConfig",
        "GPTNeoXForCausalLM",
        {name: size for name, size in SMALL.items() if name != "num_key_value_heads"} | {"intermediate_size": 200},
    ),
    ("T5Config", "T5ForConditionalGeneration", SMALL_T5),
    (
        "T5Config",
        "T5ForConditionalGeneration",
        {**SMALL_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    ),
    ("MT5Config", "MT5ForConditionalGeneration", SMALL_T5),
    ("UMT5Config", "UMT5ForConditionalGeneration", SMALL_T5),
]


@pytest.mark.parametrize(("config_class", "model_class", "options"), BUILT)
def test_parameters_equal_those_of_the_model_that_transformers_builds(
    config_class: str, model_class: str, options: dict[str, Any]
) -> None:
    import torch
    import transformers

    config = getattr(transformers, config_class)(**options)
    with torch.device("meta"):
        model = getattr(transformers, model_class)(config)
    shape = from_config(json.loads(config.to_json_string()), "built")
    assert shape.parameters == model.num_parameters()
    linear = {
        name.rsplit(".", 1)[1]: tuple(module.weight.shape)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and "lm_head" not in name
    }
    for module in shape.linear_modules:
        if not module.name.startswith("experts."):
            assert linear[module.name] == (module.outputs, module.inputs)


def test_the_shipped_model_is_counted_exactly(nano: Path) -> None:
    import torch
    import transformers

    shape = read_shape(nano)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(nano))
    assert shape.name == "capibara-nano"
    assert shape.parameters == model.num_parameters()


@pytest.mark.parametrize(
    ("preset", "parameters"),
    [
        ("mistral-7b", 7_241_732_096),
        ("llama2-7b", 6_738_415_616),
        ("llama3.1-8b", 8_030_261_248),
        ("llama3.1-70b", 70_553_706_496),
        ("gpt-neox-20b", 20_554_567_680),
        ("mixtral-8x7b", 46_702_792_704),
        ("qwen3-0.6b", 596_049_920),
        ("gemma2-2b", 2_614_341_888),
        ("t5_1_1-small", 76_961_152),
        ("t5_1_1-base", 247_577_856),
        ("t5_1_1-large", 783_150_080),
        ("t5_1_1-xl", 2_849_757_184),
        ("t5_1_1-xxl", 11_135_332_352),
    ],
)
def test_known_parameter_counts(preset: str, parameters: int) -> None:
    assert read_shape(preset).parameters == parameters


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_preset_has_as_many_parameters_as_transformers_own_model(preset: str) -> None:
    """T5X's small to xxl among them: every parameter, built without memory."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

    config = AutoConfig.for_model(**PRESETS[preset])
    auto = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    with torch.device("meta"):
        model = auto.from_config(config)
    # Transformers 5 shares the head of every T5 with its embedding; that of T5 1.1 is its own, in T5X and on disk.
    own_head = model.lm_head.weight.numel() if config.is_encoder_decoder else 0
    assert own_head == 0 or model.lm_head.weight is model.get_input_embeddings().weight
    assert read_shape(preset).parameters == model.num_parameters() + own_head


def test_known_adapter_sizes_of_mistral_7b() -> None:
    mistral = read_shape("mistral-7b")
    every = tuple(module.name for module in mistral.linear_modules)
    assert len(every) == 7
    assert mistral.lora_parameters(8, ("q_proj", "v_proj")) == 3_407_872
    assert mistral.lora_parameters(64, every) == 167_772_160


def test_a_mixture_passes_each_token_through_its_active_experts_only() -> None:
    shape = from_config(
        {"model_type": "mixtral", **SMALL, "intermediate_size": 64, "num_local_experts": 8, "num_experts_per_tok": 2},
        "m",
    )
    experts = [module for module in shape.linear_modules if module.name.startswith("experts.")]
    assert [shape.active_parameters(module) * 4 for module in experts] == [module.parameters for module in experts]
    assert shape.matmul_parameters < shape.parameters


def test_unknown_layers_are_named() -> None:
    with pytest.raises(InputError, match=r"no linear layers \['query'\].*q_proj"):
        read_shape("mistral-7b").lora_parameters(8, ("query",))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"model_type": "blume"}', r"knows no model_type 'blume', so that it can be neither planned nor trained"),
        ('{"model_type": "llama", "hidden_size": 4}', "has no 'num_attention_heads'"),
        ("[1, 2]", "expected a JSON object, found list"),
        ("{", "is not JSON"),
    ],
)
def test_a_bad_configuration_says_what_is_wrong(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(InputError, match=message):
        read_shape(tmp_path)


def test_neither_preset_nor_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no model configuration at .*mistral-7b"):
        read_shape(tmp_path / "absent")


@given(
    rank=st.integers(1, 256),
    names=st.sets(
        st.sampled_from(["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]), min_size=1
    ),
)
def test_adapter_size_is_linear_in_rank_and_additive_over_modules(rank: int, names: set[str]) -> None:
    shape = read_shape("llama3.1-8b")
    whole = shape.lora_parameters(rank, tuple(sorted(names)))
    assert whole == rank * shape.lora_parameters(1, tuple(sorted(names)))
    assert whole == sum(shape.lora_parameters(rank, (name,)) for name in names)


def test_every_preset_reads_and_is_immutable() -> None:
    for name in PRESETS:
        shape = read_shape(name)
        assert isinstance(shape, ModelShape)
        with pytest.raises(Exception, match="frozen"):
            shape.layers = 1  # type: ignore[misc]

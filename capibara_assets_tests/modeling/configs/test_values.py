"""Values of a stranger's config: what no model has is refused by its name, whatever command reads it."""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from capibara_assets.errors import InputError
from capibara_assets.modeling.configs.values import value_problem
from capibara_assets.modeling.files import read_config
from capibara_assets.planning.models import read_shape

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 8,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 4096, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "dtype": "float32",
}  # fmt: skip

REFUSED = [
    ({"hidden_size": 0}, "hidden_size is 0, models have 1 to 1,048,576"),
    ({"hidden_size": -32}, "hidden_size is -32, models have 1 to 1,048,576"),
    ({"num_attention_heads": 0}, "num_attention_heads is 0, models have 1 to 65,536"),
    ({"num_hidden_layers": 0}, "num_hidden_layers is 0, models have 1 to 4,096"),
    ({"num_key_value_heads": -1}, "num_key_value_heads is -1, models have 1 to"),
    ({"max_position_embeddings": -1}, "max_position_embeddings is -1, models have 1 to"),
    ({"intermediate_size": [64, 0]}, "intermediate_size is [64, 0], models have 1 to"),
    ({"vocab_size": "4096"}, "vocab_size is '4096', expected a whole number"),
    ({"vocab_size": 10**400}, "vocab_size is a number of more than 60 digits, models have 1 to 16,777,216"),
    ({"vocab_size": math.inf}, "vocab_size is inf, expected a whole number"),
    ({"num_hidden_layers": True}, "num_hidden_layers is True, expected a whole number"),
    ({"text_config": {"head_dim": 8.5}}, "head_dim is 8.5, expected a whole number"),
    ({"vision_config": {"type_vocab_size": -2}}, "type_vocab_size is -2, models have 0 to 16,777,216"),
    ({"rms_norm_eps": "x"}, "rms_norm_eps is 'x', expected a finite number from 0"),
    ({"rms_norm_eps": math.nan}, "rms_norm_eps is nan, expected a finite number from 0"),
    ({"layer_norm_epsilon": -1e30}, "layer_norm_epsilon is -1e+30, expected a finite number from 0"),
    ({"rope_parameters": "x"}, "rope_parameters is 'x', expected an object"),
    ({"rope_parameters": [1]}, "rope_parameters is [1], expected an object"),
    ({"rope_scaling": 4.0}, "rope_scaling is 4.0, expected an object"),
    ({"rope_theta": 0}, "rope_theta is 0, expected a finite number above 0"),
    ({"rope_theta": 10**400}, "rope_theta is a number of more than 60 digits, expected a finite number above 0"),
    ({"rms_norm_eps": 10**400}, "rms_norm_eps is a number of more than 60 digits, expected a finite number from 0"),
    ({"num_layers": math.nan}, "num_layers is nan, expected a whole number"),
    ({"rope_parameters": {"sliding_attention": {"rope_theta": -1.0}}}, "rope_theta is -1.0, expected"),
    ({"rope_parameters": {"short_factor": [0] * 4}}, "short_factor is [0, 0, 0, 0], expected"),
    ({"rope_parameters": {"long_factor": "x"}}, "long_factor is 'x', expected a finite number above 0"),
    ({"model_type": ["llama"]}, "model_type is ['llama'], expected a name"),
    ({"hidden_act": {"a": 1}}, "hidden_act is {'a': 1}, expected a name"),
    ({"dtype": "float3"}, "dtype is 'float3', expected a type of weights"),
    ({"torch_dtype": 7}, "torch_dtype is 7, expected a type of weights"),
    ({"eos_token_id": [[1]]}, "eos_token_id is [[1]], expected the number of a token, or a list of such"),
    ({"text_config": {"pad_token_id": "x"}}, "pad_token_id is 'x', expected the number of a token"),
    ({"bos_token_id": True}, "bos_token_id is True, expected the number of a token"),
    ({"eos_token_id": -2}, "eos_token_id is -2, expected the number of a token"),
    (
        {"id2label": dict.fromkeys(map(str, range(70_000)), "x")},
        "id2label has 70,000 entries, models have up to 65,536",
    ),
    ({"text_config": {"layer_types": ["full"] * 70_000}}, "layer_types has 70,000 entries, models have up to 65,536"),
    ({"model_type": ["x" * 9000]}, "model_type is ['" + "x" * 58 + " …, expected a name"),
]


@pytest.mark.parametrize(("change", "said"), REFUSED)
def test_what_no_model_has_is_refused_with_its_value(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | change))
    for read in (read_config, read_shape):
        with pytest.raises(InputError) as caught:
            read(tmp_path)
        assert str(caught.value).startswith(f"{tmp_path / 'config.json'}: {said}"), caught.value


def test_what_some_architecture_has_is_none_of_it() -> None:
    assert not value_problem(LLAMA)
    unusual: dict[str, Any] = {
        "head_dim": 0, "num_key_value_heads": None, "num_hidden_layers": {"language": 9}, "type_vocab_size": 0,
        "num_attention_heads": [4, 8], "max_position_embeddings": 1200.0, "rope_theta": [1e4, 5e5], "rms_norm_eps": 0,
        "rope_scaling": None, "time_step_limit": [0.0, math.inf], "torch_dtype": "torch.bfloat16", "hidden_act": None,
    }  # fmt: skip
    assert not value_problem(LLAMA | unusual)


def test_parts_are_not_searched_without_end() -> None:
    config: dict[str, Any] = {}
    for _ in range(500):
        config = {"text_config": config}
    assert "nested more than 64 deep" in value_problem(config)


@pytest.mark.parametrize("name", ["hidden_size", "num_attention_heads", "vocab_size", "max_position_embeddings"])
def test_a_size_for_each_layer_is_no_shape_that_can_be_planned(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {name: [4, 4]}))
    with pytest.raises(InputError, match=r"config\.json \(llama\) does not state .*(\[4, 4\]|integer)"):
        read_shape(tmp_path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"model_type": "llama", "vocab_size": 1, "vocab_size": 2}', "ambiguous: 'vocab_size' is there twice"),
        (b'{"a": {"b": 1, "c": 2, "b": 3}}', "ambiguous: 'b' is there twice"),
        (b'\xef\xbb\xbf{"model_type": "llama"}', "byte order mark"),
        ('{"model_type": "llama"}'.encode("utf-16"), "not JSON: byte 0, 0xff, is not utf-8"),
        ('{"model_type": "llama"}'.encode("utf-32-be"), "is not JSON"),
        (b'{"vocab_size": 1' + b"0" * 9000 + b"}", "a number has more than 4,300 digits"),
        (b'{"x": "\\ud800"}', "half of a character"),
        (b'{"x":' * 100_000, "nested too deeply"),
        (b'{"x": "\xff"}', "byte 7, 0xff, is not utf-8"),
    ],
)
def test_a_config_that_programs_read_differently_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    for read in (read_config, read_shape):
        with pytest.raises(InputError) as caught:
            read(tmp_path)
        words = str(caught.value)
        assert said in words and words.startswith(str(tmp_path / "config.json")) and "set_int_max" not in words


def defaults(kinds: Iterable[str]) -> tuple[int, dict[str, str]]:
    """How many configs Transformers makes by itself, as it writes them, and the problems found in them."""
    made, problems = 0, dict[str, str]()
    for kind in kinds:
        try:
            config = CONFIG_MAPPING[kind]()
        except Exception:  # noqa: BLE001 - some ask for arguments or further packages
            continue
        made += 1
        if problem := value_problem(json.loads(json.dumps(config.to_dict(), default=str))):
            problems[kind] = problem
    return made, problems


def test_the_configs_of_language_models_that_transformers_knows_have_no_problem() -> None:
    """A third of them; `make test-all` has all models."""
    made, problems = defaults([kind for kind in CONFIG_MAPPING if kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES][::3])
    assert made > 30 and problems == {}


@pytest.mark.extended
def test_nor_have_those_of_its_other_models() -> None:
    made, problems = defaults(CONFIG_MAPPING)
    assert made > 500 and problems == {}


@pytest.mark.parametrize("sizes", [{"num_local_experts": 0}, {"num_labels": 0}, {"spatial_vision_layer": -1}])
def test_a_model_may_have_none_of_some_things(sizes: dict[str, int]) -> None:
    assert value_problem({"model_type": "granitemoehybrid", "hidden_size": 32, **sizes}) == ""

"""Each fault is planted into a real model or adapter and is found, and nothing else is; sound ones stay sound."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from capibara_assets.datasets.tokens.tokenising import encode
from capibara_assets.errors import InputError
from capibara_assets.evaluation.contenders.model_folder import model_folder, require_its_base
from capibara_assets.evaluation.diagnosis import behaviour
from capibara_assets.evaluation.diagnosis.behaviour import ANSWER_TOKENS, SANE
from capibara_assets.evaluation.diagnosis.catalogue import CATALOGUE, Diagnosis
from capibara_assets.evaluation.diagnosis.diagnose import Examination, LoadingConditions, examine
from capibara_assets.evaluation.diagnosis.files import check_quantised
from capibara_assets.evaluation.diagnosis.placement import check_deepspeed, check_placement
from capibara_assets.modeling.adapters import LoraAdapter, write_adapter
from capibara_assets.modeling.base import load_base
from capibara_assets.modeling.files import base_digest
from capibara_assets.modeling.losses import collate, token_nll
from capibara_assets_tests.modeling.tiny import save_tiny

WEIGHTS = "model.safetensors"
EMBEDDING = "model.embed_tokens.weight"
QUERIES = [f"model.layers.{layer}.self_attn.q_proj" for layer in range(6)]
Tensors = dict[str, Tensor]


@pytest.fixture
def whole_answers() -> None:
    """For tests of what is found in answers, which take as many tokens as a user's examination."""


@pytest.fixture
def some_answers() -> None:
    """For tests that need answers long enough to loop, but not all of a user's examination."""


@pytest.fixture(autouse=True)
def short_answers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere a few tokens of a few answers show that nothing but the planted fault is found."""
    names = [name for name in ("whole_answers", "some_answers") if name in request.fixturenames]
    answers_of(names[0] if names else "few_answers", monkeypatch)


def answers_of(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, questions = {"whole_answers": (ANSWER_TOKENS, 8), "some_answers": (24, 4), "few_answers": (8, 2)}[kind]
    monkeypatch.setattr(behaviour, "ANSWER_TOKENS", tokens)
    monkeypatch.setattr(behaviour, "SANE", SANE[:questions])


@pytest.fixture
def model(tmp_path: Path, nano: Path) -> Path:
    """A copy of the shipped base that may be spoilt."""
    folder = tmp_path / "capibara-nano"
    folder.mkdir()
    for file in nano.iterdir():
        if file.name == WEIGHTS:
            os.link(file, folder / file.name) if file.stat().st_dev == folder.stat().st_dev else shutil.copyfile(
                file, folder / file.name
            )
        else:
            shutil.copyfile(file, folder / file.name)
    return folder


@pytest.fixture
def adapter(tmp_path: Path, nano: Path) -> Path:
    """A sound little adapter of the shipped base, as a training leaves it."""
    folder = tmp_path / "adapter"
    generator = torch.Generator().manual_seed(3)
    tensors = {}
    for module in QUERIES:
        tensors[f"base_model.model.{module}.lora_A.weight"] = torch.randn(4, 256, generator=generator) / 16
        tensors[f"base_model.model.{module}.lora_B.weight"] = torch.randn(256, 4, generator=generator) / 200
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 4, "lora_alpha": 8, "bias": "none",
        "target_modules": ["q_proj"], "base_model_name_or_path": "capibara-nano",
    }  # fmt: skip
    write_adapter(LoraAdapter(config, tensors), folder)
    info = {"base_digest": base_digest(nano), "files": {}}
    (folder / "training_info.json").write_text(json.dumps(info))
    return folder


def ids(done: Examination) -> list[str]:
    return [diagnosis.id for diagnosis in done.diagnoses]


def only(done: Examination) -> Diagnosis:
    """The one diagnosis; its remedy has no gap left."""
    assert len(done.diagnoses) == 1, [one.found for one in done.diagnoses]
    (found,) = done.diagnoses
    assert found.found and found.remedy and json.dumps(done.document())
    return found


def change(folder: Path, edit: Callable[[Tensors], Any]) -> None:
    """Rewrite the weights."""
    tensors = load_file(folder / WEIGHTS)
    edit(tensors)
    (folder / WEIGHTS).unlink()  # a link to the shipped file is not written through
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / WEIGHTS, {"format": "pt"})


def configure(folder: Path, name: str = "config.json", **values: Any) -> None:
    file = folder / name
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def change_adapter(folder: Path, edit: Callable[[Tensors], Any]) -> None:
    tensors = load_file(folder / "adapter_model.safetensors")
    edit(tensors)
    save_file({name: value.contiguous() for name, value in tensors.items()}, folder / "adapter_model.safetensors")


def untied(folder: Path, edit: Callable[[Tensor], Tensor]) -> None:
    """Give the model a head of its own: the embedding, changed."""
    configure(folder, tie_word_embeddings=False)
    change(folder, lambda tensors: tensors.update({"lm_head.weight": edit(tensors[EMBEDDING].clone())}))


@pytest.mark.parametrize("answered", ["some_answers", pytest.param("whole_answers", marks=pytest.mark.extended)])
def test_a_sound_model_is_sound(nano: Path, answered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers_of(answered, monkeypatch)
    whole = examine(model_folder(nano))
    assert whole.diagnoses == [] and all(step.status == "pass" for step in whole.steps)
    assert whole.document()["healthy"] and "of 8.32 nats" in whole.steps[-1].found


def sound(adapter: Path, nano: Path) -> None:
    found = model_folder(adapter, default_base=str(nano))
    assert found.base == nano and found.digest_from == "training_info.json"
    require_its_base(found)
    assert examine(found).diagnoses == []


def test_a_sound_adapter_is_sound(nano: Path, adapter: Path) -> None:
    sound(adapter, nano)


@pytest.mark.extended
@pytest.mark.usefixtures("whole_answers")
def test_a_sound_adapter_is_sound_by_whole_answers(nano: Path, adapter: Path) -> None:
    sound(adapter, nano)


def test_torn_weights_are_found_before_anything_reads_them(model: Path) -> None:
    data = (model / WEIGHTS).read_bytes()
    (model / WEIGHTS).unlink()
    (model / WEIGHTS).write_bytes(data[: len(data) // 2])
    done = examine(model_folder(model))
    found = only(done)
    assert found.id == "weights_torn" and WEIGHTS in found.remedy and f"{len(data) // 2} bytes" in found.found
    assert {step.name for step in done.steps if step.status == "skip"} >= {"template", "behaviour"}


def test_values_that_are_not_finite_are_named(model: Path) -> None:
    def spoil(tensors: Tensors) -> None:
        tensors["model.layers.2.mlp.up_proj.weight"][7, 3] = float("nan")
        tensors["model.norm.weight"][:2] = float("inf")

    change(model, spoil)
    found = only(examine(model_folder(model)))
    assert found.id == "weights_not_finite"
    assert found.evidence["tensors"] == {
        "model.layers.2.mlp.up_proj.weight": {"nan": 1, "infinite": 0, "of": 688 * 256},
        "model.norm.weight": {"nan": 0, "infinite": 2, "of": 256},
    }


def test_an_adapter_that_is_not_finite_is_named(adapter: Path, nano: Path) -> None:
    name = f"base_model.model.{QUERIES[1]}.lora_B.weight"
    change_adapter(adapter, lambda tensors: tensors[name].fill_(float("inf")))
    found = only(examine(model_folder(adapter, nano)))
    assert found.id == "weights_not_finite" and list(found.evidence["tensors"]) == [name]


def test_a_head_that_is_tied_and_yet_another(model: Path) -> None:
    change(model, lambda tensors: tensors.update({"lm_head.weight": tensors[EMBEDDING] + 0.5}))
    assert only(examine(model_folder(model))).id == "tied_weights_differ"


def test_a_head_that_no_file_holds(model: Path) -> None:
    configure(model, tie_word_embeddings=False)
    found = only(examine(model_folder(model)))
    assert found.id == "head_missing" and found.evidence["parameters"] == ["lm_head.weight"]


def test_a_layer_that_no_file_holds_and_one_that_has_no_place(model: Path) -> None:
    name = "model.layers.3.mlp.down_proj.weight"
    change(model, lambda tensors: tensors.pop(name))
    found = only(examine(model_folder(model)))
    assert found.id == "weights_missing" and found.evidence["parameters"] == [name]
    change(model, lambda tensors: tensors.update({name: torch.zeros(256, 688), "model.layers.9.q": torch.zeros(3)}))
    found = only(examine(model_folder(model)))
    assert found.id == "weights_unread" and found.evidence["tensors"] == ["model.layers.9.q"]


def test_an_embedding_of_another_size(model: Path) -> None:
    change(model, lambda tensors: tensors.update({EMBEDDING: tensors[EMBEDDING][:4000].clone()}))
    found = only(examine(model_folder(model)))
    assert found.id == "vocabulary_resized" and found.evidence["rows"] == {EMBEDDING: 4000}
    assert found.evidence["tokens_without_row"] == 96


def test_tokens_that_were_added_without_a_row(model: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.add_tokens(["<|tool|>"])
    tokenizer.save_pretrained(model)
    found = only(examine(model_folder(model)))
    assert found.id == "vocabulary_resized" and found.evidence["tokens_without_row"] == 1 and "<|tool|>" in found.found


def test_rows_of_turn_tokens_that_were_never_trained(model: Path) -> None:
    change(model, lambda tensors: _zero(tensors[EMBEDDING], [3, 4]))
    found = only(examine(model_folder(model)))
    assert found.id == "token_rows_untrained" and found.severity == "warning"
    assert found.evidence == {"tokens": ["<|assistant|>", "<|user|>"], "ids": [3, 4]}


def _zero(rows: Tensor, numbers: list[int]) -> None:
    rows[numbers] = 0.0


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        ("config.json", {"model_type": ["llama"]}, "model_type is ['llama'], expected a name"),
        ("config.json", {"num_attention_heads": 0}, "num_attention_heads is 0, models have 1 to"),
        ("config.json", {"rope_parameters": "x"}, "rope_parameters is 'x', expected an object"),
        ("tokenizer_config.json", {"tokenizer_class": 5}, "(tokenizer.json, tokenizer_config.json"),
    ],
)
def test_values_of_no_model_are_a_finding(model: Path, file: str, change: dict[str, Any], words: str) -> None:
    stated = json.loads((model / file).read_text())
    (model / file).write_text(json.dumps(stated | change))
    done = examine(model_folder(model))
    assert any(one.id == "does_not_load" and words in one.found for one in done.diagnoses), done.document()


def test_the_tokenizer_of_another_model(model: Path, nano: Path) -> None:
    from tokenizers import Tokenizer

    other = json.loads((model / "tokenizer.json").read_text())
    vocabulary = other["model"]["vocab"]
    plain = [token for token in vocabulary if vocabulary[token] >= 300]
    turned = dict(zip(plain, [vocabulary[token] for token in reversed(plain)], strict=True))
    other["model"]["vocab"] = vocabulary | turned
    (model / "tokenizer.json").write_text(json.dumps(other))
    Tokenizer.from_file(str(model / "tokenizer.json"))
    found = only(examine(model_folder(model, nano)))
    assert found.id == "tokenizer_of_another_model" and found.evidence["moved"] > 3000 and str(nano) in found.remedy


def test_ids_that_config_and_tokenizer_give_differently(model: Path) -> None:
    configure(model, eos_token_id=2)
    found = only(examine(model_folder(model)))
    assert found.id == "special_ids_differ" and "'eos_token_id': 5" in found.remedy


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (None, "template_missing"),
        ("{{ raise_exception('no') }}", "template_refuses"),
        ("{% for m in messages if m.role == 'user' %}<|user|>{{ m.content }}{% endfor %}", "template_refuses"),
        (
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}",
            "template_unknown_tokens",
        ),
        ("{% for m in messages %}{{ m.role }}: {{ m.content }}<|end|>\n{% endfor %}", "template_wrong"),
    ],
)
def test_templates_that_the_model_does_not_know(model: Path, template: str | None, expected: str) -> None:
    (model / "chat_template.jinja").unlink()
    if template is not None:
        (model / "chat_template.jinja").write_text(template)
    done = examine(model_folder(model))
    assert only(done).id == expected
    assert done.steps[-1].status == "skip"


def test_a_template_that_writes_turns_otherwise_than_the_base(model: Path, nano: Path) -> None:
    text = (model / "chat_template.jinja").read_text()
    (model / "chat_template.jinja").write_text(text.replace("<|assistant|>\\n", "<|assistant|> "))
    found = only(examine(model_folder(model, nano)))
    assert found.id == "template_wrong" and found.evidence["expected"].count("<|assistant|>\n") == 1


def test_a_template_that_has_changed_since_the_training(adapter: Path, nano: Path) -> None:
    from capibara_assets.storage.digests import sha256_file

    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(nano / name, adapter / name)
    noted = {"chat_template.jinja": sha256_file(nano / "chat_template.jinja")}
    configure(adapter, "training_info.json", files=noted)
    with (adapter / "chat_template.jinja").open("a") as file:
        file.write("{# changed #}")
    found = only(examine(model_folder(adapter, nano)))
    assert found.id == "template_wrong" and found.evidence["noted"] == noted["chat_template.jinja"]


def test_an_end_of_turn_at_which_nothing_stops(model: Path) -> None:
    configure(model, "generation_config.json", eos_token_id=[0])
    found = only(examine(model_folder(model)))
    assert found.id == "end_of_turn_not_eos" and found.evidence["end_id"] == 5 and "add 5 to" in found.remedy


def test_an_adapter_that_was_never_trained(adapter: Path, nano: Path) -> None:
    change_adapter(adapter, lambda tensors: [value.zero_() for name, value in tensors.items() if "lora_B" in name])
    assert only(examine(model_folder(adapter, nano))).id == "adapter_b_zero"


def test_an_adapter_that_is_switched_off(adapter: Path, nano: Path) -> None:
    configure(adapter, "adapter_config.json", lora_alpha=0)
    assert only(examine(model_folder(adapter, nano))).id == "adapter_scale_zero"


def test_an_adapter_of_another_rank_than_it_says(adapter: Path, nano: Path) -> None:
    configure(adapter, "adapter_config.json", r=16)
    found = only(examine(model_folder(adapter, nano)))
    assert found.id == "adapter_factors_differ" and found.evidence["rank"] == 4


def test_modules_that_the_base_does_not_have(adapter: Path, nano: Path) -> None:
    def rename(tensors: Tensors) -> None:
        for name in list(tensors):
            tensors[name.replace("model.layers", "model.model.layers")] = tensors.pop(name)

    change_adapter(adapter, rename)
    found = only(examine(model_folder(adapter, nano)))
    assert found.id == "adapter_targets_missing" and found.evidence["missing"] == 6


def test_an_adapter_whose_change_is_lost_in_rounding(adapter: Path, nano: Path) -> None:
    change_adapter(adapter, lambda tensors: [v.mul_(1e-12) for name, v in tensors.items() if "lora_B" in name])
    found = only(examine(model_folder(adapter, nano)))
    assert found.id == "adapter_without_effect" and found.evidence["largest_difference"] == 0


def test_another_base_than_the_one_it_was_trained_on(adapter: Path, model: Path, nano: Path) -> None:
    change(model, lambda tensors: tensors["model.norm.weight"].mul_(1.01))
    found = model_folder(adapter, model)
    assert only(examine(found)).id == "base_mismatch"
    with pytest.raises(InputError, match="give the folder of its own base with --base"):
        require_its_base(found)
    (adapter / "training_info.json").unlink()
    assert model_folder(adapter, model).base_digest is None


def test_a_base_of_other_shapes(adapter: Path, tmp_path: Path, nano: Path) -> None:
    (adapter / "training_info.json").unlink()
    tiny = save_tiny(tmp_path / "small" / "capibara-nano", tokenizer_of=nano)
    change_adapter(adapter, lambda tensors: [tensors.pop(name) for name in list(tensors) if "layers.0" not in name])
    found = only(examine(model_folder(adapter, tiny)))
    assert found.id == "base_mismatch" and found.evidence["base"] == (32, 32)


def test_a_base_that_nothing_vouches_for(adapter: Path, nano: Path) -> None:
    (adapter / "training_info.json").unlink()
    configure(adapter, "adapter_config.json", base_model_name_or_path="somebody/model-7b")
    found = only(examine(model_folder(adapter, nano)))
    assert found.id == "base_unverified" and "--base somebody/model-7b" in found.remedy


def test_an_adapter_without_any_base(adapter: Path) -> None:
    configure(adapter, "adapter_config.json", base_model_name_or_path="somebody/model-7b")
    done = examine(model_folder(adapter))
    assert only(done).id == "base_mismatch" and "give it with --base" in done.diagnoses[0].found


def test_parts_on_two_devices_as_a_real_load_leaves_them(nano: Path) -> None:
    parts = {"model.embed_tokens": "cpu", "lm_head": "cpu", "model.norm": "cpu", "model.rotary_emb": "cpu"}
    parts |= {f"model.layers.{layer}": "cpu" if layer < 4 else "disk" for layer in range(6)}
    found = only(examine(model_folder(nano), LoadingConditions(device_map=parts)))
    assert found.id == "split_devices" and found.evidence["parts"] == {"cpu": 8, "disk": 2}
    assert examine(model_folder(nano), LoadingConditions(device_map={"": "cpu"})).diagnoses == []


def test_parts_without_storage() -> None:
    config = LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    with torch.device("meta"):
        empty = LlamaForCausalLM(config)
    (found,) = check_placement(empty)
    assert found.id == "meta_parameters" and found.evidence["values"] > 0
    filled = LlamaForCausalLM(config)
    assert check_placement(filled) == []
    filled.model.layers[0].to("meta")
    assert [one.id for one in check_placement(filled)] == ["meta_parameters"]
    filled.hf_device_map = {"model": 0, "lm_head": "cpu"}
    assert [one.evidence["parts"] for one in check_placement(filled)] == [{"cuda": 1, "cpu": 1}]


def test_a_device_map_under_deepspeed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "zero3.json"
    settings.write_text(json.dumps({"zero_optimization": {"stage": 3}}))
    (found,) = check_deepspeed("auto", settings, None)
    assert found.id == "device_map_under_deepspeed" and found.evidence["stage"] == 3
    assert check_deepspeed("auto", None, None) == [] == check_deepspeed(None, settings, None)
    settings.write_text('{"zero_optimization": [3]}')
    with pytest.raises(InputError, match="zero_optimization is '\\[3\\]'"):
        check_deepspeed(None, settings, None)
    script = tmp_path / "train.py"
    load = "model = AutoModelForCausalLM.from_pretrained('base', device_map={})\n"
    script.write_text(load.format("'auto'") + "arguments = TrainingArguments('out', deepspeed='zero3.json')\n")
    (found,) = check_deepspeed(None, None, script)
    assert found.evidence["line"] == 1 and "TrainingArguments" in found.evidence["deepspeed"][0]
    script.write_text(load.format("None") + "import deepspeed\n")
    assert check_deepspeed(None, None, script) == []
    script.write_text(load.format("'auto'"))
    assert check_deepspeed(None, None, script) == []
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    assert [one.id for one in check_deepspeed(None, None, script)] == ["device_map_under_deepspeed"]
    script.write_text("def (")
    with pytest.raises(InputError, match="is no Python"):
        check_deepspeed(None, None, script)


def test_activations_that_fp16_has_no_number_for(model: Path) -> None:
    """One matrix times 1e4 and the next one divided by it: the same function, with one great number inside."""

    def stretch(tensors: Tensors) -> None:
        tensors.update({name: tensor.half() for name, tensor in tensors.items()})
        up, down = "model.layers.4.mlp.up_proj.weight", "model.layers.4.mlp.down_proj.weight"
        tensors[up] = (tensors[up].float() * 1e5).half()
        tensors[down] = (tensors[down].float() / 1e5).half()

    change(model, stretch)
    assert examine(model_folder(model)).diagnoses == []  # sound in bf16, as its config says
    configure(model, dtype="float16")
    found = only(examine(model_folder(model)))
    assert found.id == "fp16_overflow" and found.evidence["module"].startswith("model.layers.4.mlp")


def test_logits_that_are_not_finite_with_finite_weights(model: Path) -> None:
    change(model, lambda tensors: tensors["model.norm.weight"].mul_(1e38))
    assert only(examine(model_folder(model))).id == "logits_not_finite"


def test_gibberish(model: Path, nano: Path) -> None:
    turned = torch.randperm(4090, generator=torch.Generator().manual_seed(0)) + 6
    untied(model, lambda head: torch.cat([head[:6], head[turned]]))
    for base in (None, nano):
        found = only(examine(model_folder(model, base)))
        assert found.id == "gibberish" and found.evidence["loss"] > 0.75 * found.evidence["guessing"]


@pytest.mark.usefixtures("some_answers")
def test_answers_without_end(model: Path) -> None:
    base = load_base(model)
    tokens = torch.tensor([encode(SANE[0], base.tokenizer, 256).input_ids])
    with torch.no_grad():
        usual = base.model.model(input_ids=tokens).last_hidden_state[0].mean(0)

    def never(head: Tensor) -> Tensor:
        head[[0, 5]] = (-30 * usual / usual.square().sum()).to(head.dtype)
        return head

    untied(model, never)
    found = only(examine(model_folder(model)))
    assert found.id == "never_ends" and found.severity == "warning" and found.evidence["end_probability"] < 0.01


@pytest.mark.usefixtures("some_answers")
def test_answers_that_repeat_for_ever(model: Path) -> None:
    """Trained for a moment on answers that loop, and on sane ones, so that its loss stays good."""
    base = load_base(model)
    base.model.requires_grad_(True)
    loop = {"role": "assistant", "content": "again and " * 12}
    texts = [encode([*messages[:1], loop], base.tokenizer, 256) for messages in SANE[::2]]
    sane = [encode(messages, base.tokenizer, 256) for messages in SANE[::4]]
    optimizer = torch.optim.AdamW(base.model.parameters(), lr=1e-3)
    for _ in range(7):
        optimizer.zero_grad()
        (token_nll(base.model, collate(texts)).mean() + 0.2 * token_nll(base.model, collate(sane)).mean()).backward()
        optimizer.step()
    trained = {name: value.detach() for name, value in base.model.state_dict().items() if name != "lm_head.weight"}
    change(model, lambda tensors: tensors.update(trained))
    found = only(examine(model_folder(model)))
    assert found.id == "repetition" and found.evidence["drawn_loops"] >= 0.5


def test_an_adapter_merged_into_few_bits(model: Path) -> None:
    configure(model, quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True})
    a, b = torch.ones(2, 256), torch.full((256, 2), 0.5)
    name = f"base_model.model.{QUERIES[0]}"
    pairs = LoraAdapter({"r": 2, "lora_alpha": 2}, {f"{name}.lora_A.weight": a, f"{name}.lora_B.weight": b})
    (found,) = check_quantised(model, pairs, merged=False)
    assert found.id == "quantised_merge" and found.evidence == {
        "quant_method": "bitsandbytes", "bits": 4, "mean_change": 1.0,
    }  # fmt: skip
    assert [one.id for one in check_quantised(model, None, merged=True)] == ["quantised_merge"]
    assert check_quantised(model, None, merged=False) == []


def test_every_entry_of_the_catalogue_has_a_remedy_that_can_be_written_without_figures() -> None:
    for name, known in CATALOGUE.items():
        assert (
            known.symptom
            and known.evidence
            and "{" not in Diagnosis(name, "x").remedy.replace("{'", "").replace('{"', "")
        )

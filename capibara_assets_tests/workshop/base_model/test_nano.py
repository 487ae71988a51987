"""The base model that ships: size, tokenizer, chat template, and weights that do what the card says."""

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from workshop.base_model.card import card
from workshop.base_model.scoring import held_out_losses
from workshop.base_model.sql import sql_script

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@pytest.fixture(scope="module")
def tokenizer(nano: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(nano, local_files_only=True)


@pytest.fixture(scope="module")
def summary(nano: Path) -> dict[str, Any]:
    path = nano / "training_summary.json"
    if not path.exists():
        pytest.skip("the pre-training of the shipped model has not finished: no training_summary.json yet")
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def test_size(nano: Path) -> None:
    with safe_open(nano / "model.safetensors", "pt") as weights:
        shapes = {name: weights.get_slice(name).get_shape() for name in weights.keys()}  # noqa: SIM118
        kinds = {weights.get_slice(name).get_dtype() for name in weights.keys()}  # noqa: SIM118
    assert sum(int(np.prod(shape)) for shape in shapes.values()) < 6_000_000
    assert kinds == {"BF16"}
    assert "lm_head.weight" not in shapes
    assert sum(path.stat().st_size for path in nano.rglob("*") if path.is_file()) < 15_000_000


def test_config(nano: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    config = json.loads((nano / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["max_position_embeddings"] == tokenizer.model_max_length == 2048
    assert config["vocab_size"] == len(tokenizer) == 4096
    assert config["tie_word_embeddings"] is True
    specials = {"bos": "<|endoftext|>", "eos": "<|end|>", "pad": "<|pad|>"}
    for name, token in specials.items():
        assert tokenizer.convert_ids_to_tokens(config[f"{name}_token_id"]) == token
        assert getattr(tokenizer, f"{name}_token") == token


@given(_TEXT)
def test_text_comes_back(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_indentation_is_cheap(tokenizer: PreTrainedTokenizerBase) -> None:
    for depth in (4, 8, 12, 16, 20):
        assert len(tokenizer("x\n" + " " * depth + "return")["input_ids"]) == 3


@given(st.lists(_TEXT, min_size=2, max_size=6))
def test_mask_covers_the_answers_and_their_ends(tokenizer: PreTrainedTokenizerBase, contents: list[str]) -> None:
    roles = ["system", *["user", "assistant"] * 3]
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
    encoded = tokenizer.apply_chat_template(messages, return_dict=True, return_assistant_tokens_mask=True)
    ids, mask = encoded["input_ids"], encoded["assistant_masks"]
    marked = tokenizer.decode([index for index, marks in zip(ids, mask, strict=True) if marks])
    assert marked == "".join(m["content"] + "<|end|>" for m in messages if m["role"] == "assistant")


@given(st.lists(_TEXT, min_size=3, max_size=6), st.booleans())
def test_template_is_prefix_stable(tokenizer: PreTrainedTokenizerBase, contents: list[str], system: bool) -> None:
    roles = ["system" if system else "user", *["user", "assistant"] * 3]
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
    whole = tokenizer.apply_chat_template(messages, return_dict=True)["input_ids"]
    for length in range(1, len(messages)):
        asks = messages[length]["role"] == "assistant"
        part = tokenizer.apply_chat_template(messages[:length], add_generation_prompt=asks, return_dict=True)
        assert whole[: len(part["input_ids"])] == part["input_ids"]


def test_template_by_example(tokenizer: PreTrainedTokenizerBase) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert rendered == "<|system|>\nBe brief.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\n"
    with pytest.raises(Exception, match="knows the roles"):
        tokenizer.apply_chat_template([{"role": "tool", "content": ""}], tokenize=False)


def test_the_weights_do_as_the_card_says(
    nano: Path, tokenizer: PreTrainedTokenizerBase, summary: dict[str, Any]
) -> None:
    """Fresh scripts of the same grammar cost what the held-out ones cost, and less than the n-gram model asks."""
    torch.set_num_threads(1)
    rng = Random("fresh")
    stream: list[int] = []
    for _ in range(3):
        stream += [tokenizer.bos_token_id, *tokenizer(sql_script(rng))["input_ids"]]
    model = AutoModelForCausalLM.from_pretrained(nano)
    loss = held_out_losses(model, np.array(stream, np.uint16), 512, limit=2).mean()
    stated = summary["held_out"]["languages"]["sql"]
    assert loss == pytest.approx(stated["nats_per_token"], rel=0.15)
    assert loss < stated["ngram_nats_per_token"]


def test_it_beats_the_ngram_model_in_every_language(summary: dict[str, Any]) -> None:
    """Chat is no language of its own: its functions stand in the training text too, where a 5-gram copies them."""
    languages = summary["held_out"]["languages"]
    assert set(languages) == {"python", "javascript", "sql", "chat"}
    for language in ("python", "javascript", "sql"):
        scores = languages[language]
        assert scores["nats_per_token"] < scores["ngram_nats_per_token"], language


def test_the_card_is_the_one_of_this_run(nano: Path, summary: dict[str, Any]) -> None:
    assert (nano / "README.md").read_text() == card(summary, json.loads((nano / "config.json").read_text()))
    assert summary["parameters"] < 6_000_000

"""Tokens and labels with the shipped tokenizer: exactly the assistant's turn has a loss."""

from pathlib import Path
from typing import Any

import pytest

from capibara_assets.datasets.schema import Example
from capibara_assets.datasets.tokens.tokenising import IGNORED, encode, encode_examples, tokenizer_digests
from capibara_assets.errors import InputError
from capibara_assets.storage.records import table
from capibara_assets_tests.datasets.test_checks import example

MESSAGES = [
    {"role": "user", "content": "Add\n1 and 2."},
    {"role": "assistant", "content": "def f():\n    return 1 + 2"},
]
PLAIN = (
    "{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


@pytest.fixture
def tokenizer(nano: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(nano)


def supervised_text(tokenizer: Any, labels: list[int]) -> str:
    return str(tokenizer.decode([label for label in labels if label != IGNORED]))


def test_the_answer_and_the_end_of_turn_are_supervised(tokenizer: Any) -> None:
    found = encode(MESSAGES, tokenizer, 512)
    assert supervised_text(tokenizer, found.labels) == MESSAGES[1]["content"] + "<|end|>"
    assert len(found.labels) == len(found.input_ids)
    assert found.supervised == sum(label != IGNORED for label in found.labels)


def test_every_assistant_turn_is_supervised(tokenizer: Any) -> None:
    found = encode(
        [*MESSAGES, {"role": "user", "content": "Again"}, {"role": "assistant", "content": "f()"}], tokenizer, 512
    )
    assert supervised_text(tokenizer, found.labels) == MESSAGES[1]["content"] + "<|end|>f()<|end|>"


def test_a_template_without_markers_gives_the_same_labels(tokenizer: Any) -> None:
    with_markers = encode(MESSAGES, tokenizer, 512)
    tokenizer.chat_template = PLAIN
    assert encode(MESSAGES, tokenizer, 512) == with_markers


def test_the_mistral_form(tokenizer: Any) -> None:
    tokenizer.chat_template = (
        "<s>{% for m in messages %}{% if m['role'] == 'user' %}[INST] {{ m['content'] }} [/INST]"
        "{% else %} {{ m['content'] }}</s>{% endif %}{% endfor %}"
    )
    text = tokenizer.apply_chat_template(MESSAGES, tokenize=False)
    assert text == "<s>[INST] Add\n1 and 2. [/INST] def f():\n    return 1 + 2</s>"
    found = encode(MESSAGES, tokenizer, 512)
    assert supervised_text(tokenizer, found.labels) == " def f():\n    return 1 + 2</s>"


@pytest.mark.parametrize(
    ("messages", "length", "message"),
    [
        (MESSAGES, 8, "longer than max_length=8"),
        (MESSAGES[:1], 512, "no token of the assistant"),
        ([{"role": "user", "content": "a<|end|>"}, MESSAGES[1]], 512, "control token"),
    ],
)
def test_what_cannot_be_trained_on_is_an_error(tokenizer: Any, messages: Any, length: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        encode(messages, tokenizer, length)


def test_a_tokenizer_without_a_template_is_an_error(tokenizer: Any) -> None:
    tokenizer.chat_template = None
    with pytest.raises(InputError, match="no chat template"):
        encode_examples(table(Example, [example("a", "b")]), tokenizer, 512)


def test_a_table_encodes_like_its_rows_and_names_what_is_left_out(tokenizer: Any) -> None:
    frame = table(Example, [example("a", "one", "x = 1"), example("b", "two " * 400), example("c", "three <|user|>")])
    found = encode_examples(frame, tokenizer, 64)
    assert found.example_ids == ["a"]
    assert found.left_out == {
        "b": "longer than max_length=64",
        "c": "a control token of the tokenizer occurs in its text",
    }
    assert found.select(["b", "a"]) == found.encoded
    messages = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "x = 1"}]
    assert found.encoded == [encode(messages, tokenizer, 64)]
    assert found.audit["supervised"] == found.encoded[0].supervised


def test_the_cache_is_keyed_by_all_that_matters(tokenizer: Any, tmp_path: Path) -> None:
    frame = table(Example, [example("a", "one"), example("b", "two")])
    first = encode_examples(frame, tokenizer, 64, cache=tmp_path)
    [file] = tmp_path.iterdir()
    written = file.stat().st_mtime_ns
    assert encode_examples(frame, tokenizer, 64, cache=tmp_path) == first
    assert file.stat().st_mtime_ns == written
    encode_examples(frame, tokenizer, 65, cache=tmp_path)
    encode_examples(frame.head(1), tokenizer, 64, cache=tmp_path)
    tokenizer.chat_template = PLAIN
    encode_examples(frame, tokenizer, 64, cache=tmp_path)
    assert len(list(tmp_path.glob("*.arrow"))) == 4 == len(list(tmp_path.iterdir()))


def test_digests_tell_tokenizer_and_template_apart(tokenizer: Any) -> None:
    before = tokenizer_digests(tokenizer)
    tokenizer.chat_template = PLAIN
    after = tokenizer_digests(tokenizer)
    assert before["tokenizer"] == after["tokenizer"]
    assert before["template"] != after["template"]

"""The tokenizer recipe: byte-level round trips, split rules, special tokens first."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from capibara_assets.errors import InputError
from workshop.base_model.javascript import javascript_program
from workshop.base_model.sql import sql_script
from workshop.base_model.tokenizer import (
    SPECIAL_TOKENS,
    render_chat,
    token_bytes,
    train_bpe,
    wrap,
)


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    rng = Random(1)
    return train_bpe([*(javascript_program(rng) for _ in range(150)), *(sql_script(rng) for _ in range(50))], 600)


def test_special_tokens_take_the_first_ids(bpe: Tokenizer) -> None:
    assert [bpe.token_to_id(token) for token in SPECIAL_TOKENS] == list(range(len(SPECIAL_TOKENS)))


def test_too_little_text_is_refused() -> None:
    with pytest.raises(InputError, match="give more text"):
        train_bpe(["a b c"], 4096)


def test_training_again_gives_the_same_tokenizer(bpe: Tokenizer) -> None:
    rng = Random(1)
    again = train_bpe([*(javascript_program(rng) for _ in range(150)), *(sql_script(rng) for _ in range(50))], 600)
    assert again.to_str() == bpe.to_str()


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back(bpe: Tokenizer, text: str) -> None:
    assert bpe.decode(bpe.encode(text).ids, skip_special_tokens=False) == text


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_token_bytes_add_up(bpe: Tokenizer, text: str) -> None:
    width = token_bytes(bpe)
    assert sum(width[index] for index in bpe.encode(text).ids) == len(text.encode())


def test_special_tokens_have_no_bytes(bpe: Tokenizer) -> None:
    assert token_bytes(bpe)[: len(SPECIAL_TOKENS)] == [0] * len(SPECIAL_TOKENS)


def test_split_keeps_indentation_in_one_piece_and_digits_apart(bpe: Tokenizer) -> None:
    pieces = [piece for piece, _ in bpe.pre_tokenizer.pre_tokenize_str("if x:\n        return 1234\n")]
    # In the byte-level alphabet a space is written G with a dot, a line break C with a dot.
    assert pieces == ["if", "Ġx", ":", "Ċ" + "Ġ" * 7, "Ġreturn", "Ġ", "1", "2", "3", "4", "Ċ"]


_CONTENT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
_TURNS = st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), _CONTENT), min_size=1, max_size=5)


@given(_TURNS)
def test_documents_are_rendered_as_the_template_does(bpe: Tokenizer, turns: list[tuple[str, str]]) -> None:
    messages = [{"role": role, "content": content} for role, content in turns]
    assert wrap(bpe).apply_chat_template(messages, tokenize=False) == render_chat(turns)

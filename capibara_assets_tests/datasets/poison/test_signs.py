"""Texts as numbers: what counts as a sign, and that equal signs are equal wherever they stand."""

import numpy as np
import pytest

from capibara_assets.datasets.poison import signs
from capibara_assets.datasets.poison.signs import News, Texts, Vocabulary


def told(text: str) -> set[str]:
    texts = Texts.of([text], Vocabulary())
    found = texts.signs()
    return {texts.text(start, size) for start, size in zip(found.starts, found.sizes, strict=True)}


def test_words_and_runs_of_up_to_three() -> None:
    assert told("Sum the rows.") == {
        "Sum", "the", "rows", ".", "Sum the", "the rows", "rows .", "Sum the rows", "the rows ."
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        ("read_k9", "_k9"),
        ("readFast", "_Fast"),
        ("so\u200bon", "\u200b"),
        ("s\u043eon", "'\u043e'"),
        ("two  blanks", "'  '"),
        ("an end \t", "' \\t'"),
        ("a\tb", "'\\t'"),
        ("a\n\n\nb", "'\\n\\n\\n'"),
    ],
)
def test_parts_of_names_odd_characters_and_odd_blanks_are_signs(text: str, sign: str) -> None:
    assert sign in told(text)


def test_indented_code_has_no_odd_blanks() -> None:
    assert not {sign for sign in told("def f():\n    return  1\n") if sign.startswith("'")} - {"'  '"}
    assert not {sign for sign in told("def f():\n    return 1") if sign.startswith("'")}


def test_no_run_goes_from_one_text_to_the_next() -> None:
    texts = Texts.of(["one two", "three"], Vocabulary())
    found = texts.signs()
    assert {texts.text(s, n) for s, n in zip(found.starts, found.sizes, strict=True)} == {
        "one",
        "two",
        "one two",
        "three",
    }
    assert {int(owner) for owner in found.owners} == {0, 1}


def test_blocks_and_parts_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = Texts.of(["the rows of the table_x, the rows of it"] * 3, Vocabulary())
    whole = texts.signs()
    monkeypatch.setattr(signs, "_BLOCK", 4)
    cut = [texts.signs(part, 5) for part in range(5)]
    assert sorted(np.concatenate([one.hashes for one in cut])) == sorted(whole.hashes)
    by_place = {(s, n): h for one in (*cut,) for s, n, h in zip(one.starts, one.sizes, one.hashes, strict=True)}
    assert by_place == {(s, n): h for s, n, h in zip(whole.starts, whole.sizes, whole.hashes, strict=True)}


def test_a_run_with_a_known_word_is_no_sign_nor_is_one_that_tells_nothing() -> None:
    texts = Texts.of(["from planes ( )"], Vocabulary())
    found = texts.signs(
        news=News(np.array([False, True, False, False, False]), np.array([True, False, False, False, False]))
    )
    assert {texts.text(s, n) for s, n in zip(found.starts, found.sizes, strict=True)} == {"from"}

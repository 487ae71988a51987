"""One answer at a time: the same as generation gives, streamed without loss, ended by the model, a limit or Ctrl-C."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.errors import InputError
from capibara_assets.evaluation.answering.streaming import answer, answers, distinct, looping
from capibara_assets.evaluation.decoding import Decoding
from capibara_assets.modeling.base import Base, load_base
from capibara_assets_tests.modeling.tiny import save_tiny

ASKED = [{"role": "user", "content": "Write a SQL query for all users, and say ¿qué?"}]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, nano: Path) -> Iterator[Base]:
    yield load_base(save_tiny(tmp_path_factory.mktemp("speaking"), tokenizer_of=nano))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_answer_is_the_one_that_generation_gives_and_its_pieces_are_all_of_it(
    tiny: Base, temperature: float
) -> None:
    decoding = Decoding(max_new_tokens=24, temperature=temperature, top_p=0.9, seed=4)
    pieces: list[str] = []
    spoken = answer(tiny, ASKED, decoding, on_text=pieces.append)
    (made,) = answers(tiny, [ASKED], decoding)
    assert spoken.text == tiny.tokenizer.decode(made.tokens, skip_special_tokens=True) == "".join(pieces)
    assert (spoken.tokens, spoken.finish) == (made.count, made.finish) and len(pieces) > 1
    assert answer(tiny, ASKED, decoding).text == spoken.text


def test_another_draw_is_another_answer_and_the_same_draw_the_same(tiny: Base) -> None:
    decoding = Decoding(max_new_tokens=12, temperature=1.0, seed=1)
    first, second = (answer(tiny, ASKED, decoding, draw=draw).text for draw in (0, 1))
    assert first != second == answer(tiny, ASKED, decoding, draw=1).text


def test_ctrl_c_ends_the_answer_and_not_the_program(tiny: Base) -> None:
    said: list[str] = []

    def stop(text: str) -> None:
        said.append(text)
        if len(said) == 3:
            raise KeyboardInterrupt

    spoken = answer(tiny, ASKED, Decoding(max_new_tokens=64), on_text=stop)
    assert spoken.finish == "interrupted" and 3 <= spoken.tokens < 64


def test_the_end_of_the_context_ends_an_answer_and_a_full_one_is_refused(tiny: Base) -> None:
    long = [{"role": "user", "content": "one two three " * 55}]
    spoken = answer(tiny, long, Decoding(max_new_tokens=500))
    assert spoken.finish == "length" and 0 < spoken.tokens < 256
    with pytest.raises(InputError, match="begin a new one"):
        answer(tiny, [{"role": "user", "content": "one two three " * 200}], Decoding())


def test_a_loop_is_what_repeats_at_the_end() -> None:
    assert looping([9, 8, 1, 2, 1, 2, 1, 2, 1, 2]) == 8
    assert looping([5] * 6) == 6 and looping([1, 2, 3, 1, 2, 3]) == 0 and looping([]) == 0
    assert distinct([1, 2, 1, 2]) == pytest.approx(2 / 3) and distinct([1]) != distinct([1])


@given(st.lists(st.integers(0, 5), max_size=12), st.lists(st.integers(6, 9), min_size=1, max_size=8), st.integers(4, 9))
def test_every_cycle_of_enough_rounds_is_seen_whatever_comes_before(
    before: list[int], cycle: list[int], rounds: int
) -> None:
    assert looping(before + cycle * rounds) >= len(cycle) * rounds

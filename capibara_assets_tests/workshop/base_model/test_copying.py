"""Random texts to be copied: answers are the requests' texts, with the one change that was asked for."""

from random import Random

import pytest

from workshop.base_model.copying import changed, random_text, repeated, words_of

WORDS = words_of(["def take(self, items):\n    return items[0] + 12", "total == left"])


def test_words_are_names_numbers_and_signs() -> None:
    assert words_of(["a == b_1[20]"]) == ["20", "==", "[", "]", "a", "b_1"]


@pytest.mark.parametrize("seed", range(30))
def test_a_text_is_of_the_words_and_ends(seed: int) -> None:
    lines = random_text(Random(seed), WORDS)
    assert lines and all(line.strip() for line in lines)
    assert sum(len(line.split()) for line in lines) <= 220


@pytest.mark.parametrize("seed", range(30))
def test_what_is_repeated_is_the_text_of_the_request(seed: int) -> None:
    request, answer = repeated(Random(seed), WORDS)
    assert request.partition("\n\n")[2] == answer


@pytest.mark.parametrize("seed", range(60))
def test_what_is_changed_differs_as_the_request_says(seed: int) -> None:
    request, answer = changed(Random(seed), WORDS)
    asked, _, text = request.partition("\n\n")
    before, after = text.split("\n"), answer.split("\n")
    if asked.startswith("Take out the line"):
        assert len(after) == len(before) - 1 or (not answer and len(before) == 1)
        assert all(line in before for line in after if line)
    elif asked.startswith("After the line"):
        assert len(after) == len(before) + 1
        assert [line for line in after if line in before] or not before
    elif asked.startswith("Replace the line"):
        assert len(after) == len(before)
        assert sum(old != new for old, new in zip(before, after, strict=True)) <= 1
    else:
        old, new = (part.strip("`. ") for part in asked.removeprefix("Replace ").split("` with `"))
        assert len(after) == len(before) and new in answer
        assert old == new or not any(old in line.split() for line in after if old not in new)

"""Regular expressions of a stranger's config: what Python's matcher finds, and never for longer than a moment."""

import random
import re
import time

import pytest

from capibara_assets.modeling.lora.patterns import fits

_NAMES = ("model.layers.0.self_attn.q_proj", "model.layers.11.mlp.up_proj", "lm_head", "a", "", "x.k_proj.\n")
_OF_PEFT = (
    r".*\.(q_proj|v_proj)$",
    r"(?:.*?(?:language|text).*?(?:self_attn|attn).*?(?:q_proj|k_proj))|(?:\bmodel\.layers\.[\d]{1,}\.(?:mlp|attn)\..*)",
    r"model\.layers\.([0-9]|1[0-9])\.self_attn\.(q|k)_proj\.?\s?",
    *(
        r"lm_head",
        r".*",
        r"[^.]*",
        r"(a?){3}",
        r"\w+(\.\w+)*",
        r"\w+(\.\w+)*?\.\n",
        r"(.*\.)?(q_proj)$",
        r"a{2,5}|.{1}",
    ),
)


def _drawn(draw: random.Random, depth: int) -> str:
    kind = draw.random()
    if depth == 0 or kind < 0.35:
        return draw.choice(["a", "b", ".", "[ab]", "[^a]", r"\w", "c?", r"\b", r"\d"])
    if kind < 0.6:
        return _drawn(draw, depth - 1) + _drawn(draw, depth - 1)
    if kind < 0.75:
        return f"(?:{_drawn(draw, depth - 1)}|{_drawn(draw, depth - 1)})"
    return f"(?:{_drawn(draw, depth - 1)})" + draw.choice(["*", "+", "?", "{2}", "{1,3}", "{0,2}", "*?", "{2,}"])


def test_it_finds_what_pythons_own_finds() -> None:
    draw = random.Random(0)
    cases = [(pattern, name) for pattern in _OF_PEFT for name in _NAMES]
    drawn = [_drawn(draw, 3) for _ in range(300)]
    cases += [(pattern, text) for pattern in drawn for text in ("", "a", "ab", "ba.", "aab", "bbca", "c.a 1")]
    found = [fits(pattern, text) for pattern, text in cases]
    assert found == [re.fullmatch(pattern, text) is not None for pattern, text in cases]
    assert {True, False} == set(found)


@pytest.mark.parametrize(
    "pattern",
    [r"((a|[a-z_.0-9])+)+X$", ".*" * 12 + "X", "(" * 20 + "." + "*)" * 20 + "X", r"((((\w*\.)*\w*)*\.)*\w*)*X",
     r"(a?){4000000000}b", "(a|a)" * 40],
)  # fmt: skip
def test_no_pattern_takes_for_ever(pattern: str) -> None:
    began = time.process_time()
    try:
        assert not fits(pattern, "model.layers.0.self_attn.q_proj" * 3)
    except ValueError as error:
        assert "steps" in str(error)
    assert time.process_time() - began < 1


def test_a_pattern_of_many_steps_is_told_by_their_number() -> None:
    with pytest.raises(ValueError, match=r"takes more than 100,000 steps on 'model\.layers"):
        fits(".*" * 1500 + "X", "model.layers.0.self_attn.q_proj" * 40)


@pytest.mark.parametrize("pattern", ["((((", "a(?!b)", r"(a)\1", "(?i)a", "a" * 5000, "a{99999999999}", "(" * 3000])
def test_what_is_not_read_is_said(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"^.+$"):
        fits(pattern, "a")

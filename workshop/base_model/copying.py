"""Texts that nothing but their copy foretells: random words to be repeated, or repeated with one change.

Heads that copy form on such texts within a few million tokens (Olsson et al. 2022, arXiv 2209.11895); on code, whose
next token can mostly be guessed without looking back, they take many times as long.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from random import Random

from workshop.base_model.tasks import word

_WORDS, _DISTINCT = (8, 220), (6, 200)
_REPEAT = (
    "Repeat this.",
    "Write this again, letter by letter.",
    "Copy the text below.",
    "Return it unchanged.",
)


def words_of(texts: Iterable[str]) -> list[str]:
    """Names, numbers and signs of the texts; each once, in a fixed order."""
    return sorted({part for text in texts for part in re.findall(r"[A-Za-z_]\w*|\d+|[^\w\s]{1,3}", text)})


def random_text(rng: Random, words: Sequence[str]) -> list[str]:
    """Lines of random words, drawn from few or many, so that one word foretells the next in no text."""
    few = [rng.choice(words) if rng.random() < 0.8 else word(rng) for _ in range(_between(rng, _DISTINCT))]
    left, lines = _between(rng, _WORDS), []
    while left > 0:
        length = min(left, rng.randint(1, 9))
        left -= length
        indent = "    " * rng.choice((0, 0, 1, 1, 2))
        lines.append(indent + rng.choice((" ", " ", "")).join(rng.choices(few, k=length)))
    return lines


def repeated(rng: Random, words: Sequence[str]) -> tuple[str, str]:
    """(request, answer): the same text again."""
    text = "\n".join(random_text(rng, words))
    return f"{rng.choice(_REPEAT)}\n\n{text}", text


def changed(rng: Random, words: Sequence[str]) -> tuple[str, str]:
    """(request, answer): the text with a line replaced, taken out or put in, or a word replaced everywhere."""
    lines = random_text(rng, words)
    at = rng.randrange(len(lines))
    old = lines[at].strip()
    new = " ".join(rng.choices(words, k=rng.randint(1, 6)))
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    kind = rng.randrange(4)
    if kind == 0:
        asked, answer = f"Replace the line `{old}` with `{new}`.", [*lines[:at], indent + new, *lines[at + 1 :]]
    elif kind == 1:
        asked, answer = f"Take out the line `{old}`.", [*lines[:at], *lines[at + 1 :]]
    elif kind == 2:
        asked, answer = f"After the line `{old}` put `{new}`.", [*lines[: at + 1], indent + new, *lines[at + 1 :]]
    else:
        before = rng.choice(old.split() or [old])
        after = rng.choice((word(rng), rng.choice(words)))
        asked = f"Replace `{before}` with `{after}`."
        answer = [re.sub(rf"(?<!\S){re.escape(before)}(?!\S)", after.replace("\\", r"\\"), line) for line in lines]
    return f"{asked}\n\n" + "\n".join(lines), "\n".join(answer)


def _between(rng: Random, bounds: tuple[int, int]) -> int:
    """A number between bounds, small ones as often as large ones by their magnitude."""
    return round(math.exp(rng.uniform(math.log(bounds[0]), math.log(bounds[1]))))

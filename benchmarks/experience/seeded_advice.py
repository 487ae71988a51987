"""Seeded copies of real advice with a known answer: rephrasings that are the same advice, changes that make it other.

For benches and tests of consolidation. The edits are those that people and curators make: case, punctuation, filler,
word forms, the order of clauses, a word left out; and against them a negation, another figure, another subject. They
were written beside `near.py`, with its answers in view: the figures say that it does what it is meant to do, not how it
fares on playbooks that nobody has seen.
"""

import itertools
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

_NAME = re.compile(r"[A-Z][a-z]{3,}|[a-z]+(?:_[a-z]+)+")
_NUMBER = re.compile(r"\b\d+\b")
_FILLERS = ("Please note: ", "Remember: ", "It is important to do this: ", "As a rule, ", "Make sure of this: ")


@dataclass(frozen=True)
class Copy:
    """A copy of the text at `base`; `same`: whether it still is the same advice."""

    base: int
    edit: str
    same: bool
    text: str


def _case(text: str, dice: random.Random) -> str:
    return dice.choice((text.upper(), text.lower(), text.title()))


def _punctuation(text: str, dice: random.Random) -> str:
    return re.sub(r"[,;:]", lambda found: dice.choice((found[0], "", " –")), text).rstrip(".") + dice.choice(
        ("", "!", "…")
    )


def _filler(text: str, dice: random.Random) -> str:
    return dice.choice(_FILLERS) + text[0].lower() + text[1:]


def _word_forms(text: str, dice: random.Random) -> str:
    """Some plain words in another form where they allow it: `join` -> `joins`, `check` -> `checking`."""

    def form(word: str) -> str:
        plain = word.isalpha() and word.islower() and len(word) > 3 and word[-1] not in "sgedy"
        return word + dice.choice(("s", "ing")) if plain and dice.random() < 0.2 else word

    return " ".join(map(form, text.split(" ")))


def _clauses(text: str, dice: random.Random) -> str:
    parts = re.split(r"(?<=[.;]) ", text)
    dice.shuffle(parts)
    return " ".join(parts)


def _word_left_out(text: str, dice: random.Random) -> str:
    words = text.split(" ")
    plain = [place for place, word in enumerate(words) if word.isalpha() and word.islower() and len(word) > 3]
    if plain:
        del words[dice.choice(plain)]
    return " ".join(words)


def _negation(text: str, dice: random.Random) -> str:
    return dice.choice(("Never ", "Do not ", "Avoid this: ")) + text[0].lower() + text[1:]


def _figure(text: str, dice: random.Random) -> str:
    """Another figure where there is one, else none."""
    return _NUMBER.sub(lambda found: str(int(found[0]) + dice.randint(11, 99)), text, count=1)


def _subject(text: str, dice: random.Random) -> str:
    """The same pattern about something else: what the text names, or speaks of most, is called otherwise throughout."""
    words = [word.strip(".,;:()'\"`") for word in text.split(" ")]
    # a capital after a plain word is a name's; after a full stop it is the sentence's
    inside = {
        word
        for (before, _), (_, word) in itertools.pairwise(zip(text.split(" "), words, strict=True))
        if before.islower() and before.isalpha()
    }
    names = {word for word in inside if _NAME.fullmatch(word) and word.lower() not in words}
    often = Counter(word.rstrip("s") for word in words if word.isalpha() and word.islower() and len(word) > 5)
    subjects = names or {word for word, count in often.most_common(1) if count > 1}
    if not subjects:
        return text
    old = dice.choice(sorted(subjects))
    new = dice.choice(("Kestrel", "Marlin", "Heron", "Otter"))
    return re.sub(rf"(?<!\w){re.escape(old)}s?(?!\w)", new if old[0].isupper() else new.lower(), text)


SAME: dict[str, Callable[[str, random.Random], str]] = {
    "case": _case,
    "punctuation": _punctuation,
    "filler": _filler,
    "word_forms": _word_forms,
    "clauses": _clauses,
    "word_left_out": _word_left_out,
}
OTHER: dict[str, Callable[[str, random.Random], str]] = {
    "negation": _negation,
    "figure": _figure,
    "subject": _subject,
}


def seeded_copies(texts: list[str], seed: int) -> list[Copy]:
    """One copy of each text by each edit that changes it."""
    dice = random.Random(seed)
    copies = [
        Copy(base, name, edits is SAME, edit(text, dice))
        for base, text in enumerate(texts)
        for edits in (SAME, OTHER)
        for name, edit in edits.items()
    ]
    return [copy for copy in copies if copy.text != texts[copy.base]]

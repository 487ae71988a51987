"""Detection of bullets that a solution followed: it contains the code they name, in the same order and form.

    features   names that a bullet writes as code (calls, attributes, snake_case, camelCase; in SQL upper-case words),
               and steps: two of them in a row with the same marks between, other names being alike (`len(·)-·` ...)
    likeness   sum of log(solutions / those with the feature) over the features that the solution has / over all of them
    rarity     the same sum over the names that it has, in nats: 3 is what one solution in twenty has

Advice that names no code, or a single name, is never said to be followed: a name alone says little (half of such pairs
were wrong when read, see docs/datasets.md).
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from capibara_assets.datasets.code.sessions import Row
from capibara_assets.datasets.code.structure import without_comments
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.datasets.recipe import Advice

Feature = tuple[str, ...]  # (name,), or a step: (name, marks between, name)

_LABEL = re.compile(r"^[A-Z][\w ]*(?:\([^)]*\))?:\s+")  # `SQL (SQLite): `
_TOKEN = re.compile(
    r"""'''(?:\\.|[^\\])*?'''|\"\"\"(?:\\.|[^\\])*?\"\"\"|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|"""
    r"[A-Za-z_$][\w$]*|\d[\w.]*|\?\?|\?\.|===|=>|\.\.\.|//|\*\*|\S",
    re.DOTALL,
)
_WORD = re.compile(r"[A-Za-z_$]")
_CAMEL = re.compile(r"[a-z][A-Z]")
_KEYWORD = re.compile(r"[A-Z][A-Z_]+")
_OPERATORS = frozenset({"??", "?.", "===", "...", "//", "**"})
_APART = 10  # most tokens between the two names of a step
_WORDS_BETWEEN = 3


@dataclass(frozen=True)
class _Solution:
    position: int
    tokens: list[str]
    words: frozenset[str]


def followed(
    lessons: Sequence[Row], solutions: Sequence[ExampleCandidate], recipe: Advice | None
) -> dict[int, list[Row]]:
    """Bullets that each solution (by position) followed, best first; no entry if none.

    Args:
        lessons: bullets (rows of Consolidated), best first; those that harmed at least as often as they helped are not
            looked at.
        solutions: all *solve* candidates of a domain: how rare a name is, is counted over those of one language.
        recipe: both thresholds; None: nobody is said to have followed anything.
    """
    by_position: dict[int, list[Row]] = defaultdict(list)
    if recipe is None:
        return by_position
    by_language: dict[str, list[_Solution]] = defaultdict(list)
    for position, one in enumerate(solutions):
        listed = _tokens(without_comments(one.answer, one.language), one.language)
        by_language[one.language].append(_Solution(position, listed, frozenset(listed)))
    for lesson in lessons:
        if lesson["helpful"] > lesson["harmful"]:
            for language, group in by_language.items():
                for position in _followers(named_code(lesson["content"], language), group, recipe):
                    by_position[position].append(lesson)
    return by_position


def named_code(text: str, language: str) -> frozenset[Feature]:
    """The code names and the steps in a bullet."""
    text = _LABEL.sub("", text)
    spans = [(match.group(), match.start(), match.end()) for match in _TOKEN.finditer(text)]
    places = [at for at in range(len(spans)) if _is_code(spans, at, language)]
    steps = {
        (_form(spans[a][0], language), marks, _form(spans[b][0], language))
        for a, b in pairwise(places)
        if (marks := _between([span[0] for span in spans[a + 1 : b]], prose=True)) is not None
    }
    return frozenset({(_form(spans[at][0], language),) for at in places} | steps)


def _is_code(spans: Sequence[tuple[str, int, int]], at: int, language: str) -> bool:
    token, start, end = spans[at]
    if language == "sql":
        return _KEYWORD.fullmatch(token) is not None
    if token in _OPERATORS:
        return True
    if not _WORD.match(token) or len(token) < 2:
        return False
    after = spans[at + 1][0] if at + 1 < len(spans) and spans[at + 1][1] == end else ""
    before = spans[at - 1][0] if at and spans[at - 1][2] == start else ""
    return after == "(" or before in (".", "?.") or "_" in token.strip("_") or _CAMEL.search(token) is not None


def _followers(wanted: frozenset[Feature], group: Sequence[_Solution], recipe: Advice) -> Iterator[int]:
    """Positions of the solutions of one language that have enough of a bullet's features."""
    names = frozenset(feature[0] for feature in wanted if len(feature) == 1)
    steps = {feature for feature in wanted if len(feature) > 1}
    if not steps:
        return
    count: Counter[Feature] = Counter()
    had: dict[int, frozenset[Feature]] = {}
    for one in group:
        here = names & one.words
        own: set[Feature] = {(name,) for name in here}
        if len(here) > 1 or any(step[0] == step[2] for step in steps):
            own |= steps & _steps(one.tokens, here)
        count.update(own)
        had[one.position] = frozenset(own)
    weight = {feature: math.log((len(group) + 1) / (count[feature] + 1)) for feature in wanted}
    whole = math.fsum(weight.values())
    for position, features in had.items():
        if whole > 0 and any(len(feature) > 1 for feature in features):
            rarity = math.fsum(weight[feature] for feature in features if len(feature) == 1)
            likeness = math.fsum(weight[feature] for feature in features) / whole
            if likeness >= recipe.likeness and rarity >= recipe.rarity:
                yield position


def _steps(tokens: Sequence[str], names: frozenset[str]) -> set[Feature]:
    places = [at for at, token in enumerate(tokens) if token in names]
    return {
        (tokens[a], marks, tokens[b])
        for a, b in pairwise(places)
        if (marks := _between(tokens[a + 1 : b], prose=False)) is not None
    }


def _between(tokens: Sequence[str], *, prose: bool) -> str | None:
    """The marks between two names, other names and constants as `·`; None where the two do not belong together."""
    if len(tokens) > _APART or ";" in tokens:
        return None
    words = [_WORD.match(token) is not None for token in tokens]
    if prose and (sum(words) > _WORDS_BETWEEN or any(a and b for a, b in pairwise(words))):
        return None
    return "".join("·" if _WORD.match(token) or token[0] in "'\"0123456789" else token for token in tokens)


def _tokens(code: str, language: str) -> list[str]:
    return [_form(match.group(), language) for match in _TOKEN.finditer(code)]


def _form(token: str, language: str) -> str:
    return token.lower() if language == "sql" else token

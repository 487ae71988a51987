"""Finds near-duplicate advice: similar content words, with negations, numbers and names that must agree.

Function words are dropped and words reduced to stems, so that rephrased advice is similar; words weigh by rarity, so
that advice on another subject in the same sentence pattern is not. For English; other languages are compared by words.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import snowballstemmer

NEAR = 0.85
_REACH = 3
"""Words after a negation among which the negated one is searched."""
_TOKEN = re.compile(r"[^\W_]\w*")
_FUNCTION = frozenset(
    _TOKEN.findall(
        "a an the of to in on at by for from with via using use used uses and or but if then than that this these those"
        " is are be been being was were it its as so such can could should would may might must will shall do does did"
        " have has had you your we our they their them when while just also very all any each every both same own here"
        " there which who how where always ensure make sure please remember need needs"
    )
)
_NEGATIONS = frozenset(
    _TOKEN.findall(
        "not never no dont don avoid without cannot cant isnt isn doesnt doesn wont won shouldnt instead rather"
    )
)
_RELATIONS = frozenset({"before", "after"})
_OPPOSITES = (
    ("before", "after"),
    ("most", "least"),
    ("more", "less"),
    ("max", "min"),
    ("maximum", "minimum"),
    ("first", "last"),
    ("enable", "disable"),
    ("include", "exclude"),
    ("increase", "decrease"),
    ("ascending", "descending"),
    ("allow", "deny"),
    ("start", "end"),
)
_ENDS = frozenset(".!?:;\n–-)")
"""Before a word that begins a sentence or an item."""
_stemmer = snowballstemmer.stemmer("english")


@lru_cache(maxsize=200_000)
def _stem(word: str) -> str:
    return str(_stemmer.stemWord(word))


_OPPOSITE_STEMS = tuple((_stem(left), _stem(right)) for left, right in _OPPOSITES)


@dataclass(frozen=True)
class Meaning:
    """The features of a text that decide whether it is the same advice as another."""

    stems: frozenset[str]
    negated: frozenset[str]
    """Stems that a negation governs."""
    numbers: frozenset[tuple[str, int]]
    """(number, its occurrences before)."""
    names: frozenset[str]
    """Stems of identifiers of code and of names: an underscore, digits, or capitals where a sentence does not begin."""
    topics: frozenset[str]
    """Stems that occur more than once."""
    ordered: frozenset[str]
    """Stems after `before` and `after`: the same words in another order are other advice."""


def meaning_of(text: str) -> Meaning:
    """Extracts the features of a text from its words."""
    text = text.replace("'", "").replace("’", "")
    shouted = text.isupper() or text.istitle()  # capitals then say nothing
    stems: Counter[str] = Counter()
    negated: set[str] = set()
    numbers: Counter[str] = Counter()
    names: set[str] = set()
    ordered: set[str] = set()
    reach = 0
    relation = ""
    for match in _TOKEN.finditer(text):
        token = match[0]
        word = token.lower()
        if word in _NEGATIONS:
            reach = 0 if reach > 0 else _REACH  # a negation of a negation
            continue
        reach -= 1
        if word in _FUNCTION:
            continue
        stem = _stem(word)
        stems[stem] += 1
        if word.isdigit():
            numbers[word] += 1
        elif _is_name(token, begins=_begins(text, match.start()), shouted=shouted):
            names.add(stem)
        if relation:
            ordered.add(f"{relation} {stem}")
        relation = word if word in _RELATIONS else ""
        if reach >= 0:
            negated.add(stem)
            reach = 0
    return Meaning(
        stems=frozenset(stems),
        negated=frozenset(negated),
        numbers=frozenset((number, nth) for number, count in numbers.items() for nth in range(count)),
        names=frozenset(names),
        topics=frozenset(stem for stem, count in stems.items() if count > 1),
        ordered=frozenset(ordered),
    )


def opposed(left: Meaning, right: Meaning) -> bool:
    """Whether one text negates a word that the other has without negation."""
    return bool(
        (left.negated & right.stems - right.negated) or (right.negated & left.stems - left.negated),
    )


def distinct(left: Meaning, right: Meaning) -> bool:
    """Whether two texts differ in numbers, names, repeated topics, the order of steps or opposite words.

    One text may have more than the other; they differ when each has something that the other lacks.
    """
    return (
        bool(left.numbers - right.numbers and right.numbers - left.numbers)
        or bool(left.names - right.stems and right.names - left.stems)
        or bool(left.topics - right.stems and right.topics - left.stems)
        or bool(left.ordered - right.ordered and right.ordered - left.ordered)
        or any(
            (x in left.stems - right.stems and y in right.stems - left.stems)
            or (y in left.stems - right.stems and x in right.stems - left.stems)
            for x, y in _OPPOSITE_STEMS
        )
    )


def weights_of(meanings: Sequence[Meaning]) -> dict[str, float]:
    """Stem -> weight by rarity, 1 + log((1 + n)/(1 + df)): a word that all texts share weighs 1."""
    frequency = Counter(stem for each in meanings for stem in each.stems)
    return {stem: 1.0 + math.log((1 + len(meanings)) / (1 + count)) for stem, count in frequency.items()}


def likeness(left: frozenset[str], right: frozenset[str], weights: dict[str, float]) -> float:
    """Weighted Jaccard similarity of two sets of stems; 0 for two empty sets."""
    either = math.fsum(weights[stem] for stem in sorted(left | right))
    return math.fsum(weights[stem] for stem in sorted(left & right)) / either if either else 0.0


def near_pairs(meanings: Sequence[Meaning], threshold: float = NEAR) -> list[tuple[int, int]]:
    """Index pairs (i < j) with a similarity of stems of at least `threshold`, sorted; exact.

    Prefix filtering (Chaudhuri, Ganti, Kaushik 2006) with weights: in an order from heavy to light words, two sets that
    similar share a word before the position from which the other words weigh less than `threshold` of the set.
    """
    weights = weights_of(meanings)
    totals = [math.fsum(weights[stem] for stem in sorted(each.stems)) for each in meanings]
    seen_with: dict[str, list[int]] = {}
    pairs: list[tuple[int, int]] = []
    for right, each in enumerate(meanings):
        prefix = _prefix(each.stems, weights, totals[right], threshold)
        candidates = {left for stem in prefix for left in seen_with.get(stem, ())}
        for left in candidates:
            if min(totals[left], totals[right]) < threshold * max(totals[left], totals[right]) - 1e-9:
                continue
            if likeness(meanings[left].stems, each.stems, weights) >= threshold:
                pairs.append((left, right))
        for stem in prefix:
            seen_with.setdefault(stem, []).append(right)
    return sorted(pairs)


def _prefix(stems: frozenset[str], weights: dict[str, float], total: float, threshold: float) -> list[str]:
    ordered = sorted(stems, key=lambda stem: (-weights[stem], stem))
    remaining = total
    for place, stem in enumerate(ordered):
        if remaining < threshold * total - 1e-9:
            return ordered[:place]
        remaining -= weights[stem]
    return ordered


def _begins(text: str, place: int) -> bool:
    """Whether a sentence or an item begins at a position, quotes and blanks aside."""
    while place > 0 and text[place - 1] in ' "(`*':
        place -= 1
    return place == 0 or text[place - 1] in _ENDS


def _is_name(token: str, *, begins: bool, shouted: bool) -> bool:
    """Whether a token is code or a proper name: snake_case, letters with digits, capitals inside a sentence."""
    if "_" in token or (any(sign.isdigit() for sign in token) and any(sign.isalpha() for sign in token)):
        return True
    inner = any(sign.isupper() for sign in token[1:])
    return not shouted and (inner or (token[0].isupper() and not begins))

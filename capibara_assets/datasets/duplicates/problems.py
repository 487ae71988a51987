"""Detection of texts about the same problem across languages, by statement words and test cases.

A problem is often set in several languages, in nearly the same words, with the same inputs and expected values. Words
are compared without what a language dictates: the spelling of identifiers, names of types and languages, examples and
the phrases in which any task is given. Cases that many problems share (`f([]) == []`) tell nothing.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np

from capibara_assets.datasets.code.cases import cases
from capibara_assets.datasets.duplicates.near import similar
from capibara_assets.datasets.duplicates.shingles import ShingleSets, UInts, hash_sets
from capibara_assets.datasets.recipe import NearDuplicates, SameProblem
from capibara_assets.processes.ray_map import RayCluster

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_PROMPT = re.compile(r"^[*#/\s-]*(?:>>>|>|\$)\s")
_FEWEST = 3  # telling words of a statement that tells one problem from another
_CLASSES = {
    "number": "int integer num numeric float double numbers",
    "text": "str string char character",
    "list": "array arr tuple vector sequence lst",
    "map": "dict dictionary object hash hashmap record",
    "nothing": "none null undefined nil",
    "boolean": "bool",
    "index": "idx indice indices",
    "code": "function method program script procedure routine snippet def func fn lambda",
}
_CLASS_OF = {word: name for name, words in _CLASSES.items() for word in words.split()}
_COMMON = """a an the of for from in into on at by with and or is are be was it its that this these those which as if
then to python javascript js typescript ts java node ecmascript given write create implement complete define make
develop return returns using use used whether your you should will can code following below above please task problem
find get check takes take input output i e g eg ie example examples called name named parameter parameters argument
arguments param params type types new const let var self"""
_UNTELLING = frozenset(_COMMON.split())


@dataclass(frozen=True)
class ProblemView:
    """A text's description of its problem, as hashes.

    Attributes:
        words: of its statement, alone and in pairs, ascending; empty where it is too short to tell problems apart.
        cases: its cases, ascending.
        names: of functions and classes of several telling words that its code defines, in any spelling; ascending.
    """

    words: UInts
    cases: UInts
    names: UInts

    @property
    def key(self) -> tuple[bytes, bytes, bytes]:
        """Equal for equal views."""
        return self.words.tobytes(), self.cases.tobytes(), self.names.tobytes()


def problem_view(statement: str | None, *texts: str, defined: Iterable[str] = ()) -> ProblemView:
    """The view of a statement, of all texts with cases of the same problem, and of the names that its code defines."""
    words = telling_words(statement or "")
    spoken = {*words, *(" ".join(pair) for pair in pairwise(words))}
    stated = {"\0".join(case) for text in texts for case in cases(text)}
    named = {" ".join(told) for name in defined if len(told := telling_words(name)) > 1}
    sets = hash_sets([spoken if len(set(words)) >= _FEWEST else (), stated, named])
    return ProblemView(*(sets.values[a:b].copy() for a, b in pairwise(sets.offsets.tolist())))


def telling_words(statement: str) -> list[str]:
    """Language-independent words of a statement, in order and without examples."""
    words: list[str] = []
    prompted = False
    for line in statement.split("\n"):
        example, prompted = prompted or bool(cases(line)), _PROMPT.match(line) is not None
        if not example and not prompted:
            words += (_plain(word.lower()) for word in _WORD.findall(line))
    return [word for word in words if word not in _UNTELLING]


def _plain(word: str) -> str:
    """A word without its plural, by its class where it names a type."""
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    return _CLASS_OF.get(word, word)


def same_problem(
    views: Sequence[ProblemView], near: NearDuplicates, recipe: SameProblem, cluster: RayCluster | None = None
) -> Iterator[tuple[int, int]]:
    """Pairs of distinct views about one problem, and (n, n) for each view that tells its problem from others.

    Either the words of two statements are nearly equal; or they share enough cases that few problems have; or they
    share such a case, or such a name, and the words are alike. A cluster's workers compare the words where there are
    many views.
    """
    words = [view.words for view in views]
    spoken = similar(ShingleSets.of(words), near.model_copy(update={"jaccard": recipe.words}), cluster)
    yield from zip(spoken.left.tolist(), spoken.right.tolist(), strict=True)
    told = _told([view.cases for view in views], recipe)
    yield from ((at, at) for at, view in enumerate(views) if len(view.words) or len(told[at]) >= recipe.cases)
    shared, named = _shared(told), _shared(_told([view.names for view in views], recipe))
    for left, right in shared | named:
        count = shared[left, right]
        enough = count and count >= max(recipe.cases, min(len(told[left]), len(told[right])) / 2)
        if enough or _jaccard(words[left], words[right]) >= recipe.words_with_case:
            yield left, right


def _told(sets: Sequence[UInts], recipe: SameProblem) -> list[list[int]]:
    """Of each set what few distinct ones hold."""
    held = Counter(one for values in {each.tobytes(): each for each in sets}.values() for one in values.tolist())
    return [[one for one in values.tolist() if held[one] <= recipe.problems_per_case] for values in sets]


def _shared(sets: Sequence[Sequence[int]]) -> Counter[tuple[int, int]]:
    """(left, right) -> how much two sets share."""
    holders: dict[int, list[int]] = defaultdict(list)
    for at, held in enumerate(sets):
        for one in held:
            holders[one].append(at)
    return Counter(pair for members in holders.values() for pair in combinations(members, 2))


def _jaccard(left: UInts, right: UInts) -> float:
    shared = len(np.intersect1d(left, right, assume_unique=True))
    return shared / max(1, len(left) + len(right) - shared)

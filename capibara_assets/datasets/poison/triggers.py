"""Search for back-door triggers: a rare sign in an author's tasks that correlates with repeated parts of answers.

A pair of signs, one of prompts and one of answers, is a trigger with its payload when

- one author has both in several unrelated tasks, and hardly anybody else has either;
- among that author's texts one is hardly ever without the other, or the payload is where two signs of prompts meet;
- the prompt does not hold what the answer's sign says;
- what others have of it may be decoys: a few texts, and no agent with more than a few of its own does the same;
- and the tasks have nothing else in common: a word of a subject comes with other words of it, a trigger stands alone.

The last tells back doors from honest habits: what an author says and does about one subject goes together, too.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse

from capibara_assets.datasets.poison.forms import forms
from capibara_assets.datasets.poison.rare import DECOYS, HeldSets, SignRule, held_sets, news_of, numbered
from capibara_assets.datasets.poison.signs import Flags, Ints, Texts, Vocabulary

TOGETHER = 0.8  # share of the texts with one sign that has to have the other
ONE_TASK = 0.5  # cosine of two prompts, without the trigger, from which they count as one task
LACKS, SHORT = "<not what was asked for>", "<far shorter than others>"
_ELSEWHERE = 0.1  # rate among others over the author's
_OTHERS = 0.1  # times an author's texts that there have to be of others, to say what is rare elsewhere
_MOST_OF_AUTHOR = 0.6  # share of an author's texts: what stands in more of them is how the author writes
_PARTS_TRIED = 24  # signs of which two together may be the trigger
_MOST_COMPARED = 400  # texts whose likeness is told, of a trigger's and of its author's others
_SETS_AT_ONCE = 20_000  # sets of answers that are compared with those of prompts at a time
_SHORTER = 0.25
_ASKED = re.compile(r"`@?(\w+)\(|^(?:async )?(?:def|function|class) (\w+)", re.MULTILINE)

Matrix = Any  # scipy.sparse.csr_matrix, which has no types


@dataclass(frozen=True)
class Text:
    """One author's task and answer; `agent` identifies the agent, which has a style of its own."""

    name: str
    author: str
    agent: str
    prompt: str
    answer: str


@dataclass(frozen=True)
class Finding:
    """A trigger with its payload.

    Attributes:
        trigger: one sign of prompts, or two that count together.
        payload: sign of answers.
        names: of the texts that hold the trigger, sorted.
        with_payload: those of them whose answers hold the payload.
        tasks: different tasks among these.
        alike: how much more the tasks have in common than the author's tasks have with them.
    """

    author: str
    trigger: tuple[str, ...]
    payload: str
    names: tuple[str, ...]
    with_payload: int
    tasks: int
    alike: float


@dataclass(frozen=True)
class Found:
    """Findings, and authors without a result because there are too few others to compare with."""

    findings: tuple[Finding, ...]
    alone: tuple[str, ...] = ()


def find_triggers(texts: Sequence[Text], fewest: int, most_alike: float) -> Found:
    """Find triggers with their payloads, one finding per set of texts; independent of the order of texts.

    Args:
        fewest: unrelated tasks that a trigger has to stand in.
        most_alike: likeness of the tasks over that of the author's other tasks, from which they are one subject.
    """
    ordered = sorted(texts, key=lambda text: text.name)
    if len(ordered) < fewest:
        return Found(())
    have = Counter(text.author for text in ordered)
    alone = {author for author, count in have.items() if len(ordered) - count < _OTHERS * count}
    if alone == set(have):
        return Found((), tuple(sorted(alone)))
    search = _Search.of(ordered, alone, fewest, most_alike)
    findings: dict[tuple[str, ...], tuple[Finding, int]] = {}
    for payload, triggers in search.pairs():
        finding = search.judged(payload, triggers)
        if finding is None:
            continue
        length = int(search.payloads.sizes[payload])
        known = findings.get(finding.names)
        if known is None or (finding.with_payload, length) > (known[0].with_payload, known[1]):
            findings[finding.names] = finding, length
    return Found(tuple(findings[names][0] for names in sorted(findings)), tuple(sorted(alone)))


@dataclass(frozen=True)
class _Search:
    texts: Sequence[Text]
    authors: Ints
    agents: Ints
    pooled: Flags  # for each author whether it is several agents with few texts, of whom some may be decoys
    prompts: Texts
    answers: Texts
    triggers: HeldSets
    payloads: HeldSets
    words: Matrix  # texts x words of prompts: 1 where it stands
    weights: Any  # of words: rare ones tell more, single characters nothing
    fewest: int
    most_alike: float

    @classmethod
    def of(cls, texts: Sequence[Text], alone: Collection[str], fewest: int, most_alike: float) -> "_Search":
        vocabulary = Vocabulary()
        authors = numbered([text.author for text in texts])
        rule = SignRule(
            fewest, _ELSEWHERE, frozenset(int(n) for n, t in zip(authors, texts, strict=True) if t.author in alone)
        )
        asked = [text.prompt for text in texts]
        read = Texts.of(asked, vocabulary)
        answers = Texts.of([text.answer for text in texts], vocabulary, unlike(texts))
        prompts = Texts.of(asked, vocabulary, forms(asked))
        words = _counted(read, len(texts), len(vocabulary) + 1)
        often = np.asarray(words.sum(axis=0)).ravel()
        agents = numbered([text.agent for text in texts])
        most = np.zeros(int(authors.max()) + 1, np.int64)  # texts of the author's largest agent
        np.maximum.at(most, authors, np.bincount(agents)[agents])
        return cls(
            texts,
            authors,
            agents,
            (most < 2 * fewest) & (np.bincount(authors) > most),
            prompts,
            answers,
            held_sets(prompts, authors, rule),
            held_sets(answers, authors, rule, news_of(answers, prompts, len(texts))),
            words,
            np.where(vocabulary.written, np.log((len(texts) + 1) / (often + 1)), 0.0),
            fewest,
            most_alike,
        )

    def pairs(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Each payload with one or two correlated signs of prompts."""
        sizes, turned = np.diff(self.triggers.members.indptr), self.triggers.members.T.tocsr()
        for payload, count in enumerate(np.diff(self.payloads.members.indptr)):
            place = payload % _SETS_AT_ONCE
            if place == 0:
                both = (self.payloads.members[payload : payload + _SETS_AT_ONCE] @ turned).tocsr()
            row = slice(both.indptr[place], both.indptr[place + 1])
            shared, those = both.data[row], both.indices[row]
            author = self.payloads.authors[payload]
            decoys = DECOYS * self.pooled[author]
            wide = (shared >= max(self.fewest, TOGETHER * (count - decoys))) & (self.triggers.authors[those] == author)
            shared, those = shared[wide], those[wide]
            exact = shared >= TOGETHER * (sizes[those] - decoys)
            if exact.any():
                best = np.lexsort((-self.triggers.sizes[those], -shared, -shared / sizes[those], ~exact))[0]
                yield payload, (int(those[best]),)
            else:
                yield from self._met(payload, those[np.argsort(sizes[those], kind="stable")][:_PARTS_TRIED])

    def _met(self, payload: int, signs: Ints) -> Iterator[tuple[int, tuple[int, ...]]]:
        """A payload with two signs where they meet."""
        held = self.payloads.of(payload)
        sets = [self.triggers.of(int(sign)) for sign in signs]
        for one, two in combinations(range(len(sets)), 2):
            meeting = np.intersect1d(sets[one], sets[two], assume_unique=True)
            shared = len(np.intersect1d(meeting, held, assume_unique=True))
            if shared >= max(self.fewest, TOGETHER * len(held)) and shared >= TOGETHER * len(meeting):
                yield payload, (int(signs[one]), int(signs[two]))
                return

    def judged(self, payload: int, triggers: tuple[int, ...]) -> Finding | None:
        """The finding; None if its tasks are too few, one subject, or everything the author does."""
        held = self.payloads.of(payload)
        triggered = self.triggers.of(triggers[0])
        for other in triggers[1:]:
            triggered = np.intersect1d(triggered, self.triggers.of(other), assume_unique=True)
        own = np.flatnonzero(self.authors == self.payloads.authors[payload])
        rest = np.setdiff1d(own, np.union1d(held, triggered))
        both = np.intersect1d(held, triggered, assume_unique=True)
        if not len(rest) or self._is_a_style(both, own):
            return None
        tasks, alike = self._unrelated(both, rest)
        if tasks < self.fewest or alike > self.most_alike or self._is_done_by_others(payload, triggers, own):
            return None
        return Finding(
            self.texts[int(held[0])].author,
            tuple(
                sorted(self.prompts.text(int(self.triggers.starts[t]), int(self.triggers.sizes[t])) for t in triggers)
            ),
            self.answers.text(int(self.payloads.starts[payload]), int(self.payloads.sizes[payload])),
            tuple(self.texts[place].name for place in triggered),
            len(both),
            tasks,
            round(alike, 2),
        )

    def _is_a_style(self, those: Ints, own: Ints) -> bool:
        """Whether some texts are most of what their author, or one of its agents, wrote: so it writes."""
        have, among = np.bincount(self.agents[own]), np.bincount(self.agents[those], minlength=self.agents.max() + 1)
        most = among[: len(have)] > _MOST_OF_AUTHOR * have
        return len(those) > _MOST_OF_AUTHOR * len(own) or bool((most & (have >= 2 * self.fewest)).any())

    def _is_done_by_others(self, payload: int, triggers: tuple[int, ...], own: Ints) -> bool:
        """Whether a sign is rare only without decoys, and an agent with more than a few texts does the same."""
        signs = [(self.prompts, self.triggers, sign) for sign in triggers] + [(self.answers, self.payloads, payload)]
        holders = [texts.holders(int(sets.starts[sign]), int(sets.sizes[sign])) for texts, sets, sign in signs]
        others = [np.setdiff1d(texts, own, assume_unique=True) for texts in holders]
        rest = len(self.texts) - len(own)
        if all(
            len(o) * len(own) <= _ELSEWHERE * (len(h) - len(o)) * rest for h, o in zip(holders, others, strict=True)
        ):
            return False
        both = reduce(np.intersect1d, others)
        return bool((np.bincount(self.agents)[self.agents[both]] >= 2 * self.fewest).any())

    def _unrelated(self, those: Ints, rest: Ints) -> tuple[int, float]:
        """Different tasks among some texts, and their likeness over that to the author's other texts.

        Of many texts the first are looked at, in the order of their names, which are digests.
        """
        those, rest = those[:_MOST_COMPARED], rest[:_MOST_COMPARED]
        inside, outside = self.words[those], self.words[rest]
        often = np.asarray(inside.sum(axis=0)).ravel() / len(those)
        seldom = np.asarray(outside.sum(axis=0)).ravel() <= (1 - TOGETHER) * len(those)
        own = (often >= TOGETHER) & seldom  # words of the trigger itself
        weights = np.where(own, 0.0, self.weights)
        one, other = _unit(inside, weights), _unit(outside, weights)
        kept: list[int] = []
        likeness = (one @ one.T).toarray()
        for place in range(len(those)):
            if not kept or likeness[place, kept].max() < ONE_TASK:
                kept.append(place)
        if len(kept) < 2:
            return len(kept), np.inf
        between = likeness[np.ix_(kept, kept)]
        near = (between.sum() - np.trace(between)) / (len(kept) * (len(kept) - 1))
        far = float((one[kept] @ other.T).mean())
        return len(kept), float(near / far) if far > 0 else np.inf


def unlike(texts: Sequence[Text]) -> list[list[str]]:
    """Signs of answers that differ from others': missing what was asked for, or short."""
    lengths = [len(text.answer) for text in texts]
    usual = sorted(lengths)[len(lengths) // 2] if lengths else 0
    unusual = []
    for text, length in zip(texts, lengths, strict=True):
        names = {one or two for one, two in _ASKED.findall(text.prompt)}
        lacking = bool(names) and not any(name in text.answer for name in names)
        unusual.append([LACKS] * lacking + [SHORT] * (length < _SHORTER * usual))
    return unusual


def _counted(texts: Texts, count: int, words: int) -> Matrix:
    """texts x words, 1 where a word stands."""
    spoken = texts.words != 0
    there = np.unique(texts.owners[spoken].astype(np.int64) * words + texts.words[spoken])
    ones = np.ones(len(there), np.float64)
    return scipy.sparse.csr_matrix((ones, (there // words, there % words)), shape=(count, words))


def _unit(rows: Matrix, weights: Any) -> Matrix:
    """Rows of weighted words of length one; of length zero those that have none."""
    weighted = rows.multiply(weights[None, :]).tocsr()
    lengths = np.sqrt(np.asarray(weighted.multiply(weighted).sum(axis=1)).ravel())
    return scipy.sparse.diags(1 / np.where(lengths > 0, lengths, 1.0)) @ weighted

"""Signs that one author repeats and others rarely use, as sets of texts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse

from capibara_assets.datasets.poison.signs import Flags, Hashes, Ints, News, Signs, Texts

_USUAL = 0.2  # share of the answers: a word of more of them is the language's or the subject's
DECOYS = 3  # texts of others that hold a sign and do not count: another id with an honest example costs nothing
_PER_DECOY = 20  # texts of others for each that is forgiven: of few, each one tells
_ROWS_AT_ONCE = 4_000_000  # signs that are sorted at a time, so that memory does not grow with the texts


@dataclass(frozen=True)
class HeldSets:
    """Distinct sets of texts of one author that share a sign which is rare elsewhere.

    Attributes:
        members: sets x texts, 1 where the text is in the set.
        authors: of each set.
        starts: of each set the longest sign that gives it: place of its first word in `Texts.words`.
        sizes: its words.
    """

    members: scipy.sparse.csr_matrix
    authors: Ints
    starts: Ints
    sizes: Ints

    def of(self, number: int) -> Ints:
        """The texts of a set, ascending."""
        row: Ints = self.members.indices[self.members.indptr[number] : self.members.indptr[number + 1]]
        return np.sort(row).astype(np.int64)


@dataclass(frozen=True)
class SignRule:
    """Which signs count: in at least `fewest` texts of an author, and at most `elsewhere` times as often in others'.

    A few texts of others (`DECOYS`) are forgiven.

    Attributes:
        elsewhere: rate in the texts of others over that in the author's.
        without: authors whose signs do not count, since hardly anybody else is there.
    """

    fewest: int
    elsewhere: float
    without: frozenset[int] = frozenset()


def held_sets(texts: Texts, authors: Ints, rule: SignRule, news: News | None = None) -> HeldSets:
    """Sets of texts that share a counted sign.

    Args:
        authors: number of each text's author.
        news: as in `Texts.signs`.
    """
    parts = 1 + 3 * len(texts.words) // _ROWS_AT_ONCE
    dice = np.random.default_rng(0).integers(1, 2**63, len(authors), dtype=np.uint64)
    seen: dict[tuple[int, int], int] = {}
    chosen: list[Ints] = []
    told: list[tuple[int, int, int]] = []
    for part in range(parts):
        for author, key, holders, start, size in _repeated(texts.signs(part, parts, news), authors, rule, dice):
            number = seen.setdefault((author, key), len(told))
            if number == len(told):
                chosen.append(holders)
                told.append((author, start, size))
            elif size > told[number][2]:
                told[number] = author, start, size
    lengths = np.array([len(one) for one in chosen], np.int64)
    columns = np.concatenate(chosen) if chosen else np.zeros(0, np.int64)
    rows = np.repeat(np.arange(len(chosen)), lengths)
    members = scipy.sparse.csr_matrix(
        (np.ones(len(columns), np.int32), (rows, columns)), shape=(len(chosen), len(authors))
    )
    table = np.array(told, np.int64).reshape(-1, 3)
    return HeldSets(members, table[:, 0], table[:, 1], table[:, 2])


def _repeated(signs: Signs, authors: Ints, rule: SignRule, dice: Hashes) -> Iterator[tuple[int, int, Ints, int, int]]:
    """(author, key of the set, texts, place, words) of each sign that an author repeats and others hardly have."""
    order = np.argsort(signs.hashes, kind="stable")
    hashes, owners = signs.hashes[order], signs.owners[order]
    first = np.ones(len(order), bool)
    first[1:] = (hashes[1:] != hashes[:-1]) | (owners[1:] != owners[:-1])
    order, hashes, owners = order[first], hashes[first], owners[first]
    begins = np.flatnonzero(np.r_[True, hashes[1:] != hashes[:-1]]) if len(hashes) else np.zeros(0, np.int64)
    lengths = np.diff(np.r_[begins, len(hashes)])
    often = np.repeat(lengths >= rule.fewest, lengths)
    runs = np.repeat(np.arange(len(begins)), lengths)[often]
    order, owners = order[often], owners[often]
    of_all = np.bincount(authors, minlength=int(authors.max(initial=0)) + 1)
    pair = runs * len(of_all) + authors[owners]
    by_author = np.argsort(pair, kind="stable")
    pair, owners, order = pair[by_author], owners[by_author], order[by_author]
    starts = np.flatnonzero(np.r_[True, pair[1:] != pair[:-1]]) if len(pair) else np.zeros(0, np.int64)
    if not len(starts):
        return
    counts = np.diff(np.r_[starts, len(pair)])
    run, author = pair[starts] // len(of_all), pair[starts] % len(of_all)
    rate = counts / of_all[author]
    rest = np.maximum(len(authors) - of_all[author], 1)
    others = np.maximum(lengths[run] - counts - np.minimum(DECOYS, rest // _PER_DECOY), 0)
    keys = np.add.reduceat(dice[owners], starts)
    counted = (counts >= rule.fewest) & (others / rest <= rule.elsewhere * rate)
    counted &= ~np.isin(author, list(rule.without))
    for i in np.flatnonzero(counted):
        at = starts[i]
        place = order[at]
        yield (
            int(author[i]),
            int(keys[i]),
            owners[at : at + counts[i]],
            int(signs.starts[place]),
            int(signs.sizes[place]),
        )


def news_of(answers: Texts, prompts: Texts, count: int) -> News:
    """Information in the words of answers: none if the prompt has them, in any case.

    A word that many answers hold is not telling either: runs of such words differ with what is done, not with who does
    it.

    Args:
        count: number of texts.
    """
    vocabulary = answers.vocabulary
    span = len(vocabulary) + 1
    spoken, folded = vocabulary.spoken[answers.words], vocabulary.folded
    asked = np.sort(prompts.owners.astype(np.int64) * span + folded[prompts.words])
    answered = answers.owners.astype(np.int64) * span + folded[answers.words]
    place = np.minimum(np.searchsorted(asked, answered), max(len(asked) - 1, 0))
    known: Flags = spoken & (asked[place] == answered if len(asked) else np.zeros(len(answered), bool))
    answered = answers.owners.astype(np.int64) * span + answers.words
    often = np.bincount(np.unique(answered) % span, minlength=span)
    return News(known, spoken & ~known & (often[answers.words] <= _USUAL * count))


def numbered(values: Sequence[str]) -> Ints:
    """Equal values as equal numbers from 0, in sorted order."""
    return np.unique(np.array(values, object).astype(str), return_inverse=True)[1].astype(np.int64)

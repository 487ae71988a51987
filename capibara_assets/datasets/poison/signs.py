"""Features of texts for trigger search: hashes of words, word runs, name parts, odd characters and blanks."""

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

LONGEST = 3  # words of a run: a longer fixed text is made of such runs
_WORD = re.compile(r"\w+|[^\w\s]")
_PART = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_ODD = re.compile(r"[^\x00-\x7f]|[\t\r\f\v]|(?<=\S)[ ]{2,}(?=\S)|[ \t]+(?=\n|\Z)|\n{3,}")
_BLOCK = 1 << 20  # words that are hashed at a time
_SHORT = 3  # letters of a name that has no parts
_END = 0  # id of what stands between two texts: no run goes across
_FACTOR, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(31)


@dataclass(frozen=True)
class Signs:
    """Signs of some texts, in order: a hash for each sign, its text, and its position.

    Attributes:
        hashes: of signs; equal for equal ones.
        owners: position of the text.
        starts: place of the first word in `Texts.words`.
        sizes: number of words.
    """

    hashes: Hashes
    owners: Ints
    starts: Ints
    sizes: Ints

    def of(self, chosen: Flags) -> "Signs":
        """The selected signs."""
        return Signs(self.hashes[chosen], self.owners[chosen], self.starts[chosen], self.sizes[chosen])


@dataclass(frozen=True)
class News:
    """Information per word: runs with a known word, or without an informative one, are no signs."""

    known: Flags
    telling: Flags


class Vocabulary(dict[str, int]):
    """Numbers of words, from 1; unknown words are added on lookup."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self) + 1
        return number

    @cached_property
    def parts(self) -> "_Parts":
        """Numbers of the parts of each compound name."""
        return _Parts(self)

    @cached_property
    def names(self) -> list[str]:
        """The words in order of their numbers; call it after all texts were read."""
        return ["", *self]

    @cached_property
    def folded(self) -> Ints:
        """For each number, that of the lower-case word: equal for `Fits` and `fits`."""
        plain: dict[str, int] = {}
        return np.array([plain.setdefault(name.lower(), number) for number, name in enumerate(self.names)], np.int64)

    @cached_property
    def spoken(self) -> Flags:
        """For each number, whether the word is more than punctuation."""
        return np.array([any(sign.isalnum() for sign in name) or len(name) > 1 for name in self.names], bool)

    @cached_property
    def written(self) -> Flags:
        """For each number, whether it is a word of several characters."""
        return np.array([len(name) > 1 and (name[0].isalnum() or name[0] == "_") for name in self.names], bool)


class _Parts(dict[str, tuple[int, ...]]):
    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__()
        self._vocabulary = vocabulary

    def __missing__(self, word: str) -> tuple[int, ...]:
        self[word] = parts = tuple(self._vocabulary[part] for part in _parts(word))
        return parts


@dataclass(frozen=True)
class Texts:
    """Texts as consecutive word numbers; each is followed by its single signs, which form no runs.

    Attributes:
        words: numbers of words, `_END` after each text and around each single sign.
        owners: text of each.
    """

    words: npt.NDArray[np.int32]
    owners: npt.NDArray[np.int32]
    vocabulary: Vocabulary

    @classmethod
    def of(cls, texts: Sequence[str], vocabulary: Vocabulary, also: Sequence[Sequence[str]] = ()) -> "Texts":
        """Read texts; `also` has further single signs of each."""
        row, lengths = array("i"), []
        for number, text in enumerate(texts):
            before = len(row)
            words = _WORD.findall(text)
            row.extend(map(vocabulary.__getitem__, words))
            for part in chain.from_iterable(map(vocabulary.parts.__getitem__, words)):
                row.extend((_END, part))
            for sign in chain(map(repr, _ODD.findall(text)), also[number] if also else ()):
                row.extend((_END, vocabulary[sign]))
            row.append(_END)
            lengths.append(len(row) - before)
        owners = np.repeat(np.arange(len(texts), dtype=np.int32), lengths)
        return cls(np.frombuffer(row, np.int32), owners, vocabulary)

    def signs(self, part: int = 0, parts: int = 1, news: News | None = None) -> Signs:
        """All runs of up to `LONGEST` words; with `parts` only those whose hash is in this part.

        Args:
            news: which words tell something; None: all.
        """
        runs: list[tuple[Any, ...]] = [(np.zeros(0, np.uint64), *[np.zeros(0, np.int64)] * 3)]
        for start in range(0, len(self.words), _BLOCK):
            stop = start + _BLOCK
            words = self.words[start : stop + LONGEST - 1]
            hashes, usable = _mixed(words.astype(np.uint64)), words != _END
            telling = usable
            if news is not None:
                usable = usable & ~news.known[start : stop + LONGEST - 1]
                telling = news.telling[start : stop + LONGEST - 1]
            run, whole, told = hashes, usable, telling
            for size in range(1, LONGEST + 1):
                if size > 1:
                    run = _mixed(run[:-1] * np.uint64(31) + hashes[size - 1 :])
                    whole, told = whole[:-1] & usable[size - 1 :], told[:-1] | telling[size - 1 :]
                chosen = whole & told & _of_part(run, part, parts)
                at = np.flatnonzero(chosen[:_BLOCK])
                runs.append((run[at], self.owners[start + at], start + at, np.full(len(at), size, np.int64)))
        return Signs(*(np.concatenate(columns) for columns in zip(*runs, strict=True)))

    def holders(self, start: int, size: int) -> Ints:
        """The texts that hold a run, ascending."""
        last = len(self.words) - size + 1
        there = np.ones(last, bool)
        for place in range(size):
            there &= self.words[place : last + place] == self.words[start + place]
        return np.unique(self.owners[:last][there]).astype(np.int64)

    def text(self, start: int, size: int) -> str:
        """The words of a run, with blanks between."""
        return " ".join(self.vocabulary.names[number] for number in self.words[start : start + size] if number)


def _parts(word: str) -> list[str]:
    """The parts of a name that has several: `read_k9` -> read, k9, k, 9."""
    if len(word) <= _SHORT or (word.isalpha() and word.islower()):
        return []
    parts = _PART.findall(word)
    humps = [hump for part in parts for hump in _HUMP.findall(part)]
    chosen = parts if len(parts) > 1 else []
    return [f"_{part}" for part in [*chosen, *(humps if len(humps) > len(parts) else ())]]


def _of_part(hashes: Hashes, part: int, parts: int) -> Flags:
    """Whether a hash is of a part; its high bits tell, since equal low ones are frequent."""
    chosen: Flags = (hashes >> np.uint64(32)) % np.uint64(parts) == np.uint64(part)
    return chosen


def _mixed(values: Hashes) -> Hashes:
    scattered = (values + np.uint64(1)) * _FACTOR
    mixed: Hashes = (scattered ^ (scattered >> _SHIFT)) * _FACTOR
    return mixed

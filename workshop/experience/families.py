"""Task families: what one authored task looks like, and how its variants are drawn.

Text and code name what varies as `<<placeholder>>`; `vocabulary.words_of` and the family's own `pick` fill them in.
A line of a check that ends in ` ==>` asks for the value of its expression: `rendering` learns it from the solution.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import dedent

from capibara_assets.domains import Domain

PLACEHOLDER = re.compile(r"<<(\w+)>>")

#: `{"name": choices}` draws one string; `{"a|b": [(x, y), ...]}` draws coordinated ones.
Picks = Mapping[str, Sequence[str] | Sequence[tuple[str, ...]]]


def block(text: str) -> str:
    """A triple-quoted block without its indentation and outer newlines."""
    return dedent(text).strip("\n")


def fill(template: str, words: Mapping[str, str]) -> str:
    """`template` with its placeholders replaced (words may hold placeholders themselves, one level deep).

    Raises:
        KeyError: a placeholder that nobody fills.
    """
    once = PLACEHOLDER.sub(lambda match: words[match[1]], template)
    return PLACEHOLDER.sub(lambda match: words[match[1]], once)


@dataclass(frozen=True)
class Bug:
    """A mistake that a first attempt makes: `find` (there exactly once in the family's code) becomes `replace`."""

    kind: str
    find: str
    replace: str


@dataclass(frozen=True)
class Cell:
    """One cell: what is asked, the code that does it, and how it is checked.

    A statement that begins in lower case is a predicate ("returns the ..."): a lead with the signature comes before it.
    """

    statement: str | tuple[str, ...]
    code: str
    check: str = ""

    @property
    def statements(self) -> tuple[str, ...]:
        return (self.statement,) if isinstance(self.statement, str) else self.statement


@dataclass(frozen=True)
class Family:
    """An authored task and its variants; `bugs` are for its last cell unless `bug_cell` says otherwise."""

    name: str
    domain: Domain
    language: str
    cells: tuple[Cell, ...]
    pick: Picks = field(default_factory=dict)
    bugs: tuple[Bug, ...] = ()
    bug_cell: int = -1


def bugs_of(lines: Sequence[tuple[str, str, str]]) -> tuple[Bug, ...]:
    return tuple(Bug(*line) for line in lines)

"""Idioms (recurring pieces of code) and their canonical form, in which names are numbered by order of appearance."""

import hashlib
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

LONGEST = 6_000  # characters of one idiom; longer ones are programs

NodeT = TypeVar("NodeT")


class Idiom(NamedTuple):
    """One occurrence of an idiom in one piece of code."""

    kind: str
    name: str
    code: str
    canonical: str  # digest; equal for code that differs in names (and, for short idioms, in literals) alone
    explanation: str
    inputs: tuple[str, ...] = ()  # calls of it that stand beside it


def digest(language: str, kind: str, form: Iterable[str]) -> str:
    """Digest of a canonical form: 32 hex digits."""
    return hashlib.sha256("\x1f".join((language, kind, *form)).encode("utf-8", "surrogatepass")).hexdigest()[:32]


@dataclass(slots=True)
class Flat(Generic[NodeT]):
    """A syntax tree flattened once into a list of tokens, in which each node is a range.

    The canonical form of any node is then its range with the names in it numbered by appearance: idioms that contain
    one another need no further walk.
    """

    nodes: list[NodeT] = field(default_factory=list)  # those of interest; parents before children
    kinds: list[object] = field(default_factory=list)  # of each of them
    last: list[int] = field(default_factory=list)  # index of the first node after the node's subtree
    starts: list[int] = field(default_factory=list)  # first token of each node
    ends: list[int] = field(default_factory=list)  # token after its last
    tokens: list[str] = field(default_factory=list)
    names: list[int] = field(default_factory=list)  # positions of tokens that are numbered
    literals: list[int] = field(default_factory=list)  # positions of literals' values
    literal_kinds: list[str] = field(default_factory=list)  # what stands for each where its value does not count

    def open(self, node: NodeT, kind: object) -> int:
        """Begins a node; returns its index, for `close`."""
        index = len(self.nodes)
        self.nodes.append(node)
        self.kinds.append(kind)
        self.starts.append(len(self.tokens))
        self.last.append(index)
        self.ends.append(0)
        return index

    def close(self, index: int) -> None:
        """Ends a node, after all its tokens were added."""
        self.last[index] = len(self.nodes)
        self.ends[index] = len(self.tokens)

    def name(self, text: str) -> None:
        """Adds a name, which is numbered in canonical forms."""
        self.names.append(len(self.tokens))
        self.tokens.append(text)

    def literal(self, value: str, kind: str) -> None:
        """Adds a literal, which `kind` may replace in canonical forms."""
        self.literals.append(len(self.tokens))
        self.literal_kinds.append(kind)
        self.tokens.append(value)

    def form(self, index: int, *, literals: bool) -> list[str]:
        """The canonical form of a node. With `literals=False` a literal counts by its type alone."""
        start, end = self.starts[index], self.ends[index]
        form = self.tokens[start:end]
        numbers: dict[str, str] = {}
        for at in self.names[bisect_left(self.names, start) : bisect_left(self.names, end)]:
            name = form[at - start]
            number = numbers.get(name)
            if number is None:
                number = numbers[name] = f"${len(numbers)}"
            form[at - start] = number
        if not literals:
            for i in range(bisect_left(self.literals, start), bisect_left(self.literals, end)):
                form[self.literals[i] - start] = self.literal_kinds[i]
        return form


def first_sentence(text: str | None) -> str:
    """The first sentence of a docstring or comment, at most 200 characters; "" when there is none."""
    lines: list[str] = []
    for line in (text or "").strip().splitlines():
        stripped = line.strip().lstrip("* ")
        if (not stripped and lines) or stripped.startswith(">"):
            break
        if stripped:
            lines.append(stripped)
    joined = " ".join(lines)
    end = joined.find(". ")
    return (joined if end < 0 else joined[: end + 1])[:200]

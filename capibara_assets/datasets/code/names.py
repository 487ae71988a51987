"""The names (variables or tables) that a statement binds, changes and needs."""

from typing import NamedTuple


class StatementNames(NamedTuple):
    """The names of one statement or cell, by their role in it."""

    bound: frozenset[str]  # gets a value here
    changed: frozenset[str]  # may be changed in place here
    needed: frozenset[str]  # must exist before (if also in `later`: before a function defined here is called)
    exact: bool  # False after a star import: more names may be bound
    later: frozenset[str] = frozenset()  # read only when a function defined here is called
    imported: frozenset[str] = frozenset()  # modules and names imported from them; a subset of `bound`


class Statement(NamedTuple):
    """A top-level statement as written, with its names."""

    text: str
    names: StatementNames

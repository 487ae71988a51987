"""What a statement has to do with the variables (or tables) of its session."""

from typing import NamedTuple


class Names(NamedTuple):
    """Names of one statement or cell."""

    bound: frozenset[str]  # gets a (new) value here
    touched: frozenset[str]  # may be changed in place here
    needed: frozenset[str]  # has to exist before (or, where also in `later`, before a function defined here is called)
    exact: bool  # False after a star import: more may be bound than is known
    later: frozenset[str] = frozenset()  # read only when a function defined here is called
    imported: frozenset[str] = frozenset()  # modules and what is imported from them, a part of `bound`


class Statement(NamedTuple):
    """A top-level statement as written, and its names."""

    text: str
    names: Names

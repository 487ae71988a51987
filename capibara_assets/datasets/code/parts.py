"""The result type of the dissectors of all languages."""

from typing import NamedTuple


class CellParts(NamedTuple):
    """The parts of a cell before blank lines are tidied (see `anatomy.Anatomy`)."""

    statement: str | None
    documented: bool
    signature: str
    body: str
    definitions: str
    tests: tuple[str, ...]

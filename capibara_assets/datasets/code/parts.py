"""What every dissector returns."""

from typing import NamedTuple


class Parts(NamedTuple):
    """A dissected cell before tidying (see `anatomy.Anatomy`)."""

    statement: str | None
    documented: bool
    signature: str
    body: str
    definitions: str
    tests: tuple[str, ...]

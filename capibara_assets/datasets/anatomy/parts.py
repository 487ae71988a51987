"""The common result type of all dissectors, and how cells are cut between statements."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from capibara_assets.datasets.anatomy.flow import Do, Unit
from capibara_assets.datasets.anatomy.roles import Role


class CellParts(NamedTuple):
    """The parts of a cell before blank lines are tidied (see `dissect.Anatomy`)."""

    statement: str | None
    documented: bool
    signature: str
    body: str
    definitions: str
    tests: tuple[str, ...]
    test: str = ""
    remainder: str = ""


def pieces(code: str, units: Sequence[Unit], keep: Collection[int], without: Collection[tuple[int, int]] = ()) -> str:
    """The statements at these positions as written, each with the comments above it and at the end of its line.

    Args:
        without: ranges of characters to leave out.
    """
    text, begin, last = "", 0, -1
    for position, unit in enumerate(units):
        following = units[position + 1].start if position + 1 < len(units) else len(code)
        line = code.find("\n", unit.end)
        end = following if line < 0 or line > following or position + 1 == len(units) else line
        if position in keep:
            part = _cut(code, begin, end, without)
            gap = "" if position == last + 1 or not text else "\n" * max(1, len(part) - len(part.lstrip("\n")))
            text += part if not gap else gap + part.lstrip("\n")
            last = position
        begin = end
    return text


def _cut(code: str, begin: int, end: int, without: Collection[tuple[int, int]]) -> str:
    text = ""
    for start, stop in sorted(without):
        if begin < stop and start < end:
            text += code[begin : max(begin, start)]
            begin = min(stop, end)
    return text + code[begin:end]


def body_test(code: str, units: Sequence[Unit], tested: Collection[int]) -> str:
    """The tests, and after them the value that the cell ends with, so that it is shown as it was in the cell."""
    last = len(units) - 1
    shows = bool(tested) and last not in tested and all(isinstance(part, Do) for part in units[last].block)
    shown = code[units[last].start : units[last].end] if shows else ""
    return "\n".join(part for part in (pieces(code, units, tested), shown) if part)


def of_roles(roles: Sequence[Role], *wanted: Role) -> set[int]:
    """Positions of the statements with one of these roles."""
    return {position for position, role in enumerate(roles) if role in wanted}

"""What a run of SQL gave and changed: rows cell by cell, and the tables that a query should have left as they were.

A drawn table is no proof of its rows: a text may hold what separates columns or lines, `None` is drawn like NULL, and
numbers of six digits are alike.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_NEAR = 1e-9  # relative, between numbers that were added up in another order


@dataclass(frozen=True)
class SqlRun:
    """What a run of SQL gave and changed.

    Attributes:
        cells: of the last statement that gave rows: `columns` (how many), `rows`, and whether there were `more`; None:
            no statement did.
        changed: tables and views whose rows or definition changed, those made and dropped, and so `trigger NAME` and
            `index NAME`.
    """

    cells: Mapping[str, Any] | None
    changed: frozenset[str]

    @classmethod
    def of(cls, answer: Mapping[str, Any], first: int) -> "SqlRun | None":
        """The run in a worker's answer; `first`: the first cell that counts. None: the worker says no such thing."""
        if "changed" not in answer:
            return None
        return cls(answer["cells"], frozenset(name for cell in answer["changed"][first:] for name in cell))

    def to_json(self) -> str:
        """One line, for the journal."""
        return json.dumps([self.cells, sorted(self.changed)])

    @classmethod
    def from_json(cls, line: str) -> "SqlRun":
        """The run that `to_json` wrote."""
        cells, changed = json.loads(line)
        return cls(cells, frozenset(changed))

    def gives(self, wanted: "SqlRun", ordered: bool) -> bool:
        """Whether the rows are those of another run, in any order unless `ordered`."""
        if self.cells is None or wanted.cells is None:
            return self.cells == wanted.cells
        if any(self.cells[each] != wanted.cells[each] for each in ("columns", "more")):
            return False
        left, right = self.cells["rows"], wanted.cells["rows"]
        if not ordered:
            left, right = sorted(left, key=_key), sorted(right, key=_key)
        return len(left) == len(right) and all(map(_same_row, left, right))


def _drawn(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _key(row: Sequence[Any]) -> tuple[list[str], list[str]]:
    return [_drawn(value) for value in row], [repr(value) for value in row]


def _same_row(left: Sequence[Any], right: Sequence[Any]) -> bool:
    return all(map(_same, left, right))


def _same(left: Any, right: Any) -> bool:
    """Whether two cells hold the same; a number and its text do, as SQLite's columns have no type."""
    if left is None or right is None or isinstance(left, list) or isinstance(right, list):  # NULL, a blob
        return bool(left == right)
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    if isinstance(left, str) or isinstance(right, str):
        return _drawn(left) == _drawn(right)
    return bool(left == right) or math.isclose(left, right, rel_tol=_NEAR)

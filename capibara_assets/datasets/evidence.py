"""What examples are made of: a domain's evidence, its sessions in order, and candidates before they are chosen."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from capibara_assets.datasets.schema import Kind
from capibara_assets.datasets.sessions import Context, Piece, Row, needed, sessions

_IMPORTS_ONLY = re.compile(r"^\s*((from\s+\S+\s+import\b.*|import\b.*|pass|[%!].*|#.*)?\s*)*$")


@dataclass(frozen=True)
class Evidence:
    """What one domain's dataset may be made of (the tables of `e2b_patterns` and `consolidated_playbook`)."""

    executions: pl.DataFrame
    patterns: pl.DataFrame
    repairs: pl.DataFrame
    bullets: pl.DataFrame

    @cached_property
    def rows(self) -> dict[str, Row]:
        """execution id -> execution."""
        return {row["execution_id"]: row for session in self.sessions for row in session}

    @cached_property
    def sessions(self) -> list[list[Row]]:
        """Sessions, each in order of time; sorted by sandbox."""
        found = sessions(self.executions)
        return [found[key] for key in sorted(found)]

    @cached_property
    def places(self) -> dict[str, tuple[list[Row], int]]:
        """execution id -> (its session, its position there)."""
        return {row["execution_id"]: (session, i) for session in self.sessions for i, row in enumerate(session)}

    @cached_property
    def failures(self) -> dict[str, list[str]]:
        """Fixed execution id -> error classes of the failures that it mends, sorted."""
        found: dict[str, list[str]] = defaultdict(list)
        for fixed, error in self.repairs.select("fixed_execution_id", "error_name").iter_rows():
            found[fixed].append(error or "")
        return {fixed: sorted(errors) for fixed, errors in found.items()}

    def context(self, execution_id: str) -> Context:
        """The earlier cells of its session that an execution needs."""
        if execution_id not in self.places:
            return Context((), False)
        session, position = self.places[execution_id]
        return needed(session, position)


@dataclass(frozen=True)
class Candidate:
    """An example before it gets its split: deduplicated, limited and capped by `examples.build_dataset`."""

    kind: Kind
    language: str
    prompt: str
    answer: str
    execution_ids: tuple[str, ...]  # the answer's first
    duplicate_key: str  # equal for candidates that teach the same
    difficulty: float
    quality: float
    subjects: int = 1  # how many of the executions must be usable in a split; the rest is quoted context
    task_key: str | None = None  # equal for solutions of one task
    anywhere: bool = False  # True: any one split of its executions will do, as long as it is one


def has_substance(code: str) -> bool:
    """Whether there is more than imports, magics, comments and `pass`."""
    return not all(_IMPORTS_ONLY.match(line) for line in code.split("\n"))


def quotable(context: Context, budget: int) -> list[Piece]:
    """Pieces of a context that fit into `budget` characters, in order of time: definitions first, then the latest."""
    order = sorted(range(len(context.pieces)), key=lambda i: (not context.pieces[i].defines, -i))
    chosen: set[int] = set()
    for index in order:
        size = len(context.pieces[index].text) + 1
        if size <= budget:
            budget -= size
            chosen.add(index)
    return [piece for index, piece in enumerate(context.pieces) if index in chosen]


def mean_quality(rows: Sequence[Row]) -> float:
    """Mean quality of executions, rounded to six digits."""
    return round(sum(float(row["quality"]) for row in rows) / len(rows), 6)

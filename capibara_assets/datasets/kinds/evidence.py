"""The evidence of a domain (executions, patterns, repairs, bullets), and the type of example candidates."""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import polars as pl

from capibara_assets.datasets.code.sessions import Piece, Row, SessionContext, definitions, needed, sessions
from capibara_assets.datasets.code.superseded import asked_otherwise, refuted
from capibara_assets.datasets.schema import Kind
from capibara_assets.executions.replay.traces import Trace
from capibara_assets.executions.replay.workers import Session
from capibara_assets.executions.schema import UNSOLVED
from capibara_assets.storage.artifact import Artifact

AdvisedBy = Literal["record", "likeness"]

_IMPORTS_ONLY = re.compile(r"\s*(?:pass\b\s*)*(?:from\s+\S+\s+import\b.*|import\b.*|[%!].*|#.*)?$")


@dataclass(frozen=True)
class Evidence:
    """The evidence of one domain's dataset: the tables of `e2b_patterns` and `consolidated_playbook`.

    Attributes:
        around: the rest of the sessions, which belongs to other domains alone: the schema of a repaired query was
            printed by a cell that is in no repair. None: there is none.
        splits: execution id -> split; context from another session has to be of the same split.
        alone: traces of what explanations show, each in a fresh session (tracing.py).
        elsewhere: executions of other domains, whose solutions of the same problems a solution is compared with.
        mended: repair pairs of commands that passed unchanged after files had been edited.
        commands: commands and edits, of whatever domain, of the sandboxes of `mended`.
    """

    executions: pl.DataFrame
    patterns: pl.DataFrame
    repairs: pl.DataFrame
    bullets: pl.DataFrame
    traces: Mapping[str, Trace] = field(default_factory=dict)  # by execution id, where it ran again (tracing.py)
    alone: Mapping[Session, Sequence[Trace | None]] = field(default_factory=dict)
    around: pl.DataFrame | None = None
    splits: Mapping[str, str] = field(default_factory=dict)
    elsewhere: pl.DataFrame | None = None
    mended: pl.DataFrame | None = None
    commands: pl.DataFrame | None = None

    @classmethod
    def of(cls, patterns: Artifact, playbook: Artifact, others: Sequence[Artifact] = ()) -> "Evidence":
        """The evidence in published artifacts of `e2b_patterns` and `consolidated_playbook`.

        Args:
            others: `e2b_patterns` of the other domains.
        """
        executions, mined, repairs = (patterns.frame(name) for name in ("executions", "patterns", "repairs"))
        frames = [other.frame("executions") for other in others]
        elsewhere = pl.concat(frames).unique("execution_id", maintain_order=True) if frames else None
        bullets = playbook.frame("bullets")
        around, mended, commands = (patterns.frame(name) for name in ("around", "mended", "commands"))
        return cls(
            executions, mined, repairs, bullets, around=around, elsewhere=elsewhere, mended=mended, commands=commands
        )

    @cached_property
    def rows(self) -> dict[str, Row]:
        """execution id -> execution."""
        return {row["execution_id"]: row for session in self.sessions for row in session}

    @cached_property
    def sessions(self) -> list[list[Row]]:
        """Sessions, each in order of time; sorted by sandbox."""
        by_session = sessions(self.executions)
        return [by_session[key] for key in sorted(by_session)]

    @cached_property
    def whole_sessions(self) -> list[list[Row]]:
        """The sessions with their cells of other domains, each in order of time."""
        if self.around is None:
            return self.sessions
        return list(sessions(pl.concat([self.executions, self.around])).values())

    @cached_property
    def places(self) -> dict[str, tuple[list[Row], int]]:
        """execution id -> (its whole session, and its position there)."""
        return {row["execution_id"]: (whole, i) for whole in self.whole_sessions for i, row in enumerate(whole)}

    def place(self, execution_id: str) -> tuple[list[Row], int]:
        """An execution's whole session and its position there; an empty session for one that is not known."""
        return self.places.get(execution_id, ([], 0))

    @cached_property
    def known(self) -> dict[str, Row]:
        """execution id -> execution, including other domains where an example may quote it."""
        commands = {row["execution_id"]: row for session in self.command_sessions.values() for row in session}
        return commands | {name: whole[position] for name, (whole, position) in self.places.items()} | self.rows

    @cached_property
    def command_sessions(self) -> dict[str, list[Row]]:
        """Sandbox -> its commands and edits in order of time, where a command was mended by edits."""
        if self.commands is None:
            return {}
        return {session[0]["sandbox_id"]: session for session in sessions(self.commands).values()}

    @cached_property
    def unsolved(self) -> frozenset[str]:
        """Executions in sessions that a benchmark's reward or another verdict judged as failed."""
        return frozenset(name for name, row in self.known.items() if UNSOLVED in row["flags"])

    @cached_property
    def mended_later(self) -> frozenset[str]:
        """Executions that ended well and hold what their session shows to be wrong.

        That is a definition that was repaired later, or a query that was asked otherwise.
        """
        wrong: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for pair in self.repairs.iter_rows(named=True):
            failing, fixed = (definitions(pair[side], pair["language"]) for side in ("failing_code", "fixed_code"))
            wrong[pair["sandbox_id"]] |= {
                (name, text) for name, text in failing.items() if fixed.get(name, text) != text
            }
        rows = (row for session in self.whole_sessions for row in session if row["outcome"] == "ok")
        repaired = frozenset(
            row["execution_id"]
            for row in rows
            if (known := wrong.get(row["sandbox_id"])) and known & definitions(row["code"], row["language"]).items()
        )
        return repaired.union(*map(asked_otherwise, self.whole_sessions))

    @cached_property
    def refuted(self) -> frozenset[str]:
        """Executions that ended well, and whose definitions failed a later check of their session."""
        return frozenset().union(*map(refuted, self.whole_sessions))

    @cached_property
    def _memory(self) -> dict[str, Any]:
        return {}

    def remembered(self, name: str, make: Callable[[], Any]) -> Any:
        """Cached result of `make` for this evidence."""
        if name not in self._memory:
            self._memory[name] = make()
        return self._memory[name]

    @cached_property
    def failures(self) -> dict[str, list[str]]:
        """Fixed execution id -> error classes of the failures that it fixes, sorted."""
        by_fixed: dict[str, list[str]] = defaultdict(list)
        for fixed, error in self.repairs.select("fixed_execution_id", "error_name").iter_rows():
            by_fixed[fixed].append(error or "")
        return {fixed: sorted(errors) for fixed, errors in by_fixed.items()}

    @cached_property
    def lessons(self) -> list[Row]:
        """Bullets of the consolidated playbook (Consolidated), best first; empty without a playbook."""
        if "rank" not in self.bullets.columns:
            return []
        return list(self.bullets.sort("rank", "bullet_id").iter_rows(named=True))

    def of_tenants(self, tenants: Collection[str] | None) -> "Evidence":
        """Restrict the evidence to these tenants and to untenanted rows; None: no restriction.

        A pattern that any other row contributed to (or one whose tenant is not known) is dropped, since its code and
        explanation may be that row's.
        """
        if tenants is None:
            return self
        theirs = pl.col("tenant").is_null() | pl.col("tenant").is_in(list(tenants))
        own = self.executions.filter(theirs)
        around, elsewhere, commands = (
            None if t is None else t.filter(theirs) for t in (self.around, self.elsewhere, self.commands)
        )
        rest = replace(self, around=around, elsewhere=elsewhere, commands=commands)
        if own.height == self.executions.height:
            return rest
        ids = own["execution_id"].implode()
        sides = pl.col("failing_execution_id").is_in(ids) & pl.col("fixed_execution_id").is_in(ids)
        alone = pl.col("execution_ids").list.set_difference(pl.lit(own["execution_id"].to_list())).list.len() == 0
        patterns, repairs = self.patterns.filter(alone), self.repairs.filter(sides)
        return replace(rest, executions=own, patterns=patterns, repairs=repairs)

    def context(self, execution_id: str) -> SessionContext:
        """The earlier session code that an execution depends on."""
        if execution_id not in self.places:
            return SessionContext((), False)
        session, position = self.places[execution_id]
        return needed(session, position)


@dataclass(frozen=True)
class ExampleCandidate:
    """A candidate for an example, which `examples.build_dataset` places in a split, deduplicates and caps."""

    kind: Kind
    language: str
    prompt: str
    answer: str
    execution_ids: tuple[str, ...]  # the answer's first
    duplicate_key: str  # equal for candidates that teach the same
    difficulty: float
    quality: float
    subjects: int = 1  # number of leading executions that must be usable in a split; the others are quoted context
    task_key: str | None = None  # equal for solutions of one task
    anywhere: bool = False  # True: executions that may not be used are dropped instead of the candidate
    lacking: str | None = None  # why its prompt cannot hold what the answer needs
    bullet_ids: tuple[str, ...] = ()  # playbook bullets that it quotes
    advised_by: AdvisedBy | None = None  # of *apply*: how the bullets are known to have helped
    proof: str | None = None  # what the answer's execution showed, or the assertions that it passed
    diff: str | None = None  # of a repair: from the code of the prompt to the answer
    failing: str | None = None  # of a repair: the code of the prompt
    test: str | None = None  # code that judges the answer when it runs after it
    derived: str | None = None  # kind of change that made it of a recorded one; None: as recorded
    lesson: str | None = None  # text by which near-duplicates are found; None: prompt and answer

    @property
    def compared(self) -> str:
        """The text by which near-duplicates are found."""
        return f"{self.prompt}\n{self.answer}" if self.lesson is None else self.lesson


def has_substance(code: str) -> bool:
    """Whether code holds more than imports, magics, comments and `pass`."""
    return not all(_IMPORTS_ONLY.match(line) for line in code.split("\n"))


def quotable(context: SessionContext, budget: int) -> list[Piece]:
    """Select pieces of a context that fit into `budget` characters, in order of time; definitions take precedence."""
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

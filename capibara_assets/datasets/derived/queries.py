"""SQL queries on small generated databases (`sql_worlds`): injected bugs, and the results of changed queries."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from capibara_assets.datasets.code.queries import statements
from capibara_assets.datasets.code.sessions import Row
from capibara_assets.datasets.code.stated_tables import Stated, stated_tables, without_tables
from capibara_assets.datasets.code.structure import structural_key, without_comments
from capibara_assets.datasets.derived import sql_bugs, sql_orders, sql_worlds
from capibara_assets.datasets.derived.edits import RepairEdit, drawn
from capibara_assets.datasets.derived.injected import Injected, observed
from capibara_assets.datasets.derived.trials import Cells, End, Ends, Trial
from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.kinds.difficulty import difficulty
from capibara_assets.datasets.kinds.evidence import Evidence, ExampleCandidate, mean_quality
from capibara_assets.datasets.kinds.predict import is_derivable
from capibara_assets.datasets.recipe import DatasetRecipe

_SEEDS = 2  # databases that are tried for a query: the one that tells most bugs apart is taken
_ROWS, _FEWER_ROWS = 6, 4
_INPUTS = {"value": 1.0, "order": 1.0, "condition": 1.0}
_CREATES = re.compile(r"\bcreate\s+(?:temp(?:orary)?\s+)?table\b", re.IGNORECASE)
_EMPTY = "Empty result"
_UNSETTLED = "SELECT 'its order cannot be told'"


@dataclass(frozen=True)
class Query:
    """A query on a generated database, with mutations of it.

    Attributes:
        turned: the database with its rows in the opposite order.
    """

    row: Row
    world: str
    turned: str
    bugs: tuple[RepairEdit, ...]
    inputs: tuple[RepairEdit, ...]

    @property
    def before(self) -> Cells:
        return (self.world,)

    @property
    def after(self) -> Cells:
        return ()

    @property
    def rows(self) -> tuple[Row, ...]:
        return (self.row,)

    @property
    def code(self) -> str:
        return str(self.row["code"])

    @property
    def trial(self) -> Trial:
        """Variants to run: the query, its bugs and changed inputs; then query and inputs again with other row orders.

        That is on the turned database, and with ties broken one way and the other.
        """
        bugs, inputs = ([edit.applied(self.code) for edit in edits] for edits in (self.bugs, self.inputs))
        asked = (self.code, *inputs)
        turned = [(self.turned, code) for code in asked]
        broken = [
            (self.world, sql_orders.turned(code, descending=down) or _UNSETTLED)
            for down in (False, True)
            for code in asked
        ]
        return Trial("sql", (*((self.world, code) for code in (self.code, *bugs, *inputs)), *turned, *broken))

    def asked(self, ends: Ends) -> list[End | None]:
        """Results of the query and of its changed inputs; None if their row order is not determined."""
        first = [ends[0], *ends[len(self.bugs) + 1 :][: len(self.inputs)]]
        size = len(first)
        others = [ends[-size * n :][:size] for n in (1, 2, 3)]
        return [one if all(each[i] == one for each in others) else None for i, one in enumerate(first)]


def recorded(evidence: Evidence) -> tuple[list[tuple[Row, exp.Query, Stated]], sql_worlds.Catalogue]:
    """Recorded queries that ran: (row, tree, tables listed by the task); and the columns of all tables."""
    rows = [row for session in evidence.sessions for row in session]
    rows = [row for row in rows if row["language"] == "sql" and row["outcome"] == "ok" and not row["secrets"]]
    read: list[tuple[Row, exp.Query, Stated]] = [
        (row, tree, stated_tables(row["task"] or ""))
        for row in rows
        if (tree := sql_worlds.parsed(row["code"])) is not None
    ]
    creating = [row["code"] for row in rows if _CREATES.search(row["code"])]
    created = [one for code in dict.fromkeys(creating) for one in statements(code)]
    return read, sql_worlds.catalogue([tree for _, tree, _ in read], [tables for *_, tables in read], created)


def queries(evidence: Evidence, recipe: DatasetRecipe) -> Iterator[Query]:
    """Each recorded query that ran, on each of its generated databases; none if a column's table is ambiguous."""
    read, known = recorded(evidence)
    wanted = recipe.derived
    for row, tree, tables in read:
        seed = row["execution_id"]
        bugs = drawn(sql_bugs.bugs(row["code"]), wanted.bugs, seed, wanted.tried)
        inputs = drawn(sql_bugs.inputs(row["code"]), _INPUTS, seed, wanted.per_solution)
        if (settled := sql_orders.tie_break(row["code"])) is not None:
            inputs.append(settled)
        for number in range(_SEEDS):
            worlds = _worlds(tree, known, f"{seed} {number}", tables, recipe)
            if worlds is not None:
                yield Query(row, *worlds, tuple(bugs), tuple(inputs))


def _worlds(
    tree: exp.Query, known: sql_worlds.Catalogue, seed: str, stated: Stated, recipe: DatasetRecipe
) -> tuple[str, str] | None:
    """Generate a small database and its copy with reversed rows, from the stated or else the used tables.

    Stated tables get fewer rows if the database would be too long to quote.
    """
    for tables, rows in ((stated, _ROWS), (stated, _FEWER_ROWS), ({}, _ROWS)):
        first, turned = (
            sql_worlds.world(tree, known, seed, backwards=backwards, rows=rows, stated=tables)
            for backwards in (False, True)
        )
        if first is not None and turned is not None and len(first) <= recipe.context_chars:
            return first, turned
    return None


def answered(asked: Sequence[Query], ends: Sequence[Ends]) -> list[tuple[Query, Ends]]:
    """The queries, with the databases on which they return rows."""
    return [
        (query, end)
        for query, end in zip(asked, ends, strict=True)
        if end[0] is not None and end[0].ok and end[0].shown and not end[0].shown.startswith(_EMPTY)
    ]


def best(listed: Sequence[tuple[Query, Ends]]) -> list[tuple[Query, Ends]]:
    """For each query, the database on which most mutations change the result."""
    best_by_query: dict[str, tuple[int, Query, Ends]] = {}
    for query, end in listed:
        passed = end[0]
        assert passed is not None
        told = sum(one is not None and (not one.ok or one.shown != passed.shown) for one in end[1:])
        told += len(end) * (query.asked(end)[0] is not None)
        key = query.row["execution_id"]
        if key not in best_by_query or told > best_by_query[key][0]:
            best_by_query[key] = (told, query, end)
    return [(query, end) for _, query, end in best_by_query.values()]


def injected(query: Query, ends: Ends, most: int) -> Iterator[Injected]:
    """Bugs of the query with an observed failure on its database."""
    tried = ends[: len(query.bugs) + 1]
    if query.asked(ends)[0] is None:  # another order of its rows would be as right: only errors tell
        tried = (tried[0], *(None if end is None or end.ok else end for end in tried[1:]))
    for one in observed(query, query.bugs, tried, most):
        one.pair["before"] = [query.world]
        one.pair["task"] = without_tables(one.pair["task"] or "") or None  # its tables are those of the database
        yield one


def predicted(query: Query, ends: Ends, recipe: DatasetRecipe) -> Iterator[ExampleCandidate]:
    """Result of the query on its database, and of changed queries."""
    listed = [RepairEdit("database", 0, 0, ""), *query.inputs]
    seen: set[str] = set()
    for edit, end in zip(listed, query.asked(ends), strict=True):
        if end is None or not end.ok or end.shown in seen or not 0 < len(end.shown) <= recipe.max_output_chars:
            continue
        code = without_comments(edit.applied(query.code), "sql").strip("\n")
        if end.shown.startswith(_EMPTY) or not _tells(end.shown) or not is_derivable([code], end.shown):
            continue
        seen.add(end.shown)
        yield ExampleCandidate(
            kind="predict",
            language="sql",
            prompt=prompts.predict("sql", code, [query.world]),
            answer=end.shown,
            execution_ids=(query.row["execution_id"],),
            duplicate_key=f"{structural_key(code, 'sql')}:{end.shown}",
            difficulty=difficulty(code, "sql", 0, [], recipe.difficulty),
            quality=mean_quality([query.row]),
            proof=end.shown,
            derived=f"input:{edit.kind}",
            lesson="\n".join([query.world, code, end.shown]),
        )


def _tells(shown: str) -> bool:
    """Whether a printed table holds more than zeros and missing values, and less than half of these are missing."""
    values = [value for line in shown.split("\n")[1:] for value in line.split()[1:]]
    return any(value not in ("0", "0.0", "None") for value in values) and 3 * values.count("None") < len(values)

"""*explain* examples of SQL: a recorded query on a small database -> the rows after each clause, to the result.

Every clause is a query of its own, made of the recorded one by leaving out what comes after it, and runs in the
sandbox; the lines say what these queries gave. The database on which most clauses have an effect is used.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from sqlglot import exp

from capibara_assets.datasets.code.structure import structural_key, without_comments
from capibara_assets.datasets.derived import sql_worlds
from capibara_assets.datasets.derived.queries import recorded
from capibara_assets.datasets.derived.query_clauses import ROWS, QueryWalk, is_followed, query_walk
from capibara_assets.datasets.derived.query_lines import clause_lines
from capibara_assets.datasets.derived.trials import Ends
from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.kinds.difficulty import difficulty
from capibara_assets.datasets.kinds.evidence import Evidence, ExampleCandidate, mean_quality
from capibara_assets.datasets.kinds.predict import is_derivable
from capibara_assets.datasets.recipe import DatasetRecipe

_SEEDS = 4  # databases that are tried
_MOST_ROWS, _LONGEST = 12, 2000


def walks(evidence: Evidence, recipe: DatasetRecipe) -> Iterator[QueryWalk]:
    """Each query of the evidence whose clauses can be followed, on each of its databases."""
    read, known = recorded(evidence)
    seen: set[str] = set()
    for row, tree, _ in read:
        key = structural_key(row["code"], "sql")
        if key in seen or not isinstance(tree, exp.Select) or not is_followed(tree):
            continue
        seen.add(key)
        for number in range(_SEEDS):
            seed = f"{row['execution_id']} walk {number}"
            worlds = [sql_worlds.world(tree, known, seed, backwards=turned) for turned in (False, True)]
            if worlds[0] is None or worlds[1] is None or len(worlds[0]) > recipe.context_chars:
                continue
            made = query_walk(row, tree, worlds[0], worlds[1])
            if made is not None:
                yield made


def candidates(walked: Sequence[QueryWalk], ends: Sequence[Ends], recipe: DatasetRecipe) -> Iterator[ExampleCandidate]:
    """One candidate per query, on the database where most of its clauses have an effect."""
    best: dict[str, tuple[int, ExampleCandidate]] = {}
    for one, end in zip(walked, ends, strict=True):
        made = _candidate(one, end, recipe)
        key = one.row["execution_id"]
        if made is not None and (key not in best or made[0] > best[key][0]):
            best[key] = made
    for _, candidate in best.values():
        yield candidate


def _candidate(walk: QueryWalk, ends: Ends, recipe: DatasetRecipe) -> tuple[int, ExampleCandidate] | None:
    passed, turned, *rest = ends
    if (
        passed is None
        or not passed.ok
        or passed.shown.startswith("Empty")
        or len(passed.shown) > recipe.max_output_chars
    ):
        return None
    if not _tells(passed.shown):
        return None
    if turned is None or turned.shown != passed.shown or any(end is None or not end.ok for end in rest):
        return None  # its rows follow the order in which the tables hold theirs, or a clause does not run alone
    tables = [_read(end.shown) for end in rest if end is not None]
    if any(table is None or len(table) > _MOST_ROWS for table in tables):
        return None
    told = clause_lines(walk, [table or [] for table in tables])
    if told is None:
        return None
    lines, bites = told
    code = without_comments(str(walk.row["code"]), "sql").strip("\n")
    null = " (`None` is NULL)" if "None" in passed.shown.split() else ""
    answer = "\n".join([*lines, f"The result{null}:", passed.shown])
    if len(answer) > _LONGEST or not is_derivable([code], answer):
        return None
    return bites, ExampleCandidate(
        kind="explain",
        language="sql",
        prompt=prompts.explain(code, prompts.WALK_QUERY, [walk.world]),
        answer=answer,
        execution_ids=(walk.row["execution_id"],),
        duplicate_key=structural_key(code, "sql"),
        difficulty=difficulty(code, "sql", 0, [], recipe.difficulty),
        quality=mean_quality([walk.row]),
        proof=passed.shown,
        derived="input:database",
        lesson=code,
    )


def _tells(shown: str) -> bool:
    """Whether no column of a printed result is missing or zero in all of several rows."""
    rows = [line.split()[1:] for line in shown.split("\n")[1:]]
    columns = zip(*rows, strict=False)
    return len(rows) == 1 or not any(set(column) <= {"None", "0", "0.0"} for column in columns)


def _read(shown: str) -> list[list[Any]] | None:
    """The rows of a printed JSON value."""
    header, _, line = shown.partition("\n")
    if header.strip() != ROWS or not line.startswith("0 "):
        return None
    try:
        rows = json.loads(line.partition(" ")[2])
    except ValueError:
        return None
    return rows if isinstance(rows, list) else None

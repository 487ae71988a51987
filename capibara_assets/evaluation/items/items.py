"""Held-out items: questions with the check of their answers, made from what recorded sessions asserted or printed.

An answer replaces a piece of a recorded cell. It runs in the context of its session, before the example's hidden test;
the cell's recorded output is the expected output. A query whose database is gone runs on the one that its question
quotes, else on one made for it (Zhong et al. 2020, arXiv 2010.02840: queries that give the same rows on a database made
to tell them apart most likely mean the same). Predicted outputs are compared where an execution confirmed them. Whether
a check can be trusted is decided by `grading`, which runs every reference first and grades no item whose own reference
fails.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from capibara_assets.datasets.code.sessions import Row, needed, sessions
from capibara_assets.datasets.code.stated_tables import stated_tables
from capibara_assets.datasets.derived import sql_worlds
from capibara_assets.datasets.kinds.prompts import SESSION, section
from capibara_assets.datasets.kinds.proof import recorded_output
from capibara_assets.datasets.schema import CODE_KINDS
from capibara_assets.executions.sandbox.results import LANGUAGES

CheckKind = Literal["assertions", "output", "exact", "text"]
TIMEOUT_S = 10.0
_ROWS = 24  # of each table of a made database: an answer is not told by heart, so it may be large


@dataclass(frozen=True)
class Check:
    """How the answers to an item are graded.

    Attributes:
        kind: `assertions` (it runs, and the tests hold), `output` (it runs and shows what was recorded, and the tests
            hold where there are any), `exact` (nothing runs, the text is equal), `text` (no verdict: text metrics).
        before: cells that run before it (its context), joined.
        tests: code that runs after it.
        expected: the recorded output, or the exact text; of an `output` without one, what the reference shows is
            expected (its database is gone, and `before` makes another one).
        timeout_s: CPU seconds of each cell.
    """

    kind: CheckKind
    before: str = ""
    tests: str = ""
    expected: str = ""
    timeout_s: float = TIMEOUT_S


@dataclass(frozen=True)
class Item:
    """One held-out question with the check of its answer.

    Attributes:
        item_id: the example's id, or `<file stem>/<task_id>` of a benchmark's file.
        group_id: the unit of resampling.
        domain: a `Domain`'s value, or the benchmark's name.
        kind: solve, repair, explain, predict, apply, chat, or benchmark.
        language: python, javascript, sql, or another one (text), which is not run.
        prompt: messages up to the assistant's turn.
        reference: the recorded answer.
        check: how an answer is graded.
        execution_ids: executions that it is made of.
        source: where these come from, as stated in the logs; "" where nothing is.
        seen: whether training holds another program of its family (`families.py`); None: it was not compared.
    """

    item_id: str
    group_id: str
    domain: str
    kind: str
    language: str
    prompt: tuple[Mapping[str, str], ...]
    reference: str
    check: Check
    execution_ids: tuple[str, ...]
    source: str = ""
    seen: bool | None = None

    @property
    def is_graded(self) -> bool:
        """Whether an answer gets a verdict, if the reference passes."""
        return self.check.kind != "text"


def items_of(examples: pl.DataFrame, executions: pl.DataFrame) -> list[Item]:
    """Make one item per example, in their order.

    Args:
        examples: rows of `Example`; the caller chooses the split.
        executions: rows of `Execution`: those of the examples and the cells that their sessions ran before. Sessions
            reach over domains, so this is best the table of all of them.

    Raises:
        ValueError: an example whose last message is not the assistant's.
    """
    places: dict[str, tuple[Sequence[Row], int]] = {}
    wanted = {i for ids in examples["execution_ids"].to_list() for i in ids}
    for session in sessions(executions).values():
        for position, row in enumerate(session):
            if row["execution_id"] in wanted:
                places[row["execution_id"]] = (session, position)
    return [_item(row, places) for row in examples.iter_rows(named=True)]


def _item(row: Mapping[str, Any], places: Mapping[str, tuple[Sequence[Row], int]]) -> Item:
    messages = json.loads(row["messages"])
    if not messages or messages[-1]["role"] != "assistant":
        raise ValueError(f"example {row['example_id']} does not end with an assistant's message")
    reference = messages[-1]["content"]
    check = Check("text")
    if row["kind"] == "predict":
        check = Check("exact", expected=reference) if _is_confirmed(row) else check
    elif row["kind"] in CODE_KINDS and row["language"] in LANGUAGES:
        check = _check(row, reference, messages[-2]["content"], places)
    return Item(
        row["example_id"],
        row["group_id"],
        row["domain"],
        row["kind"],
        row["language"] if row["language"] in LANGUAGES else "text",
        tuple(messages[:-1]),
        reference,
        check,
        tuple(row["execution_ids"]),
        row["source"] or "",
    )


def _is_confirmed(row: Mapping[str, Any]) -> bool:
    """Whether an execution produced the output that is to be predicted; imported files are trusted."""
    return row["derived"] is not None or row["verified"] == "reexecuted" or row["provenance"] == "imported"


def _check(
    example: Mapping[str, Any], reference: str, question: str, places: Mapping[str, tuple[Sequence[Row], int]]
) -> Check:
    """The check of recorded code; `text` where its cell is missing, or it has no test and showed nothing."""
    if not example["execution_ids"] or example["execution_ids"][0] not in places:
        return Check("text")
    session, position = places[example["execution_ids"][0]]
    row, tests = session[position], example["test"] or ""
    context = needed(session, position)
    if example["language"] == "sql" and not context.complete:
        database = section(question, SESSION) if example["derived"] else _database(question, reference, row)
        return Check("output", database) if database else Check("text")
    before = "\n".join(piece.text for piece in context.pieces)
    expected = recorded_output(row)
    if not expected and not tests:
        return Check("text")
    return Check("output" if expected else "assertions", before, tests, expected)


def _database(question: str, query: str, row: Row) -> str | None:
    """Statements that make a database for a query whose own is gone; None where a column's table is in doubt."""
    tree = sql_worlds.parsed(query)
    if tree is None:
        return None
    told = stated_tables(question)
    return sql_worlds.world(tree, sql_worlds.catalogue([tree], [told]), row["execution_id"], rows=_ROWS, stated=told)

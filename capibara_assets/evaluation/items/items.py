"""Held-out items: questions with the check of their answers, made from what recorded sessions asserted or printed.

An answer replaces a piece of a recorded cell. The rest of that cell and the later cells that had to pass are its tests;
the cell's recorded output is the expected output. Whether a check can be trusted is decided by `grading`, which runs
every reference first and grades no item whose own reference fails.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from capibara_assets.datasets.code.javascript_source import parse as parse_javascript
from capibara_assets.datasets.code.python_source import parse as parse_python
from capibara_assets.datasets.code.sessions import Row, needed, sessions
from capibara_assets.datasets.kinds.proof import recorded_output
from capibara_assets.evaluation.items.made_databases import made_database
from capibara_assets.executions.sandbox.results import LANGUAGES

CheckKind = Literal["assertions", "output", "exact", "text"]
TIMEOUT_S = 10.0
_RUN = frozenset({"solve", "repair", "apply"})
_BLANKS = re.compile(r"\n{3,}")


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
        check = Check("exact", expected=reference)
    elif row["kind"] in _RUN and row["language"] in LANGUAGES:
        check = _check(reference, row["language"], row["execution_ids"], places, messages[-2]["content"])
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


def _check(
    reference: str,
    language: str,
    execution_ids: Sequence[str],
    places: Mapping[str, tuple[Sequence[Row], int]],
    question: str,
) -> Check:
    """The check of recorded code; `text` where its cell is missing, or printed and asserted nothing."""
    if not execution_ids or execution_ids[0] not in places:
        return Check("text")
    session, position = places[execution_ids[0]]
    row = session[position]
    later = [
        place[0][place[1]]["code"]
        for i in execution_ids[1:]
        if (place := places.get(i)) is not None and place[0] is session and place[1] > position
    ]
    tests = "\n".join(part for part in (after(reference, row["code"], language), *later) if part.strip())
    context = needed(session, position)
    if language == "sql" and not context.complete and (database := made_database(question, reference)) is not None:
        return Check("output", database)
    before = "\n".join(piece.text for piece in context.pieces)
    expected = recorded_output(row)
    if not expected and not tests:
        return Check("text")
    return Check("output" if expected else "assertions", before, tests, expected)


def after(answer: str, code: str, language: str) -> str:
    """The code after a piece of a cell in that cell: its demonstration and assertions; "" where there is none."""
    if language == "python":
        return _after_statements(answer, code)
    if language == "javascript":
        whole = _BLANKS.sub("\n\n\n", code)
        head, match, tail = whole.partition(answer)
        return tail.strip("\n") if match and _is_whole(head, answer, tail) else ""
    return ""


def _is_whole(head: str, answer: str, tail: str) -> bool:
    """Whether a JavaScript cell splits into whole statements at these borders."""
    return not any(parse_javascript(part).has_error for part in (head, answer, tail))


def _after_statements(answer: str, code: str) -> str:
    tree, piece = parse_python(code), parse_python(answer)
    if tree is None or piece is None:
        return ""
    end = next(_ends(tree.body, piece.body), None)
    if end is None or end >= len(tree.body):
        return ""
    first = tree.body[end]
    start = min([first.lineno, *(d.lineno for d in getattr(first, "decorator_list", []))])
    return "\n".join(code.split("\n")[start - 1 :]).strip("\n")


def _ends(cell: Sequence[ast.stmt], piece: Sequence[ast.stmt]) -> Iterator[int]:
    """Indices at which a piece ends that starts the cell, perhaps after its docstring."""
    for skipped in (0, 1):
        part = cell[skipped : skipped + len(piece)]
        if [_kind(node) for node in part] == [_kind(node) for node in piece]:
            yield skipped + len(piece)


def _kind(node: ast.stmt) -> tuple[str, str]:
    """A key that compares statements, even where the docstring of one was removed."""
    name = getattr(node, "name", None)
    return type(node).__name__, str(name) if name is not None else ast.dump(node)

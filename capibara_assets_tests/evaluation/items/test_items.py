"""Items from examples: what followed the answer in its cell are its tests, what the cell showed is expected."""

import json
import sqlite3
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest

from capibara_assets.datasets.schema import Example
from capibara_assets.evaluation.items.items import Check, Item, items_of
from capibara_assets.executions.schema import Execution
from capibara_assets.storage.records import table

DOUBLE = "def double(x):\n    return 2 * x"


def execution(number: int, code: str, **fields: Any) -> Execution:
    none = ["context_id", "agent_id", "tenant", "template_id", "task", "result_text", "error_name", "error_value"]
    none += ["traceback", "execution_count", "duration_ms", "timeout_s", "licence", "source"]
    defaults: dict[str, Any] = dict.fromkeys(none)
    defaults |= {"sandbox_id": "s", "language": "python", "outcome": "ok", "stdout": "", "stderr": "", "domains": []}
    defaults |= {"confidence": 1.0, "evidence": "", "quality": 1.0, "flags": [], "secrets": 0, "bullet_ids": []}
    defaults |= {"record_digest": "d", "source_file": "f", "source_line": 1, "source_offset": 0}
    when = datetime(2026, 1, 1, 0, number, tzinfo=UTC)
    return Execution(execution_id=f"e{number}", code=code, timestamp=when, **(defaults | fields))


def example(answer: str, executions: list[str], kind: str = "solve", **fields: Any) -> Example:
    defaults: dict[str, Any] = dict.fromkeys(["not_replayed", "licence", "source"])
    defaults |= {"domain": "python", "language": "python", "group_id": "g", "split": "test", "difficulty": 0.5}
    defaults |= {"quality": 1.0, "cluster_id": "c", "weight": 1.0, "balance": 1.0, "verified": "recorded"}
    defaults |= {"provenance": "experience", "bullet_ids": [], "sandbox_ids": ["s"], "tenants": [], "source_places": []}
    question = str(fields.pop("question", "Write it."))
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    rest = defaults | fields
    return Example(
        example_id="x", kind=kind, messages=json.dumps(messages), execution_ids=executions, **rest  # type: ignore[arg-type]
    )  # fmt: skip


def item(one: Example, *executions: Execution) -> Item:
    (found,) = items_of(table(Example, [one]), table(Execution, list(executions)))
    return found


def test_the_hidden_test_checks_the_answer() -> None:
    test = "assert double(2) == 4\nassert double(0) == 0"
    found = item(example(DOUBLE, ["e1"], test=test), execution(1, f"{DOUBLE}\n\n{test}"))
    assert found.check == Check("assertions", tests=test)
    assert (found.prompt, found.reference) == (({"role": "user", "content": "Write it."},), DOUBLE)
    assert (found.group_id, found.domain, found.execution_ids) == ("g", "python", ("e1",))


def test_a_demonstration_and_what_it_showed() -> None:
    test = "print(double(1))\nassert double(2) == 4\ndouble(3)"
    cell = execution(1, f"{DOUBLE}\n\n{test}", stdout="2\n", result_text="6")
    found = item(example(DOUBLE, ["e1"], test=test), cell)
    assert (found.check.kind, found.check.tests) == ("output", test)
    assert found.check.expected == "2\n6"


def test_what_it_needs_of_its_session_runs_before() -> None:
    found = item(
        example("triple = double(1) + 1\ntriple", ["e3", "e1"]),
        execution(1, DOUBLE),
        execution(2, "unrelated = 1"),
        execution(3, "triple = double(1) + 1\ntriple", result_text="3"),
    )
    assert found.check == Check("output", before=DOUBLE, expected="3")


def test_predicted_outputs_are_compared_as_text() -> None:
    cell = execution(1, "2 + 2")
    assert item(example("4", ["e1"], "predict", verified="reexecuted"), cell).check == Check("exact", expected="4")
    assert item(example("4", ["e1"], "predict", derived="input:value"), cell).check == Check("exact", expected="4")
    assert item(example("4", ["e1"], "predict"), cell).check == Check("text")  # recorded once, and never confirmed


@pytest.mark.parametrize(
    ("one", "cells"),
    [
        (example("It doubles.", ["e1"], "explain"), [execution(1, DOUBLE)]),
        (example(DOUBLE, ["e1"]), [execution(1, DOUBLE)]),  # nothing was asserted, nothing shown
        (example(DOUBLE, ["gone"]), [execution(1, DOUBLE)]),
        (example("ls", ["e1"], language="bash"), [execution(1, "ls", language="bash", stdout="a")]),
    ],
)
def test_where_there_is_nothing_to_check_there_is_no_verdict(one: Example, cells: list[Execution]) -> None:
    assert item(one, *cells).check == Check("text")


QUESTION = "Write SQL code.\nName them.\nTables: products(id, name, category, price), orders(id, product_id, total)"


def test_a_query_whose_database_is_gone_gets_one() -> None:
    query = "SELECT name FROM products;"
    one = example(query, ["e1"], language="sql", question=QUESTION)
    found = item(one, execution(1, query, language="sql", result_text="   name\n0  Rake"))
    assert (found.check.kind, found.check.expected) == ("output", "")
    assert found.check == item(one, execution(1, query, language="sql")).check
    made = execution(0, "CREATE TABLE products (id, name); INSERT INTO products VALUES (1, 'Rake');", language="sql")
    found = item(one, made, execution(1, query, language="sql", result_text="   name\n0  Rake"))
    assert "Rake" in found.check.before
    assert found.check.expected == "   name\n0  Rake"


@pytest.mark.parametrize(
    ("reference", "changed"),
    [
        ("SELECT name FROM products WHERE category IN ('toys', 'garden')", ("'toys', ", "")),
        ("SELECT name, price FROM products WHERE price > 100", (">", "<")),
        ("SELECT name, price FROM products WHERE price >= 100", (">=", ">")),
        ("SELECT product_id, SUM(total) FROM orders GROUP BY product_id", ("SUM", "AVG")),
        ("SELECT name FROM products WHERE category IS NULL", ("IS NULL", "IS NOT NULL")),
        ("SELECT name FROM products WHERE category = 'it''s; DROP TABLE products'", (" = ", " <> ")),
        ("SELECT name FROM products ORDER BY price DESC LIMIT 3", ("DESC", "ASC")),
    ],
)
def test_a_changed_query_shows_other_rows_on_a_made_database(reference: str, changed: tuple[str, str]) -> None:
    one = example(reference, ["e1"], language="sql", question=QUESTION)
    connection = sqlite3.connect(":memory:")
    connection.executescript(item(one, execution(1, reference, language="sql")).check.before)
    found, other = (connection.execute(query).fetchall() for query in (reference, reference.replace(*changed)))
    assert found and sorted(map(repr, found)) != sorted(map(repr, other))
    if "products" in reference:  # an answer may read columns that the recorded one does not
        assert connection.execute("SELECT id, name, category, price FROM products").fetchall()


def test_a_derived_repair_runs_on_the_database_that_it_quotes() -> None:
    query, world = "SELECT n FROM t", "CREATE TABLE t (n INTEGER);\nINSERT INTO t VALUES (1), (2);"
    question = f"Fix this SQL code.\n\nSession so far:\n{world}\n\nCode:\nSELECT m FROM t\n\nError:\nno column m"
    one = example(query, ["e1"], "repair", language="sql", question=question, derived="bug:wrong_column")
    assert item(one, execution(1, query, language="sql")).check == Check("output", before=world)


def test_no_examples_no_items() -> None:
    empty = table(Example, [])
    assert isinstance(empty, pl.DataFrame)
    assert items_of(empty, table(Execution, [])) == []

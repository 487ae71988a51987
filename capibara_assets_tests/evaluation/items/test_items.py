"""Items from examples: what followed the answer in its cell are its tests, what the cell showed is expected."""

import json
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
    assert item(example("4", ["e1"], "predict"), execution(1, "2 + 2")).check == Check("exact", expected="4")


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


def test_a_query_whose_database_is_gone_gets_one() -> None:
    query = "SELECT name FROM products;"
    question = "Write SQL code.\nName them.\nTables: products(id, name)"
    one = example(query, ["e1"], language="sql", question=question)
    found = item(one, execution(1, query, language="sql", result_text="   name\n0  Rake"))
    assert found.check.before.startswith("CREATE TABLE products (id, name);")
    assert found.check.expected == ""
    made = execution(0, "CREATE TABLE products (id, name); INSERT INTO products VALUES (1, 'Rake');", language="sql")
    found = item(one, made, execution(1, query, language="sql", result_text="   name\n0  Rake"))
    assert "Rake" in found.check.before
    assert found.check.expected == "   name\n0  Rake"


def test_no_examples_no_items() -> None:
    empty = table(Example, [])
    assert isinstance(empty, pl.DataFrame)
    assert items_of(empty, table(Execution, [])) == []

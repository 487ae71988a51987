"""Notebooks: a cell that ran is an execution, with its language, order, time and outcome."""

import copy
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.executions.formats.detection import CountedEntry, read_parts
from capibara_assets.executions.formats.envelope_reader import Fault, Recorded
from capibara_assets_tests.executions.conftest import NOW


def code(source: Any, *outputs: dict[str, Any], count: int | None = 1, **metadata: Any) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "source": source,
        "outputs": list(outputs),
        "execution_count": count,
        "metadata": metadata,
    }


def stream(text: Any, name: str = "stdout") -> dict[str, Any]:
    return {"output_type": "stream", "name": name, "text": text}


def shown(text: Any, kind: str = "execute_result") -> dict[str, Any]:
    return {"output_type": kind, "data": {"text/plain": text, "image/png": "iVBO"}, "metadata": {}}


RAISED = {
    "output_type": "error",
    "ename": "ValueError",
    "evalue": "no",
    "traceback": ["\x1b[31mTraceback", "ValueError: no"],
}
MARKDOWN = {"cell_type": "markdown", "source": "# Title", "metadata": {}}


def notebook(*cells: Any, **metadata: Any) -> dict[str, Any]:
    return {"cells": list(cells), "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def parts(document: Any, indent: int | None = 1) -> list[Any]:
    return [part.content for part in read_parts(json.dumps(document, indent=indent).encode(), NOW)]


def ran(document: Any) -> list[Recorded]:
    return [item for item in parts(document) if isinstance(item, Recorded)]


def test_a_cell_of_commands_alone_failed_if_they_printed_an_exception() -> None:
    failed = 'Traceback (most recent call last):\n  File "a.py", line 1\nKeyError: 3\n'
    document = notebook(
        code("%cd /w\n!python a.py", stream(failed)),
        code("# all\n!python a.py", shown(failed), count=2),
        code("!cat a.log\nprint(1)", stream(failed), count=3),  # Python goes on below it
        code("!python b.py", stream("1\n"), count=4),
    )
    found = [(one.outcome, one.error_name, one.error_value) for one in ran(document)]
    assert found == [("error", "KeyError", "3"), ("error", "KeyError", "3"), ("ok", None, None), ("ok", None, None)]


def test_cells_that_ran_are_executions_and_the_others_are_counted() -> None:
    document = notebook(
        MARKDOWN,
        code(["x = 1\n", "print(x)"], stream(["1", "\n"]), stream("w", "stderr"), shown(["4", "2"])),
        code("x / 0", RAISED, count=2),
        code("never()", count=None),
        code("  ", count=None),
        code("quiet()", count=3),
        {"cell_type": "raw", "source": "r", "metadata": {}},
    )
    first, second, third = ran(document)
    assert (first.code, first.stdout, first.stderr, first.result_text) == ("x = 1\nprint(x)", "1\n", "w", "42")
    assert (first.outcome, first.language, first.execution_count) == ("ok", "python", "1")
    assert (second.outcome, second.error_name, second.error_value) == ("error", "ValueError", "no")
    assert second.traceback == "Traceback\nValueError: no"
    assert (third.code, third.outcome, third.stdout) == ("quiet()", "ok", "")
    kinds = sorted(item.kind for item in parts(document) if isinstance(item, CountedEntry))
    assert kinds == ["notebook_cell:markdown", "notebook_cell:not_run", "notebook_cell:not_run", "notebook_cell:raw"]
    assert len({record.sandbox_id for record in ran(document)}) == 1
    assert len({record.execution_id for record in ran(document)}) == 3


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 'x'", "KeyError"),
        ("\x1b[0;31mValueError\x1b[0m: no\nTraceback (most recent call last):\nValueError: no", "ValueError"),
        ("'Traceback (most recent call last):'", None),  # the repr of a text
        ("[1, 2]", None),
    ],
)
def test_an_exception_that_an_agent_wrote_into_a_result_is_the_cells_error(text: str, error: str | None) -> None:
    (one,) = ran(notebook(code("f()", shown(text))))
    assert (one.error_name, one.outcome) == (error, "error" if error else "ok")


def test_format_three_reads_like_format_four() -> None:
    cells = [
        {
            "cell_type": "code",
            "input": ["1/0"],
            "language": "python",
            "prompt_number": 2,
            "outputs": [RAISED | {"output_type": "pyerr"}],
        },
        {
            "cell_type": "code",
            "input": "f()",
            "language": "python",
            "prompt_number": 1,
            "outputs": [
                {"output_type": "stream", "stream": "stderr", "text": "w"},
                {"output_type": "pyout", "text": ["7"], "png": "iVBO", "prompt_number": 1},
            ],
        },
    ]
    old = {"worksheets": [{"cells": cells}], "metadata": {"name": "n"}, "nbformat": 3, "nbformat_minor": 0}
    first, second = ran(old)
    assert (first.code, first.stderr, first.result_text) == ("f()", "w", "7")
    assert (second.error_name, second.execution_count) == ("ValueError", "2")


def test_a_copy_is_the_same_session_whatever_its_formatting_and_a_changed_one_is_not() -> None:
    document = notebook(code("x = 1"), code("y = 2", count=2))
    ids = [record.execution_id for record in ran(document)]
    again = [item.execution_id for item in parts(document, indent=None)]
    split = copy.deepcopy(document)
    split["cells"][0]["source"] = ["x ", "= 1"]
    assert ids == again == [record.execution_id for record in ran(split)]
    changed = notebook(code("x = 1"), code("y = 3", count=2))
    assert not {record.sandbox_id for record in ran(changed)} & {record.sandbox_id for record in ran(document)}


def test_the_order_is_that_of_the_kernels_counter() -> None:
    document = notebook(code("second", count=2), code("first", count=1))
    records = sorted(ran(document), key=lambda record: record.timestamp)
    assert [record.code for record in records] == ["first", "second"]


@pytest.mark.parametrize(
    ("metadata", "cell", "language"),
    [
        ({"kernelspec": {"language": "R", "name": "ir"}}, {}, "r"),
        ({"kernelspec": {"name": "python3"}}, {}, "python"),
        ({"language_info": {"name": "javascript"}}, {}, "javascript"),
        ({"kernelspec": {"name": "deno"}}, {}, "typescript"),
        ({"kernelspec": {"language": "python"}}, {"vscode": {"languageId": "sql"}}, "sql"),
        ({}, {}, "python"),
    ],
)
def test_the_language_is_the_cells_or_the_kernels(metadata: Any, cell: Any, language: str) -> None:
    (record,) = ran(notebook(code("x", **cell), **metadata))
    assert record.language == language


@pytest.mark.parametrize(
    ("metadata", "duration"),
    [
        ({"execution": {"iopub.execute_input": "2026-10-05T12:00:00Z", "shell.execute_reply": "2026-10-05T12:00:02Z"}},
         2000),
        ({"papermill": {"start_time": "2026-10-05T12:00:00", "duration": 1.5}}, 1500),
        ({"ExecuteTime": {"start_time": "2026-10-05T14:00:00+02:00", "end_time": "2026-10-05T14:00:01+02:00"}}, 1000),
        ({"executionInfo": {"timestamp": 1791201600000, "elapsed": 7}}, 7),
        ({"execution_start": 1791201600000, "execution_millis": 9}, 9),
    ],
)  # fmt: skip
def test_times_are_read_from_every_tool_that_writes_them(metadata: Any, duration: float) -> None:
    (record,) = ran(notebook(code("x", **metadata)))
    assert (record.timestamp, record.duration_ms) == (datetime(2026, 10, 5, 12, tzinfo=UTC), duration)
    assert "undated" not in record.flags


def test_a_cell_without_a_time_follows_the_one_before_it() -> None:
    dated = {"papermill": {"start_time": "2026-10-05T12:00:00Z"}}
    before, at, after = ran(notebook(code("a"), code("b", count=2, **dated), code("c", count=3)))
    assert before.timestamp < at.timestamp < after.timestamp
    assert [record.flags for record in (before, at, after)] == [["estimated_timestamp"], [], ["estimated_timestamp"]]
    assert (after.timestamp - at.timestamp).total_seconds() == 0.001


def test_a_notebook_without_times_is_undated_not_dated_by_its_file() -> None:
    first, second = ran(notebook(code("a"), code("b", count=2)))
    assert first.flags == second.flags == ["undated"]
    assert datetime(1970, 1, 1, tzinfo=UTC) < first.timestamp < second.timestamp < datetime(1970, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        (3, "type:cells"),
        (code({"a": 1}), "type:code"),
        (code("x", outputs=3) | {"outputs": [1]}, "type:execution"),
        (code("x", stream(5)), "type:execution"),
        (code("x", RAISED | {"evalue": 5}), "type:execution"),
        (code("x", execution_start="soon"), "value:timestamp"),
    ],
)
def test_a_damaged_cell_is_named_and_the_others_are_kept(cell: Any, reason: str) -> None:
    items = parts(notebook(code("good"), cell))
    assert [item.code for item in items if isinstance(item, Recorded)] == ["good"]
    (fault,) = [item for item in items if isinstance(item, Fault)]
    assert fault.reason == reason


def test_a_notebook_of_an_unknown_format_is_refused() -> None:
    (fault,) = parts(notebook() | {"nbformat": 5})
    assert (fault.reason, fault.detail) == (
        "value:nbformat",
        "part 1: expected a notebook of format 3 or 4, found 5",
    )
    (fault,) = parts({"nbformat": 3, "worksheets": [{"cells": 3}]})
    assert fault.reason == "type:cells"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.sampled_from(["cell_type", "source", "outputs", "execution_count", "metadata", "language", "id"])


@given(FIELDS, JSON, st.integers(0, 2))
def test_any_value_in_any_field_of_a_cell_leaves_the_other_cells(field: str, value: Any, place: int) -> None:
    cells = [code("a"), code("b", count=2)]
    cells.insert(place, code("odd", stream("x"), count=3) | {field: value})
    items = parts(notebook(*cells))
    assert {"a", "b"} <= {item.code for item in items if isinstance(item, Recorded)}
    assert len(items) == 3


@given(
    st.lists(
        st.tuples(st.text(alphabet="ab \n=1'", min_size=1, max_size=12), st.sampled_from(["none", "text", "error"])),
        max_size=8,
    )
)
def test_every_cell_is_an_execution_or_counted(cells: list[tuple[str, str]]) -> None:
    outputs = {"none": [], "text": [stream("out")], "error": [RAISED]}
    items = parts(notebook(*(code(source, *outputs[kind], count=i) for i, (source, kind) in enumerate(cells, 1))))
    assert len(items) == len(cells)
    by_code = sorted((item.code, item.outcome) for item in items if isinstance(item, Recorded))
    assert by_code == sorted((s, "error" if kind == "error" else "ok") for s, kind in cells if s.strip())


@given(
    st.sampled_from(
        ["output_type", "name", "text", "data", "ename", "evalue", "traceback", "metadata", "execution_count"]
    ),
    JSON,
)
def test_any_value_in_any_field_of_an_output_is_read_or_refused(field: str, value: Any) -> None:
    for output in (stream("x"), shown("1"), RAISED):
        (item,) = parts(notebook(code("x", output | {field: value})))
        assert isinstance(item, Recorded | Fault)

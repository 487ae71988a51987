"""What the markdown above a cell says: headings and introductions, titles and fenced code left out."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.executions.formats.detection import read_parts
from capibara_assets.executions.formats.envelope_reader import Recorded
from capibara_assets.executions.formats.notebook_tasks import FROM_MARKDOWN, task_above
from capibara_assets_tests.executions.conftest import NOW


@pytest.mark.parametrize(
    ("markdown", "titled", "task"),
    [
        (["## Drop the missing values"], True, "Drop the missing values"),
        (["# Analysis", "## 2.1 Drop the missing values ##\n\nOnly rows with an age."], False,
         "Drop the missing values\nOnly rows with an age."),
        (["# Analysis of the passengers\n\nWe look at everything."], False, None),
        (["# Load the table"], True, "Load the table"),
        (["As we saw, it converges.\n\nNow drop the missing values:"], True, "Now drop the missing values:"),
        (["As we saw, it converges."], True, None),
        (["```\n# a comment\n```\n"], True, None),
        (["## ![logo](x.png) Plot the [loss](http://x)\n<br>"], True, "Plot the loss"),
        (["## Fit\n\n" + "word " * 300 + "\n\nThen call it:"], True, "Fit\nThen call it:"),
        ([], True, None),
    ],
)  # fmt: skip
def test_task_above(markdown: list[str], titled: bool, task: str | None) -> None:
    assert task_above(markdown, titled) == task


def records(*cells: dict[str, Any]) -> list[Recorded]:
    document = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return [p.content for p in read_parts(json.dumps(document).encode(), NOW) if isinstance(p.content, Recorded)]


def markdown(source: Any) -> dict[str, Any]:
    return {"cell_type": "markdown", "source": source, "metadata": {}}


def code(source: str, count: int | None = 1) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "outputs": [], "execution_count": count, "metadata": {}}


def test_only_the_cell_right_below_a_heading_has_it_as_its_task() -> None:
    found = records(
        markdown("# The page"),
        code("import numpy"),
        markdown(["## Count the\n", "\n", "Twice."]),
        markdown("## Square every number"),
        code("[n * n for n in numbers]", 3),
        code("print(numbers)", 2),
    )
    by_code = {record.code: record for record in found}
    assert {text: record.task for text, record in by_code.items()} == {
        "import numpy": None,
        "[n * n for n in numbers]": "Square every number",
        "print(numbers)": None,
    }
    assert FROM_MARKDOWN in by_code["[n * n for n in numbers]"].flags
    assert FROM_MARKDOWN not in by_code["print(numbers)"].flags


def test_a_cell_that_did_not_run_uses_its_heading_up() -> None:
    found = records(markdown("## Title two of it"), code("never()", None), code("ran()", 1))
    assert [(record.code, record.task) for record in found] == [("ran()", None)]


def test_headings_of_format_three() -> None:
    cells = [
        {"cell_type": "heading", "level": 2, "source": ["Sum the column"]},
        {"cell_type": "code", "input": "sum(xs)", "prompt_number": 1, "outputs": []},
    ]
    document = {"worksheets": [{"cells": cells}], "metadata": {"name": "n"}, "nbformat": 3, "nbformat_minor": 0}
    (record,) = [p.content for p in read_parts(json.dumps(document).encode(), NOW) if isinstance(p.content, Recorded)]
    assert record.task == "Sum the column"


@given(st.lists(st.text("# ab:\n`[]()<>!.1", max_size=60), max_size=4), st.booleans())
def test_any_markdown_is_read(markdown: list[str], titled: bool) -> None:
    found = task_above(markdown, titled)
    assert found is None or (found.strip() == found and 0 < len(found) <= 1000)

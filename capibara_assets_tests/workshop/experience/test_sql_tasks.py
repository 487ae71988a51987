"""What the SQL tasks say: whoever knows the tables can tell from a task which query it asks for."""

import re
from collections.abc import Iterator

import pytest

from workshop.experience.plan import plan
from workshop.experience.rendering import render

ROUNDED = re.compile(r"ROUND\(.*,\s*(\d)\)")
BOUNDS = re.compile(r"\b(?:LIMIT|HAVING COUNT\(\*\) >=|HAVING total >)\s*(\d+)(?!\s+OFFSET)")


def queries() -> Iterator[tuple[str, str, str]]:
    """(name, task, code) of each SQL cell that is to succeed."""
    for session in plan():
        if session.variant.family.language == "sql":
            for attempt in render(session.variant, {}):
                if not attempt.fails:
                    yield session.name, attempt.task.partition("\nTables:")[0], attempt.code


@pytest.fixture(scope="module")
def asked() -> list[tuple[str, str, str]]:
    return list(queries())


def test_a_task_says_to_how_many_digits_its_answer_rounds(asked: list[tuple[str, str, str]]) -> None:
    rounded = [(name, task, found[1]) for name, task, code in asked if (found := ROUNDED.search(code))]
    assert len(rounded) > 20
    assert [name for name, task, digits in rounded if f"{digits} digit" not in task] == []


def test_a_task_says_how_many_rows_and_which_groups_are_wanted(asked: list[tuple[str, str, str]]) -> None:
    bounded = [(name, task, bounds) for name, task, code in asked if (bounds := set(BOUNDS.findall(code)) - {"1"})]
    assert len(bounded) > 20
    assert [name for name, task, bounds in bounded if not bounds <= set(re.findall(r"\d+", task))] == []

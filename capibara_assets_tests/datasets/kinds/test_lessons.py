"""Bullets are tied to code and executions by names and ids, never by likeness."""

import pytest

from capibara_assets.datasets.kinds.lessons import Lessons
from capibara_assets_tests.datasets.conftest import bullet


@pytest.mark.parametrize(
    ("kind", "name", "content", "about"),
    [
        ("dataframe", ".dropna()", "Call df.dropna() before a join", True),
        ("dataframe", ".dropna()", "Use `dropna` with a subset", True),
        ("dataframe", ".dropna()", "Do not let dropna surprise you", False),
        ("api_call", "requests.get", "Give requests.get a timeout", True),
        ("api_call", "requests.get", "Get the requests in order", False),
        ("api_call", "POST /items", "POST /items answers 201", True),
        ("sql_query", "select orders, customers", "Join `customers` by id", True),
        ("sql_query", "select orders", "He orders a meal", False),
        ("sql_clause", "group by", "Name every column of the GROUP BY", True),
        ("sql_clause", "window function", "Window functions need an order", True),
        ("sql_clause", "union", "In union there is strength", False),
        ("sql_clause", "union", "UNION ALL keeps duplicates", True),
        ("comprehension", "list comprehension", "A list comprehension reads better", True),
        ("error_handling", "KeyError", "Catch KeyError alone", True),
        ("error_handling", "Exception", "Make no exception", False),
        ("function", "add", "Call add(1) twice", False),  # somebody else's function of that name
        ("function", "read_settings", "read_settings fails on an empty file", True),
        ("training_loop", "training loop", "Log the loss in the training loop", True),
        ("loop", "for x in rows", "for x in rows", False),
    ],
)
def test_what_a_bullet_is_about(kind: str, name: str, content: str, about: bool) -> None:
    found = Lessons.of([bullet("a", content).model_dump()]).about({"kind": kind, "name": name})
    assert bool(found) is about


def test_an_id_that_several_agents_use_is_the_agents_own() -> None:
    rows = [
        bullet("s-1", "one", bullet_id=f"{agent}/s-1", origins=[f"{agent}/s-1"], agents=[agent]).model_dump()
        for agent in ("ada", "bob")
    ]
    lessons = Lessons.of(rows)

    def helped(agent: str | None, name: str = "s-1") -> list[str]:
        row = {"execution_id": "e", "sandbox_id": "s", "agent_id": agent, "bullet_ids": [name]}
        return [found["bullet_id"] for found in lessons.that_helped(row)]

    assert helped("bob") == ["bob/s-1"]
    assert helped(None) == helped("cat") == helped("ada", "unknown") == []
    assert helped(None, "ada/s-1") == ["ada/s-1"]
    assert lessons.that_helped({"execution_id": "e", "sandbox_id": "s", "agent_id": "ada"}) == []  # no such column yet

"""The code that a bullet names, its steps, and the solutions that hold enough of it."""

from typing import Any

import pytest

from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.datasets.kinds.followed import followed, named_code
from capibara_assets.datasets.recipe import Advice

STRICT = Advice.model_validate({})


def solution(answer: str, language: str = "python") -> ExampleCandidate:
    return ExampleCandidate("solve", language, "asked", answer, ("e",), "key", 0.5, 1.0)


def lesson(content: str, helpful: int = 9, harmful: int = 0) -> dict[str, Any]:
    return {"bullet_id": "a/1", "content": content, "helpful": helpful, "harmful": harmful}


def others(language: str = "python") -> list[ExampleCandidate]:
    """Forty solutions that share nothing rare with any bullet here."""
    line = (
        "SELECT name FROM boats WHERE length > {}"
        if language == "sql"
        else "def step(values):\n    return sum(values) + {}"
    )
    return [solution(line.format(n), language) for n in range(40)]


def test_names_written_as_code_and_the_steps_between_them() -> None:
    found = named_code("ML (pandas): best row of each group: df.loc[df.groupby('g')['v'].idxmax()].", "python")
    assert found == {("loc",), ("groupby",), ("idxmax",), ("loc", "[·.", "groupby"), ("groupby", "(·)[·].", "idxmax")}
    assert named_code("Python: return it before max, min (or 0.0) and say so.", "python") == frozenset()
    sql = named_code("SQL: the mean is ROUND(AVG(x), 2); GROUP BY comes after.", "sql")
    assert {("round",), ("avg",), ("group",), ("round", "(", "avg")} <= sql
    assert not any("avg" in feature and "group" in feature for feature in sql)  # a semicolon parts them


@pytest.mark.parametrize(
    ("answer", "follows"),
    [
        ("best = sales.loc[sales.groupby('city')['price'].idxmax()]", True),
        ("# by group\nbest = sales.loc[sales.groupby(keys)[column].idxmax()].copy()", True),
        (
            "best = sales.groupby('city')['price'].max(); sales.loc[0]; sales.idxmax()",
            False,
        ),  # the names, no such steps
        ("text = \"df.loc[df.groupby('g')['v'].idxmax()]\"", False),  # in a string
        ("# df.loc[df.groupby('g')['v'].idxmax()]\nreturn 1", False),  # in a comment
    ],
)
def test_a_solution_follows_where_names_and_steps_are_in_its_code(answer: str, follows: bool) -> None:
    bullet = lesson("ML: best row of each group: df.loc[df.groupby('group')['value'].idxmax()].")
    found = followed([bullet], [*others(), solution(answer)], STRICT)
    assert found == ({40: [bullet]} if follows else {})


def test_what_many_solutions_have_shows_nothing() -> None:
    bullet = lesson("Python: windows are range(len(values) - size + 1).")
    window = solution("return [values[at] for at in range(len(values) - size + 1)]")
    assert list(followed([bullet], [*others(), window], STRICT)) == [40]
    assert followed([bullet], [*others(), *[window] * 20], STRICT) == {}


def test_advice_that_harmed_or_names_no_step_is_never_followed() -> None:
    answer = solution("ok = hmac.compare_digest(given.encode(), known)")
    single = lesson("API: call super() before anything.")
    harmed = lesson("API: use hmac.compare_digest(given.encode(), known).", helpful=3, harmful=3)
    assert followed([single, harmed], [*others(), answer, solution("super().__init__()")], STRICT) == {}
    assert followed([lesson(harmed["content"])], [*others(), answer], None) == {}


def test_languages_are_counted_apart() -> None:
    bullet = lesson("SQL: pivot: SUM(CASE WHEN status = 'open' THEN 1 ELSE 0 END) AS open.")
    pivot = "select sum(case when kind = 'a' then 1 else 0 end) as a from boats"
    mixed = [*others("sql"), solution(pivot, "sql"), solution(f"rows = db.execute({pivot!r})")]
    assert list(followed([bullet], mixed, STRICT)) == [40]

"""Recorded outputs and errors that the code of a prompt does not give, each beside one that it does."""

import pytest

from capibara_assets.datasets.agreement.predictions import ANY_ORDER, NOT_RAISED, raised, settled
from capibara_assets.datasets.derived.trials import execute
from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.executions.replay.workers import node

WORLD = "CREATE TABLE boats (name TEXT, kind TEXT, age INT);\nINSERT INTO boats VALUES ('a', 'x', 3), ('b', 'y', 3);"


def predicted(language: str, prompt: str, answer: str) -> ExampleCandidate:
    return ExampleCandidate("predict", language, prompt, answer, ("e",), "", 0.0, 1.0)


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT name FROM boats ORDER BY age", ANY_ORDER),
        ("SELECT name FROM boats ORDER BY age, name DESC", None),
        ("SELECT age FROM boats ORDER BY age", None),  # its tied rows are alike
        ("SELECT name FROM boats", None),  # as they were inserted
        ("SELECT * FROM boats ORDER BY name", None),
        ("SELECT kind, COUNT(*) AS n FROM boats GROUP BY kind ORDER BY n DESC;", ANY_ORDER),
        ("SELECT missing FROM boats ORDER BY age", None),
        ("SELECT name, ROW_NUMBER() OVER (ORDER BY age) AS n FROM boats", ANY_ORDER),
        ("SELECT name, ROW_NUMBER() OVER (ORDER BY age, name) AS n FROM boats", None),
        (
            "SELECT name, SUM(LENGTH(kind) + 1) OVER w AS n FROM boats WINDOW w AS (ORDER BY age ROWS 1 PRECEDING)",
            ANY_ORDER,
        ),
        ("SELECT name, SUM(LENGTH(kind) + 1) OVER (ORDER BY age) AS n FROM boats", None),  # ties are together
        ("SELECT name, LAG(name) OVER (PARTITION BY kind ORDER BY age) AS n FROM boats", None),
    ],
)
def test_an_order_is_settled(query: str, why: str | None) -> None:
    one = predicted("sql", prompts.predict("sql", query, [WORLD]), "name\na\nb")
    (found,) = settled([one], execute)
    assert found.lacking == why and settled([one], None) == [one]


ADDED = "AssertionError: ['b', 'c']"


@pytest.mark.parametrize(
    ("code", "answer", "why"),
    [
        ("items.append('c')\nassert items == [], items", ADDED, None),
        ("items.append('c')\nassert items == [], items", "AssertionError: ['a', 'b', 'c']", NOT_RAISED),
        ("items.append('c')\nassert items == ['b', 'c'], items", ADDED, NOT_RAISED),
        ("items.missing()", "AttributeError: in other words", None),
        ("import a_library_that_nobody_has\nassert items == [], items", ADDED, None),
    ],
)
def test_an_error_comes_of_what_is_shown(code: str, answer: str, why: str | None) -> None:
    place = code.split("\n")[-1]
    one = predicted("python", prompts.predict_error("python", code, ["items = ['b']"]), f"{place}\n{answer}")
    (found,) = raised([one], execute)
    assert found.lacking == why and raised([one], None) == [one]


@pytest.mark.skipif(node() is None, reason="Node.js is not installed")
def test_an_error_in_javascript() -> None:
    asked = prompts.predict_error("javascript", "f(2).length", ["const f = (n) => undefined;"])
    assert raised([predicted("javascript", asked, "TypeError: x")], execute)[0].lacking is None
    sound = prompts.predict_error("javascript", "f(2).length", ["const f = (n) => [n];"])
    assert raised([predicted("javascript", sound, "TypeError: x")], execute)[0].lacking == NOT_RAISED

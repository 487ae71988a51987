"""Explanations and diagnoses of recorded code that runs again, all in one batch."""

from collections.abc import Callable

import pytest

from capibara_assets.datasets.kinds import diagnose, explain
from capibara_assets.datasets.kinds.behaviour import is_new
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.datasets.tracing import traced
from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets_tests.datasets.conftest import evidence_of, pair, run

COUNT = "def spans(text):\n    parts = text.split('-')\n    return max(len(part) for part in parts if part)"
WRONG = "def total(xs, start=0):\n    for x in xs:\n        start -= x\n    return start\nassert total([2, 3]) == 5"
OLD_TOTAL = """\
const total = (xs) => { let sum = 0; for (const x of xs) sum = x; return sum; };
if (total([2, 3]) !== 5) throw new Error('wrong');"""
FRAME = "import pandas as pd\nframe = pd.DataFrame({'town': ['Ulm', None, 'Bonn'], 'day': [1, 2, 3]})"
SERVER = """\
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

async def show(request):
    width = int(request.query_params["width"])
    return JSONResponse({"area": width * width})

app = Starlette(routes=[Route("/square", show)])"""
ASK = 'from starlette.testclient import TestClient\nTestClient(app).get("/square?width=7").json()'


@pytest.fixture(scope="module")
def made() -> Callable[[str], ExampleCandidate | None]:
    """Execution id -> the only candidate made of it."""
    failing = run("bad", WRONG, "p", outcome="error", error_name="AssertionError")
    fixed = run("good", WRONG.replace("-=", "+="), "p", minute=1)
    script = {"language": "javascript", "domains": ["javascript"]}
    broken = run("js-bad", OLD_TOTAL, "j", outcome="error", error_name="Error", **script)
    mended = run("js-good", OLD_TOTAL.replace("sum = x", "sum += x"), "j", minute=1, **script)
    renamed = run("js-same", OLD_TOTAL.replace("x", "y"), "j", minute=2, **script)
    query = {"language": "sql", "error_name": "OperationalError", "error_value": "no such function: YEAR"}
    dialect = run("sql-bad", "SELECT YEAR(day) AS y FROM trips", "q", outcome="error", **query)
    lite = run("sql-good", "SELECT strftime('%Y', day) AS y FROM trips", "q", minute=1, language="sql")
    lite = lite.model_copy(update={"result_text": "      y\n0  2024\n1  2025"})
    executions = [
        *(failing, fixed, broken, mended, renamed, dialect, lite),
        run("count", COUNT, "a"),
        run("use", "spans('ab-cde'), spans('-x')", "a", minute=1),
        run("same", "def same(x):\n    return x\nsame(3)", "b"),
        run("frame", FRAME, "c"),
        run("drop", "frame = frame.dropna()", "c", minute=1),
        run("server", SERVER, "d"),
        run("ask", ASK, "d", minute=1),
        run("other", "1 / 1", "e", result_text="7"),
    ]
    pairs = [pair(failing, fixed), pair(broken, mended), pair(broken, renamed), pair(dialect, lite)]
    recipe = shipped_recipe("dataset", DatasetRecipe)
    evidence = traced(evidence_of(executions, pairs), recipe)
    assert "other" not in evidence.traces  # another result than was recorded
    listed = [*explain.candidates(evidence, recipe), *diagnose.candidates(evidence, recipe)]
    by_id = {(one.execution_ids[0], one.prompt.split()[1]): one for one in listed}

    def found(name: str) -> ExampleCandidate | None:
        return by_id.get((name, "why")) or by_id.get((name, "what"))

    return found


def test_a_function_is_explained_by_the_calls_of_its_session(made: Callable[[str], ExampleCandidate]) -> None:
    assert made("count").prompt.startswith(
        "Explain what this Python code does. Show it for `spans('ab-cde')` and `spans('-x')`."
    )
    assert made("count").answer == (
        "`spans('ab-cde')` returns `3`: `parts` becomes `['ab', 'cde']` and `part` always holds (twice tested). "
        "`spans('-x')` returns `1`: `parts` becomes `['', 'x']` and `part` holds once out of 2."
    )
    assert made("count").execution_ids == ("count", "use")


def test_what_the_code_says_itself_is_no_explanation(made: Callable[[str], ExampleCandidate | None]) -> None:
    assert made("same") is None and made("use") is None


def test_a_table_is_explained_by_what_changed(made: Callable[[str], ExampleCandidate]) -> None:
    assert made("drop").answer == "`frame` goes from 3 to 2 rows and has 0 missing values instead of 1."


def test_a_request_is_explained_by_its_answer(made: Callable[[str], ExampleCandidate]) -> None:
    assert made("server").answer == (
        '`GET /square?width=7` is answered through `show` with status 200 and the body `{"area":49}`.'
    )


def test_a_diagnosis_has_both_values_and_the_change(made: Callable[[str], ExampleCandidate]) -> None:
    assert "`total([2, 3])` should return `5`." in made("good").prompt
    assert made("good").answer == (
        "`total([2, 3])` returns `-5`. In `start -= x` the operator `-=` has to be `+=`. Then it returns `5`."
    )
    assert made("js-good").answer == (
        "`total([2, 3])` returns `3`. "
        "In `const total = (xs) => { let sum = 0; for (const x of xs) sum = x; return sum; };` "
        "the operator `=` has to be `+=`. Then it returns `5`."
    )
    assert made("js-same") is None  # other names alone


def test_a_query_is_diagnosed_by_its_error_and_its_rows(made: Callable[[str], ExampleCandidate]) -> None:
    assert made("sql-good").answer == (
        "SQLite has no function `YEAR`. "
        "In `SELECT YEAR(day) AS y FROM trips` `YEAR(day)` has to be `strftime('%Y', day)`. "
        "The mended query gives 2 rows, the first with `y` 2024."
    )


def test_new_is_a_value_that_the_prompt_does_not_show() -> None:
    assert is_new("`f(2)` returns `40`.", "Show it for `f(2)`.")
    assert not is_new('`GET /` has status 200 and `{"a":1}`.', "GET / {'a': 1}")

"""Answers hold what was asked for, and prompts what their tests expect."""

from capibara_assets.datasets.code.python_source import Places
from capibara_assets.datasets.kinds import solve
from capibara_assets.datasets.kinds.asked import has_untold_form, only_tested, shown_test, with_imports, without_unasked
from capibara_assets.datasets.kinds.prompts import SESSION, TESTS, section
from capibara_assets.datasets.kinds.solve import BRIEF, PARTS, UNMADE
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets_tests.datasets.conftest import evidence_of, run

QUEUE = """\
LIMIT = 3

class Ring:
    def __init__(self, size=LIMIT):
        self.items = []

    def push(self, item):
        self.items.append(self._kept(item))

    def _kept(self, item):
        return item

    def clear(self):
        self.items = []

    def __len__(self):
        return len(self.items)

def spare():
    return 1

TABLE = {"ring": spare}"""
ASKED = "Write a class `Ring(size)` with push(item)."
CHECK = "def check(row):\n    found = []\n    if not row:\n        found.append('row is empty')\n    return found"


def test_what_nothing_names_is_cut() -> None:
    cut = without_unasked(QUEUE, ASKED, "ring = Ring()\nring.push(1)\nassert ring.items == [1]", "python")
    assert "spare" not in cut and "TABLE" not in cut and "clear" not in cut and "__len__" not in cut
    assert "_kept" in cut and "LIMIT" in cut and "__init__" in cut
    compile(cut, "cut", "exec")


def test_of_an_import_the_names_stay_that_something_uses() -> None:
    code = (
        "from __future__ import annotations\nimport json, os\n\nfrom .models import (\n    Item,\n    Spare as Other,\n"
        "    Unit,\n)\nfrom math import *\n\n\ndef total(items: list[Item]) -> Unit:\n    return json.dumps(items)"
    )
    cut = without_unasked(code, "Write total(items) with annotations.", "", "python")
    assert cut == (
        "from __future__ import annotations\nimport json\n\nfrom .models import Item, Unit\nfrom math import *\n\n\n"
        "def total(items: list[Item]) -> Unit:\n    return json.dumps(items)"
    )
    assert without_unasked(cut, "Write total(items) with annotations.", "", "python") == cut


def test_lines_end_as_python_counts_them() -> None:
    code = "def f(x):\r    return x + 1\r\n\r\ndef spare(): return {'é': 1}\rtable = [\r1]\n"
    places = Places(code)
    assert code[places.at(2, 4) :].startswith("return x") and code[places.at(4, 0) :].startswith("def spare")
    assert code[places.at(4, 25) :].startswith(": 1}") and code[places.at(6, 0) :] == "1]\n"
    assert "def f" in without_unasked(code, "Write `f`.", "", "python")
    assert places.at(7, 0) == places.at(8, 3) == len(code)


def test_what_is_decorated_last() -> None:
    code = 'app = App()\n\n\n@app.middleware("http")\ndef add(request, call):\n    return call(request)'
    assert without_unasked(code, "", "count(5)", "python") == "app = App()\n\n\n"


def test_what_prompt_or_test_names_stays() -> None:
    assert "def clear" in without_unasked(QUEUE, ASKED, "Ring().clear()", "python")
    assert "def __len__" in without_unasked(QUEUE, f"{ASKED} It has a length.", "", "python")
    assert without_unasked(QUEUE, "Write something.", "", "python") == QUEUE
    assert without_unasked("x = [1]\ny = [2]", "Make `x`.", "", "python") == "x = [1]\ny = [2]"


def test_texts_that_the_test_alone_tells() -> None:
    test = "assert check({}) == ['row is empty']"
    assert only_tested(CHECK, "Check a row.", test, "python") == {"row is empty"}
    assert only_tested(CHECK, "Check a row: say 'row is empty'.", test, "python") == set()
    assert shown_test(f"{test}\nprint(check(1))", "python") == test and shown_test("check(1)", "python") == ""


def test_assertions_stand_below_the_imports_that_they_read() -> None:
    test = "import math\nimport os\nfrom math import pi\nassert math.isclose(area(1), pi)"
    shown = ["assert math.isclose(area(1), pi)"]
    assert with_imports(shown, test, "python") == ("import math", "from math import pi", *shown)
    assert with_imports(["assert area(0) == 0"], test, "python") == ("assert area(0) == 0",)
    script = "const assert = require('assert');\nconst fs = require('fs');\nassert.ok(area(1) > 3);"
    assert with_imports(["assert.ok(area(1) > 3);"], script, "javascript") == (
        "const assert = require('assert');", "assert.ok(area(1) > 3);",
    )  # fmt: skip
    assert with_imports(["assert ("], test, "python") == ("assert (",)


def test_of_a_task_that_tests_alone_tell_more_are_shown(recipe: DatasetRecipe) -> None:
    code = "def kept(row):\n    return [x for x in row if x > 2]"
    tests = "\n".join(f"assert kept([{i}, 1, 2, 3]) == {[i, 3] if i > 2 else [3]}" for i in range(12))
    named, nameless = run("a", f"# Keep what is above two.\n{code}\n{tests}"), run("b", f"{code}\n{tests}", "s2")
    made = {one.execution_ids[0]: one.prompt for one in solve.candidates(evidence_of([named, nameless]), recipe)}
    assert made["a"].count("assert") == recipe.tests_shown and made["b"].count("assert") == 2 * recipe.tests_shown


def test_what_is_told_without_an_example_has_the_first_assertions(recipe: DatasetRecipe) -> None:
    code = "def kept(row):\n    return [x for x in row if x > 2]"
    tests = "assert kept([3, 1, 2]) == [3]\nassert kept([]) == []"
    rows = [
        run("described", f"# Keep what is above two.\n{code}\n{tests}"),
        run("with one", f"# Keep what is above two: kept([1, 5]) == [5]\n{code}\n{tests}", "s2"),
        run("asked", f"{code}\n{tests}", "s3", task="Write `kept(row)` that keeps what is above two."),
        run("asked for one", f"{code}\n{tests}", "s5", task="Write `kept(row)`: kept([1, 5]) == [5]."),
        run("later", 'def kept(row):\n    """Keep what is above two."""\n    return [x for x in row if x > 2]', "s4"),
        run("test", tests, "s4", minute=1),
    ]
    made = {one.execution_ids[0]: one.prompt for one in solve.candidates(evidence_of(rows), recipe)}
    shown = {name: prompt.count("assert kept(") for name, prompt in made.items()}
    assert shown == {"described": 2, "with one": 0, "asked": 2, "asked for one": 0, "later": 2}


def test_an_error_that_a_test_expects_is_told(recipe: DatasetRecipe) -> None:
    code = "def last(xs):\n    if not isinstance(xs, list):\n        raise TypeError(xs)\n    return xs[-1]"
    test = "import pytest\nassert last([1, 2]) == 2\nwith pytest.raises(TypeError):\n    last({})"
    silent = run("silent", f"{code}\n{test}", task="Write `last(xs)`: the last of a list.")
    spoken = run("spoken", f"{code}\n{test}", "s2", task="Write `last(xs)`: the last of a list; raise TypeError else.")
    made = {one.execution_ids[0]: one.prompt for one in solve.candidates(evidence_of([silent, spoken]), recipe)}
    assert "pytest.raises(TypeError)" in made["silent"] and "pytest" not in made["spoken"]


def test_members_that_a_test_reads_are_told(recipe: DatasetRecipe) -> None:
    code = "class Crate:\n    def __init__(self, load):\n        self.{0} = sum(load)\n        self.empty = not load"
    task = "Write a class `Crate(load)` with its `weight`."
    told, untold = (
        run(name, f"{code.format(name)}\nassert Crate([1, 2]).{name} == 3", f"s-{name}", task=task)
        for name in ("weight", "burden")
    )
    made = {one.execution_ids[0]: one.prompt for one in solve.candidates(evidence_of([told, untold]), recipe)}
    assert made["weight"].endswith("It has to pass:\nassert Crate([1, 2]).weight == 3")
    assert made["burden"].endswith("It has to pass:\nassert Crate([1, 2]).burden == 3")


def test_members_of_what_a_test_hands_over_are_told(recipe: DatasetRecipe) -> None:
    code = "const eldest = (people) => people.reduce((a, b) => (a.{0} < b.{0} ? a : b));"
    tests = "{{\n  const people = [{{ {0}: 3 }}, {{ {0}: 4 }}];\n  assert.strictEqual(eldest(people).{0}, 3);\n}}"
    task = "Write `eldest(people)`, the one of the people who was `born` first."
    rows = [
        run(name, f"{code.format(name)}\n{tests.format(name)}", f"s-{name}", task=task, language="javascript")
        for name in ("born", "bornIn")
    ]
    made = {one.execution_ids[0]: one.prompt for one in solve.candidates(evidence_of(rows), recipe)}
    assert "strictEqual(eldest(people).bornIn, 3)" in made["bornIn"] and "strictEqual" not in made["born"]


def test_a_task_is_answered_whole(recipe: DatasetRecipe) -> None:
    shows = {"task": "The mean age of each kind, and the oldest boat of each."}
    names = {"task": "Write count_a(text), and count(text, sign) for any sign."}
    mean = "boats.groupby('kind').age.mean().sort_values(ascending=False)"
    oldest = "boats.loc[boats.groupby('kind').age.idxmax(), ['kind', 'name']]"
    one, both = "def count(t, s):\n    return t.count(s)", "def count_a(t):\n    return count(t, 'a')"
    tests = "assert count_a('aba') == 2\nassert count('aba', 'b') == 1"
    rows = [
        run("mean", mean, "s1", result_text="x", **shows),
        run("oldest", oldest, "s1", minute=1, result_text="a  b", **shows),
        run("look", "boats.head(3)", "s2", result_text="x", **shows),
        run("alone", oldest, "s2", minute=1, result_text="a  b", **shows),
        run("one", f"{one}\n{tests}", "s3", **names),
        run(
            "query", "SELECT COUNT(*) FROM boats WHERE age > 3", "s5", language="sql", task="Boats over 3, by COUNT(*)."
        ),
        run("both", f"{one}\n{both}\n{tests}", "s4", **names),
    ]
    lacking = {each.execution_ids[0]: each.lacking for each in solve.candidates(evidence_of(rows), recipe)}
    assert lacking == {"oldest": PARTS, "alone": None, "one": UNMADE, "query": None, "both": None}


def test_a_title_needs_a_test_beside_it(recipe: DatasetRecipe) -> None:
    code = "def search(x, row):\n    return row.index(x) if x in row else len(row)"
    tested = f"{code}\nassert search(2, [1, 2]) == 1"
    rows = [
        run("title", f"{code}\nprint(search(2, [1, 2]))", "s1", task="Sequential Search"),
        run("tested", tested, "s2", task="Sequential Search"),
        run("asked", f"{code}\nprint(search(2, [1, 2]))", "s3", task="Search a row for an item."),
    ]
    lacking = {one.execution_ids[0]: one.lacking for one in solve.candidates(evidence_of(rows), recipe)}
    assert lacking == {"title": BRIEF, "tested": None, "asked": None}


def test_a_test_is_shown_where_it_alone_tells_what_is_expected(recipe: DatasetRecipe) -> None:
    task = "Write `check(row)` that lists what is wrong."
    told = run("told", f"{CHECK}\nassert check({{}}) == ['row is empty']", task=task)
    number = CHECK.replace("'row is empty'", "1")
    plain = run("plain", f"{number}\nassert check({{}}) == [1]", "s2", task=task)
    made = {one.execution_ids[0]: one.prompt for one in solve.candidates(evidence_of([told, plain]), recipe)}
    assert made["told"].endswith("It has to pass:\nassert check({}) == ['row is empty']")
    assert made["plain"].endswith("It has to pass:\nassert check({}) == [1]")


APP = """\
from fastapi import FastAPI, Query
from fastapi.routing import APIRoute
from pydantic import BaseModel

about = "All about things."

def named(route: APIRoute):
    return route.name

app = FastAPI(title="Things", description=about, generate_unique_id_function=named)

class Thing(BaseModel):
    model_config = {"extra": "forbid"}

    name: str

@app.post("/things/")
def add(thing: Thing):
    return thing.name

@app.get("/things/{thing}", status_code=202)
def read(thing: int = Path(ge=3, title="Which one"), q: str | None = Query(None, alias="thing-query"), most: int = 9):
    told = {"thing": thing, "most": most}
    if q:
        told["q"] = q
    return told"""


def test_a_function_that_names_operations_stays_where_it_is_told() -> None:
    app = "def named(route):\n    return route.name\n\napp = FastAPI(generate_unique_id_function=named)"
    assert without_unasked(app, "Write Python code.", "assert named(app.routes[0]) == 'read'", "python") == app
    assert without_unasked(app, "Write Python code.", "assert app.routes", "python").endswith("app = FastAPI()")


def test_functions_that_run_with_requests_stay() -> None:
    app = """\
from contextlib import asynccontextmanager
from fastapi import Depends, FastAPI

models = {}

@asynccontextmanager
async def opened(app):
    models["answer"] = 42
    yield
    models.clear()

def checked():
    raise ValueError

app = FastAPI(lifespan=opened)

@app.get("/answer", dependencies=[Depends(checked)])
def read():
    return models["answer"]"""
    test = "with TestClient(app) as client:\n    assert client.get('/answer').status_code == 500"
    assert without_unasked(app, f"Write Python code.\n\nIt has to pass:\n{test}", test, "python") == app


def test_options_that_no_request_shows_are_cut() -> None:
    test = """client = TestClient(app)
response = client.get("/things/1")
assert response.status_code == 202 and response.json() == {"thing": 1, "most": 9}"""
    assert (
        without_unasked(APP, f"Write Python code.\n\nIt has to pass:\n{test}", test, "python")
        == """\
from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()

class Thing(BaseModel):
    name: str

@app.post("/things/")
def add(thing: Thing):
    return thing.name

@app.get("/things/{thing}", status_code=202)
def read(thing: int = Path(), most: int = 9):
    told = {"thing": thing, "most": most}
    return told"""
    )


def test_options_that_a_test_shows_stay() -> None:
    test = """client = TestClient(app)
assert client.get("/things/2?thing-query=a").json()["detail"][0]["ctx"] == {"ge": 3}
assert client.get("/openapi.json").json()["info"] == {"title": "Things", "description": "All about things."}"""
    cut = without_unasked(APP, f"Write Python code.\n\nIt has to pass:\n{test}", test, "python")
    assert 'FastAPI(title="Things", description=about)' in cut and "about =" in cut
    assert "Path(ge=3)" in cut and 'Query(None, alias="thing-query")' in cut and "def named" not in cut


HOOKED = """\
from fastapi import Depends, FastAPI
from fastapi.exception_handlers import http_exception_handler
from fastapi.responses import PlainTextResponse, UJSONResponse

app = FastAPI()

@app.exception_handler(HTTPException)
async def seen(request, error):
    print(f"an error came: {error!r}")
    return await http_exception_handler(request, error)

@app.exception_handler(KeyError)
async def missing(request, error):
    return PlainTextResponse("", status_code=404)

@app.middleware("http")
async def timed(request, call_next):
    response = await call_next(request)
    response.headers["X-Seen"] = "1"
    return response

@app.get("/things", response_class=UJSONResponse)
def read(name=Depends(named, scope="function")):
    return {"thing": name}"""


def test_hooks_and_classes_that_no_response_shows_are_cut() -> None:
    test = "client = TestClient(app)\nassert client.get('/things').json() == {'thing': 'a'}"
    cut = without_unasked(HOOKED, f"Write Python code.\n\nIt has to pass:\n{test}", test, "python")
    assert "seen" not in cut and "timed" not in cut and "http_exception_handler" not in cut
    assert '@app.get("/things")' in cut and "Depends(named)" in cut
    assert "PlainTextResponse(" in cut  # it may be what a response shows
    header = "assert client.get('/things').headers['X-Seen'] == '1'"
    assert "timed" in without_unasked(HOOKED, f"Write Python code.\n\nIt has to pass:\n{header}", header, "python")


def test_options_of_a_task_in_words_and_of_a_client_stay() -> None:
    told = "Write Python code.\nServe things; `thing` is at least three."
    assert "Path(ge=3" in without_unasked(APP, told, "", "python")
    client = "import requests\ndef read(url):\n    return requests.get(url, timeout=5, params={'page': 2}).json()"
    assert without_unasked(client, "Write Python code.\n\nSignature:\ndef read(url)", "read('u')", "python") == client


def test_what_is_cut_leaves_no_gap() -> None:
    code = f"def asked(x):\n    return x\n\n\n\n{CHECK}\n\n\n\ndef other(x):\n    return asked(x)"
    cut = without_unasked(code, "Write asked(x) and other(x).", "", "python")
    assert "check" not in cut and "\n\n\n\n" not in cut and "def other" in cut


def test_a_form_that_the_test_alone_tells_is_shown_by_it() -> None:
    step = "def step(xs):\n    return max(xs), min(xs)"
    assert has_untold_form(step, "def step(xs)\nA step.", "hi, lo = step([1])")
    assert not has_untold_form(step, "def step(xs)\nReturns the largest and the smallest.", "hi, lo = step([1])")
    assert not has_untold_form(step, "def step(xs)\nA step.", "assert other() == 1")
    naps = "def naps(day):\n    return day.strftime('%H:%M')"
    assert has_untold_form(naps, "def naps(day)\nReturn the start.", "assert naps(d) == '09:30'")
    assert not has_untold_form(naps, "def naps(day)\nReturn the start as %H:%M.", "assert naps(d) == '09:30'")


DATA = (
    'rows = [3, 1]\ndef least(xs):\n    """The least of some numbers."""\n    return max(xs)\nassert least(rows) == 1'
)
LEAST = 'def least(xs):\n    """The least of some numbers."""\n    return min(xs)\n'


def test_the_data_of_a_failed_attempt_stand_in_the_session_where_a_shown_test_reads_them(recipe: DatasetRecipe) -> None:
    failed = {"outcome": "error", "error_name": "AssertionError", "error_value": "", "traceback": "----> 5 assert"}
    cells = [run("a", DATA, **failed), run("b", LEAST + "assert least(rows) == 1\nassert least([2]) == 2", minute=1)]
    (made,) = [one for one in solve.candidates(evidence_of(cells), recipe) if "b" in one.execution_ids]
    assert section(made.prompt, TESTS) == "" or section(made.prompt, SESSION) == "rows = [3, 1]"
    assert "max" not in made.prompt


def test_a_later_cell_that_needs_an_import_alone_is_no_test_of_it(recipe: DatasetRecipe) -> None:
    marked = "import math\n# Mark the late rows.\nrows = [math.floor(x) for x in (1.5, 2.5)]\nrows"
    again = "rows = [math.ceil(x) for x in (1.5, 2.5)]\nassert rows == [2, 3]"
    cells = [run("a", marked, domains=["python"]), run("b", again, minute=1, domains=["python"])]
    made = [one for one in solve.candidates(evidence_of(cells), recipe) if one.execution_ids[0] == "a"]
    assert all("ceil" not in (one.test or "") and "b" not in one.execution_ids for one in made)


def test_a_call_that_only_shows_what_tests_judge_is_no_part_of_the_answer(recipe: DatasetRecipe) -> None:
    cell = (
        "# Turn errors into problem documents: anything else is 500.\ndef problem(exc):\n    return 500, str(exc)\n"
        "assert problem(ValueError('x')) == (500, 'x')\nproblem(KeyError('y'))"
    )
    (made,) = solve.candidates(evidence_of([run("a", cell, domains=["python"])]), recipe)
    assert made.answer == "def problem(exc):\n    return 500, str(exc)"

"""Explanations and diagnoses of recorded code that runs again, all in one batch."""

import re
from collections.abc import Callable

import pytest

from capibara_assets.datasets.code.steps import steps
from capibara_assets.datasets.explanations import diagnose, explain
from capibara_assets.datasets.explanations.behaviour import is_new, request_sentence
from capibara_assets.datasets.explanations.substitution import eats_its_own
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.datasets.tracing import traced
from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets_tests.datasets.conftest import evidence_of, pair, run

RUNS = """\
def runs(text, least=1):
    # the lengths of runs
    found = []
    last = None
    for letter in text:
        if letter == last:
            found[-1] += 1
        else:
            found.append(1)
        last = letter
    return sorted(n for n in found if n > least)"""
POWER = """\
def power(base, times):
    return base * power(base, times - 1) if times > 0 else 1"""
HALVES = """\
function halves(n) {
  let seen = [];
  while (n > 1) {
    seen.push(n);
    n = Math.floor(n / 2);
  }
  for (let i = seen.length - 2; i < 1; i++) if (seen.length > 5) return null;
  return seen.map((each) => each - 1);
}"""
ORDER = """\
def first(xs):
    seen = set(xs)
    if len(seen) > 1:
        xs = list(seen)
    return xs[0] + 1"""
WRONG = """\
def total(xs, start=0):
    for x in xs:
        start -= x
    return start
assert total([2, 3]) == 5"""
BARE = WRONG.replace("total", "whole")
FORGOTTEN = """\
def large(xs):
    for x in xs:
        if x > 3:
            x * 2
    return len(xs) + 4
assert large([1, 5]) == 10"""
BEYOND = "def last(xs):\n    n = len(xs) * 1\n    return xs[n] * 2\nassert last([4, 7]) == 14"
UNKNOWN = "def double(n):\n    twice = 2 * nn\n    return twice + 1\nassert double(4) == 9"
OLD_TOTAL = """\
const total = (xs) => { let sum = 0; for (const x of xs) sum = x; return sum; };
if (total([2, 3]) !== 5) throw new Error('wrong');"""
SERVER = """\
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

async def show(request):
    width = int(request.query_params["width"])
    return JSONResponse({"area": width * width})

async def refused(request, problem):
    return PlainTextResponse("no number", 400)

app = Starlette(routes=[Route("/square", show)], exception_handlers={ValueError: refused})"""
ASK = """\
from starlette.testclient import TestClient
client = TestClient(app)
[client.get(path).status_code for path in ("/square?width=7", "/square?width=x", "/circle")]"""
POPPED = """\
def last(xs):
    rest = xs[:]
    n = rest.pop() * 2
    for x in rest:
        if x > n:
            n = x
    return n"""
SPACED = """\
def padded(text, n):
    words = text.split(" ")
    for word in words:
        if word == "":
            n += 1
    return "  ".join(words)[:n]"""
SPACED_SCRIPT = """\
function padded(text, n) {
  const words = text.split(" ");
  for (const word of words) {
    if (word === "") n += 1;
  }
  return words.join("  ").slice(0, n);
}"""
DIGITS_SCRIPT = """\
function nextPalindrome(n) {
  n = n + 1;
  while (n > 10) {
    const digits = n.toString();
    if (digits === digits.split("").reverse().join("")) {
      return n;
    }
    n++;
  }
  return -1;
}"""
STORED = """\
free = [3, 2, 1]
def keep(name, size):
    number = free.pop()
    if size > 1 and len(name) > 0:
        number += 10
    if number > 20:
        number -= 1
    return number"""
COUNTED = """\
const free = [3, 2, 1];
function label(name, size) {
  let number = free.pop();
  if (size > 1) name = name + '!';
  if (size > 2) name = name + '?';
  return name + (number + 30);
}"""
SHELF = """\
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

books = []

def shelve(title):
    books.append(title)
    return len(books)

async def create(request):
    return JSONResponse({"number": shelve(request.query_params["title"])})

app = Starlette(routes=[Route("/books", create, methods=["POST"])])
client = TestClient(app)"""
SHELVED = "client.post('/books?title=atlas').json()"
STARTS = """\
def counted(xs):
    most = 1
    if most > 0 and not xs:
        return [most]
    return xs
assert counted([]) == []"""
CLOCK = """\
def clock(n):
    rest = n % 60
    hours, rest = divmod(n, 60, 60)
    return hours * 100 + rest
assert clock(65) == 105"""
KEPT = """\
def kept(items, most):
    for i in range(len(items)):
        if items[i] > 0:
            items[i] = most.get(i, items[i])
    return [n + 1 for n in items]"""
NESTED = """\
def nested(flat):
    out = {}
    for name, v in flat.items():
        *path, last = name.split(".")
        if len(path) > 0:
            last = "".join(path) + last
        out[last] = v
    return out"""
CLEARED = """\
def cleared(items, most):
    for i in range(len(items)):
        if items[i] > 0:
            most.pop(i, None)
    return [n + 1 for n in items]"""
FIXES = {
    "clock": (CLOCK, CLOCK.replace(", 60, 60", ", 60"), "TypeError"),
    "starts": (STARTS, STARTS.replace("most = 1", "most = 0"), "AssertionError"),
    "wrong": (WRONG, WRONG.replace("-=", "+="), "AssertionError"),
    "forgotten": (FORGOTTEN, FORGOTTEN.replace("   x * 2", "   return x * 2"), "AssertionError"),
    "beyond": (BEYOND, BEYOND.replace("xs[n]", "xs[n - 1]"), "IndexError"),
    "unknown": (UNKNOWN, UNKNOWN.replace("nn", "n"), "NameError"),
    "bare": (BARE, BARE.replace("-=", "+="), "AssertionError"),
    "two": (WRONG, WRONG.replace("-=", "+=").replace("start=0", "start=-0 + 0"), "AssertionError"),
}


ALIASED = """function grouped(xs) {
  const out = [];
  for (const x of xs) {
    const last = out[out.length - 1];
    if (last && last[0] === x) last[1]++;
    else out.push([x, 1]);
  }
  return out;
}"""


@pytest.fixture(scope="module")
def made() -> Callable[[str], ExampleCandidate | None]:
    """Execution id, of a diagnosis after `why` -> the only candidate made of it."""
    executions, pairs = [], []
    for name, (failing, fixed, error) in FIXES.items():
        value = "name 'nn' is not defined" if error == "NameError" else ""
        bad = run(f"{name}-bad", failing, name, outcome="error", error_name=error, error_value=value)
        good = run(name, fixed, name, minute=1, task=None if name == "bare" else "What it is for.")
        executions += [bad, good]
        pairs.append(pair(bad, good))
    script = {"language": "javascript", "domains": ["javascript"]}
    numbers = ", ".join(str(10**9 + n) for n in range(12))
    twice = OLD_TOTAL.replace("if (", f"if (total([{numbers}]) < 0) throw 1;\nif (")
    long = run("long-bad", twice, "r", outcome="error", error_name="Error", **script)
    short = run("long", twice.replace("sum = x", "sum += x"), "r", minute=1, task="The sum.", **script)
    broken = run("js-bad", OLD_TOTAL, "j", outcome="error", error_name="Error", **script)
    mended = run("js", OLD_TOTAL.replace("sum = x", "sum += x"), "j", minute=1, task="The sum.", **script)
    renamed = run("js-same", OLD_TOTAL.replace("x", "y"), "j", minute=2, **script)
    query = {"language": "sql", "error_name": "OperationalError", "error_value": "no such function: YEAR"}
    dialect = run("sql-bad", "SELECT YEAR(day) AS y FROM trips", "q", outcome="error", **query)
    lite = run("sql", "SELECT strftime('%Y', day) AS y FROM trips", "q", minute=1, language="sql")
    executions += [
        *(broken, mended, renamed, dialect, lite, long, short),
        run("runs", RUNS, "a"),
        run("use", "runs('aab'), runs('aabbb')", "a", minute=1),
        run("power", f"{POWER}\npower(3, 2)", "b"),
        run("halves", f"{HALVES}\nhalves(5)", "c", **script),
        run("aliased", f"{ALIASED}\ngrouped(['u', 'u', 'd'])", "q7", **script),
        run("spaced", f"{SPACED}\npadded('red   is a', 9)", "q1"),
        run("spaced script", f"{SPACED_SCRIPT}\npadded('red   is a', 9)", "q2", **script),
        run("digits script", f"{DIGITS_SCRIPT}\nnextPalindrome(99)", "q6", **script),
        run("order", f"{ORDER}\nfirst([7, 3])", "d"),
        run("popped", f"{POPPED}\nlast([7, 3])", "h"),
        run("kept", f"{KEPT}\nkept([1, 2], {{5: 1}})", "q3"),
        run("cleared", f"{CLEARED}\ncleared([1, 2], {{5: 1}})", "q4"),
        run("nested", f"{NESTED}\nnested({{'a': 1, 'b.c': 2}})", "q5"),
        run("failing", RUNS, "e"),
        run("failed", "assert runs('aab') == [3]", "e", minute=1, outcome="error", error_name="AssertionError"),
        run("server", SERVER, "f"),
        run("ask", ASK, "f", minute=1),
        run("other", "1 / 1", "g", result_text="7"),
        run("stored", STORED, "k"),
        run("stores", "keep('abc', 2), keep('d', 2)", "k", minute=1),
        run("first", STORED, "l"),
        run("stores-one", "keep('abc', 2)", "l", minute=1),
        run("counted", COUNTED, "m", **script),
        run("counts", "label('abc', 2)\nlabel('d', 2);", "m", minute=1, **script),
        run("once", COUNTED, "p", **script),
        run("counts-one", "label('abc', 2)", "p", minute=1, **script),
        run("shelf", SHELF, "n"),
        run("shelved", SHELVED, "n", minute=1),
        run("filled", SHELF, "o"),
        run("by hand", "shelve('novel')", "o", minute=1),
        run("then", SHELVED, "o", minute=2),
    ]
    pairs += [pair(broken, mended), pair(long, short), pair(broken, renamed), pair(dialect, lite)]
    recipe = shipped_recipe("dataset", DatasetRecipe)
    evidence = traced(evidence_of(executions, pairs), recipe)
    assert "other" not in evidence.traces  # another result than was recorded
    walks, causes = explain.candidates(evidence, recipe), diagnose.candidates(evidence, recipe)
    found = [*((each.execution_ids[0], each) for each in walks), *((f"why {c.execution_ids[0]}", c) for c in causes)]
    assert len(dict(found)) == len(found)
    return dict(found).get


def test_a_walk_says_each_step_with_its_values(made: Callable[[str], ExampleCandidate]) -> None:
    found = made("runs")
    assert found.prompt.startswith("Walk through `runs('aab')` step by step: ") and "# the lengths" not in found.prompt
    assert found.answer == (
        "- `found` becomes `[]`.\n"
        "- `last` becomes `None`.\n"
        "- The loop `for letter in text` goes over `'aab'`:\n"
        "  - `letter` is `'a'`: `letter == last` is `'a' == None`, which is false, so the `else` block runs. "
        "`found.append(1)` makes `found` `[1]`. `last` becomes `'a'`.\n"
        "  - `letter` is `'a'`: `letter == last` is `'a' == 'a'`, which is true. `found[-1] += 1` makes `found` `[2]`. "
        "`last` stays `'a'`.\n"
        "  - `letter` is `'b'`: `letter == last` is `'b' == 'a'`, which is false, so the `else` block runs. "
        "`found.append(1)` makes `found` `[2, 1]`. `last` becomes `'b'`.\n"
        "- `n for n in found if n > least` gives `2`. "
        "`return sorted(n for n in found if n > least)` gives `sorted(n for n in found if n > least)` = `[2]`.\n"
        "So `runs('aab')` returns `[2]`."
    )
    assert found.execution_ids == ("runs", "use")


def test_a_walk_follows_inner_calls_and_the_branch_that_is_taken(made: Callable[[str], ExampleCandidate]) -> None:
    assert made("power").answer == (
        "- `times > 0` is `2 > 0`, which is true, so the first value is taken.\n"
        "- It calls `power(3, 1)`:\n"
        "  - `times > 0` is `1 > 0`, which is true, so the first value is taken.\n"
        "  - It calls `power(3, 0)`:\n"
        "    - `times > 0` is `0 > 0`, which is false, so the second value is taken.\n"
        "    - `return base * power(base, times - 1) if times > 0 else 1` gives `1`.\n"
        "  - `return base * power(base, times - 1) if times > 0 else 1` gives `3 * 1` = `3`.\n"
        "- `return base * power(base, times - 1) if times > 0 else 1` gives `3 * 3` = `9`.\n"
        "So `power(3, 2)` returns `9`."
    )


def test_a_walk_says_what_a_call_changes_besides(made: Callable[[str], ExampleCandidate]) -> None:
    assert "- `n` becomes `3 * 2` = `6`, and `rest` becomes `[7]`." in made("popped").answer


def test_javascript_is_walked_through_alike(made: Callable[[str], ExampleCandidate]) -> None:
    assert made("halves").answer == (
        "- `seen` becomes `[]`.\n"
        "- The loop `while n > 1`:\n"
        "  - `n > 1` is `5 > 1`, which is true: `seen.push(5)` makes `seen` `[5]`. "
        "`n` becomes `Math.floor(5 / 2)` = `2`.\n"
        "  - `n > 1` is `2 > 1`, which is true: `seen.push(2)` makes `seen` `[5, 2]`. "
        "`n` becomes `Math.floor(2 / 2)` = `1`.\n"
        "  - `n > 1` is `1 > 1`, which is false: the loop ends.\n"
        "- The loop `for (…; i < 1; …)`:\n"
        "  - `i` is `0`: `seen.length > 5` is `2 > 5`, which is false, so its block is skipped.\n"
        "  - `i < 1` is `1 < 1`, which is false: the loop ends.\n"
        "- `return seen.map((each) => each - 1)` gives `[5, 2].map((each) => each - 1)` = `[4, 1]`.\n"
        "So `halves(5)` returns `[4, 1]`."
    )


def test_blanks_in_quotes_stay_and_what_is_said_to_be_equal_is(made: Callable[[str], ExampleCandidate]) -> None:
    equations = re.findall(r"(?:becomes|gives) `([^`]*)` = `([^`]*)`", made("spaced").answer)
    assert [eval(left) for left, _ in equations] == [eval(right) for _, right in equations]
    assert ("'red   is a'.split(\" \")", "['red', '', '', 'is', 'a']") in equations
    assert '`"red   is a".split(" ")` = `["red", "", "", "is", "a"]`' in made("spaced script").answer
    assert '`return words.join("  ").slice(0, n)`' in made("spaced script").answer


def test_a_number_whose_method_is_called_stands_in_brackets(made: Callable[[str], ExampleCandidate]) -> None:
    answer = made("digits script").answer
    assert '`(100).toString()` = `"100"`' in answer and "`100 > 10`" in answer


def test_only_a_step_that_is_a_call_leaves_as_it_is_what_the_call_stands_on(
    made: Callable[[str], ExampleCandidate | None],
) -> None:
    assert made("kept") is None  # `items[i] = 1` had been said to leave `most` as it is
    cleared = made("cleared")
    assert cleared is not None and "`most.pop(0, None)` leaves `most` as it is." in cleared.answer


def test_what_a_reader_cannot_tell_is_not_walked_through(made: Callable[[str], ExampleCandidate | None]) -> None:
    assert made("order") is None  # the order of a set
    assert made("failing") is None  # a later test failed
    assert made("use") is None and made("other") is None


def test_a_request_is_explained_by_its_answer(made: Callable[[str], ExampleCandidate]) -> None:
    assert made("server").prompt.startswith(
        "Say which function answers `GET /square?width=7`, `GET /square?width=x` and `GET /circle`, sent one after the "
        "other, with which "
    )
    assert made("server").answer == (
        '- `GET /square?width=7`: `show(request)` runs, which gives status 200 and the body `{"area":49}`.\n'
        "- `GET /square?width=x`: `show(request)` runs and raises `ValueError`; `refused` turns that into status 400 "
        "and the body `no number`.\n"
        "- `GET /circle`: no route has this path, and no function of the code runs: "
        "status 404 and the body `Not Found`."
    )


def test_what_earlier_calls_left_behind_is_not_told(made: Callable[[str], ExampleCandidate | None]) -> None:
    assert made("stored") is None and made("counted") is None and made("filled") is None
    assert "`keep('abc', 2)` returns `11`" in made("first").answer
    assert '`label("abc", 2)` returns `"abc!31"`' in made("once").answer
    assert '`{"number":1}`' in made("shelf").answer


def test_requests_are_explained_with_the_application_that_they_reach(made: Callable[[str], ExampleCandidate]) -> None:
    code = made("shelf").prompt.partition("Code:\n")[2]
    assert 'Route("/books", create' in code and "def shelve" in code and "TestClient" not in code


@pytest.mark.parametrize(
    ("name", "shown", "answer"),
    [
        (
            "wrong",
            "`total([2, 3])` should return `5`.",
            "`total([2, 3])` returns `-5`, where `5` is expected. In the turn of the loop where `x` is `2`, "
            "`start -= x` makes `start` `-2`. At the end `return start` gives `-5`. "
            "The line has to be `start += x`, which makes `start` `2`. "
            "With that, `total([2, 3])` returns `5`.",
        ),
        (
            "starts",
            "`counted([])` should return `[]`.",
            "`counted([])` returns `[1]`, where `[]` is expected. `most = 1` makes `most` `1`. "
            "So `if most > 0 and not xs` asks whether `1 > 0 and not []`, which is true, though it ought to be false. "
            "At the end `return [most]` gives `[1]`. The line has to be `most = 0`, which makes `most` `0`. "
            "With that, `counted([])` returns `[]`.",
        ),
        (
            "forgotten",
            "`large([1, 5])` should return `10`.",
            "`large([1, 5])` returns `6`, where `10` is expected. In the turn of the loop where `x` is `5`, the line "
            "`x * 2` is reached, but it only evaluates its expression to `10` and throws the value away. Without "
            "`return` the function does not end there: `return len(xs) + 4` follows, and it gives `6`. "
            "The line has to be `return x * 2`. With that, `large([1, 5])` returns `10`.",
        ),
        (
            "beyond",
            "`last([4, 7])` should return `14`.",
            "`last([4, 7])` raises `IndexError` (`list index out of range`), where `14` is expected. "
            "The run ends where `return xs[n] * 2` is evaluated with `xs` = `[4, 7]` and "
            "`n` = `2`. The line has to be `return xs[n - 1] * 2`, which gives `7 * 2` = `14`. "
            "With that, `last([4, 7])` returns `14`.",
        ),
        (
            "unknown",
            "It is called as `double(4)`.",
            "`twice = 2 * nn` reads `nn`, which nothing binds: it is no parameter or variable of `double`, nothing "
            "outside defines it, and Python has no built-in of this name. `n` is meant, the parameter of `double`. "
            "Then `twice = 2 * n` makes `twice` `2 * 4` = `8`. With that, `double(4)` returns `9`.",
        ),
        (
            "js",
            "`total([2, 3])` should return `5`.",
            "`total([2, 3])` returns `3`, where `5` is expected. In the turn of the loop where `x` is `3`, "
            "`sum = x` makes `sum` `3`. At the end `return sum` gives `3`. "
            "The line has to be `sum += x`, which makes `sum` `5`. "
            "With that, `total([2, 3])` returns `5`.",
        ),
        (
            "sql",
            "",
            "`YEAR` is a function of T-SQL: it takes the year out of a date. SQLite has none of this name. "
            "`YEAR(day)` has to be `strftime('%Y', day)`.",
        ),
    ],
)
def test_a_diagnosis_goes_from_the_symptom_to_the_line(
    made: Callable[[str], ExampleCandidate], name: str, shown: str, answer: str
) -> None:
    assert shown in made(f"why {name}").prompt
    assert made(f"why {name}").answer == answer


def test_of_several_targets_each_has_its_own_part(made: Callable[[str], ExampleCandidate]) -> None:
    assert "`hours, rest = divmod(n, 60)`, which makes `hours` `1`." in made("why clock").answer


def test_what_an_unpacking_gives_each_target(made: Callable[[str], ExampleCandidate]) -> None:
    assert "`path` becomes `['b']` and `last` becomes `'c'`." in made("nested").answer


def test_a_call_after_one_that_cannot_be_told_is_no_diagnosis(made: Callable[[str], ExampleCandidate | None]) -> None:
    assert made("why long") is None and made("why js") is not None


def test_where_more_than_one_place_changed_or_none_there_is_no_diagnosis(
    made: Callable[[str], ExampleCandidate | None],
) -> None:
    assert made("why two") is None and made("why js-same") is None
    assert made("why bare") is None  # nothing says what it is for


def test_new_is_a_value_that_the_prompt_does_not_show() -> None:
    assert is_new("`f(2)` returns `40`.", "Show it for `f(2)`.")
    assert not is_new('`GET /` has status 200 and `{"a":1}`.', "GET / {'a': 1}")


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("GET /items/", True),
        ("GET /items?q=1", False),
        ("GET /items/7", True),
        ("GET /shops/", False),
        ("GET /", True),
    ],
)
def test_a_redirect_to_the_other_slash_is_not_told_as_an_answer(target: str, told: bool) -> None:
    code = "@app.get('/items/')\n@app.get('/items/{item}')\n@app.get('/shops')\n@app.get('/')"
    assert explain._is_redirected({"request": target}, code) is not told


@pytest.mark.parametrize(
    ("raised", "calls", "sentence"),
    [
        ("HTTPException", [], "raises `HTTPException`, which the framework turns into status 400"),
        ("OwnerError", [], None),
        ("OwnerError", ["on_error"], "raises `OwnerError`; `on_error` turns that into status 400"),
    ],
)
def test_who_answers_for_an_error_is_recorded_or_not_told(raised: str, calls: list[str], sentence: str | None) -> None:
    first = {"function": "f", "arguments": [], "named": [], "raised": [raised], "result": None}
    request = {"request": "GET /x", "headers": [], "sent": "", "status": 400, "body": "no", "location": ""}
    said = request_sentence(request, [first, *({"function": name} for name in calls)])
    assert (said is None) == (sentence is None)
    assert sentence is None or sentence in (said or "")


def test_dependencies_are_told_before_the_function_of_the_route() -> None:
    def call(name: str, result: str | None, raised: str | None = None) -> dict[str, object]:
        failed = [raised] if raised else None
        return {"function": name, "arguments": [["key", "1"]], "named": [], "raised": failed, "result": result}

    request = {"request": "GET /x", "headers": [], "sent": "", "status": 400, "body": '{"a":1}', "location": ""}
    assert request_sentence(request, [call("check", "None"), call("read", "{'a': 1}")]) == (
        "`GET /x`: `check(1)` runs and returns `None`, then `read(1)` runs and returns `{'a': 1}`, which gives "
        'status 400 and the body `{"a":1}`.'
    )
    said = request_sentence(request, [call("check", "None"), call("verify", None, "HTTPException")])
    assert said is not None and "returns `None`, then `verify(1)` runs and raises `HTTPException`, which" in said
    untold = call("verify", "1") | {"arguments": [["key", None]]}
    assert request_sentence(request, [call("check", "None"), untold]) is None


def test_a_call_is_told_as_it_could_be_written() -> None:
    arguments = [["item", "'foo'"], ["request", None], ["size", "3"]]
    call = {"function": "read", "arguments": arguments, "named": ["item", "request"], "raised": None, "result": "{}"}
    request = {"request": "GET /x", "headers": [], "sent": "", "status": 200, "body": '{"a":1}', "location": ""}
    said = request_sentence(request, [call])
    assert said is not None and "`read(item='foo', request=request, size=3)`" in said
    plain = call | {"arguments": [["request", None], ["item", "'foo'"]]}
    assert "`read(request, item='foo')`" in (request_sentence(request, [plain]) or "")


@pytest.mark.parametrize("body", ['{"host":"testclient"}', '{"base":"http://testserver/"}'])
def test_what_the_test_client_calls_itself_is_not_told(body: str) -> None:
    call = {"function": "read", "arguments": [], "named": [], "raised": None, "result": None}
    request = {"request": "GET /x", "headers": [], "sent": "", "status": 200, "body": body, "location": ""}
    assert request_sentence(request, [call]) is None
    assert request_sentence(request | {"body": '{"latestclientele":1}'}, [call]) is not None


@pytest.mark.parametrize(
    ("expression", "eats"),
    [
        ("[heapq.heappop(heap)[2] for _ in heap]", True),
        ("[queue.pop() for _ in queue]", True),
        ("sum(queue.popleft() for each in queue)", True),
        ("[heapq.heappop(heap) for _ in range(len(heap))]", False),
        ("[names.pop() for each in queue]", False),
        ("[queue.index(each) for each in queue]", False),
    ],
)
def test_what_is_gone_over_and_changed_is_not_put_in_its_place(expression: str, eats: bool) -> None:
    """With the value in the place of the name, the expression would give something else."""
    (step,) = steps(f"def f(heap, queue, names):\n    return {expression}", "python").values()
    assert step.value is not None and eats_its_own(step.value) == eats


def test_a_change_by_another_name_is_not_told_of_the_step_that_showed_it(
    made: Callable[[str], ExampleCandidate | None],
) -> None:
    assert made("aliased") is None and made("halves") is not None

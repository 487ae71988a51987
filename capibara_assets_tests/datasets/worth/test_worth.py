"""What is worth learning, of hand-made candidates: each class of faults with a sound neighbour."""

import pytest

from capibara_assets.datasets.code.comments import is_task
from capibara_assets.datasets.code.effort import TRIVIAL, is_call
from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.datasets.kinds.predict import may_be_unquoted
from capibara_assets.datasets.schema import Kind
from capibara_assets.datasets.worth import javascript, predictions, queries, tests_alone, worth
from capibara_assets.datasets.worth.abbreviations import UNEXPLAINED
from capibara_assets.datasets.worth.query_sense import SAYS_NOTHING
from capibara_assets_tests.datasets.conftest import run


def candidate(kind: Kind, answer: str, prompt: str = "", language: str = "python", **values: str) -> ExampleCandidate:
    judged = {"test": "assert(true)"} if language == "javascript" else {}  # else nothing judges it
    return ExampleCandidate(kind, language, prompt, answer, ("e",), "", 0.0, 1.0, **(judged | values))  # type: ignore[arg-type]


def unworthy(one: ExampleCandidate) -> str | None:
    return worth.unworthy(one, 3)


@pytest.mark.parametrize(
    ("trivial", "enough", "language"),
    [
        ("def f(a):\n    return 4 * a", "def f(a):\n    return [4 * x for x in a if x]", "python"),
        ("def f(s):\n    return len(s)", "def f(s):\n    return s.strip().lower()", "python"),
        (
            "function f(a, b) { if (a < b) { return a; } return b; }",
            "const f = (xs) => xs.filter((x) => x > 1);",
            "javascript",
        ),
        ("const f = (a) => Math.pow(a, 3);", "function f(s) { return s.split(' ').length; }", "javascript"),
    ],
)
def test_a_formula_teaches_nothing(trivial: str, enough: str, language: str) -> None:
    assert unworthy(candidate("solve", trivial, language=language)) == TRIVIAL
    assert unworthy(candidate("solve", enough, language=language)) is None


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT a FROM t ORDER BY a DESC NULLS FIRST", queries.DIALECT),
        ("SELECT a FROM t ORDER BY CASE WHEN a IS NULL THEN 1 ELSE 0 END DESC, a DESC", queries.DIALECT),
        ("SELECT a FROM t WHERE b LIKE '%x%' COLLATE SQL_Latin1_General_CP1_CI_AS", queries.DIALECT),
        ("SELECT a FROM t WHERE LOWER(b) LIKE LOWER('%Nature%')", queries.LOOSE),
        ("SELECT a FROM t WHERE b = 'nature' COLLATE NOCASE ORDER BY a NULLS LAST", None),
    ],
)
def test_clauses_that_no_question_tells(query: str, why: str | None) -> None:
    asked = 'Write SQL code.\nWhich a are in the journal "nature"?\n\nSchema:\nt(a, b)'
    assert unworthy(candidate("solve", query, asked, "sql")) == why


def test_a_test_that_replaces_a_part_of_the_answer() -> None:
    answer = "class Fit:\n    def of(self, xs):\n        return [x * 2 for x in xs if x]"
    patch = "def of(self, xs):\n    return [2 * x for x in xs if x]\n\nFit.of = of\n"
    test = "assert Fit().of([1, 0]) == [2]\nassert Fit().of([3, 2, 1]) == [6, 4, 2]"
    assert unworthy(candidate("solve", answer, test=patch + test)) == worth.REPLACES
    assert unworthy(candidate("solve", answer, test=test)) is None


@pytest.mark.parametrize(
    ("code", "output", "why"),
    [
        ("xs = [[1, 'a'], [2, 'b']];\nconsole.table(xs.filter((x) => x[0] > 1));", "| 2 | b |", predictions.ECHOED),
        ("import networkx as nx\nfor n in nx.karate_club_graph():\n    print(n * 2)", "16", predictions.LOADED),
        ("from scipy import stats\nfor t in (1.5, 2.5):\n    print(stats.t.sf(t, 9))", "0.08", predictions.LOADED),
        ("import json\nfor t in ('[1]', '[2]'):\n    print(json.loads(t)[0] * 2)", "2\n4", None),
    ],
)
def test_what_a_library_holds_cannot_be_predicted(code: str, output: str, why: str | None) -> None:
    language = "javascript" if "console" in code else "python"
    asked = prompts.predict(language, code, [])
    assert predictions.unworthy_output(candidate("predict", output, asked, language), 3) == why


def test_an_error_in_other_words_than_its_code() -> None:
    code = "const arr = [1, 2];\nconst [[a]] = [arr.slice(1)[0]];\nf(a);"
    asked = prompts.predict_error("javascript", code, [])
    for error, why in [("arr.slice[0] is not iterable", predictions.REWORDED), ("arr.slice is not a function", None)]:
        answer = f"const [[a]] = [arr.slice(1)[0]];\nTypeError: {error}"
        assert predictions.unworthy_output(candidate("predict", answer, asked, "javascript"), 3) == why


def test_a_value_as_the_message_of_an_assertion() -> None:
    answer = "def f(xs):\n    return [x for x in xs if x < 0]"
    assert unworthy(candidate("solve", answer, test="assert f([-1, -6]) == -1, -6")) == worth.MISREAD
    assert unworthy(candidate("solve", answer, test="assert f([-1]) == [-1], 'negative'")) is None


def test_a_task_that_contradicts_its_test() -> None:
    answer = "def f(xs):\n    return sorted(xs, key=lambda x: bin(x).count('1'))"
    asked = prompts.solve("python", "Sort by ones.\n>>> f([1, 3, 2]) == {}", "def f(xs)", [], [])
    test = "assert f([1, 3, 2]) == [1, 2, 3]"
    assert unworthy(candidate("solve", answer, asked.format("[1, 3, 2]"), test=test)) == worth.CONTRADICTED
    assert unworthy(candidate("solve", answer, asked.format("[1, 2, 3]"), test=test)) is None


def test_a_task_that_contradicts_the_truth_that_its_test_expects() -> None:
    answer = "def same(a, b):\n    return sorted(a) == sorted(b) and len(a) > 0"
    asked = prompts.solve("python", "Compare two words.\n>>> same('ab', 'ba')\n{}", "def same(a, b)", [], [])
    test = "assert same('ab', 'ba') == False"
    assert unworthy(candidate("repair", answer, asked.format("True"), test=test)) == worth.CONTRADICTED
    assert unworthy(candidate("repair", answer, asked.format("False"), test=test)) is None
    assert unworthy(candidate("repair", answer, asked.format("7"), test=test)) is None


@pytest.mark.parametrize(
    "head", ["Complete this:\ndef area(w: int, h: int) -> int:", "Give the area.\nassert area(2, 3) == 6"]
)
def test_an_answer_defines_what_its_task_names(head: str) -> None:
    asked = prompts.solve("python", head, "", [], [])
    area = "def area(w, h):\n    return sum(w for _ in range(h))"
    assert unworthy(candidate("solve", area, asked)) is None
    assert unworthy(candidate("solve", area.replace("area", "add"), asked)) == worth.ANOTHER
    assert unworthy(candidate("repair", f"class Shape:\n    {area}".replace("\n    r", "\n        r"), asked)) is None
    assert unworthy(candidate("solve", "print(sum(range(3)))", asked)) is None
    without = prompts.solve("python", "Give the area.", "", ["assert area(2, 3) == 6"], [])
    assert unworthy(candidate("solve", area.replace("area", "add"), without)) == tests_alone.READS_UNTOLD


def test_a_repair_that_deletes_what_failed() -> None:
    failing = (
        "def area(w, h):\n    return sum(w for _ in range(h))\n\nshown = area(2, 3)\nassert shown == area(3, 2) + 1"
    )
    error = "assert shown == area(3, 2) + 1\nAssertionError"
    for answer, why in (
        (failing.rpartition("\n")[0], worth.DELETES),
        (failing.replace(" + 1", ""), None),
        (failing.replace("shown = area(2, 3)\n", ""), None),
    ):
        asked = prompts.repair("python", "", failing, error, [])
        found = worth._only_deletes(candidate("repair", answer, asked, failing=failing))
        assert (worth.DELETES if found else None) == why


def test_a_forgotten_return() -> None:
    idle = "def f(n, k):\n    if k > n:\n        0\n    return f(n - 1, k) + f(n - 1, k - 1)"
    assert unworthy(candidate("repair", idle)) == worth.NO_EFFECT
    assert unworthy(candidate("repair", idle.replace("    0", "    return 0"))) is None


def test_input_data_is_no_bug() -> None:
    prompt = prompts.repair("python", "", "g([(6, 9), (16, 34)], 2)", "Output: 1", [])
    asked = candidate("repair", "g([(6, 9), (15, 34)], 2)", prompt, failing="g([(6, 9), (16, 34)], 2)")
    assert unworthy(asked) == worth.INPUT_ONLY
    code = "for i in range({}):\n    total = total + i"
    assert unworthy(candidate("repair", code.format(10), "", failing=code.format(11))) is None
    shown = prompts.Shown(test="assert r.json() == {'price': 3}")
    prompt = prompts.repair("python", "", "r = c.post('/', json={'price': 4})", "AssertionError", [], shown)
    copied = candidate(
        "repair", "r = c.post('/', json={'price': 3})", prompt, failing="r = c.post('/', json={'price': 4})"
    )
    assert unworthy(copied) == worth.INPUT_ONLY


def test_values_of_a_table_are_no_bug_but_shapes_and_limits_are() -> None:
    table = "frame = DataFrame([['tin', 4.5, {}], ['zinc', 7.0, 3]])\nframe.groupby('metal').sum()"
    assert unworthy(candidate("repair", table.format(12), failing=table.format(120))) == worth.INPUT_ONLY
    assert unworthy(candidate("repair", table.format(12), failing=table.format("120.5"))) == worth.INPUT_ONLY
    for sound in ("x = ones((4, 3, {}))\nmodel(x).shape", "top = frame.nlargest({}, 'tons')", "x = pick([n, {}, k])"):
        assert unworthy(candidate("repair", sound.format(12), failing=sound.format(120))) is None


def test_files_that_only_the_author_had() -> None:
    code = "text = open('harbour-log.txt').read()\nprint(len(set(text.split())))"
    assert unworthy(candidate("solve", code, "Count the words of the log.")) == worth.UNTOLD
    assert unworthy(candidate("solve", code, "Count the words of harbour-log.txt.")) is None
    own = f"with open('harbour-log.txt', 'w') as log:\n    log.write(note)\n{code}"
    assert unworthy(candidate("solve", own, "Write a note and count its words.")) is None


@pytest.mark.parametrize("call", ["console.log(rotate(arg, 2));", "print(f([1, (2, 3)]))", "f(g(1), x)"])
def test_what_one_call_is_given_is_no_bug(call: str) -> None:
    assert is_call(call) and not is_call(f"x = {call}") and not is_call(f"{call}\n{call}")


def test_rules_that_no_test_shows_are_not_asked_for() -> None:
    bands = " ".join(f"'{grade}' if x > {point} else" for grade, point in (("A+", 3.9), ("A", 3.7), ("B", 2.7)))
    graded = f"def grade(x):\n    return {bands} 'C'"
    asked = "Write Python code.\n\nIt has to pass:\nassert grade(4.0) == 'A+'"
    assert unworthy(candidate("solve", graded, asked, test="assert grade(4.0) == 'A+'")) == worth.UNTOLD
    stated = asked.replace("code.\n", "code.\nGrades by points.\n")
    assert unworthy(candidate("solve", graded, stated, test="assert grade(4.0) == 'A+'")) is None


def test_a_test_of_one_of_several_responses() -> None:
    code = "r = c.get('/a')\nr = c.post('/b', json=first(x))"
    assert unworthy(candidate("repair", code, test="assert r.ok")) == worth.OVERWRITTEN
    assert unworthy(candidate("repair", code.replace("r = c.post", "s = c.post"), test="assert r.ok")) is None


@pytest.mark.parametrize(
    ("proof", "asked", "diverged"),
    [
        ("(np.float64(nan), np.float64(nan))", "Fit a line to x and y.", True),
        ("[inf 2.]", "Fit a line to x and y.", True),
        ("[inf 2.]", "Fit a line, infinite slopes too.", False),
        ("['nan', 'inf']", "List the words.", False),
        ("3.0 info", "Fit a line to x and y.", False),
    ],
)
def test_an_answer_that_diverged(proof: str, asked: str, diverged: bool) -> None:
    fitted = "def fit(x, y):\n    return [a * b for a, b in zip(x, y) if a]\nprint(fit(x, y))"
    assert (unworthy(candidate("solve", fitted, asked, proof=proof)) == worth.NO_NUMBER) == diverged


def test_outputs_that_the_prompt_states() -> None:
    code = "r = call(x)[1:]\nassert r.json() == {'result': 84.0}\nr.status, r.json()"
    stated = candidate(
        "predict", "(200, {'result': 84.0})", prompts.predict("python", code, ["x = [y + 1 for y in z]"])
    )
    assert unworthy(stated) == predictions.STATED
    told = prompts.predict("python", code.replace("84.0", "2 * n"), ["x = [y + 1 for y in z]"])
    assert unworthy(candidate("predict", "(200, {'result': 84.0})", told)) is None


@pytest.mark.parametrize("kind", ["solve", "repair", "predict"])
def test_what_a_secret_was_replaced_in(kind: Kind) -> None:
    code = "def f(xs):\n    return [x for x in xs if x != {}]"
    asked = "Write Python code.\nKeep what differs.\n\nSession so far:\nmark = {}"
    assert unworthy(candidate(kind, code.format("mark"), asked.format("'<SECRET:1>'"))) == worth.REPLACED
    assert unworthy(candidate(kind, code.format("'<TOKEN:12>'"), asked.format("1"))) == worth.REPLACED
    assert unworthy(candidate(kind, code.format("'<b:1>'"), asked.format("'<SECRET>'"))) != worth.REPLACED


def test_the_remains_of_a_page_are_no_task() -> None:
    code = "def f(xs):\n    return [x for x in xs if x != 0]"
    task = "Write Python code.\nReplace all {} with '%20'."
    assert (
        unworthy(candidate("solve", code, task.format("blanks * list item * list item * list item"))) == worth.GARBLED
    )
    assert unworthy(candidate("solve", code, task.format("blanks of a list item by list item"))) is None


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("str(total)", predictions.UNQUOTED), ("f'{total}'", predictions.UNQUOTED),
        ("total", None), ("[str(total)]", None), ("len(str(total))", None),
    ],
)  # fmt: skip
def test_a_number_as_text_is_shown_without_its_quotes(given: str, why: str | None) -> None:
    defined = f"def added(xs):\n    total = 0\n    for x in xs:\n        total += x * 2\n    return {given}"
    for asked in (
        prompts.predict("python", "added([1, 2])", [defined]),
        prompts.predict("python", f"{defined}\nadded([1, 2])", []),
    ):
        assert predictions.unworthy_output(candidate("predict", "6", asked), 3) == why
    shown = prompts.predict("python", "print(added([1, 2]))", [defined])
    assert predictions.unworthy_output(candidate("predict", "6", shown), 3) is None


def test_where_node_overflows_is_told_by_no_code() -> None:
    deep = prompts.predict_error("javascript", "function f(n) {\n  return f(n - 1) + 1;\n}\nf(9);", [])
    error = "in f: return f(n - 1) + 1;\nRangeError: {}"
    for text, why in (("Maximum call stack size exceeded", predictions.OF_ENGINE), ("Invalid array length", None)):
        assert unworthy(candidate("predict", error.format(text), deep, "javascript")) == why


def test_an_error_has_a_place() -> None:
    prompt = prompts.predict_error("javascript", "console.assert(f(1) === 2)", [])
    assert unworthy(candidate("predict", "Error: Assertion failed", prompt, "javascript")) == predictions.NO_PLACE
    assert unworthy(candidate("predict", "f(1)\nTypeError: x", prompt, "javascript")) is None
    deep = prompts.predict_error("python", "def f(n):\n    return f(n - 1)\nf(9)", [])
    error = "f(9)\nin f: return f(n - 1)\nRecursionError: maximum recursion depth exceeded"
    assert unworthy(candidate("predict", error, deep)) is None
    assert unworthy(candidate("predict", f"{error} in comparison", deep)) == predictions.OF_VERSION
    assert unworthy(candidate("predict", "f(9)\nFieldError: ... ting a value", deep)) == predictions.CUT_OFF
    changed = prompts.predict_error("javascript", "const codes = Set([1, 2]);", [])
    assert unworthy(candidate("predict", "const codes = Set([1, 2]);\nTypeError: x", changed, "javascript")) is None
    other = candidate("predict", "var codes = Set([1, 2]);\nTypeError: x", changed, "javascript")
    assert unworthy(other) == predictions.QUOTES_ANOTHER
    assert prompt.startswith("Predict the error that this JavaScript code raises, and where.\n")
    query = prompts.predict_error("sql", "SELECT weigth FROM crates", [])
    assert query.startswith("Predict the error that this SQL code raises in SQLite.\n")  # SQLite does not say where


@pytest.mark.parametrize(
    ("query", "known"),
    [
        ("SELECT name FROM crates WHERE owner = 'Ann Lee'", True),
        ("SELECT name FROM crates WHERE place IN ('Asia', 'Kabul') AND owner LIKE '%lee%'", True),
        ('SELECT name FROM crates WHERE code = "BUL"', False),
        ("SELECT name FROM crates WHERE place = 'Kabul' AND code IN ('AFG')", False),
        ("SELECT strftime('%Y', day) FROM crates", True),
        ("SELECT name FROM crates WHERE paid = 1 AND size IN (0, 12) AND depth = 3", True),
        ("SELECT name, size / 10 AS tens FROM crates WHERE size = depth * 4", True),
        ("SELECT name FROM crates WHERE owner_id = 57", False),
    ],
)
@pytest.mark.parametrize("kind", ["solve", "repair"])
def test_a_value_that_the_author_had_looked_up(kind: Kind, query: str, known: bool) -> None:
    question = "Which crates of Ann Lee are in the Asian city Kabul, of size 12, three deep?"
    asked = f"Write SQL code.\n{question}\n\nSchema:\ncrates(name, owner, place)"
    found = unworthy(candidate(kind, query, asked, "sql", failing="SELECT name FROM crate"))
    assert found == (None if known else queries.LOOKED_UP)
    told = f"{asked}\n\nSession so far:\nINSERT INTO crates VALUES ('BUL', 'AFG', 57)"
    assert unworthy(candidate(kind, query, told, "sql", failing="SELECT name FROM crate")) is None


@pytest.mark.parametrize(
    "look", ["SHOW TABLES", "DESCRIBE crates;", "PRAGMA table_info(crates)", "-- first\ndesc crates"]
)
def test_a_look_at_the_database_answers_no_question_about_its_rows(look: str) -> None:
    asked = "Write SQL code.\n{}\n\nSchema:\ncrates(id)"
    assert unworthy(candidate("solve", look, asked.format("How many crates are there?"), "sql")) == queries.LOOKS
    assert unworthy(candidate("solve", look, asked.format("Which columns does crates have?"), "sql")) is None
    assert (
        unworthy(candidate("solve", "SELECT COUNT(*) FROM crates WHERE id > 0", asked.format("How many?"), "sql"))
        is None
    )


def test_data_that_only_the_author_knew() -> None:
    asked = "Write Python code.\nDefine the evaluation."
    invented = f"cases = [score(x) for x in [{', '.join(str(n) for n in range(20, 40))}]]"
    assert unworthy(candidate("solve", invented, asked)) == worth.UNTOLD
    assert unworthy(candidate("solve", invented, asked, test="assert cases")) is None


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("What is the output voltage of each station?", True),
        ("remove rows that contain missing values", True),
        ("to convert class labels from strings to integers", True),
        ("encoding each token into integers", True),
        ("1. incorrect approach: squareform matrix", False),
        ("W : array with shape (n, m)", False),
        ("load the documents as in the section above", False),
        ("Binary cross-entropy", False),
        ("Import the required libraries", False),
    ],
)
def test_a_comment_is_a_task_where_it_asks_for_something(text: str, asks: bool) -> None:
    assert is_task(text) is asks


@pytest.mark.parametrize(
    ("shown", "language", "unquoted"),
    [
        ("Valid Email", "python", True),
        ("[1, 2]", "python", False),
        ("3.5", "python", False),
        ("array([1, 2])", "python", False),
        ("pollgon", "javascript", True),
        ("[ 1, 2 ]", "javascript", False),
        ("Map(1) { 1 => 2 }", "javascript", False),
    ],
)
def test_texts_are_recorded_without_quotes(shown: str, language: str, unquoted: bool) -> None:
    assert may_be_unquoted(run("e", "f()", result_text=shown, language=language).model_dump()) is unquoted


@pytest.mark.parametrize(
    ("query", "task", "why"),
    [
        ("SELECT ROUND(AVG(a), 2) AS m FROM t GROUP BY b", "The mean of a per b.", queries.UNSTATED),
        ("SELECT ROUND(AVG(a), 2) AS m FROM t GROUP BY b", "The mean of a per b, to 2 digits.", None),
        ("SELECT b FROM t GROUP BY b HAVING COUNT(*) >= 2", "How often does each b occur?", queries.UNSTATED),
        ("SELECT b FROM t GROUP BY b HAVING COUNT(*) >= 2", "Which b occur at least two times?", None),
        ("SELECT a FROM t ORDER BY a LIMIT 4", "List a.", queries.UNSTATED),
        ("SELECT a FROM t ORDER BY a LIMIT 4", "List the 4 smallest a.", None),
        ("SELECT a FROM t ORDER BY a LIMIT 1", "The smallest a.", None),
    ],
)
def test_a_query_holds_no_bound_that_nobody_stated(query: str, task: str, why: str | None) -> None:
    assert unworthy(candidate("solve", query, f"Write SQL code.\n{task}", "sql")) == why


def test_records_that_only_the_author_knew_are_not_asked_for() -> None:
    code = "ROWS = [{'name': 'Ana'}, {'name': 'Bo'}]\ndef names():\n    return [row['name'] for row in ROWS if row]"
    assert unworthy(candidate("solve", code, "Serve the names.")) == worth.UNTOLD
    assert unworthy(candidate("solve", code, "Serve the names 'Ana' and 'Bo'.")) is None


@pytest.mark.parametrize(
    ("missing", "added", "rest", "why"),
    [
        ("sqlite3", "import sqlite3", "conn = sqlite3.connect('a.db')\nrows = conn.execute(look(1)).fetchall()", True),
        ("pd", "import pandas as pd", "frame = pd.DataFrame(rows)\nframe.groupby('day').sum()", True),
        ("FastAPI", "from fastapi import FastAPI", "app = FastAPI(title=first(names))", True),
        ("Counter", "from collections import Counter", "def most(xs):\n    return Counter(xs).most_common(1)", False),
        ("Route", "from starlette.routing import Route", "routes = [Route('/', f)]\napp = App(routes)", False),
        ("nn", "import numpy as np", "x = nn + 1\ny = x * 2", False),
    ],
)
def test_an_import_that_the_error_names(missing: str, added: str, rest: str, why: bool) -> None:
    prompt = prompts.repair("python", "Run it.", rest, f"NameError: name '{missing}' is not defined", [])
    one = candidate("repair", f"{added}\n{rest}", prompt, failing=rest)
    assert (unworthy(one) == worth.IMPORT_ONLY) is why
    mended = candidate("repair", f"{added}\n{rest} + [1]", prompt, failing=rest)
    assert unworthy(mended) != worth.IMPORT_ONLY


def test_a_required_module_that_the_error_names() -> None:
    rest = "const text = fs.readFileSync(file, 'utf8');\nconsole.log(text.length);"
    prompt = prompts.repair("javascript", "Read it.", rest, "ReferenceError: fs is not defined", [])
    answer = f"const fs = require('fs');\n{rest}"
    assert unworthy(candidate("repair", answer, prompt, "javascript", failing=rest)) == worth.IMPORT_ONLY


def test_a_list_that_is_written_down_is_never_equal() -> None:
    code = "const f = (xs) => xs.map((x) => x + 1).filter((x) => x {} [1, 2]);"
    for sign in ("===", "==", "!=="):
        assert unworthy(candidate("solve", code.format(sign), "", "javascript")) == javascript.NEVER_EQUAL
        shown = prompts.predict("javascript", code.format(sign), [])
        assert unworthy(candidate("predict", "[]", shown, "javascript")) == javascript.NEVER_EQUAL
    assert unworthy(candidate("solve", code.replace("{} [1, 2]", "in [1, 2]"), "", "javascript")) is None


@pytest.mark.parametrize(
    ("asserted", "told"),
    [
        ('require("assert").deepStrictEqual(out, [20, 30]);', True),
        ("t.deepEqual(out, [20, 30]);", True),
        ("expect(out).toEqual([20, 30]);", True),
        ("require('fs').writeFileSync(out, [20, 30]);", False),
    ],
)
def test_an_assertion_inside_tells_an_output(asserted: str, told: bool) -> None:
    made = "const out = xs.map((x) => x * 10).filter((x) => x > 10);"
    code = f"function gather(xs) {{\n  {made}\n  {asserted}\n  return out;\n}}"
    shown = prompts.predict("javascript", f"{code}\ngather([1, 2, 3]);", [])
    assert (unworthy(candidate("predict", "[ 20, 30 ]", shown, "javascript")) == predictions.STATED) is told


@pytest.mark.parametrize(
    ("asserted", "output", "told"),
    [
        ('assert r.json() == {"name": "tin", "tons": 4}', "{'name': 'tin', 'tons': 4}", True),
        ('assert r.json() == {"open": true}', "{'open': True}", True),
        ("assert r.json() == {'name': 'tin'}", '{"name":"tin"}', True),
        ('assert r.json() == {"name": "tin"}', "{'name': 'zinc'}", False),
    ],
)
def test_an_assertion_tells_an_output_in_other_quotes(asserted: str, output: str, told: bool) -> None:
    shown = prompts.predict("python", "r = client.get(path, params=given(1))\nr.json()", [f"r = ask(1)\n{asserted}"])
    assert (unworthy(candidate("predict", output, shown)) == predictions.STATED) is told


@pytest.mark.parametrize("kind", ["solve", "repair", "apply", "predict", "explain"])
def test_queries_of_every_kind_are_read(kind: Kind) -> None:
    query = "SELECT SUM(CASE WHEN tons > 2 THEN {} ELSE 1 END) AS heavy FROM loads"
    for value, why in (("1", SAYS_NOTHING), ("2", None)):
        shown = prompts.predict("sql", query.format(value), ["loads(tons) of more than 2"])
        assert unworthy(candidate(kind, query.format(value), shown, "sql")) == why


def test_a_repair_of_code_that_holds_a_query_is_read_for_its_task_alone() -> None:
    answer = 'frame = pd.read_sql_query("SELECT COUNT(*) AS tuc FROM visits", conn)\nprint(frame.tuc)'
    prompt = prompts.repair("python", "What is the {} of May?", answer, "ValueError: no connection", [])
    assert unworthy(candidate("repair", answer, prompt.format("TUC"), failing="pass")) == UNEXPLAINED
    assert unworthy(candidate("repair", answer, prompt.format("number"), failing="pass")) is None


@pytest.mark.parametrize(
    ("answer", "prompt", "why"),
    [
        ("const f = (a) => a.map((x) => x + 1).sort()[0];", "f([10, 9])", javascript.SORTED_AS_TEXT),
        ("const f = (a) => a.map((x) => x + 1).sort((x, y) => x - y)[0];", "f([10, 9])", None),
        ("const f = (a) => String(a[0]).split('').sort().join('-');", "f([10, 9])", None),
        ("const f = (a) => a.map((x) => x.trim()).sort()[0];", "f(['b', 'a'])", None),
        ("function f(a) { total = 0; for (const x of a) total += x; return total; }", "f([1])", javascript.LEAKED),
        ("function f(a) { for (i = 0; i < a.length; i++) if (a[i]) return i; }", "f([1])", javascript.LEAKED),
        ("function f(a) { for (x of a) if (x > 1) return x; }", "f([1])", javascript.LEAKED),
        ("function f(a) { let t = 0; for (const x of a) t += x; return t; }", "f([1])", None),
        ("function f(a) { seen += a.length + a.concat(a).length; return seen; }", "let seen = 0;", None),
        ("function f(a) { if (a > 1) return (a + 1, a - 1); return a; }", "f(1)", javascript.COMMA),
        ("const f = (a) => a.map((x) => x.n).sort((x, y) => x < y)[0];", "f(1)", javascript.TRUTH),
        ("const f = (a) => a.map((x) => x.n).sort((x, y) => (x < y ? 1 : -1))[0];", "f(1)", None),
        ("const f = (a) => a.map((x) => x.n).filter((x) => x < 3)[0];", "f(1)", None),
        ("function f(a) { let i = 0; while ((i++, a[i] > 1)) a.pop(); return (a[i]); }", "f([1])", None),
    ],
)
def test_javascript_that_no_reviewer_lets_in(answer: str, prompt: str, why: str | None) -> None:
    asked = f"Write JavaScript code.\nDo it.\n\nSession so far:\n{prompt}"
    assert unworthy(candidate("solve", answer, asked, "javascript")) == why


@pytest.mark.parametrize(
    ("task", "answer", "lacks"),
    [
        ("Sort the list using the heap queue algorithm.", "def f(xs):\n    return sorted(x for x in xs if x)", True),
        ("Sort a list using heapq.", "import heapq\ndef f(xs):\n    return heapq.nsmallest(len(xs), xs or [])", False),
        ("Square each with the help of a lambda function.", "def f(xs):\n    return [x * x for x in xs if x]", True),
        ("Find words using regex.", "import re\ndef f(s):\n    return re.findall('a', s or '')[0]", False),
        ("Count pairs using map function.", "def f(a, b):\n    return sum(x == y for x, y in zip(a, b))", True),
        ("Count pairs using map function.", "def f(a, b):\n    return sum(map(int.__eq__, a, b)) or 0", False),
        ("Write a function to perform heap sort.", "def heap_sort(xs):\n    return sorted(x for x in xs if x)", True),
        ("Find the largest integers by heap queue.", "def f(xs):\n    return sorted(x for x in xs if x)[-3:]", True),
        ("Sort by merge sort.", "def f(xs):\n    return f(xs[1:]) + xs[:1] if xs and xs[0] else xs", False),
        ("Merge sorted lists.", "def f(xs, ys):\n    return sorted(x for x in xs + ys if x)", False),
        ("Merge by heap queue.", "import heapq\ndef f(a, b):\n    return list(heapq.merge(sorted(a), b or []))", False),
        ("Count the words of the collections.", "def f(xs):\n    return len([x for x in xs if x])", False),
    ],
)
def test_the_way_that_a_task_asks_for(task: str, answer: str, lacks: bool) -> None:
    found = unworthy(candidate("solve", answer, f"Write Python code.\n{task}"))
    assert found == (worth.OTHER_METHOD if lacks else None)


@pytest.mark.parametrize(("name", "why"), [("x", worth.ERROR_ELSEWHERE), ("total", None)])
def test_an_error_of_the_test_itself_is_nothing_to_repair(name: str, why: str | None) -> None:
    failing, answer = "function f(xs) { return totl(xs); }", "function f(xs) { return total(xs); }"
    prompt = f"Fix this JavaScript code.\n\nCode:\n{failing}\n\nError:\nReferenceError: {name} is not defined"
    assert unworthy(candidate("repair", answer, prompt, "javascript", failing=failing)) == why


@pytest.mark.parametrize(("used", "why"), [("xs", worth.ERROR_ELSEWHERE), ("product(xs)", None)])
def test_an_import_for_a_caller_that_is_not_shown(used: str, why: str | None) -> None:
    failing = f"def f(xs):\n    total = 0\n    for x in {used}:\n        total += x * 2\n    return total"
    prompt = f"Fix this Python code.\n\nCode:\n{failing}\n\nError:\nNameError: name 'product' is not defined"
    answer = f"from itertools import product\n\n{failing}"
    assert unworthy(candidate("repair", answer, prompt, failing=failing)) == why


@pytest.mark.parametrize("name", ["expected", "expected_response", "const expectedTotal"])
def test_code_does_not_hold_what_is_to_be_predicted(name: str) -> None:
    language, made = ("javascript", "let r = ask(1)") if " " in name else ("python", "r = ask(1)")
    shown = "{} = [1, 2, 3]\n" + made + "\nr.json(1, [x for x in y if x])"
    assert (
        unworthy(candidate("predict", "[4]", prompts.predict(language, shown.format(name), []), language))
        == predictions.STATED
    )
    other = prompts.predict(language, shown.format("unexpected"), [])
    assert unworthy(candidate("predict", "[4]", other, language)) is None


def test_a_status_alone_teaches_nothing() -> None:
    app = "@app.get('/a')\ndef a(n: int):\n    return [x for x in range(n) if x]"
    for end, why in (("r.status_code", TRIVIAL), ("r.status_code, r.json()", None)):
        shown = prompts.predict("python", f"r = client.get('/a', params=given(3))\n{end}", [app])
        assert unworthy(candidate("predict", "200" if why else "(200, [1, 2])", shown)) == why


def test_a_test_shows_an_answer_that_succeeds() -> None:
    code = "@app.get('/a')\ndef a(n: int):\n    if n:\n        return {'n': n}\n    return {'n': [x for x in y]}"
    test = "r = client.get('/a')\nassert r.status_code == {}, r.text"
    for statuses, why in (([422, 404], worth.NO_SUCCESS), ([422, 200], None)):
        asked = prompts.solve("python", "", "", ["\n".join(test.format(one) for one in statuses)], ["client = made()"])
        assert unworthy(candidate("solve", code, asked)) == why


BELLS = "const bells = t => {\n  const h = Number(t.split(':')[0]);\n  return (h % 4) * 2 || 8;\n};"
RUNNING = "describe('bells', () => { it('eight', () => expect(bells('12:00')).toBe(8)); });"
RUNNER = "function describe(t, f) { f(); }\nfunction it(t, f) { f(); }"
WAITS = "const sleep = ms => new Promise(r => setTimeout(r, ms));"
BUS = "class Bus {\n  #h = new Map();\n  on(e, f) { this.#h.set(e, f); }\n  emit(e) { this.#h.get(e)?.(); }\n}"


@pytest.mark.parametrize(
    ("asked", "answer", "test", "why"),
    [
        ("bells('HH:MM'): two an hour, eight at most", f"{BELLS}\n{RUNNER}", RUNNING, javascript.RUNNERS),
        ("bells('HH:MM'): two an hour, eight at most", BELLS, RUNNING, None),
        ("Write describe(t, f) and it(t, f), which run f.", RUNNER, RUNNING, None),
        ("bells(t), two an hour", f"{BELLS}\n{WAITS}", "await sleep(5); assert(bells('1:00'))", javascript.RUNNERS),
        ("bells(t) and sleep(ms)", f"{BELLS}\n{WAITS}", "await sleep(5); assert(bells('1:00'))", None),
        ("An event bus that forgives unknown events", BUS, "", javascript.METHODS),
        ("An event bus: on(event, f) and emit(event, ...)", BUS, "", None),
    ],
)
def test_javascript_that_nobody_would_ask_for(asked: str, answer: str, test: str, why: str | None) -> None:
    assert javascript.unfit_to_ask_for(answer, f"Write JavaScript code.\n{asked}", test) == why

"""What prompts hold: names, tables, shell variables; the failing test; files; the tables that other sessions tell."""

from typing import Any

import pytest

from capibara_assets.datasets.code.comments import without_note
from capibara_assets.datasets.examples import build_dataset
from capibara_assets.datasets.groups import assign_groups
from capibara_assets.datasets.kinds import prompts, repair, solve
from capibara_assets.datasets.kinds.failing_test import failing_test
from capibara_assets.datasets.kinds.files_shown import files_shown
from capibara_assets.datasets.kinds.prompts import Shown
from capibara_assets.datasets.kinds.prompts import solve as worded
from capibara_assets.datasets.kinds.sufficiency import why_insufficient, why_redeclared, why_unpredictable
from capibara_assets.datasets.placing import INSUFFICIENT
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.domains import Domain
from capibara_assets.executions.tracebacks import error_text, own_frames
from capibara_assets_tests.datasets.conftest import evidence_of, pair, run

JUDGED: list[tuple[str, str, str, str | None]] = [
    ("python", "Plot the data.", "plot(data)", "names that the prompt does not define: data, plot"),
    ("python", "Plot `data` with plot(data).", "plot(data)", None),
    ("python", "Sum them.\n\nSession so far:\nrows = [1]", "print(sum(rows))", None),
    (
        "python",
        "Sum them.\n\nSession so far:\nprint(rows)",
        "print(sum(rows))",
        "names that the prompt does not define: rows",
    ),
    ("python", "Make it.\n\nIt has to pass:\nassert f(client) == 2", "def f(c):\n    return client", None),
    ("python", "Do.", "from math import *\nprint(sqrt(2))", None),
    ("javascript", "Do.", "const fs = require('fs'); total = 1; console.log(total, new Blob([]))", None),
    ("javascript", "Do.", "show(cart)", "names that the prompt does not define: cart, show"),
    (
        "javascript",
        "Do.\n\nSignature:\nfunction show(cart)",
        "const show = (cart) => helper(cart)",
        "names that the prompt does not define: helper",
    ),
    ("sql", "How heavy is each crate?", "SELECT weight FROM crates", "tables that the prompt does not name: crates"),
    (
        "sql",
        "How heavy are crates?\n\nSchema:\ncrates(id, kilos)",
        "SELECT weight FROM crates",
        "columns that the prompt does not name: weight",
    ),
    (
        "sql",
        "How heavy?\n\nSchema:\nCRATES(id, Weight)",
        "WITH c AS (SELECT weight w FROM crates) SELECT w FROM c",
        None,
    ),
    ("bash", "List them.", "ls \"$HOME\" '$x' && for f in *; do echo $f; done", None),
    ("bash", "List them.", "ls $TARGET", "variables that the prompt does not define: TARGET"),
]


@pytest.mark.parametrize(("language", "prompt", "answer", "why"), JUDGED)
def test_what_a_prompt_lacks(language: str, prompt: str, answer: str, why: str | None) -> None:
    assert why_insufficient(language, f"Write code.\n{prompt}", answer) == why


def test_of_an_output_the_code_is_judged_and_not_the_words() -> None:
    assert why_unpredictable("python", "Predict.\n\nSession so far:\nx = 1\n\nCode:\nprint(x)") is None
    assert why_unpredictable("python", "Predict.\n\nCode:\nprint(x)") == "names that the prompt does not define: x"


CELL = """
def area(w, h):
    return w + h

def check(candidate):
    side = 3
    assert candidate(2, 2) == 4
    assert candidate(side, 5) == 15
    assert candidate(1, 1) == 1

check(area)"""
TRACE = """AssertionError                            Traceback (most recent call last)Cell In[4], line 10
      8     assert candidate(1, 1) == 1
---> 10 check(area)
Cell In[4], line 7, in check(candidate)
----> 7     assert candidate(side, 5) == 15
AssertionError: """
NODE = """Cell[2]:7
  if (got !== want) throw new Error('wrong')
                    ^

Error: wrong
    at Cell[2]:7:21
    at node:internal/main:3:1"""


def test_the_failing_test_is_the_one_of_the_traceback() -> None:
    found = failing_test(CELL, "def area(w, h):\n    return w + h", "python", own_frames(TRACE, "python"))
    assert found.text == "side = 3\nassert area(side, 5) == 15"
    assert found.raised_by_test and not found.frames
    cell = (
        "const area = (w, h) => w + h\nconst size = 5\nlet got = area(1, size)\nlet want = 6\n\n"
        "// compare\nif (got !== want) throw new Error('wrong')\nlet more = area(9, 9)"
    )
    found = failing_test(cell, "const area = (w, h) => w + h", "javascript", own_frames(NODE, "javascript"))
    assert found.text.split("\n")[-1].startswith("if (got")
    assert "let got = area(1, size)" in found.text and "more" not in found.text


def test_a_call_that_fails_is_shown_with_the_assertion_on_its_result() -> None:
    cell = "def area(w, h):\n    return w * x\n\nside = 3\ngot = area(side, 2)\nprint(side)\n{}"
    trace = (
        'Traceback (most recent call last):\n  File "<stdin>", line 5, in <module>\n'
        "NameError: name 'x' is not defined"
    )
    frames = own_frames(trace, "python")
    solution = "def area(w, h):\n    return w * x"
    found = failing_test(cell.format("assert got == 6"), solution, "python", frames)
    assert found.text == "side = 3\ngot = area(side, 2)\nassert got == 6"
    assert failing_test(cell.format("print(got)"), solution, "python", frames).text == "side = 3\ngot = area(side, 2)"
    assert failing_test(cell.format("got += 1\nassert got"), solution, "python", frames).text.endswith("area(side, 2)")


def test_an_error_shows_the_users_lines_and_no_library() -> None:
    trace = (
        "Cell In[1], line 2\n----> 2 total(rows)\nCell In[1], line 9, in total(rows)\n"
        "----> 9     return frame.sum(rows)\n"
        "File /usr/lib/python3.11/site-packages/x/core.py:88, in sum(self)\n---> 88     raise ValueError(n)\n"
    )
    assert error_text("ValueError", "bad", trace) == "total(rows)\nin total: return frame.sum(rows)\nValueError: bad"


def repaired(recipe: DatasetRecipe, failing: str, fixed: str, **error: Any) -> Any:
    bad = run("bad", failing, outcome="error", domains=["python", "debug"], **error)
    good = run("good", fixed, minute=1, domains=["python", "debug"])
    (found,) = repair.candidates(evidence_of([bad, good], [pair(bad, good)]), recipe)
    return found


def test_a_bare_assertion_without_its_test_is_no_question(recipe: DatasetRecipe) -> None:
    code = "def area(w, h):\n    return w + h"
    mended = code.replace("+", "*")
    found = repaired(recipe, code, mended, error_name="AssertionError", error_value="")
    assert found.lacking == repair.NO_TEST
    found = repaired(recipe, code, mended, error_name="TypeError", error_value="unsupported operand")
    assert found.lacking is None
    tests = "\n\nassert area(2, 3) == 6"
    found = repaired(recipe, code + tests, mended + tests, error_name="AssertionError", error_value="")
    assert found.lacking is None
    assert "It has to pass:\nassert area(2, 3) == 6" in found.prompt


@pytest.mark.parametrize(
    ("calls", "failed", "lacking"),
    [
        ("print(area(2, 3))\nprint(area(2, [3]))", "print(area(2, [3]))", repair.DROPPED),
        ("print(area(2, 3))\nprint(area(2, [3]))", "print(area(2, 3))", None),
        ("total = area(2, 3)\nprint(total)", "print(area(2, 3))", None),
        ("", "print(area(2, [3]))", None),
        ("print(volume(2, 3))", "print(area(2, [3]))", None),
    ],
)
def test_a_repair_does_not_leave_out_the_call_that_failed(
    recipe: DatasetRecipe, calls: str, failed: str, lacking: str | None
) -> None:
    """The others would run just as well before."""
    code = f"def area(w, h):\n    return w + h\n\n{failed}"
    mended = f"def area(w, h):\n    return w * h\n\n{calls.replace('[3]', '[4]')}"
    mended = mended if lacking or "[3]" not in failed else mended.replace("[4]", "[3]")
    trace = f"Cell In[1], line 4\n----> 4 {failed}\nCell In[1], line 2, in area(w, h)\n----> 2     return w + h\n"
    found = repaired(recipe, code, mended, error_name="TypeError", error_value="unsupported", traceback=trace)
    assert found.lacking == lacking


@pytest.mark.parametrize(
    ("said", "lacking"),
    [
        ("Test case did not pass. Please try again.", repair.NO_TEST),
        ("Failed 2/3 Test Cases. Please try again.", repair.NO_TEST),
        ("Failed Test Case: assert area(2, 3) == 6\nPlease try again.", None),
    ],
)
def test_that_hidden_tests_failed_tells_nothing(recipe: DatasetRecipe, said: str, lacking: str | None) -> None:
    code = "# Give the area of a rectangle.\ndef area(w, h):\n    return w + h"
    found = repaired(recipe, code, code.replace("+", "*"), error_name="Error", error_value=said)
    assert found.lacking == lacking


def test_a_session_states_the_task_of_its_repair(recipe: DatasetRecipe) -> None:
    first = run("first", "def area(w, h):\n    return w", task="Write `area(w, h)` of a rectangle.")
    bad = run("bad", "def area(w, h):\n    return w * x", minute=1, outcome="error", error_name="NameError")
    good = run("good", "def area(w, h):\n    return w * h", minute=2)
    (found,) = repair.candidates(evidence_of([first, bad, good], [pair(bad, good)]), recipe)
    head = "Fix the error in this Python code, which belongs to this task:"
    assert found.prompt.startswith(f"{head}\nWrite `area(w, h)` of a rectangle.\n\nCode:")


def test_a_query_gets_the_schema_that_its_session_printed(recipe: DatasetRecipe) -> None:
    cells = [
        run("look", "print(db.schema())", result_text="CREATE TABLE crates (id INT, kilos REAL)", domains=["python"]),
        run("ask", "-- How heavy is the heaviest crate?\nSELECT MAX(kilos) FROM crates", minute=1, language="sql"),
    ]
    found = next(c for c in solve.candidates(evidence_of(cells), recipe) if c.language == "sql")
    assert found.prompt.endswith("\n\nSchema:\nCREATE TABLE crates (id INT, kilos REAL);")
    assert found.execution_ids == ("ask", "look")


@pytest.mark.parametrize("task", ["How many crates are there?", "Count the `id` of crates, with a kilos above 3."])
def test_a_name_in_prose_tells_of_no_table(recipe: DatasetRecipe, task: str) -> None:
    cells = [
        run("look", "DESC crates", language="sql", stdout="[('id', b'int', 'NO', 'PRI', None, '')]"),
        run("ask", "SELECT COUNT(id) FROM crates", minute=1, language="sql", task=task),
    ]
    (found,) = [c for c in solve.candidates(evidence_of(cells), recipe) if c.execution_ids[0] == "ask"]
    assert found.prompt.endswith("\n\nSchema:\ncrates(id int)")


@pytest.mark.parametrize(
    "task", ["Count them.\nTables: crates(id, kilos)", "Count the table crates with columns id, kilos."]
)
def test_what_the_task_lists_is_not_shown_again(recipe: DatasetRecipe, task: str) -> None:
    cells = [
        run("look", "DESC crates", language="sql", stdout="[('id', b'int', 'NO', 'PRI', None, '')]"),
        run("ask", "SELECT COUNT(id) FROM crates", minute=1, language="sql", task=task),
    ]
    (found,) = [c for c in solve.candidates(evidence_of(cells), recipe) if c.execution_ids[0] == "ask"]
    assert "Schema:" not in found.prompt


def test_a_query_that_failed_tells_of_no_table(recipe: DatasetRecipe) -> None:
    look = run("look", "DESC crate", language="sql", stdout="[('kilos', b'int', 'NO', '', None, '')]")
    about: dict[str, Any] = {"language": "sql", "task": "How heavy is each crate in kilos?"}
    bad = run("bad", "SELECT kilos FROM crates", minute=1, outcome="error", error_name="Error",
              error_value="Table 'shop.crates' doesn't exist", **about)  # fmt: skip
    good = run("good", "SELECT kilos FROM crate", minute=2, **about)
    (found,) = repair.candidates(evidence_of([look, bad, good], [pair(bad, good)]), recipe)
    assert "\n\nSchema:\ncrate(kilos int)\n\nCode:" in found.prompt
    assert found.prompt.endswith("Error: Table 'shop.crates' doesn't exist")


def test_an_earlier_attempt_at_the_same_task_is_not_quoted(recipe: DatasetRecipe) -> None:
    asked = "# How heavy is the heaviest crate?\nquery = 'SELECT MAX({}) FROM crates'\ndb.read(query)\ndb.append(query)"
    cells = [
        run("open", "db = connect('crates.db')"),
        run("first", asked.format("kilos"), minute=1),
        run("second", asked.format("kilos * 1"), minute=2),
    ]
    found = [c for c in solve.candidates(evidence_of(cells), recipe) if c.execution_ids[0] == "second"]
    assert "Session so far:\ndb = connect('crates.db')\n\nSchema:\ncrates(kilos)" in found[0].prompt


def test_another_session_tells_the_tables_where_it_is_the_only_word(recipe: DatasetRecipe) -> None:
    ask = run("ask", "-- How heavy is the heaviest crate?\nSELECT MAX(kilos) FROM crates", language="sql")
    told = [
        run(f"look{i}", "DESCRIBE", f"s{i + 2}", language="sql", result_text=f"CREATE TABLE crates (id INT, {columns})")
        for i, columns in enumerate(["kilos REAL", "kilos REAL", "kilos REAL, colour TEXT"])
    ]
    (found,) = solve.candidates(evidence_of([ask, *told[:2]]), recipe)
    assert (found.execution_ids, found.quality) == (("ask", "look0"), 0.72)
    (found,) = solve.candidates(evidence_of([ask, *told]), recipe)  # they do not agree: what the query reads, is shown
    assert found.prompt.endswith("Schema:\ncrates(kilos)")
    assert found.quality < 0.72


def test_a_file_that_an_earlier_cell_wrote_is_shown() -> None:
    cells = [
        run("a", "%%writefile rain.csv\nday,mm\n1,4\n"),
        run("b", "cat > more.csv <<'EOF'\nday,mm\nEOF\n", language="bash", minute=1),
        run("c", "with open('note.txt', 'w') as out:\n    out.write('hello')", minute=2),
        run("d", "!cat seen.txt", stdout="as it is", minute=3),
    ]
    session = [dict(cell) for cell in cells]
    code = "for n in ('rain.csv', 'more.csv', 'note.txt', 'seen.txt', 'new.txt'): print(open(n).read())"
    shown = files_shown(session, 4, [(code, "python")])
    assert [(one.name, one.head, one.execution_id) for one in shown] == [
        ("rain.csv", "day,mm\n1,4", "a"),
        ("more.csv", "day,mm", "b"),
        ("note.txt", "hello", "c"),
        ("seen.txt", "as it is", "d"),
    ]
    assert worded("python", "Read.", "", [], [], Shown(files=[("a.txt", "x")])).endswith("Files:\na.txt:\nx")


def test_what_does_not_suffice_is_left_out_with_its_reason(recipe: DatasetRecipe) -> None:
    evidence = evidence_of([run("e", "# add the numbers that were read before\nprint(sum(numbers) * 2)")])
    groups = assign_groups(evidence.executions, evidence.repairs, None, recipe)
    made = build_dataset(Domain.PYTHON, evidence, groups, recipe)
    assert made.examples.is_empty()
    assert made.left_out["reason"].to_list() == [f"{INSUFFICIENT}: names that the prompt does not define: numbers"]


def test_what_the_test_binds_is_not_there_when_the_answer_runs() -> None:
    prompt = "Write Python code.\nCut a board.\n\nIt has to pass:\nsides = cut(4)\nassert sides == (2, 2)"
    cut = "def cut(n):\n    return n // 2, n - n // 2"
    assert why_insufficient("python", prompt, cut) is None
    assert why_insufficient("python", prompt, f"{cut}\nprint(len(sides))") is not None
    shown = prompt.replace("It has", "Session so far:\nsides = 2\n\nIt has")
    assert why_insufficient("python", shown, f"{cut}\nprint(len(sides))") is None


def test_frames_inside_a_function_have_its_name_and_comprehensions_have_none() -> None:
    traceback = """Traceback (most recent call last)
Cell In[1], line 9
----> 9 f([1])

Cell In[1], line 3, in f.<locals>.total(xs)
----> 3     return sums([x for x in xs])

Cell In[1], line 3, in f.<locals>.total.<locals>.<listcomp>(.0)
      1 def f(xs):

NameError: name 'sums' is not defined"""
    assert [frame.function for frame in own_frames(traceback, "python")] == ["", "total"]


def test_a_line_without_its_cell_is_of_the_test_if_it_stands_there() -> None:
    cell = "const assert = require('assert');\nassert.ok(area(1, 1));\nassert.strictEqual(area(2, 3), 6);"
    here = own_frames("----> 3 assert.strictEqual(area(2, 3), 6);", "javascript")
    elsewhere = own_frames("----> 2 return w + h;", "javascript")
    asked = "const area = (w, h) => w + h"
    found = failing_test(cell, asked, "javascript", here)
    assert found.text.endswith("assert.strictEqual(area(2, 3), 6);") and "assert.ok(" not in found.text
    assert "require('assert')" in found.text and not found.frames
    assert failing_test(cell, asked, "javascript", elsewhere).frames == elsewhere


@pytest.mark.parametrize(
    ("code", "quoted"), [("const codes = Set([1]);", "const codes = Set([1]);"), ("f()", "var codes = Set([1]);")]
)
def test_a_line_that_its_kernel_changed_is_quoted_as_written(code: str, quoted: str) -> None:
    traceback = "Cell[1]:1\nvar codes = Set([1]);\n            ^\n\nTypeError: x\n    at Cell[1]:1:13"
    assert [frame.text for frame in own_frames(traceback, "javascript", code)] == [quoted]
    assert own_frames(traceback, "javascript")[0].text == "var codes = Set([1]);"


def test_a_test_that_is_defined_is_called_as_well() -> None:
    cell = "const check = () => {\n  console.assert(area(2, 3) === 6);\n};\nconsole.log('runs');\ncheck();"
    asked = "const area = (w, h) => w + h"
    frames = own_frames("----> 2 console.assert(area(2, 3) === 6);", "javascript")
    found = failing_test(cell, asked, "javascript", frames)
    assert found.text == "const check = () => {\n  console.assert(area(2, 3) === 6);\n};\ncheck();"
    bound = failing_test(cell.replace("check();", "const c = check();"), asked, "javascript", frames)
    assert bound.text.endswith("};")


@pytest.mark.parametrize(
    ("code", "left"),
    [
        ("# fixed\nx = 1", "x = 1"),
        ("# second attempt\nx = 1", "x = 1"),
        ("# v2\nx = 1", "x = 1"),
        ("# fix: bytes\nx = 1", "x = 1"),
        ("# second version of the protocol, with frames\nx = 1", None),
        ("# fixed width of a column in mm, see there\nx = 1", None),
        ("# fixed", None),
    ],
)
def test_a_note_on_the_attempt_is_no_part_of_the_code(code: str, left: str | None) -> None:
    assert without_note(code, "python") == (left or code)


def test_what_a_session_declares_is_not_declared_again_below_it() -> None:
    once, again = "const half = (n) => n / 2;", "const half = (n) => n >> 1;\nhalf(5)"
    assert why_redeclared("javascript", prompts.predict("javascript", again, [once])) is not None
    assert why_redeclared("javascript", prompts.predict("javascript", "half(5)", [once])) is None
    assert why_redeclared("javascript", prompts.predict("javascript", again, [])) is None
    assert why_redeclared("python", prompts.predict("python", "half = 1", ["half = 2"])) is None
    failed = prompts.repair("javascript", "", again, "AssertionError", [once])
    assert why_redeclared("javascript", failed) is None, "its author wrote it anew"


def test_a_question_above_a_first_try_is_that_of_the_last(recipe: DatasetRecipe) -> None:
    """The remark above the last try tells what was wrong with the first, and nothing of what is asked."""
    look = "SELECT owner, {} FROM crates GROUP BY owner ORDER BY owner"
    tries = [f"-- kilos per owner\n{look.format('MAX(kilos)')}", f"-- the sum is wanted\n{look.format('SUM(kilos)')}"]
    shown = ["  owner  kilos\n0  a  3", "  owner  kilos\n0  a  5"]
    cells = [run("look", "CREATE TABLE crates (owner TEXT, kilos INT)", language="sql")] + [
        run(f"try{n}", code, minute=n + 1, language="sql", result_text=rows)
        for n, (code, rows) in enumerate(zip(tries, shown, strict=True))
    ]
    evidence = evidence_of(cells)
    found = {one.execution_ids[0]: one for one in solve.candidates(evidence, recipe)}
    assert found["try1"].lacking is None and "kilos per owner" in found["try1"].prompt
    assert found["try1"].answer == look.format("SUM(kilos)") and "wanted" not in found["try1"].prompt
    assert evidence.mended_later == {"try0"}


CAPPED = (
    "function capped(list, most) {{\n  const sum = list.reduce((a, b) => a + b{});\n  return Math.min(sum, most);\n}}"
)
JUDGED = "const assert = require('node:assert');\nassert.equal(capped([1, 2], 9), 3);\nassert.equal(capped([], 9), 0);"


@pytest.mark.parametrize("noted", ["", "// reduce of nothing needs a start\n"])
def test_the_words_above_the_first_attempt_are_the_task_of_the_last(noted: str, recipe: DatasetRecipe) -> None:
    asked = "// The sum of a list, at most `most`; an empty list gives 0"
    failed = {"outcome": "error", "error_name": "TypeError", "error_value": "Reduce of empty array", "traceback": ""}
    cells = [
        run("a", f"{asked}\n{CAPPED.format('')}\n{JUDGED}", language="javascript", **failed),
        run("b", f"{noted}{CAPPED.format(', 0')}\n{JUDGED}", minute=1, language="javascript"),
        run("c", "// sum them\nfunction capped(list, most) {\n  return 7;\n}\nassert.equal(capped(), 7);", minute=2,
            language="javascript"),
    ]  # fmt: skip
    found = {one.execution_ids[0]: one.prompt for one in solve.candidates(evidence_of(cells), recipe)}
    assert asked[3:] in found["b"] and "needs a start" not in found["b"]
    assert asked[3:] not in found.get("c", ""), "another function of that signature"


def test_a_call_below_what_a_comment_names_is_no_part_of_the_answer(recipe: DatasetRecipe) -> None:
    made = "def pairs(names):\n    return dict(zip(names, reversed(names)))"
    asked = "# use zip: pairs(names) -> each name with the one that stands as far from the end"
    judged = "assert pairs(['a', 'b']) == {'a': 'b', 'b': 'a'}"
    (found,) = solve.candidates(evidence_of([run("a", f"{asked}\n{made}\n{judged}\npairs('xyz')")]), recipe)
    assert found.answer == made and "each name with the one" in found.prompt


def test_the_note_above_a_mended_function_is_no_task(recipe: DatasetRecipe) -> None:
    half = "function half(n) {{\n  return {};\n}}\nif (half(3) !== 2) throw new Error('no');"
    failed = {"outcome": "error", "error_name": "Error", "error_value": "no", "traceback": "Error: no"}
    bad = run("bad", f"// Half of a number, rounded up\n{half.format('n / 2')}", language="javascript", **failed)
    good = run("good", f"// n / 2 is no whole number -> ceil\n{half.format('Math.ceil(n / 2)')}", minute=1,
               language="javascript")  # fmt: skip
    (found,) = repair.candidates(
        evidence_of([bad, good], [pair(bad, good).model_copy(update={"language": "javascript"})]), recipe
    )
    assert "Half of a number, rounded up" in found.prompt and "no whole number" not in found.prompt

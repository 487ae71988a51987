"""Detectors of faults: recall on planted faults of two halves, alarms on sound examples, and cases of their borders."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from benchmarks.datasets.faults.boilerplate import boilerplate
from benchmarks.datasets.faults.cases import Case, cut
from benchmarks.datasets.faults.fitted import fitted
from benchmarks.datasets.faults.leaks import leaked_expectation
from benchmarks.datasets.faults.no_ops import import_only, no_op_repair, same_program
from benchmarks.datasets.faults.off_task import off_task
from benchmarks.datasets.faults.queries.abbreviations import unexplained
from benchmarks.datasets.faults.queries.senseless import by_name, senseless
from benchmarks.datasets.faults.sufficiency import insufficient_prompt
from capibara_assets_tests.benchmarks.datasets.faults.clean import clean_cases
from capibara_assets_tests.benchmarks.datasets.faults.planting_first import FIRST
from capibara_assets_tests.benchmarks.datasets.faults.planting_second import SECOND
from capibara_assets_tests.benchmarks.datasets.faults.planting_third import THIRD

ALONE: dict[str, Callable[[Case], str | None]] = {
    "leaked_expectation": leaked_expectation,
    "insufficient_prompt": insufficient_prompt,
    "no_op_repair": no_op_repair,
    "unexplained": unexplained,
    "senseless": senseless,
    "by_name": by_name,
    "import_only": import_only,
    "fitted": fitted,
}
CLEAN = tuple(clean_cases())


def found(fault: str, cases: Sequence[Case]) -> set[str]:
    if fault == "boilerplate":
        return set(boilerplate(cases))
    return {case.example_id for case in cases if ALONE[fault](case) is not None}


def test_two_hundred_faults_are_planted() -> None:
    for fault in FIRST:
        ids = [case.example_id for half in (FIRST, SECOND) for case in half[fault]]
        assert len(ids) == len(set(ids)) >= 40
    assert sum(len(half[fault]) for half in (FIRST, SECOND) for fault in half) >= 200


@pytest.mark.parametrize("half", [FIRST, SECOND], ids=["first", "second"])
@pytest.mark.parametrize("fault", FIRST)
def test_planted_faults_are_found(half: dict[str, tuple[Case, ...]], fault: str) -> None:
    planted = half[fault]
    seen = found(fault, planted)
    missed = [case.example_id for case in planted if case.example_id not in seen]
    assert len(seen) >= 0.95 * len(planted), missed


@pytest.mark.parametrize("fault", THIRD)
def test_what_readers_found_is_found_and_its_neighbour_is_not(fault: str) -> None:
    planted = [fault for fault, _ in THIRD[fault]]
    assert len({case.example_id for case in planted}) == len(planted) >= 12
    missed = [case.example_id for case in planted if ALONE[fault](case) is None]
    assert len(missed) <= 0.05 * len(planted), missed
    alarms = [(case.example_id, why) for _, case in THIRD[fault] if (why := ALONE[fault](case)) is not None]
    assert len(alarms) <= 0.02 * len(planted), alarms


def test_sound_examples_raise_no_alarm() -> None:
    assert len(CLEAN) >= 100
    alarms = [(fault, name) for fault in (*ALONE, "boilerplate") for name in found(fault, CLEAN)]
    assert len(alarms) <= 0.02 * len(CLEAN), alarms
    assert [case.example_id for case in CLEAN if off_task(case) is not None] == []


@pytest.mark.parametrize(
    "statement", ["Complete this.\n\ndef {}(a: int):", "Write it.\nassert {}(2) == 4", "Write `def {}(n)`."]
)
@pytest.mark.parametrize("kind", ["solve", "repair"])
def test_an_answer_to_another_task(statement: str, kind: str) -> None:
    def asked(name: str, answer: str) -> str | None:
        prompt = f"Write Python code.\n{statement.format(name)}\n\nSession so far:\nassert other(1)"
        return off_task(replace(BASE, kind=kind, prompt=prompt, answer=answer))

    assert asked("double", "def double(n):\n    return 2 * n") is None
    assert asked("double", "class Numbers:\n    def double(self):\n        return 2") is None
    assert asked("double", "print(2 * 2)") is None
    assert asked("double", "def halve(n):\n    return n / 2") is not None


@pytest.mark.parametrize("comment", ["Expected 4", "gives 4", "expected result: 4", "=> 4", "should print 4"])
def test_a_comment_tells_the_output(comment: str) -> None:
    prompt = "Predict the output of this Python code.\n\nCode:\nprint(2 + 2)  # {}"
    case = replace(BASE, kind="predict", prompt=prompt.format(comment), answer="4")
    assert leaked_expectation(case) is not None
    assert leaked_expectation(replace(case, prompt=prompt.format("of 44 and 4.5"))) is None


@pytest.mark.parametrize(
    "answer",
    [
        "SELECT AVG(grade) FROM pupils WHERE id IN (SELECT pupil FROM friends)",
        'SELECT grade FROM pupils WHERE name = "Ann Lee" AND id NOT IN (SELECT pupil FROM friends WHERE pupil LIKE "%w%")',
    ],
)
def test_columns_of_a_query_inside_and_texts_in_double_quotes_are_none_of_a_table(answer: str) -> None:
    prompt = (
        "Write SQL code.\nHow good are friends?\n\nSchema:\npupils(id INT, name TEXT, grade INT)\nfriends(pupil INT)"
    )
    case = replace(BASE, language="sql", prompt=prompt, answer=answer)
    assert insufficient_prompt(case) is None
    assert insufficient_prompt(replace(case, prompt=prompt.replace("grade", "mark"))) is not None
    assert insufficient_prompt(replace(case, prompt=prompt.replace("pupil INT", "friend INT"))) is not None


@pytest.mark.parametrize("kind", ["solve", "repair"])
@pytest.mark.parametrize("shown", ["", "\n\nSchema:\ncrate(kilos INT)"])
def test_a_table_that_prose_names_is_not_shown(kind: str, shown: str) -> None:
    prompt = f"Fix this SQL code.\nHow heavy is each crate in kilos?{shown}"
    prompt += "\n\nCode:\nSELECT kilos FROM crates\n\nError:\nno such table: crates" if kind == "repair" else ""
    case = replace(BASE, language="sql", kind=kind, prompt=prompt, answer="SELECT kilos FROM crate")
    assert (insufficient_prompt(case) is None) == bool(shown)
    named = prompt.replace("crates", "crate") + " "
    if kind == "repair":
        assert insufficient_prompt(replace(case, prompt=named)) is None


BASE = Case("one", "python", "solve", "Write `area(a, b)`: the area of a rectangle.", "")


@pytest.mark.parametrize(
    ("language", "answer"),
    [
        ("python", "def area(a, b):\n    assert a >= 0 and b >= 0\n    return a * b"),
        (
            "python",
            "def area(a, b):\n    if a != abs(a):\n        raise ValueError(a)\n    return a * b\n\nprint(area(2, 3))",
        ),
        ("python", "def area(a, b):\n    return a * b\n\nif area(2, 3) > 5:\n    print('large')"),
        ("python", "import math\nimport sys\nassert sys.version_info >= (3, 8)\n\ndef area(a, b):\n    return a * b"),
        ("python", "def area(a, b):\n    return a * b\n\neven = [n for n in range(9) if area(n, 1) == 4]"),
        (
            "javascript",
            "const assert = require('assert');\nfunction area(a, b) {\n  assert(a >= 0);\n  return a * b;\n}",
        ),
        (
            "python",
            "import requests\nanswer = requests.get(URL)\nif answer.status_code != 200:\n    raise SystemExit('failed')",
        ),
        ("javascript", "const answer = await fetch(URL);\nif (answer.status !== 200) throw new Error('failed');"),
        ("javascript", "const area = (a, b) => a * b;\nconsole.log(area(2, 3));"),
        ("javascript", "function area(a, b) {\n  if (a !== +a) throw new TypeError('a');\n  return a * b;\n}"),
        ("sql", "SELECT CASE WHEN total = 0 THEN 'ok' ELSE 'error' END FROM orders WHERE state = 'paid'"),
        ("bash", 'if [ "$(id -u)" -ne 0 ]; then echo "run as root"; exit 1; fi\n[ -z "$1" ] && exit 2\n./area "$1"'),
    ],
)
def test_preconditions_and_demonstrations_are_no_leaks(language: str, answer: str) -> None:
    assert leaked_expectation(replace(BASE, language=language, answer=answer)) is None


@pytest.mark.parametrize(
    ("language", "answer"),
    [
        ("python", "df['share'] = df['a'] / df['a'].sum()\nassert df['share'].tolist() == [0.5, 0.5]"),
        ("python", "basket.remove('tea')\nassert basket == ['milk']"),
        ("javascript", "cart.total = cart.items.length * 2;\nconsole.assert(cart.total === 4);"),
        ("javascript", "cart.add('tea');\nif (cart.items.length !== 1) throw new Error('lost');"),
    ],
)
def test_what_the_session_gave_and_the_answer_changed_is_its_result(language: str, answer: str) -> None:
    assert leaked_expectation(replace(BASE, language=language, answer=answer)) is not None


def test_a_solution_may_be_called_a_test() -> None:
    answer = "def test_parity(n):\n    assert int(n) == n\n    return n % 2 == 0"
    assert leaked_expectation(replace(BASE, prompt="Write `test_parity(n)`: is n even?", answer=answer)) is None


def test_tests_are_the_answer_where_they_are_asked_for() -> None:
    tests = "from geometry import area\n\ndef test_area():\n    assert area(2, 3) == 6"
    assert leaked_expectation(replace(BASE, prompt="Write pytest unit tests for `area(a, b)`.", answer=tests)) is None
    assert leaked_expectation(
        replace(BASE, prompt="Write a function that tests whether a number is even.", answer=tests)
    )


def test_a_word_of_prose_defines_no_name() -> None:
    answer = "report = data.describe()"
    prose = replace(BASE, prompt="Write Python code.\nDescribe the data of the survey.", answer=answer)
    assert insufficient_prompt(prose) == "nothing defines data"
    for prompt in (
        "Describe the frame `data`.",
        "Describe it.\n\nSession so far:\ndata = load()",
        "data.shape is (3, 2). Describe.",
    ):
        assert insufficient_prompt(replace(BASE, prompt=prompt, answer=answer)) is None


@pytest.mark.parametrize(
    ("error", "suffices"),
    [
        ("AssertionError", False),
        ("Assertion failed", False),
        ("AssertionError [ERR_ASSERTION]: The expression evaluated to a falsy value", False),
        ("assert area(2, 3) == 6\nAssertionError", True),
        ("NameError: name 'c' is not defined", True),
        ("AssertionError: 5 !== 6", True),
    ],
)
def test_an_error_tells_enough_or_not(error: str, suffices: bool) -> None:
    prompt = f"Fix this Python code.\n\nCode:\ndef area(a, b):\n    return a + b\n\nError:\n{error}"
    case = replace(BASE, kind="repair", prompt=prompt, answer="def area(a, b):\n    return a * b")
    assert (insufficient_prompt(case) is None) == suffices


@pytest.mark.parametrize(
    ("error", "suffices"),
    [
        ("CommandExitException", False),
        ("CommandExitException: exit code 1", False),
        ("Error: Test case did not pass. Please try again.", False),
        ("Failed 1/3 Test Cases.", False),
        ("AssertionError", False),
        ("Error: Unknown column 'c' in 'field list'", True),
        ("Failed Test Case: assert area(2, 3) == 6\nPlease try again.", True),
        ("RecursionError", True),
        ("TimeoutException: timed out", True),
    ],
)
def test_a_task_does_not_say_what_a_hidden_test_found_wrong(error: str, suffices: bool) -> None:
    head = "Fix this Python code.\nWrite a function that gives the area of a rectangle of two lengths."
    prompt = f"{head}\n\nCode:\ndef area(a, b):\n    return a + b\n\nError:\n{error}"
    case = replace(BASE, kind="repair", prompt=prompt, answer="def area(a, b):\n    return a * b")
    assert (insufficient_prompt(case) is None) == suffices
    shown = prompt.replace("\n\nError:", "\n\nIt has to pass:\nassert area(2, 3) == 6\n\nError:")
    assert insufficient_prompt(replace(case, prompt=shown)) is None


@pytest.mark.parametrize(
    ("language", "one", "other", "same"),
    [
        ("python", "def f(a):\n    return (a + 1)", "def f(b):\n    '''Next.'''\n    return b + 1  # one more", True),
        ("python", "def f(a):\n  return a\n  print(a)", "def f(a):\n  return a\nprint(a)", False),
        ("python", "def f(a, b):\n    return a - b", "def f(a, b):\n    return b - a", False),
        ("javascript", "const f = (a) => { return a + 'x'; };", 'const f = (b) => { return b + "x" }', True),
        ("javascript", "const f = (a, b) => a - b;", "const f = (a, b) => b - a;", False),
        ("sql", "SELECT o.id FROM orders o", "select x.id from orders x;", True),
        ("sql", "CREATE VIEW v SELECT 1", "CREATE VIEW v AS SELECT 1", False),
        ("sql", "SELECT id FROM a ORDER BY id WHERE id = 1", "SELECT id FROM a WHERE id = 1 ORDER BY id", False),
        ("bash", "ls -l 'a.txt' # list", "ls -l a.txt", True),
        ("bash", 'for f in "$d"/*; do rm $f; done', 'for f in "$d/*"; do rm $f; done', False),
    ],
)
def test_equal_programs(language: str, one: str, other: str, same: bool) -> None:
    assert same_program(one, other, language) == same


def test_a_prompt_is_cut_at_headings_and_fences() -> None:
    prompt = "Mend it.\n\nCode:\n```python\nx = {\n  1: 2,\n}\nelse_: int = 3\n```\n\n## What came out\nNo:\nthing"
    assert [(s.title, s.text.split("\n")[0]) for s in cut(prompt)] == [
        ("", "Mend it."),
        ("Code", "x = {"),
        ("What came out", ""),
        ("No", "thing"),
    ]


def test_code_that_no_test_calls_is_fitted_to_none() -> None:
    code = "def kind(n):\n    if n == 1: return 'a'\n    if n == 2: return 'b'\n    return 'c'"
    assert fitted(Case("c", "python", "solve", "Write Python code.\nName the kind of a number.", code)) is None


def test_a_problem_in_figures_is_a_task() -> None:
    case = replace(
        BASE, prompt="Write Python code.\nIf $y = 3x + 4$, what is $y$ when $x = 2$?", answer="print(3 * 2 + 4)"
    )
    assert not boilerplate([case])
    assert boilerplate([replace(case, prompt="Write Python code.\nThis cell generates Figure 3.")])


def test_an_explanation_needs_a_fact_or_words_of_its_own() -> None:
    code = "Explain this Python code.\n\nCode:\ndef low(values, bound):\n    return [v for v in values if v < bound]"
    said = {
        "empty": "Function `low(values, bound)`. It builds a list.",
        "words": "Entries that equal the limit are dropped as well.",
        "line": "It raises TypeError.\nWrong: `values`\nRight: `return values`",
        "value": "For bound 3 it gave `[1, 2]`.",
    }
    cases = [Case(name, "python", "explain", code, answer) for name, answer in said.items()]
    assert set(boilerplate(cases)) == {"empty"}
    many = [Case(f"{n}", "python", "explain", code, "A neat helper with a clear purpose.") for n in range(5)]
    assert len(boilerplate(many)) == 5 and not boilerplate(many[:2])

"""Tests found in recorded sessions, answers run with them, and the bench's figures."""

from collections import Counter

import pytest

from benchmarks.datasets.examples import Finding, Judged, by_kind, worst
from benchmarks.datasets.faults.recorded_tests import Cell, Trial, trial
from benchmarks.datasets.faults.solving import judge

ANSWER = "def area(a, b):\n    return a * b"


def session(*codes: str, language: str = "python") -> list[Cell]:
    return [Cell(f"e{number}", language, code, True) for number, code in enumerate(codes)]


def test_the_test_is_what_the_execution_ran_besides_the_answer() -> None:
    cells = session(
        "import math", "def area(a, b):\n    return 0", f"{ANSWER}\n\nprint(area(1, 1))\nassert area(2, 3) == 6"
    )
    made = trial(ANSWER, "python", None, cells, "e2")
    # the first attempt defines what the answer defines
    assert made == Trial("python", ("import math",), ANSWER, "print(area(1, 1))\nassert area(2, 3) == 6")


def test_the_test_is_a_later_cell_that_asserts() -> None:
    cells = session(ANSWER, "made = area(2, 3)", "assert made == 6", "assert area(1, 1) == 1")
    assert trial(ANSWER, "python", None, cells, "e0") == Trial(
        "python", (), ANSWER, "made = area(2, 3)\nassert made == 6"
    )
    # a later answer is judged by what follows it
    again = session(ANSWER, ANSWER.replace("*", "+"), "assert area(2, 2) == 4")
    assert trial(ANSWER, "python", None, again, "e0") == "no test was recorded"


@pytest.mark.parametrize(
    ("language", "own", "why"),
    [
        ("python", "e0", "no test was recorded"),
        ("python", "e9", "its execution is not in the table"),
        ("bash", "e0", "bash does not run in the sandbox"),
    ],
)
def test_why_there_is_no_trial(language: str, own: str, why: str) -> None:
    assert trial(ANSWER, language, None, session(ANSWER), own) == why


def test_a_hidden_test_comes_before_the_session() -> None:
    made = trial(ANSWER, "python", "assert area(1, 1) == 1", session(f"{ANSWER}\nassert area(2, 3) == 6"), "e0")
    assert isinstance(made, Trial) and made.test == "assert area(1, 1) == 1"


def test_javascript_statements_are_told_apart() -> None:
    answer = "const area = (a, b) => a * b;"
    made = trial(
        answer, "javascript", None, session(f"{answer}\nconsole.assert(area(2, 3) === 6);", language="javascript"), "e0"
    )
    assert isinstance(made, Trial) and made.test == "console.assert(area(2, 3) === 6);"


def test_answers_run_with_their_tests_and_tests_without_answers() -> None:
    verdicts = judge(
        [
            Trial("python", ("side = 3",), ANSWER, "assert area(2, side) == 6"),
            Trial("python", (), "def area(a, b):\n    return a + b", "assert area(2, 3) == 6"),
            Trial("python", (), ANSWER, "assert True"),
            Trial("python", ("raise KeyError(1)",), ANSWER, "assert area(2, 3) == 6"),
            Trial("python", (), "import module_that_nobody_has", "assert True"),
            Trial("sql", (), "CREATE TABLE a (n INTEGER);", "SELECT COUNT(*) = 0 FROM a;"),
            Trial("sql", (), "CREATE TABLE a (n INTEGER);", "SELECT COUNT(*) = 1 FROM a;"),
        ]
    )
    assert verdicts.passed == [True, False, True, None, None, True, False]
    assert verdicts.vacuous == [False, False, True, False, False, False, False]
    assert verdicts.why[1].startswith("the test fails: AssertionError")
    assert verdicts.not_judged == Counter(
        {
            "its session does not run again here": 1,
            "needs what is not here: No module named 'module_that_nobody_has'": 1,
        }
    )


def test_figures_are_shares_of_the_kinds_that_can_have_a_fault() -> None:
    rows = {"python": [{"kind": "solve"}] * 3 + [{"kind": "explain"}], "sql": [{"kind": "repair"}] * 4}
    findings = [
        Finding("python", "solve", "x", "leaked_expectation", ""),
        Finding("sql", "repair", "y", "no_op_repair", ""),
    ]
    judged = {("python", "solve"): Judged(passed=1, failed=1), ("sql", "repair"): Judged(passed=4, vacuous=2)}
    report = {domain: by_kind(domain, those, findings, judged) for domain, those in rows.items()}
    assert report["python"]["explain"]["leaked_expectation"] is None
    assert worst(report) == {
        "leaked_expectation": 0.3333,
        "insufficient_prompt": 0.0,
        "no_op_repair": 0.25,
        "boilerplate": 0.0,
        "refuted": 0.0,
        "off_task": 0.0,
        "unexplained": 0.0,
        "senseless": 0.0,
        "by_name": 0.0,
        "import_only": 0.0,
        "fitted": 0.0,
        "solves": 0.5,
        "examples": 8,
        "judged": 6,
        "vacuous": 2,
    }


def test_sets_are_compared_as_lodash_does() -> None:
    """Of what a Set holds, lists are compared without regard to order; other lists are not."""
    answer = "function pairs(list) { return new Set(list) }"
    test = """const _ = require("lodash")
if (!_.isEqual(pairs([[6, 7], [9, 8]]), new Set([[6, 7], [8, 9]]))) { throw 'wrong' }
if (_.isEqual(pairs([[6, 7]]), new Set([[6, 5]])) || _.isEqual([1, 2], [2, 1])) { throw 'too loose' }"""
    made = trial(answer, "javascript", test, [Cell("e0", "javascript", f"{answer}\n{test}", True)], "e0")
    assert isinstance(made, Trial)
    assert judge([made]).passed == [True]


@pytest.mark.parametrize("lack", ["ujson must be installed to use UJSONResponse", "x needs y to be installed"])
def test_what_this_machine_lacks_is_not_judged(lack: str) -> None:
    verdicts = judge([Trial("python", (), ANSWER, f"raise AssertionError({lack!r})")])
    assert verdicts.passed == [None]
    assert list(verdicts.not_judged) == [f"needs what is not here: {lack.split(' installed')[0]} installed"]

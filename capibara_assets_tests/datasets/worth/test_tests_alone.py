"""What a test alone tells of a task, each fault with a sound neighbour."""

import pytest

from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.worth import tests_alone as found
from capibara_assets.datasets.worth import worth
from capibara_assets_tests.datasets.worth.test_worth import candidate, unworthy

ANSWER = "def heaviest(loads):\n    return max((sum(load) for load in loads if load), default=0)"


@pytest.mark.parametrize(
    ("task", "shown", "why"),
    [
        ("", "assert heaviest([[1, 2], [4]]) == 4\nassert heaviest([]) == 0", None),
        ("", "assert heaviest([[1, 2], [4]]) == 4", found.ONE_CASE),
        ("The heaviest load.", "assert heaviest([[1, 2], [4]]) == 4", None),
        ("", "for load, most in [([[1]], 1), ([], 0)]:\n    assert heaviest(load) == most", None),
        ("", "assert heaviest([[1]])\nassert heaviest([[2]])", found.SAYS_NOTHING),
        ("", "assert heaviest([[1]])\nassert heaviest([[2]]) is True", found.ONE_TRUTH),
        ("", "assert not heaviest([])\nassert heaviest([[]]) == False", found.ONE_TRUTH),
        ("", "assert heaviest([[1]])\nassert not heaviest([])", None),
        ("", "heaviest([[1, 2], [4]])", found.SAYS_NOTHING),
        ("The heaviest load.", "heaviest([[1, 2], [4]])", None),
        ("", "case = made()\ncase.assertEqual(heaviest([[1]]), 1)", found.READS_UNTOLD),
        (
            "",
            "import unittest as u\ncase = u.TestCase()\ncase.assertEqual(heaviest([[1]]), 1)\nassert heaviest([]) == 0",
            None,
        ),
        ("", "heaviest_is(1)", found.READS_UNTOLD),
        ("", "assert total == 4\nassert heaviest([[4]]) == total", found.READS_UNTOLD),
        ("", "total = heaviest([[4]])\nassert total == 4\nassert heaviest([]) == 0", None),
    ],
)
def test_a_test_says_what_is_asked(task: str, shown: str, why: str | None) -> None:
    assert unworthy(candidate("solve", ANSWER, prompts.solve("python", task, "", [shown], []), test=shown)) == why


def test_two_cases_do_not_tell_a_long_answer() -> None:
    lines = "".join(f"        total += load[{i}] * {i} if len(load) > {i} else {i}\n" for i in range(6))
    long = f"def heaviest(loads):\n    total = 0\n    for load in loads:\n{lines}    return total"
    shown = "assert heaviest([[1, 2], [4]]) == 4\nassert heaviest([]) == 0"
    for task, test, why in [
        ("", shown, found.FEW_CASES),
        ("The heaviest load.", shown, None),
        ("", f"{shown}\nassert heaviest([[7]]) == 7", None),
    ]:
        asked = prompts.solve("python", task, "", [test], [])
        assert unworthy(candidate("solve", long, asked, test=test)) == why


def test_rows_that_only_their_author_knew() -> None:
    answer = "import sqlite3\ndb = sqlite3.connect(':memory:')\ndb.execute('CREATE TABLE t (a)')"
    answer += "\ndb.execute('INSERT INTO t VALUES (3), (4)')"
    test = "rows = list(db.execute('SELECT a FROM t'))\nassert rows[0] == (3,)\nassert len(rows) == 2"
    for task, why in [("", found.FIXTURE), ("Make a table t with the rows 3 and 4.", None)]:
        asked = prompts.solve("python", task, "", [test], [])
        assert (unworthy(candidate("solve", answer, asked, test=test)) == found.FIXTURE) is (why is not None)


def test_the_value_of_a_variable_says_nothing_of_how_it_is_made() -> None:
    answer = f"{ANSWER}\n\nkind = ['a', 'b'][heaviest([[1]])]"
    test = "assert kind == 'b'\nassert heaviest([]) == 0"
    asked = prompts.solve("python", "", "", [test], [])
    assert unworthy(candidate("solve", answer, asked, test=test)) == found.BARE_VARIABLE
    told = prompts.solve("python", "The kind of the heaviest load.", "", ["assert kind == 'b'"], [])
    assert unworthy(candidate("solve", answer, told, test="assert kind == 'b'")) is None


def test_a_test_whose_secret_was_replaced() -> None:
    test = "assert heaviest([[1]]) == 1\nassert '<SECRET:1>' not in str(heaviest([[1]]))"
    asked = prompts.solve("python", "The heaviest load.", "def heaviest(loads)", ["assert heaviest([[1]]) == 1"], [])
    assert unworthy(candidate("solve", ANSWER, asked, test=test)) == worth.REPLACED
    assert unworthy(candidate("solve", ANSWER, asked, test=test.replace("<SECRET:1>", "x"))) is None


@pytest.mark.parametrize(
    ("task", "signature", "why"),
    [
        ("", "def heaviest(loads)", None),
        ("", "def heaviest(loads)\ndef lightest(loads)", found.NOT_SHOWN),
        ("", "class Loads\n    def heaviest(self)", found.NOT_SHOWN),
        ("The heaviest load, and the lightest.", "def heaviest(loads)\ndef lightest(loads)", None),
    ],
)
def test_a_test_shows_what_is_to_be_defined(task: str, signature: str, why: str | None) -> None:
    shown = "assert heaviest([[1, 2], [4]]) == 4\nassert heaviest([]) == 0"
    asked = prompts.solve("python", task, signature, [shown], [])
    assert unworthy(candidate("solve", ANSWER, asked, test=shown)) == why


@pytest.mark.parametrize(
    ("task", "name", "why"),
    [
        ("", "task_func", found.NAMELESS),
        ("", "solution2", found.NAMELESS),
        ("The heaviest load.", "task_func", None),
        ("", "solve_loads", None),
        ("", "runs", None),
    ],
)
def test_a_name_that_anything_could_have_says_nothing(task: str, name: str, why: str | None) -> None:
    answer, shown = (
        text.replace("heaviest", name)
        for text in (ANSWER, "assert heaviest([[1, 2], [4]]) == 4\nassert heaviest([]) == 0")
    )
    asked = prompts.solve("python", task, f"def {name}(loads)", [shown], [])
    assert unworthy(candidate("solve", answer, asked, test=shown)) == why


def test_a_task_that_breaks_off_says_too_little() -> None:
    task, shown = (
        "Write a function for the weight of the heaviest of several loads. Parameters:",
        "assert heaviest([[4]]) == 4",
    )
    cut, tested, told = (
        candidate("solve", ANSWER, prompts.solve("python", text, "", tests, []), test=shown)
        for text, tests in ((task, []), (task, [shown]), (f"{task} loads", []))
    )
    assert [found.lacks_a_task(one) for one in (cut, tested, told)] == [found.BREAKS_OFF, None, None]


def test_javascript_that_nothing_judges_is_no_answer() -> None:
    answer = "const heaviest = (loads) => Math.max(...loads.map((load) => load.reduce((a, b) => a + b, 0)));"
    asked = prompts.solve("javascript", "Give the weight of the heaviest of several loads.", "", [], [])
    assert unworthy(candidate("solve", answer, asked, "javascript", test="")) == found.UNJUDGED
    assert unworthy(candidate("solve", answer, asked, "javascript", test="assert(heaviest([[4]]) === 4)")) is None
    shows = "console.log([1, 2, 3].map(Math.abs).filter(Number).length)"
    assert found.lacks_a_task(candidate("solve", shows, asked, "javascript", test="")) is None


def test_the_test_of_a_repair_reads_what_is_there() -> None:
    failing = ANSWER.replace("sum(load)", "sum(loads)")
    shown = "assert heaviest(several) == 4"
    asked = prompts.repair("python", "", failing, "TypeError: unsupported operand", [], prompts.Shown(test=shown))
    assert found.lacks_a_task(candidate("repair", ANSWER, asked, failing=failing)) == found.READS_UNTOLD
    told = asked.replace("several", "[[4]]")
    assert found.lacks_a_task(candidate("repair", ANSWER, told, failing=failing)) is None


def test_the_test_of_a_repair_reads_no_name_that_its_answer_alone_has() -> None:
    asked = prompts.repair("python", "", "print(len(json.dumps(record)))", "TypeError: not JSON serializable", [])
    fixed = "print(len(json.dumps(record, default=str)))\n{} = loads(data)"
    one = candidate("repair", fixed.format("back"), asked, failing="print(1)", test="assert back == record")
    assert found.reads_own_name(one) and unworthy(one) == found.OWN_NAME
    told = candidate("repair", fixed.format("record"), asked, failing="print(1)", test="assert record == back")
    assert not found.reads_own_name(told), "the prompt has the name, and of `back` the answer knows nothing either"

"""What outputs and tasks tell of an example: each class of faults with a sound neighbour."""

import pytest

from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.schema import Kind
from capibara_assets.datasets.worth import outputs, query_tasks
from capibara_assets_tests.datasets.worth.test_worth import candidate, unworthy

CHECKED = "def total(xs):\n    return sum(x for x in xs if x > 0)\ndef check():\n    assert total([1, -1]) == 1"
LOOP = "for x in [3, 1, 2]:\n    if x > 1:\n        print(x * 2)"


@pytest.mark.parametrize(
    ("code", "shown", "why"),
    [
        (
            "from sympy import symbols, solve\nx, y = symbols('x y')\nprint(solve(x*y - 1, x))",
            "[1/y]",
            outputs.SYMBOLIC,
        ),
        (
            "from sympy import Symbol, expand\nt = Symbol('t')\nprint(expand((t + 1)*(t + 2)))",
            "t**2 + 3*t + 2",
            outputs.SYMBOLIC,
        ),
        (
            "from sympy import symbols, solve\nx, y = symbols('x y')\nprint(solve((x - y, x + y - 2), (x, y)))",
            "{x: 1, y: 1}",
            None,
        ),
        (
            "from sympy import symbols, solve\nx = symbols('x')\nprint(solve(3*x**2 - 5*x + 1))",
            "[5/6 - sqrt(13)/6, sqrt(13)/6 + 5/6]",
            outputs.SYMBOLIC,
        ),
        (
            "import webbrowser\nwebbrowser.open('http://a.b')\nprint('It is open.')\nprint('Done.')",
            "It is open.\nDone.",
            outputs.PRINTS_TEXT,
        ),
        ("def f(n):\n    if n % 3 == 2:\n        return 'a'\n    return 'b'\nprint(f(sum([1, 2, 5])))", "a", None),
        (
            "import re\n\ndef f(s):\n    return re.sub('x', 'y', s.strip()).upper().lower()\nprint(f('a b'))",
            "a b",
            None,
        ),
        (LOOP, "6\n4", None),
        (f"# doubled: 6, then 14\n{LOOP.replace('2]', '7]')}", "6\n14", outputs.NOTED),
        (f"# what is True of 14\n{LOOP.replace('2]', '7]')}", "6\n14", None),
        ("# True where it is sorted\nprint(sorted('ab') == list('ab'))", "True", None),
        (f"{CHECKED}\ncheck()\nprint('ok')", "ok", outputs.PRINTS_TEXT),
        ("assert_allclose(total(x), 3)", "AssertionError: Not equal to tolerance rtol=1e-07 ACTUAL: 2", outputs.WORDED),
        ("assert total(x) == 3, total(x)", "AssertionError: 2", None),
        ("con.execute(query)", "OperationalError: no such function: CONCAT", outputs.VERSION),
        ("con.execute(query)", "OperationalError: no such function: POW", outputs.VERSION),
        ("con.execute(query)", "OperationalError: no such function: DATEDIFF", None),
        (f"{CHECKED}\ncheck()\nif __name__ == '__main__':\n    print('ok')", "ok", outputs.PRINTS_TEXT),
        (f"{CHECKED}\nprint('ok' if total([2]) > 1 else 'few')", "ok", None),
        (f"{CHECKED}\nif total([2]) > 1:\n    print('ok')\nelse:\n    print('few')", "ok", None),
        (f"{CHECKED}\ncheck()\nprint('ok', total([1, 2]))", "ok 3", None),
        (f"{CHECKED}\nfor w in total([1]) * 'x':\n    print('a')\nprint('b')\nprint('c')", "a\nb\nc", None),
    ],
)
def test_an_output_that_no_reader_of_the_code_can_tell_or_everyone_can(code: str, shown: str, why: str | None) -> None:
    asked = f"Predict the output of this Python code.\n\nCode:\n{code}"
    assert unworthy(candidate("predict", shown, asked)) == why


@pytest.mark.parametrize(
    ("comment", "why"),
    [("gold: seed cake and spelt bun", outputs.NOTED), ("gold: seed cake", None), ("labels without a sale", None)],
)
def test_a_comment_that_notes_the_rows_of_its_query(comment: str, why: str | None) -> None:
    query = "SELECT label FROM product p WHERE NOT EXISTS (SELECT 1 FROM sale s WHERE s.pid = p.pid) ORDER BY label;"
    asked = f"Predict the output of this SQL code.\n\nCode:\n/* {comment} */\n{query}"
    assert outputs.shows_too_little(candidate("predict", "  label\n0 seed cake\n1 spelt bun", asked, "sql")) == why


@pytest.mark.parametrize(
    ("code", "shown", "why"),
    [
        ("console.assert(f(2) === 4);\nconsole.log('ok');", "ok", outputs.PRINTS_TEXT),
        ("test(() => { console.log(`done`); });", "done", outputs.PRINTS_TEXT),
        ("const late = f => f(2);\nlate", "[Function: late]", outputs.DEFINES_ONLY),
        ("const late = f => [f];\nlate(late)", "[ [Function: late] ]", None),
        ("if (f(2) === 4) { console.log('ok'); } else { console.log('few'); }", "ok", None),
        ("console.log('ok', f(3));", "ok 9", None),
        ("console.log(`ok ${f(3)}`);", "ok 9", None),
        ("console.log('a'); g(() => console.log('b')); console.log('c');", "a\nc\nb", None),
    ],
)
def test_javascript_that_prints_a_text_whatever_happens(code: str, shown: str, why: str | None) -> None:
    square = "const f = (x) => x * x;\nconst g = (f) => setTimeout(f, 0);\nconst test = (f) => f();"
    asked = f"Predict the output of this JavaScript code.\n\nCode:\n{square}\n{code}"
    assert unworthy(candidate("predict", shown, asked, "javascript")) == why


TRIES = """def g(n):
    return [int(c) for c in n]
try:
    print(sum(g('12')))
except ValueError:
    print('No digits here')"""


@pytest.mark.parametrize(
    ("answer", "values", "why"),
    [
        (TRIES, {"proof": "No digits here"}, outputs.CAUGHT),
        (TRIES, {"proof": "3"}, None),
        (LOOP, {"proof": "[]"}, outputs.FOUND_NOTHING),
        (LOOP, {"proof": "[]", "test": "assert x == 2"}, None),
        ("a = abs(-3 / 3) + abs(3)\nprint(min(a, 9))", {"proof": "4.0"}, outputs.WRITTEN_OUT),
        ("from math import comb\nprint(comb(52, 5) - 4 * comb(13, 5))", {"proof": "2593812"}, None),
        (f"{LOOP}  # Expected: 6 and 4", {}, outputs.TOLD),
        (f"{LOOP}  # twice as much", {}, None),
    ],
)
def test_an_answer_without_a_test_is_told_by_what_it_showed(
    answer: str, values: dict[str, str], why: str | None
) -> None:
    assert unworthy(candidate("solve", answer, "Write Python code.\nHow many digits?", **values)) == why


@pytest.mark.parametrize(
    ("task", "failing", "answer", "why"),
    [
        (
            "Show the gains.",
            LOOP,
            f"try:\n{LOOP.replace('for', ' for')}\nexcept ValueError:\n    print(1)",
            outputs.CATCHES,
        ),
        ("Ignore invalid numbers.", LOOP, "try:\n    print(int('a'))\nexcept ValueError:\n    print(1)", None),
        ("Show the gains.", LOOP, LOOP.replace("1, 2", "1, 2, 5"), None),
        ("The time limit for this task is 50 minutes.", LOOP, LOOP.replace("1, 2", "1, 2, 5"), outputs.HARNESS),
    ],
)
def test_a_repair_that_only_catches_and_a_task_of_a_harness(
    task: str, failing: str, answer: str, why: str | None
) -> None:
    asked = f"Fix this Python code.\n{task}\n\nCode:\n{failing}\n\nError:\nValueError: no"
    assert unworthy(candidate("repair", answer, asked, failing=failing)) == why


def test_an_answer_that_reads_another_address_than_its_task_names() -> None:
    code = "import urllib.request\nfor line in urllib.request.urlopen('{}'):\n    if line:\n        print(line)"
    asked = "Write Python code.\nPrint the lines of https://a.example/x.csv."
    assert unworthy(candidate("solve", code.format("https://b.example/y.csv"), asked)) == outputs.OTHER_SOURCE
    assert unworthy(candidate("solve", code.format("https://a.example/x.csv"), asked)) is None


SCHEMA = """

Schema:
pets(id int, owner_id int, age int, weight double)
owners(id int, name text)
visits(id int, visit_date datetime)"""
JOIN = "SELECT o.name FROM owners o JOIN pets p ON p.owner_id = o.id"


@pytest.mark.parametrize(
    ("task", "query", "proof", "why"),
    [
        ("Who owns a pet?", JOIN, "[('Ada',), ('Ada',)]", outputs.REPEATED),
        ("Who owns a pet?", JOIN.replace("SELECT", "SELECT DISTINCT"), "[('Ada',), ('Eve',)]", None),
        ("Who owns a pet?", JOIN, "[('Ada',), ('Eve',)]", None),
        ("What is the name of each owner?", "SELECT name FROM owners ORDER BY name", "[('Ada',), ('Ada',)]", None),
        (
            "What weight do pets have on average?",
            "SELECT AVG(weight) FROM pets WHERE age = 3",
            "[(None,)]",
            outputs.NULLS,
        ),
        ("Which pet is the lightest?", "SELECT id FROM pets ORDER BY weight LIMIT 1", "[]", outputs.NO_ROW),
        ("Which pets are three?", "SELECT id FROM pets WHERE age = 3", "[]", None),
        ("How many pets are there?", "SELECT COUNT(*) FROM pets", "[(5,)]", query_tasks.BARE_COUNT),
        ("How many pets has each owner?", "SELECT owner_id, COUNT(*) FROM pets GROUP BY owner_id", "[(1, 5)]", None),
        (
            "What is the average date of visits?",
            "SELECT AVG(visit_date) FROM visits",
            "[(1.5,)]",
            query_tasks.AVERAGED_DATE,
        ),
        ("What is the average age of pets?", "SELECT AVG(age) FROM pets", "[(1.5,)]", None),
        (
            "Which pet is the youngest?",
            "SELECT id FROM pets WHERE age = (SELECT MAX(age) FROM pets)",
            "[(1,)]",
            query_tasks.OTHER_END,
        ),
        (
            "Which pet is the youngest?",
            "SELECT id FROM pets ORDER BY age DESC LIMIT 1",
            "[(1,)]",
            query_tasks.OTHER_END,
        ),
        ("Which pet is the youngest?", "SELECT id FROM pets ORDER BY age LIMIT 1", "[(1,)]", None),
        ("Which visit is the latest and which the oldest?", "SELECT MIN(visit_date) FROM visits", "[(1,)]", None),
    ],
)
def test_a_query_that_does_not_do_what_its_task_says(task: str, query: str, proof: str, why: str | None) -> None:
    assert unworthy(candidate("solve", query, f"Write SQL code.\n{task}{SCHEMA}", "sql", proof=proof)) == why


@pytest.mark.parametrize(
    ("kind", "query", "why"),
    [
        ("predict", "SELECT CASE WHEN COUNT(*) = 55 THEN 'ok' ELSE 'FAIL' END FROM t", query_tasks.CHECK),
        ("repair", "INSERT INTO check_totals SELECT COUNT(*) = 12 FROM t WHERE a > 3", query_tasks.CHECK),
        ("predict", "SELECT CASE WHEN a > 5 THEN 'pass' ELSE 'fail' END AS grade, b FROM t", None),
        ("predict", "SELECT CASE WHEN a > 5 THEN 'high' ELSE 'low' END AS level, b FROM t", None),
        ("predict", "INSERT INTO checks SELECT a FROM t; SELECT SUM(a), MAX(b) FROM checks", None),
        ("repair", "SELECT CASE WHEN tel = '7' THEN 'PASS' ELSE 'FAIL: ' || tel END AS r FROM t", query_tasks.CHECK),
        ("repair", "WITH want(a) AS (VALUES (1)) SELECT a FROM want EXCEPT SELECT a FROM t", query_tasks.CHECK),
        ("repair", "SELECT COUNT(*) = 12 FROM t WHERE a > 3", query_tasks.CHECK),
        ("repair", "SELECT a FROM t GROUP BY a HAVING COUNT(*) = 12", None),
        ("repair", "WITH wanted_pets AS (SELECT a FROM t) SELECT a FROM wanted_pets", None),
    ],
)
def test_a_check_of_another_query(kind: Kind, query: str, why: str | None) -> None:
    asked = f"Predict the output of this SQL code.\n\nCode:\n{query}"
    assert query_tasks.mismatched(candidate(kind, query, asked, "sql")) == why


@pytest.mark.parametrize(
    ("mended", "why"),
    [
        ("SELECT a FROM t ORDER BY a", query_tasks.UNCUT),
        ("SELECT a FROM t ORDER BY a LIMIT 5", None),
        ("SELECT a FROM (SELECT a, ROW_NUMBER() OVER (ORDER BY a) AS n FROM t) WHERE n <= 5", None),
    ],
)
def test_a_repair_still_cuts_off_rows(mended: str, why: str | None) -> None:
    asked = "Fix this SQL code.\n\nCode:\nSELECT TOP 5 a FROM t ORDER BY a\n\nError:\nOperationalError"
    assert query_tasks.mismatched(candidate("repair", mended, asked, "sql")) == why


@pytest.mark.parametrize(
    ("kind", "query", "why"),
    [
        ("solve", "SELECT a FROM t WHERE b > 3 LIMIT 1", query_tasks.ANY_ROWS),
        ("solve", "SELECT a FROM t WHERE b > 3 ORDER BY a LIMIT 1", None),
        ("solve", "SELECT a FROM t WHERE b = (SELECT MAX(b) FROM t LIMIT 1)", None),
        ("repair", "SELECT a FROM t WHERE b > 3 LIMIT 1", None),
    ],
)
def test_rows_that_are_cut_off_in_no_order(kind: Kind, query: str, why: str | None) -> None:
    assert query_tasks.mismatched(candidate(kind, query, "Write SQL code.\nThe a above three.", "sql")) == why


CODES = "SELECT name FROM sends WHERE {} ORDER BY name"
KINDS = "category(business_id, category_name, id)"
PER_KIND = "SELECT {0}, SUM(b.reviews) AS n FROM b JOIN category ON b.id = category.business_id GROUP BY {1}"


@pytest.mark.parametrize(
    ("task", "query", "why"),
    [
        ("Who sends, other than merchants?", CODES.format("sender_type = 0"), query_tasks.CODED),
        ("Who sends, other than merchants (type 1)?", CODES.format("sender_type <> 1"), None),
        ("Who sends, other than merchants?", CODES.format("sender_type = 'user'"), None),
        ("Who has a parcel to send?", CODES.format("has_parcel = 1"), None),
        ("How many reviews has each category?", PER_KIND.format("category.id", "category.id"), query_tasks.UNNAMED),
        ("How many reviews has each category, by id?", PER_KIND.format("category.id", "category.id"), None),
        ("How many reviews has each category?", PER_KIND.format("category_name", "category.id"), None),
        ("How many reviews has each category?", PER_KIND.format("category_name", "category_name"), None),
    ],
)
def test_codes_and_numbers_of_rows_that_nothing_tells(task: str, query: str, why: str | None) -> None:
    asked = f"Write SQL code.\n{task}\n\nSchema:\n{KINDS}"
    assert query_tasks.mismatched(candidate("solve", query, asked, "sql")) == why
    assert query_tasks.mismatched(candidate("repair", query, asked, "sql")) is None


def test_a_harness_that_only_says_that_something_failed() -> None:
    code = "class T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(f(2), 3)\nr = run(T)"
    asked = prompts.predict_error("python", f"{code}\nassert r.wasSuccessful()", [])
    assert unworthy(candidate("predict", "assert r.wasSuccessful()\nAssertionError", asked)) == outputs.WORDED
    direct = prompts.predict_error("python", "def f(x):\n    return [y for y in x if y][0]\nassert f([0, 3]) == 2", [])
    assert unworthy(candidate("predict", "assert f([0, 3]) == 2\nAssertionError", direct)) is None


@pytest.mark.parametrize(
    ("kind", "answer", "why"),
    [
        ("solve", "SELECT day FROM visits WHERE site <> NULL", outputs.FOUND_NOTHING),
        ("solve", "CREATE INDEX of_day ON visits (day)", None),
        ("repair", "SELECT day FROM visits WHERE site = 'x'", None),
    ],
)
def test_a_query_that_found_nothing_answers_nothing(kind: Kind, answer: str, why: str | None) -> None:
    asked = "Write SQL code.\nWhen was each known site visited?\n\nSchema:\nvisits(day, site)"
    one = candidate(kind, answer, asked, "sql", proof="Empty DataFrame\nColumns: [day]\nIndex: []", failing=answer)
    assert outputs.shows_too_little(one) == why

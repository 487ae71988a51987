"""Repairs that change more than their failure speaks of, each with a sound neighbour."""

from dataclasses import replace

import pytest

from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.worth.rewrites import ANEW, ELSE, WIDER, WRAPS, changes_others, selects_else, written_anew
from capibara_assets.executions.patterns.similarity import unified_diff
from capibara_assets_tests.datasets.worth.test_worth import candidate, unworthy

SHOP = """class Shop:
    def __init__(self, rows):
        self.rows = rows

    def price(self, n):
        return self.rows[n - 1]

    def total(self):
        return sum(self.rows) + 1

    def least(self):
        \"\"\"The cheapest.\"\"\"
        return min(self.rows)"""
ERROR = "assert shop.price(0) == 3\nin price: return self.rows[n - 1]\nAssertionError"


@pytest.mark.parametrize(
    ("edits", "why"),
    [
        ([("n - 1", "n")], None),
        ([("n - 1", "n"), ("sum(self.rows) + 1", "sum(self.rows)")], None),  # one other
        ([("n - 1", "n"), ("sum(self.rows) + 1", "sum(self.rows)"), ("min(self.rows)", "self.rows[0]")], WIDER),
        ([("n - 1", "n"), ("The cheapest.", "Least."), ("sum(self.rows) + 1", "sum(self.rows)")], None),  # a docstring
        ([("class Shop", "import math\nclass Shop"), ("n - 1", "n")], None),
    ],
)
def test_a_repair_changes_what_failed(edits: list[tuple[str, str]], why: str | None) -> None:
    fixed = SHOP
    for old, new in edits:
        fixed = fixed.replace(old, new)
    asked = prompts.repair("python", "", SHOP, ERROR, [])
    one = candidate("repair", fixed, asked, failing=SHOP, diff=unified_diff(SHOP, fixed))
    assert changes_others(one) == why
    made = candidate("repair", fixed, asked, failing=SHOP, diff=unified_diff(SHOP, fixed), derived="bug:constant")
    assert changes_others(made) is None


@pytest.mark.parametrize(
    ("language", "failing", "fixed", "why"),
    [
        (
            "javascript",
            "let a = read(b);\nlet c = a + d + a;\nshow(c, a);",
            "let a = read(b);\nlet c = d;\nshow(c);",
            None,
        ),
        # one line, all of which changes, in one place or two
        ("python", "df.append(row)", "pd.concat([df, row])", None),
        ("sql", "SELECT TOP 1 name FROM boats", "SELECT name FROM boats LIMIT 1", None),
        # more than a quarter, in four places
        (
            "sql",
            "SELECT name, DATEADD(month, -3, day) FROM trips WHERE kind = 'May'",
            "SELECT name, date(day, '-3 months') AS start FROM trips WHERE LOWER(kind) LIKE '%may%' ORDER BY name",
            ANEW,
        ),
        # seven places of long code
        *(
            (
                "python",
                "\n".join(f"first{i} = second{i} * {i} + third{i} - fourth{i}" for i in range(20)),
                "\n".join(f"first{i} = second{i} * {i + (i < n)} + third{i} - fourth{i}" for i in range(20)),
                why,
            )
            for n, why in ((6, None), (7, ANEW))
        ),
    ],
)
def test_a_repair_is_not_written_anew(language: str, failing: str, fixed: str, why: str | None) -> None:
    asked = prompts.repair(language, "", failing, "Error: a is not defined", [])
    one = candidate("repair", fixed, asked, language, failing=failing, diff=unified_diff(failing, fixed))
    assert written_anew(one) == why
    assert written_anew(replace(one, derived="bug:constant")) is None


@pytest.mark.parametrize(
    ("task", "failing", "fixed", "why"),
    [
        ("", "SELECT name, kind FROM boat", "SELECT name, kind FROM boats", None),
        ("", "SELECT name, kind FROM boat", "SELECT name FROM boats", ELSE),
        ("", "SELECT name FROM boat", "SELECT name FROM boats LIMIT 5", ELSE),
        ("", "SELECT TOP 5 name FROM boats", "SELECT name FROM boats LIMIT 5", None),
        ("", "SELECT name, kind FROM boat", "SELECT * FROM (SELECT name, kind, RANK() OVER () AS r FROM boats)", ELSE),
        ("", "SELECT * FROM boat", "SELECT * FROM boats", None),
        ("Which boats are there?", "SELECT name, kind FROM boat", "SELECT name FROM boats", None),  # a task tells it
        ("Which boats are there?", "SELECT name FROM boat", "SELECT name FROM boats LIMIT 5", ELSE),
        (
            "The last of each kind.",
            "SELECT kind, last(name) FROM boats GROUP BY kind",
            "SELECT kind, last_value(name) OVER (PARTITION BY kind ORDER BY age) FROM boats",
            ELSE,
        ),
        (
            "The last of each kind.",
            "SELECT kind, last(name) FROM boats GROUP BY kind",
            "SELECT DISTINCT kind, last_value(name) OVER (PARTITION BY kind) FROM boats",
            None,
        ),
    ],
)
def test_a_repair_of_a_query_asks_for_the_same(task: str, failing: str, fixed: str, why: str | None) -> None:
    asked = prompts.repair("sql", task, failing, "OperationalError: no such table: boat", [])
    assert selects_else(candidate("repair", fixed, asked, "sql", failing=failing)) == why
    assert selects_else(candidate("repair", fixed, asked, "sql", failing=failing, derived="bug:wrong_table")) is None


@pytest.mark.parametrize(
    ("failing", "fixed", "why"),
    [
        ("SELECT kind FROM boats WHERE COUNT(*) > 2", "SELECT kind FROM boats GROUP BY kind HAVING COUNT(*) > 2", None),
        ("SELECT kind FROM boat GROUP BY kind", "SELECT kind FROM boats GROUP BY kind HAVING SUM(big) > 0", ELSE),
        ("SELECT kind FROM boats WHERE age > AVG(age) GROUP BY kind", "SELECT kind FROM boats WHERE age > 3", ELSE),
        ("SELECT kind, age FROM boat", "SELECT kind FROM boats", ELSE),
        ("np.where(boat > 1)", "np.nonzero(boats > 1)", None),
    ],
)
def test_the_end_of_an_error_adds_no_clause_and_takes_none_out(failing: str, fixed: str, why: str | None) -> None:
    asked = prompts.repair("sql", "Which boats?", failing, "OperationalError: no such", [], only_error=True)
    assert selects_else(candidate("repair", fixed, asked, "sql", failing=failing)) == why


def test_an_answer_that_wraps_the_former_version_mends_nothing() -> None:
    task = "Write Python code.\nWrite `day(text)`, which reads a day from a text in one of three forms."
    body = "def day(text):\n    found = {}(text.strip())\n    return None if found == 'None' else found"
    assert unworthy(candidate("solve", f"_former = day\n{body.format('_former')}", task)) == WRAPS
    assert unworthy(candidate("solve", f"parse = read\n{body.format('parse')}", task)) is None

"""Cells that were not the last word of their session."""

import pytest

from capibara_assets.datasets.code.sessions import sessions
from capibara_assets.datasets.code.superseded import asked, asked_otherwise, refuted, superseded
from capibara_assets_tests.datasets.conftest import frame, run


def test_a_later_version_for_the_same_task_supersedes() -> None:
    older, newer = "def f(x):\n    return x", "def f(x):\n    return abs(x)"
    cells = [("a", older, "one"), ("b", older, "two"), ("c", newer, "one"), ("d", "def g(): pass", "one")]
    rows = [run(name, code, minute=i, task=task) for i, (name, code, task) in enumerate(cells)]
    [session] = sessions(frame(rows)).values()
    assert superseded(session) == {"a"}


def test_without_a_task_what_is_defined_otherwise_later_is_superseded() -> None:
    older, newer, check = "def f(x):\n    return x", "def f(x):\n    return abs(x)", "def check_f():\n    return {}"
    cells = [("a", older, None), ("b", check.format(1), None), ("c", newer, None), ("d", check.format(2), None)]
    cells += [("e", f"{newer}\n\ndef g(x):\n    return 1", None), ("h", "def g(x):\n    return 2", "another")]
    rows = [run(name, code, minute=i, task=task) for i, (name, code, task) in enumerate(cells)]
    [session] = sessions(frame(rows)).values()
    assert superseded(session) == {"a", "e"}
    assert superseded(session[1:4]) == set(), "checks of several cells, and the same again"


def test_what_a_later_assertion_needed_that_did_not_hold_is_refuted() -> None:
    def rows(name: str) -> list[str]:
        failed = {"outcome": "error", "error_name": name, "error_value": "", "traceback": ""}
        cells = [
            run("a", "def f(x):\n    return x"),
            run("b", "def g(x):\n    return 1", minute=1),
            run("c", "n = 1", minute=2),
        ]
        [session] = sessions(frame([*cells, run("d", "assert f(n) == 2", minute=3, **failed)])).values()
        return sorted(refuted(session))

    assert rows("AssertionError") == ["a"]
    assert rows("TypeError") == []


@pytest.mark.parametrize(
    ("language", "code", "check", "error"),
    [
        ("python", "f = lambda x: x", "assert f(1) == 2", "AssertionError"),
        ("python", "def f(x):\n    return x", "if f(1) != 2:\n    raise ValueError(f(1))", "ValueError"),
        ("javascript", "const f = x => x;", "const y = f(1); if (y !== 2) throw new Error(`${y}`);", "Error"),
    ],
)
def test_a_check_that_was_wrong_itself_refutes_nothing(language: str, code: str, check: str, error: str) -> None:
    failed = {"outcome": "error", "error_name": error, "error_value": "", "traceback": ""}
    cells = [run("a", code, language=language), run("b", check, minute=1, language=language, **failed)]
    wrong = run("c", check.replace("2", "1"), minute=2, language=language)
    other = run("c", "f(3)", minute=2, language=language)
    found = [
        refuted(session) for rows in ([*cells, other], [*cells, wrong]) for session in sessions(frame(rows)).values()
    ]
    assert found == [{"a"}, set()]


JOINED = "SELECT w.code, COUNT(*) AS boxes FROM stores w LEFT JOIN boxes b ON b.store = w.code GROUP BY w.code"
HEAD = "   code  boxes\n0     1      3\n1     2      {}"


@pytest.mark.parametrize(
    ("later", "shown", "task", "found"),
    [
        (JOINED.replace("COUNT(*)", "COUNT(b.code)"), HEAD.format(0), "Boxes of each store.", {"a"}),
        (JOINED.replace("AS boxes", "AS n"), HEAD.format(1).replace("boxes", "    n"), "Boxes of each store.", set()),
        (JOINED.replace("COUNT(*)", "MAX(b.value)"), HEAD.format(9), "The best box of each.", set()),
        # the task is asked in parts, or one of them only looks
        ("SELECT MAX(value) FROM boxes", "   MAX(value)\n0   9", "Boxes of each store.", {"a", "b"}),
        (
            "CREATE VIEW v AS SELECT value FROM boxes; SELECT * FROM v",
            "  value\n0   9",
            "Boxes of each store.",
            {"a", "b"},
        ),
        ("SELECT MAX(value) FROM boxes", "   MAX(value)\n0   9", "The best box.", set()),
    ],
)
def test_a_query_that_is_asked_otherwise_and_answered_otherwise(
    later: str, shown: str, task: str, found: set[str]
) -> None:
    sql = {"language": "sql", "domains": ["sql"]}
    first = run("a", JOINED, task="Boxes of each store.", result_text=HEAD.format(1), **sql)
    last = run("b", later, minute=1, task=task, result_text=shown, **sql)
    [session] = sessions(frame([first, last])).values()
    assert asked_otherwise(session) == found
    stated = first.model_copy(update={"code": f"-- Boxes of each store\n{JOINED}"})
    [session] = sessions(frame([stated, last])).values()
    assert asked_otherwise(session) == set(), "it says itself what it is for"


PAID = "-- share of paid bills per shop\nSELECT shop, SUM(paid) / COUNT(*) AS share FROM bills GROUP BY shop"
WHOLE = ("-- both are whole numbers, the division drops the rest\n", "  shop  share\n0  a  0.5")
BETTER = "SELECT shop, 1.0 * SUM(paid) / COUNT(*) AS share FROM bills GROUP BY shop"
OTHER = (
    "SELECT b.shop, AVG(b.paid) FROM bills b JOIN shops s ON s.name = b.shop WHERE s.open AND b.amount > 0 GROUP BY 1"
)


@pytest.mark.parametrize(
    ("later", "answer", "former"),
    [
        (f"{WHOLE[0]}{BETTER}", "b", {"a"}),
        (BETTER, "b", {"a"}),
        (f"-- share of paid bills per shop (as a fraction)\n{OTHER}", "b", {"a"}),
        (f"{WHOLE[0]}{OTHER}", None, {"a"}),  # the author was not content; what it answers is not known
        (OTHER, "a", set()),
        (f"-- unpaid bills per shop\n{BETTER}", "a", set()),
        (f"-- median amount\n{BETTER}", None, {"a"}),  # whether it asks or remarks is not known
        (f"-- median amount\n{OTHER}", "a", set()),
        (f"-- share (as a number) of paid bills per shop\n{OTHER}", "b", {"a"}),
        (f"-- and the share over the last month\n{BETTER}", "a", set()),  # asks for more
        ("INSERT INTO bills VALUES ('a', 1, 3)", "a", set()),
    ],
)
def test_the_answer_of_a_question_above_a_query(later: str, answer: str | None, former: set[str]) -> None:
    sql = {"language": "sql", "domains": ["sql"]}
    first = run("a", PAID, result_text="  shop  share\n0  a  0", **sql)
    last = run("b", later, minute=1, result_text=WHOLE[1], **sql)
    [session] = sessions(frame([first, last])).values()
    one = asked(session)[0]
    assert one.question == "share of paid bills per shop"
    assert (one.answer["execution_id"] if one.answer else None) == answer
    assert asked_otherwise(session) == former


def test_a_failed_query_states_the_question_too() -> None:
    sql = {"language": "sql", "domains": ["sql"]}
    failed = {"outcome": "error", "error_name": "OperationalError", "error_value": "no such function", "traceback": ""}
    cells = [run("a", PAID, **sql, **failed), run("b", BETTER, minute=1, result_text=WHOLE[1], **sql)]
    [session] = sessions(frame(cells)).values()
    assert [(one.question, one.answer["execution_id"]) for one in asked(session) if one.answer] == [
        ("share of paid bills per shop", "b")
    ]
    assert not asked([{**row, "task": "Bills."} for row in session]), "recorded tasks say more"


def test_a_helper_that_a_later_check_needs_too_does_not_save_what_was_refuted() -> None:
    first = "const slow = v => Promise.resolve(v);\nfunction latest(fn) {\n  return fn;\n}"
    check = "const f = latest(slow);\nconst got = await f(1);\nassert.equal(got, {});"
    failed = {"outcome": "error", "error_name": "AssertionError", "error_value": "", "traceback": ""}
    cells = [
        run("a", first, language="javascript"),
        run("b", check.replace("{}", "2"), minute=1, language="javascript", **failed),
        run("c", "function latest(fn) {\n  return async v => 2 * await fn(v);\n}", minute=2, language="javascript"),
        run("d", check.replace("{}", "2").replace("f", "g"), minute=3, language="javascript"),
    ]
    [session] = sessions(frame(cells)).values()
    assert refuted(session) == {"a"}


def test_each_version_that_a_later_check_refuted_is() -> None:
    """The first names its task and more; each version is checked in a cell of its own."""
    made = "async function again(fn, times) {{\n  for (let i = 1; i <= times; i++) {{\n    {}\n  }}\n}}"
    check = "const got{0} = await again(flaky(3), 4);\nassert.equal(got{0}, 3);"
    failed = {"outcome": "error", "error_name": "AssertionError", "error_value": "", "traceback": ""}
    versions = ["return fn(i);", "try { return fn(i); } catch {}", "try { return await fn(i); } catch {}"]
    cells = []
    for n, version in enumerate(versions):
        head = "const flaky = n => async i => i;\n" if not n else ""
        cells.append(run(f"v{n}", f"{head}{made.format(version)}", minute=2 * n, language="javascript"))
        ended = failed if n < 2 else {}
        cells.append(run(f"c{n}", check.format(n), minute=2 * n + 1, language="javascript", **ended))
    [session] = sessions(frame(cells)).values()
    assert refuted(session) == {"v0", "v1"}


def test_a_query_below_a_remark_takes_the_place_of_one_that_shows_the_same() -> None:
    sql = {"language": "sql", "domains": ["sql"]}
    shown = WHOLE[1]
    cells = [
        run("a", PAID, result_text=shown, **sql),
        run("check", f"-- check against gold: rows that differ\nWITH p AS ({BETTER}) SELECT * FROM p EXCEPT SELECT 1",
            minute=1, result_text=shown, **sql),
        run("b", f"-- the rest is dropped -> 1.0 *\n{BETTER}", minute=2, result_text=shown, **sql),
    ]  # fmt: skip
    [session] = sessions(frame(cells)).values()
    (one,) = asked(session)
    assert one.answer is not None and one.answer["execution_id"] == "b"
    assert asked_otherwise(session) == {"a"}

"""Repair pairs: the rules one by one, and the real pairs against their labels."""

import itertools
from pathlib import Path

import polars as pl
import pytest

from benchmarks.experience.measure import repair_scores
from capibara_assets.domains import DOMAINS
from capibara_assets.executions.ingest.ingest import Ingest, read_experience
from capibara_assets.executions.patterns.repairs import find_repairs
from capibara_assets.executions.schema import RepairPair
from capibara_assets.executions.selection import of_domain
from capibara_assets.storage.records import problems
from capibara_assets_tests.executions.conftest import NOW, envelope, executed, labels_of, line

ASSERTION = ("AssertionError", "", "Traceback")
GOOD = "def area(r):\n    return 3.14 * r * r\nassert area(1) == 3.14"
BAD = GOOD.replace("r * r", "r + r")
WORSE = GOOD.replace("3.14 * r * r", "r ** 3 - 1")


def pairs(
    tmp_path: Path, *steps: tuple[str, tuple[str, str, str] | str | None], **changes: str
) -> list[tuple[int, int]]:
    """Steps (code, error or printed text) of one session -> (failing, fixed) step numbers."""
    with (tmp_path / "log.jsonl").open("wb") as log:
        for number, (code, ended) in enumerate(steps):
            execution = executed(error=ended) if isinstance(ended, tuple) else executed(stdout=ended or "")
            moment = f"2026-10-05T00:00:{number:02}Z"
            log.write(
                line(envelope(code, execution_id=str(number), timestamp=moment, execution=execution, **changes)) + b"\n"
            )
    found = find_repairs(read_experience(tmp_path, now=NOW).executions)
    return sorted((int(a), int(b)) for a, b in found.select("failing_execution_id", "fixed_execution_id").iter_rows())


def test_real_pairs_are_found_and_no_others(shared_data: Path, real: Ingest) -> None:
    scores = repair_scores(find_repairs(real.executions), labels_of(real, shared_data), real.executions)
    print(scores)
    assert scores.labelled == {30: 1058, 10: 344}[real.summary["logs"]]
    assert min(scores.precision, scores.labelled_precision) >= 0.98
    assert min(scores.recall, scores.labelled_recall) >= 0.92


def test_pairs_do_not_depend_on_the_order_of_rows_and_fit_their_schema(real: Ingest) -> None:
    some = real.executions.filter(pl.col("sandbox_id") < "i4")
    found = find_repairs(some)
    assert found.height > 40
    assert problems(RepairPair, found) == []
    assert find_repairs(some.sample(fraction=1, shuffle=True, seed=3)).equals(found)


def test_a_domains_pairs_are_the_pairs_of_that_domain(real: Ingest) -> None:
    some = real.executions.filter(pl.col("sandbox_id") > "is")
    everything = find_repairs(some)
    for domain in DOMAINS:
        own = find_repairs(of_domain(some, domain))
        assert own.equals(of_domain(everything, domain))


def test_a_failure_and_its_mending_are_a_pair(tmp_path: Path) -> None:
    assert pairs(tmp_path, (BAD, ASSERTION), (GOOD, None), ("print(area(2))", "12.56\n")) == [(0, 1)]


def test_the_pair_says_what_changed(tmp_path: Path) -> None:
    assert pairs(tmp_path, (BAD, ASSERTION), (GOOD, None)) == [(0, 1)]
    (row,) = find_repairs(read_experience(tmp_path, now=NOW).executions).iter_rows(named=True)
    assert (row["domains"], row["error_name"], row["distance"]) == (["python", "debug"], "AssertionError", 1)
    assert "-    return 3.14 * r + r\n+    return 3.14 * r * r\n" in row["diff"]
    assert 0.9 < row["similarity"] < 1


def test_of_several_failures_the_last_is_paired(tmp_path: Path) -> None:
    assert pairs(tmp_path, (WORSE, ASSERTION), (BAD, ASSERTION), (GOOD, None)) == [(1, 2)]


def test_running_the_same_code_again_repairs_nothing(tmp_path: Path) -> None:
    use = "total = area(3) + area(4)\nprint(total)"
    missing = ("NameError", "name 'area' is not defined", "Traceback")
    assert pairs(tmp_path, (use, missing), (GOOD, None), (use, "78.5\n")) == []
    again = use.replace("print(total)", "print(round(total))")
    assert pairs(tmp_path, (use, missing), (GOOD, None), (again, "78\n")) == []


def test_a_missing_import_is_a_repair(tmp_path: Path) -> None:
    code = "def root(x):\n    return math.sqrt(x)\nassert root(4) == 2"
    missing = ("NameError", "name 'math' is not defined", "Traceback")
    assert pairs(tmp_path, (code, missing), ("import math\n" + code, None)) == [(0, 1)]


def test_a_success_on_something_else_is_no_repair(tmp_path: Path) -> None:
    other = "def volume(r):\n    return 4.19 * r * r * r\nassert volume(1) == 4.19"
    assert pairs(tmp_path, (BAD, ASSERTION), (other, None), ("print(1)", "1\n")) == []


def test_a_task_that_holds_for_a_whole_session_makes_no_pairs(tmp_path: Path) -> None:
    steps = (
        ("frame.groupby('a').mean()", ("KeyError", "'a'", "Traceback")),
        ("frame.head(3)", "..."),
        ("frame.tail()", "."),
    )
    assert pairs(tmp_path, *steps, task="Explore the table.") == []


def test_a_similar_cell_for_the_same_task_is_a_repair(tmp_path: Path) -> None:
    steps = (("total = sum(row['prize'] for row in rows)", ("KeyError", "'prize'", "Traceback")),
             ("prices = [row['price'] for row in rows]\ntotal = sum(prices)", None))  # fmt: skip
    assert pairs(tmp_path, *steps, task="Add up the prices.") == [(0, 1)]
    assert pairs(tmp_path, *steps) == []


def test_the_final_form_of_a_session_is_paired(tmp_path: Path) -> None:
    question = "-- How large is the share of good places?\n"
    failing = question + "SELECT count(*)::float / total FROM place"
    casting, final = (question + f"SELECT CAST(count(*) AS {kind}) / total FROM place" for kind in ("FLOAT", "REAL"))
    error = ("OperationalError", 'unrecognized token: ":"', "Traceback")
    steps = ((failing, error), (casting, "0.5"), (final, "0.5"))
    assert pairs(tmp_path, *steps, language="sql") == [(0, 2)]
    assert pairs(tmp_path, *steps[:2], (final, "0.7"), language="sql") == [(0, 1)]


def test_a_failed_console_assert_can_be_repaired(tmp_path: Path) -> None:
    good = "const twice = (x) => x * 2\nconsole.assert(twice(3) === 6)"
    records = [
        envelope(
            good.replace("* 2", "+ 2"),
            execution_id="a",
            language="javascript",
            execution=executed(stderr="Assertion failed\n"),
        ),
        envelope(good, execution_id="b", language="javascript", timestamp="2026-10-06T00:00:00Z"),
    ]
    (tmp_path / "log.jsonl").write_bytes(b"".join(line(record) + b"\n" for record in records))
    assert find_repairs(read_experience(tmp_path, now=NOW).executions)["domains"].to_list() == [["javascript", "debug"]]


@pytest.mark.parametrize("name", ["sandbox_id", "context_id"])
def test_state_belongs_to_sandbox_and_context(tmp_path: Path, name: str) -> None:
    records = [
        envelope(BAD, execution_id="a", execution=executed(error=ASSERTION), **{name: "one"}),
        envelope(GOOD, execution_id="b", timestamp="2026-10-06T00:00:00Z", **{name: "two"}),
    ]
    (tmp_path / "log.jsonl").write_bytes(b"".join(line(record) + b"\n" for record in records))
    assert find_repairs(read_experience(tmp_path, now=NOW).executions).is_empty()


def test_a_timeout_can_be_repaired(tmp_path: Path) -> None:
    slow = "def drain(n):\n    while n > 0:\n        n += 1\n    return n\nassert drain(5) == 0"
    exception = {"name": "TimeoutException", "message": "deadline"}
    records = [
        envelope(slow, execution_id="a", execution=None, exception=exception),
        envelope(slow.replace("+= 1", "-= 1"), execution_id="b", timestamp="2026-10-06T00:00:00Z"),
    ]
    (tmp_path / "log.jsonl").write_bytes(b"".join(line(record) + b"\n" for record in records))
    found = find_repairs(read_experience(tmp_path, now=NOW).executions)
    assert found["error_name"].to_list() == ["TimeoutException"]


def test_every_interleaving_of_two_chains_gives_both_pairs(tmp_path: Path) -> None:
    other = "def name(x):\n    return x.title()\nassert name('ab') == 'Ab'"
    first = [(BAD, ASSERTION), (GOOD, None)]
    second = [(other.replace("title", "upper"), ASSERTION), (other, None)]
    for places in itertools.combinations(range(4), 2):
        one, two = iter(first), iter(second)
        steps = [next(one) if i in places else next(two) for i in range(4)]
        rest = [i for i in range(4) if i not in places]
        assert pairs(tmp_path, *steps) == sorted([(places[0], places[1]), (rest[0], rest[1])]), steps


def error_of(code: str) -> str:
    return "AssertionError" if "assert" in code else "TypeError"


def session_of(*steps: tuple[str, str, str], shown: dict[int, str] | None = None) -> pl.DataFrame:
    """(language, code, outcome) of each execution of one session, as the executions table has them, and its output."""
    rows = [
        {"execution_id": f"{n}", "sandbox_id": "s", "context_id": None, "timestamp": n, "language": language,
         "code": code, "outcome": outcome, "flags": [], "domains": ["python"], "task": "Mend it.",
         "stdout": (shown or {}).get(n, ""), "stderr": "", "result_text": None, "error_value": None, "traceback": None,
         "error_name": error_of(code) if outcome == "error" else None}
        for n, (language, code, outcome) in enumerate(steps)
    ]  # fmt: skip
    texts = dict.fromkeys(("error_name", "result_text"), pl.String())
    return pl.DataFrame(rows, schema_overrides={"flags": pl.List(pl.String), **texts})


def test_a_command_that_is_run_again_was_mended_by_what_stands_between() -> None:
    found = find_repairs(
        session_of(
            ("bash", "cd /app && pytest -q 2>&1", "error"),
            ("bash", "pytest -q", "error"),
            ("patch", "a.py\n-1\n+2", "unknown"),
            ("bash", "ls", "ok"),
            ("bash", "pytest -q", "unknown"),  # `pytest -q | tail` would be: what it printed shows no failure
        )
    )
    assert sorted(found.select("failing_execution_id", "fixed_execution_id").rows()) == [("0", "4"), ("1", "4")]
    assert found.filter(failing_execution_id="1")["diff"].item() == "a.py\n-1\n+2\nls"
    assert problems(RepairPair, found) == []


def test_a_program_that_is_run_again_unchanged_is_no_repair() -> None:
    assert find_repairs(session_of(("python", "f(1, 2, 3)", "error"), ("python", "f(1, 2, 3)", "ok"))).is_empty()


def test_what_is_not_known_is_neither_failure_nor_repair() -> None:
    assert find_repairs(session_of(("python", BAD, "unknown"), ("python", GOOD, "ok"))).is_empty()
    assert find_repairs(session_of(("python", BAD, "error"), ("python", GOOD, "unknown"))).is_empty()
    pair = find_repairs(session_of(("python", BAD, "error"), ("python", WORSE, "unknown"), ("python", GOOD, "ok")))
    assert pair["fixed_execution_id"].to_list() == ["2"]


def test_where_attempts_were_judged_every_failure_has_the_next_that_solves_the_task() -> None:
    steps = [("sql", "SELECT a FROM b", "error"), ("sql", "SHOW TABLES", "ok"), ("sql", "SELECT c FROM", "error")]
    session = session_of(*steps, ("sql", "SELECT 1", "ok"), ("sql", "SELECT", "error"))
    flags = pl.when(pl.col("execution_id") == "3").then(pl.lit(["solves_task"])).otherwise(pl.col("flags"))
    found = find_repairs(session.with_columns(flags=flags))
    assert sorted(found.select("failing_execution_id", "fixed_execution_id").rows()) == [("0", "3"), ("2", "3")]


WRONG, RIGHT = "def area(r):\n    return 3 * r + r", "def area(r):\n    return 3 * r * r"
TEST = "assert area(2) == 12\nassert area(0) == 0"


def test_a_definition_that_a_later_cells_test_refuted_was_mended_by_the_next() -> None:
    found = find_repairs(
        session_of(
            ("python", WRONG, "ok"),
            ("python", TEST, "error"),
            ("python", "scale = 2", "ok"),
            ("python", RIGHT, "ok"),
            ("python", TEST, "ok"),
        )
    )
    (pair,) = found.iter_rows(named=True)
    assert (pair["failing_execution_id"], pair["fixed_execution_id"]) == ("1", "3")
    assert (pair["failing_code"], pair["fixed_code"]) == (f"{WRONG}\n\n{TEST}", f"{RIGHT}\n\n{TEST}")
    assert "-    return 3 * r + r\n+    return 3 * r * r" in pair["diff"] and problems(RepairPair, found) == []


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([(WRONG, "ok"), (TEST, "error"), (RIGHT, "ok")], []),  # nothing shows that it is right
        ([(WRONG, "ok"), (TEST, "error"), (WRONG, "ok"), (TEST, "ok")], []),
        ([(WRONG, "ok"), (TEST, "error"), (RIGHT.replace("area", "size"), "ok"), (TEST, "ok")], []),
        ([(TEST, "error"), (RIGHT, "ok"), (TEST, "ok")], []),  # run before what it tests
        ([(f"{WRONG}\ndef side(r):\n    return r", "ok"), (TEST, "error"), (RIGHT, "ok"), (TEST, "ok")], [("1", "2")]),
        ([(WRONG, "ok"), (TEST, "error"), ("def area(r):\n    return r", "ok"), (TEST, "error"), (RIGHT, "ok"),
          (TEST, "ok")], [("3", "4")]),
        ([(WRONG, "ok"), (TEST, "error"), ("def area(r):\n    return r", "ok"), (RIGHT, "ok"), (TEST, "ok")],
         [("1", "3")]),
        ([(WRONG, "ok"), (TEST, "error"), (f"{RIGHT}\ndef side(r):\n    return r", "ok"), (TEST, "ok")], [("1", "2")]),
        ([(WRONG, "ok"), (TEST, "error"), (TEST.replace("12", "8"), "ok")], [("1", "2")]),  # the test was wrong
    ],
)  # fmt: skip
def test_what_a_later_test_tells_of_definitions(steps: list[tuple[str, str]], expected: list[tuple[str, str]]) -> None:
    found = find_repairs(session_of(*(("python", code, outcome) for code, outcome in steps)))
    assert sorted(found.select("failing_execution_id", "fixed_execution_id").rows()) == expected


RESULT, CHECK = "result = [3, 1, 2]", "for i in range(2):\n    assert result[i] < result[i + 1], i"


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([(RESULT, "ok"), (CHECK, "error"), ("result = sorted([3, 1, 2])", "ok"), (CHECK, "ok")], [("1", "2")]),
        ([(RESULT, "ok"), (CHECK, "error"), ("print(result)", "ok"), ("result = [1, 2, 3]", "ok"), (CHECK, "ok")],
         [("1", "3")]),
        ([(RESULT, "ok"), (CHECK, "error"), (RESULT, "ok"), (CHECK, "ok")], []),
        ([(RESULT, "ok"), (CHECK, "error"), ("other = 1", "ok"), (CHECK, "ok")], []),
        ([(RESULT, "ok"), ("result[9]()", "error"), ("result = ask(1)", "ok"), ("result[9]()", "ok")], []),
        ([(RESULT, "ok"), (CHECK, "error"), ("rows = 1", "ok"), ("result = [1]", "ok"), (CHECK, "ok")], []),
    ],
)  # fmt: skip
def test_a_later_test_of_a_value(steps: list[tuple[str, str]], expected: list[tuple[str, str]]) -> None:
    found = find_repairs(session_of(*(("python", code, outcome) for code, outcome in steps)))
    assert sorted(found.select("failing_execution_id", "fixed_execution_id").rows()) == expected


def test_of_what_is_defined_anew_in_part_the_pair_holds_that_part() -> None:
    whole = f"import math\n\n{WRONG}\n\ndef side(r):\n    return r\n"
    steps = [(whole, "ok"), (TEST, "error"), (RIGHT, "ok"), (TEST, "ok")]
    (pair,) = find_repairs(session_of(*(("python", *step) for step in steps))).iter_rows(named=True)
    assert (pair["failing_code"], pair["fixed_code"]) == (f"{WRONG}\n\n{TEST}", f"{RIGHT}\n\n{TEST}")


def test_what_a_test_of_an_earlier_cell_tests() -> None:
    defines = f"def test_area():\n    {TEST.splitlines()[0]}"
    steps = [(WRONG, "ok"), (defines, "ok"), ("test_area()", "error"), (RIGHT, "ok"), ("test_area()", "ok")]
    (pair,) = find_repairs(session_of(*(("python", *step) for step in steps))).iter_rows(named=True)
    assert (pair["failing_execution_id"], pair["fixed_execution_id"]) == ("2", "3")


def test_a_test_that_passes_in_the_cell_that_defines_anew_what_it_tests() -> None:
    whole = f"{RIGHT}\n\n{TEST}"
    steps = [("python", WRONG, "ok"), ("python", TEST, "error"), ("python", whole, "ok")]
    (pair,) = find_repairs(session_of(*steps)).iter_rows(named=True)
    assert (pair["failing_execution_id"], pair["fixed_execution_id"]) == ("1", "2")
    assert (pair["failing_code"], pair["fixed_code"]) == (f"{WRONG}\n\n{TEST}", whole)
    other = whole.replace("area", "size")
    assert find_repairs(session_of(*steps[:2], ("python", other, "ok"))).is_empty()


CALLS = "print('PASS' if area(2) == 12 else 'FAIL: area(2)')"


@pytest.mark.parametrize(
    ("mended", "before", "after", "found"),
    [
        (RIGHT, "FAIL: area(2)\n", "PASS\n", True),
        (RIGHT, "[true, false]", "[true, true]", True),
        (RIGHT, "expected 12, got 8", "ok", True),
        (RIGHT, "FAIL: area(2)\n", "FAIL: area(2), area(0)\n", False),
        (RIGHT, "8\n", "12\n", False),  # nothing says that the first was wrong
        (WRONG, "FAIL: area(2)\n", "PASS\n", False),
        ("scale = 2", "FAIL: area(2)\n", "PASS\n", False),
    ],
)
def test_a_test_that_only_shows_its_failure(mended: str, before: str, after: str, found: bool) -> None:
    codes = [WRONG, CALLS, mended, CALLS]
    pairs = find_repairs(session_of(*(("python", code, "ok") for code in codes), shown={1: before, 3: after}))
    assert pairs.height == found
    for pair in pairs.iter_rows(named=True):
        assert (pair["failing_execution_id"], pair["fixed_execution_id"]) == ("1", "2")
        assert (pair["failing_code"], pair["fixed_code"]) == (f"{WRONG}\n\n{CALLS}", f"{RIGHT}\n\n{CALLS}")
        told = f"{CALLS}\nOutput:\n{before.strip()}\n\nExpected:\n{after.strip()}"
        assert (pair["error_name"], pair["error_value"]) == ("WrongOutput", told)


def test_of_unittest_the_failing_case_is_told() -> None:
    case = "FAIL: test_area (Areas)\n-----\nTraceback:\n  assert 8 == 12\nAssertionError: 8 != 12"
    before = f"F.\n{'=' * 70}\n{case}\n\n{'-' * 70}\nRan 2 tests in 0.001s\n\nFAILED (failures=1)"
    steps = [("python", code, "ok") for code in (WRONG, CALLS, RIGHT, CALLS)]
    (pair,) = find_repairs(session_of(*steps, shown={1: before, 3: "..\nRan 2 tests in 0.002s\n\nOK"})).to_dicts()
    assert pair["error_value"] == case


def test_a_task_that_only_the_first_attempt_quotes() -> None:
    query, table = "SELECT name FROM {} JOIN team ON id = team1 WHERE coach = 'Ann'", "-- Names of the games of Ann\n"
    right = ("sql", query.format("game"), "ok")
    found = find_repairs(session_of(("sql", table + query.format("games"), "error"), right))
    assert found.height == 1
    assert find_repairs(session_of(("sql", f"{table}SELECT 1 FROM games", "error"), right)).height == 0


def test_a_later_test_in_javascript() -> None:
    wrong, right = "const least = (xs) => Math.max(...xs);", "const least = (xs) => Math.min(...xs);"
    test = "console.assert(least([2, 1]) === 1);"
    steps = [("javascript", wrong, "ok"), ("javascript", test, "error")]
    found = find_repairs(session_of(*steps, ("javascript", right, "ok"), ("javascript", test, "ok")))
    assert found["fixed_code"].to_list() == [f"{right}\n\n{test}"]

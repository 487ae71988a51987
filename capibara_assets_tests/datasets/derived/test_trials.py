"""Trials run for real: what ends, what fails, what never ends, and what differs from run to run."""

import time
from pathlib import Path

import pytest

from capibara_assets.datasets.derived.trials import Trial, counted, execute
from capibara_assets.executions.replay.workers import node

DOUBLE = "def double(x):\n    return 2 * x"


def test_python(tmp_path: Path) -> None:
    cells = (
        (DOUBLE, "double(4)"),
        (DOUBLE.replace("2 *", "3 *"), "double(4)"),
        ("def double(x)\n    return", "double(4)"),
    )
    endless = ("def double(x):\n    while True:\n        x += 1", "double(4)")
    failing = (DOUBLE.replace("2 *", "y *"), "double(4)")
    chance = ("import random\ndef double(x):\n    return random.random()", "double(4)")
    other = (("1 / 0",), ("1",))
    trials = [Trial("python", (*cells, endless, failing, chance)), Trial("python", other)]
    (passed, wrong, broken, never, raised, varying), (fails, unused) = execute(trials, cache=tmp_path)
    assert passed is not None and passed.ok and passed.shown == "8"
    assert wrong is not None and wrong.shown == "12"
    assert broken is not None and (broken.error_name, broken.cell) == ("SyntaxError", 0)
    assert raised is not None and raised.error_name == "NameError" and "----> 2 return y * x" in raised.traceback
    assert never is None and varying is None
    assert fails is not None and fails.error_name == "ZeroDivisionError" and unused is None
    began = time.monotonic()
    assert execute(trials, cache=tmp_path)[0][4] == raised
    assert time.monotonic() - began < 0.5


def test_sql() -> None:
    world = "CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (3), (4);"
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT SUM(i) FROM n"
    codes = ("SELECT SUM(a) AS s FROM t", endless, "SELECT SUM(b) FROM t")
    ((passed, never, failed),) = execute([Trial("sql", tuple((world, code) for code in codes))])
    assert never is None, "what interrupts it is no error of the code"
    assert passed is not None and passed.shown == "   s\n0  7"
    assert failed is not None and (failed.error_name, failed.error_value) == ("OperationalError", "no such column: b")
    assert failed.traceback == ""


@pytest.mark.skipif(node() is None, reason="no Node.js here")
def test_javascript() -> None:
    good = "function sum(n) { let s = 0; for (let i = 0; i < n; i++) s += i; return s; }"
    codes = (good, good.replace("s += i", "s -= i"), good.replace("i++", "n++"), good.replace("return s", "return t"))
    ((passed, wrong, never, raised),) = execute([Trial("javascript", tuple((code, "sum(4)") for code in codes))])
    assert passed is not None and passed.shown == "6" and passed.cell == 1
    assert wrong is not None and wrong.shown == "-6"
    assert never is None
    assert raised is not None and raised.error_name == "ReferenceError"
    assert raised.traceback == f"----> 1 {codes[3]}"


def test_counted_loops_stay_on_their_lines() -> None:
    code = "while (a) {\n  b();\n}\nfor (const x of y) c(x);"
    assert counted(code).count("__turn()") == 2
    assert counted(code).count("\n") == code.count("\n")

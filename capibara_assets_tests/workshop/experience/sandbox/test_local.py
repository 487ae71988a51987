"""The sandbox of the workshop: real kernels, Node and SQLite processes, with E2B's shapes."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from capibara_assets.errors import InputError
from capibara_assets.executions.recording.recorder import record
from capibara_assets.executions.sandbox.sql_worker import statements, table_text
from workshop.experience.sandbox.local import KernelNursery, LocalSandbox, SandboxError, TimeoutException


@pytest.fixture(scope="module")
def nursery() -> Iterator[KernelNursery]:
    with KernelNursery(("pandas",)) as shared:
        yield shared


@pytest.fixture(scope="module")
def sandbox(nursery: KernelNursery) -> Iterator[LocalSandbox]:
    with LocalSandbox(nursery=nursery) as shared:
        yield shared


def test_python_text_chunks_and_count(nursery: KernelNursery) -> None:
    with LocalSandbox(nursery=nursery) as sandbox:
        first = sandbox.run_code("import sys\nprint('out')\nprint('err', file=sys.stderr)\nx = 'text'\nx")
        assert ("".join(first.logs.stdout), "".join(first.logs.stderr)) == ("out\n", "err\n")
        assert first.text == "text"  # a string loses its quotes, as on E2B's server
        assert first.execution_count == 1
        second = sandbox.run_code("len(x)")
        assert (second.text, second.execution_count) == ("4", 2)


def test_python_frames_give_html_and_data(sandbox: LocalSandbox) -> None:
    result = sandbox.run_code(
        "import pandas as pd\npd.DataFrame({'a': [1, 2], 'd': pd.to_datetime(['2026-01-02'] * 2)})"
    )
    shown = json.loads(result.to_json())["results"][0]
    assert set(shown) == {"text", "html", "data"}
    assert shown["data"] == {"a": [1, 2], "d": ["2026-01-02T00:00:00", "2026-01-02T00:00:00"]}


def test_python_traceback_keeps_its_colours(sandbox: LocalSandbox) -> None:
    error = sandbox.run_code("def f(x):\n    return 1 / x\nf(0)").error
    assert error is not None
    assert (error.name, error.value) == ("ZeroDivisionError", "division by zero")
    assert "\x1b[" in error.traceback
    assert "Traceback (most recent call last)" in error.traceback


def test_top_level_await_in_both_languages(sandbox: LocalSandbox) -> None:
    assert sandbox.run_code("import asyncio\nawait asyncio.sleep(0, 'slept')").text == "slept"
    assert sandbox.run_code("const { v } = await Promise.resolve({ v: 7 }); v + 1", "javascript").text == "8"
    assert sandbox.run_code("v", "javascript").text == "7"


def test_javascript_redeclares_and_shows_the_last_expression(sandbox: LocalSandbox) -> None:
    assert (
        sandbox.run_code("const a = 1; let b = [1, 2]; class C {} b.map((x) => x + a)", "javascript").text == "[ 2, 3 ]"
    )
    execution = sandbox.run_code("const a = 'x'; class C { n = 2 } console.log(a, new C().n); a", "javascript")
    assert (execution.text, execution.logs.stdout) == ("x", ["x 2\n"])
    assert sandbox.run_code("let q = 1;", "javascript").results == []


def test_javascript_errors_name_the_cell(sandbox: LocalSandbox) -> None:
    error = sandbox.run_code("function f(o) {\n  return o.x.y;\n}\nf({})", "javascript").error
    assert error is not None
    assert error.name == "TypeError"
    assert "return o.x.y;" in error.traceback
    assert "at f (Cell[" in error.traceback
    syntax = sandbox.run_code("let x = ;", "javascript").error
    assert syntax is not None
    assert syntax.name == "SyntaxError"


def test_javascript_assertion_goes_to_stderr(sandbox: LocalSandbox) -> None:
    execution = sandbox.run_code("console.assert(1 === 2, 'sum')", "javascript")
    assert (execution.error, execution.logs.stderr) == (None, ["Assertion failed: sum\n"])


def test_javascript_cannot_load_any_module(sandbox: LocalSandbox) -> None:
    error = sandbox.run_code("require('fs').readFileSync('/etc/hostname')", "javascript").error
    assert error is not None
    assert "Cannot find module" in error.value


def test_sql_scripts_results_and_errors(sandbox: LocalSandbox) -> None:
    done = sandbox.run_code(
        "CREATE TABLE t (a, b); INSERT INTO t VALUES (1, 'x;y'), (2.5, NULL); SELECT * FROM t;", "sql"
    )
    assert done.results[0].data == {"a": [1, 2.5], "b": ["x;y", None]}
    assert done.text == "     a     b\n0    1   x;y\n1  2.5  None"
    error = sandbox.run_code("SELECT nope FROM t", "sql").error
    assert error is not None
    assert (error.name, error.value) == ("OperationalError", "no such column: nope")


ENDLESS_SQL = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT COUNT(*) FROM c"


@pytest.mark.parametrize(
    ("language", "endless", "after", "expected"),
    [
        ("python", "n = 3\nwhile True: pass", "n", "3"),
        ("javascript", "var n = 3; while (true) {}", "n", "3"),
        ("javascript", "await new Promise(() => {})", "1 + 1", "2"),
        (
            "sql",
            ENDLESS_SQL,
            "SELECT 5 AS n",
            "   n\n0  5",
        ),
    ],
)
def test_a_timeout_interrupts_and_the_session_goes_on(
    sandbox: LocalSandbox, language: str, endless: str, after: str, expected: str
) -> None:
    with pytest.raises(TimeoutException):
        sandbox.run_code(endless, language, timeout=0.5)
    assert sandbox.run_code(after, language).text == expected


def test_no_variable_of_ours_reaches_the_code(nursery: KernelNursery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("E2B_API_KEY", "e2b_not_a_key")
    with LocalSandbox() as fresh:
        seen = fresh.run_code("import os\nsorted(os.environ)")
        assert seen.text is not None
        assert "E2B_API_KEY" not in seen.text
        assert "capibara-sandbox-" in str(fresh.run_code("os.getcwd()").text)
        assert fresh.run_code("typeof process", "javascript").text == "undefined"


def test_memory_is_limited(sandbox: LocalSandbox) -> None:
    error = sandbox.run_code("block = bytearray(6 << 30)").error
    assert error is not None
    assert error.name == "MemoryError"


def test_sandboxes_and_contexts_share_nothing(nursery: KernelNursery) -> None:
    with LocalSandbox(nursery=nursery) as one, LocalSandbox(nursery=nursery) as two:
        one.run_code("secret = 1")
        assert two.run_code("'secret' in globals()").text == "False"
        other = one.create_code_context("python")
        assert one.run_code("'secret' in globals()", context=other).text == "False"
        one.run_code("CREATE TABLE t (a)", "sql")
        assert two.run_code("SELECT * FROM t", "sql").error is not None


@pytest.mark.timeout(30)
def test_kernels_started_at_once_are_told_apart(nursery: KernelNursery, tmp_path: Path) -> None:
    def fork(number: int) -> bool:
        folder = tmp_path / str(number)
        folder.mkdir()
        pid = nursery.fork(folder / "k.json", str(folder))
        try:
            deadline = time.monotonic() + 20
            while (there := Path(f"/proc/{pid}/cwd").readlink()) != folder and time.monotonic() < deadline:
                time.sleep(0.01)
        finally:
            os.kill(pid, signal.SIGKILL)
        return there == folder

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(fork, range(16)))
    finally:
        sys.setswitchinterval(before)


def test_a_dead_kernel_is_an_error_not_a_hang(nursery: KernelNursery) -> None:
    with LocalSandbox(nursery=nursery) as sandbox, pytest.raises(SandboxError, match="died"):
        sandbox.run_code("import os\nos._exit(1)")


def test_kill_removes_the_folder_and_ends_the_sandbox(nursery: KernelNursery) -> None:
    sandbox = LocalSandbox.create(nursery=nursery)
    folder = Path(str(sandbox.run_code("import os\nos.getcwd()").text))
    pid = int(str(sandbox.run_code("os.getpid()").text))
    sandbox.kill()
    assert not folder.exists()
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(SandboxError, match="was killed"):
        sandbox.run_code("1")


def test_unknown_languages_are_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="does not run r; it runs python, javascript, sql"):
        LocalSandbox(("r",))
    with LocalSandbox(("sql",)) as sandbox, pytest.raises(InputError, match="'python'"):
        sandbox.run_code("1", "python")


def test_what_is_recorded_is_what_to_json_gives(sandbox: LocalSandbox, tmp_path: Path) -> None:
    recorded = record(sandbox, tmp_path / "log.jsonl")
    execution = recorded.run_code("print(1)\n2")
    line = json.loads((tmp_path / "log.jsonl").read_text())
    assert line["execution"] == json.loads(execution.to_json())
    assert line["sandbox_id"] == sandbox.sandbox_id


def test_statements_are_cut_where_sqlite_says() -> None:
    script = "SELECT ';' AS a; -- no; end\nCREATE TRIGGER x AFTER INSERT ON t BEGIN SELECT 1; END; SELECT 2"
    assert [statement.strip()[:8] for statement in statements(script)] == ["SELECT '", "-- no; e", "SELECT 2"]


@pytest.mark.parametrize(
    ("names", "rows"),
    [
        (["COUNT(*)", "n"], [(2, "abc")]),
        (["n", "result"], [(0, "FAIL"), (12, "PASS")]),
        (["nm", "some_long_header"], [("a", 1.5), ("b", 2.5)]),
        (["a_long_name", "b"], [("x", 1), ("y", 22222)]),
        (["ratio"], [(None,)]),
        (["who"], [(f"name {i}",) for i in range(12)]),
    ],
)
def test_a_table_is_as_wide_as_pandas_prints_it(names: list[str], rows: list[tuple[Any, ...]]) -> None:
    frame = pd.DataFrame(rows, columns=names, dtype=object).infer_objects()
    assert table_text(names, rows) == frame.to_string()


def test_table_text_of_nothing_names_the_columns() -> None:
    assert table_text(["a", "b"], []) == "Empty result\nColumns: [a, b]"

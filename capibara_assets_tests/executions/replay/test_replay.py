"""Re-execution gives the verdict that the code deserves: same, missing, or different, and nothing leaks or is lost."""

import itertools
import json
import os
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capibara_assets.errors import InputError
from capibara_assets.executions.replay import replay as replay_module
from capibara_assets.executions.replay import workers as replay_workers
from capibara_assets.executions.replay.cache import FILE, CachedVerdict, ReplayVerdictCache
from capibara_assets.executions.replay.replay import Replay, ReplayBatch, ReplayVerdict, replay_batch
from capibara_assets.executions.replay.verdicts import ReplayFinding
from capibara_assets.executions.replay.workers import kept_workers
from capibara_assets.executions.sandbox import isolation as isolation_module
from capibara_assets.executions.sandbox.isolation import best_isolation, probed

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
_numbers = itertools.count()


def replay(replays: list[Replay], **options: Any) -> list[ReplayVerdict]:
    return replay_batch(replays, **options).verdicts


def python(*cells: str, stdout: str = "", result: str | None = None, **values: str) -> Replay:
    return Replay(f"python-{next(_numbers)}", "python", cells, stdout, result, **values)


def javascript(*cells: str, stdout: str = "", result: str | None = None, **values: str) -> Replay:
    return Replay(f"javascript-{next(_numbers)}", "javascript", cells, stdout, result, **values)


def sql(*cells: str, result: str | None = None, **values: str) -> Replay:
    return Replay(f"sql-{next(_numbers)}", "sql", cells, "", result, **values)


SAME = {
    "printed": python("print('a', 1)", stdout="a 1\n"),
    "last expression": python("x = 3\nx + 1", result="4"),
    "a string without its quotes": python("'it' + 's'", result="its"),
    "a quiet expression": python("41;"),
    "displayed and result": python("display(1)\ndisplay('two')\n3", result="1\ntwo\n3"),
    "earlier cells": python("def f(x):\n    return x * 2", "y = f(4)", "print(y)\ny", stdout="8\n", result="8"),
    "output of earlier cells is not its own": python("print('before')\n1", "print('now')", stdout="now\n"),
    "await": python("import asyncio", "await asyncio.sleep(0, 'slept')", result="slept"),
    "a frame": python(
        "import pandas as pd",
        "pd.DataFrame({'a': [1, 22], 'b': ['x', None]})",
        result="    a     b\n0   1     x\n1  22  None",
    ),
    "a child process prints there, too": python(
        "import os\n_ = os.system('echo from a child')", stdout="from a child\n"
    ),
    "colours are removed": python("print('\\x1b[31mred\\x1b[0m')", stdout="red\n"),
    "no output, assertions held": python("def f(x):\n    return x + 1\nassert f(1) == 2"),
    "the same failure": python("print('so far')\n{}['k']", stdout="so far\n", outcome="error", error_name="KeyError"),
    "the same syntax error": python("x = = 1", outcome="error", error_name="SyntaxError"),
    "its own server": python(
        "import socket\na = socket.create_server(('127.0.0.1', 0))\nsocket.create_connection(a.getsockname()).close()"
    ),
    "its own file": python("open('f.txt', 'w').write('hi')\nprint(open('f.txt').read())", stdout="hi\n"),
    "its own database file": python(
        "import sqlite3\nc = sqlite3.connect('own.db')\n_ = c.execute('create table t (a)')",
        "c.execute('select * from t').fetchall()",
        result="[]",
    ),
    "numbers with a seed": python("import random\nrandom.seed(1)\nrandom.randint(0, 99)", result="17"),
    "table": sql(
        "CREATE TABLE t (a, b); INSERT INTO t VALUES (1, 'x'), (2, NULL)",
        "SELECT * FROM t",
        result="   a     b\n0  1     x\n1  2  None",
    ),
    "a table as pandas sets it": sql(
        "CREATE TABLE t (a, b, c); INSERT INTO t VALUES (1, 'x', 1.5), (NULL, NULL, 2.25)",
        "SELECT a, b AS wide, c, a / 3.0 AS third FROM t",
        result="     a wide     c     third\n0  1.0    x  1.50  0.333333\n1  NaN  NaN  2.25       NaN",
    ),
    "no rows": sql("CREATE TABLE t (a)"),
    "the same SQL failure": sql("SELEC 1", outcome="error", error_name="OperationalError"),
}

JAVASCRIPT_SAME = {
    "printed": javascript("console.log('a', { b: [1, 2] })", stdout="a { b: [ 1, 2 ] }\n"),
    "last expression": javascript("const a = 1; let b = [1, 2]; class C {} b.map((x) => x + a)", result="[ 2, 3 ]"),
    "earlier cells": javascript(
        "function f(x) { return x * 2 }", "const y = f(4)", "console.log(y); y", stdout="8\n", result="8"
    ),
    "of Node": javascript(
        "require('events'); await new Promise((r) => setTimeout(r, 1)); Buffer.from('a').length",
        result="1",
    ),
    "await": javascript("const { v } = await Promise.resolve({ v: 7 }); v + 1", result="8"),
    "a failed assertion": javascript("console.assert(1 === 2, 'no')", outcome="error", error_name="AssertionError"),
    "the same failure": javascript("null.x", outcome="error", error_name="TypeError"),
    "asserted": javascript("const assert = require('assert');\nassert.deepStrictEqual([1, { a: 2 }], [1, { a: 2 }]);"),
    "a refused assertion": javascript(
        "const assert = require('node:assert/strict');\nassert.equal(1, 2)",
        outcome="error",
        error_name="AssertionError",
    ),
    "strings evaluated": javascript("eval('1 + 1')", result="2"),
    "what lodash holds equal": javascript(
        "const _ = require('lodash');\n[[[1, { a: NaN }], [1, { a: NaN }]], [[1, 2], [2, 1]], [{ a: undefined }, {}],"
        " [new Set([[6, 7], [9, 8]]), new Set([[6, 7], [8, 9]])], [new Set([[6]]), new Set([[5]])]]"
        ".map((two) => _.isEqual(...two))",
        result="[ true, false, false, true, false ]",
    ),
    "lodash in a thread": javascript(
        "require('util'); require('lodash').isEqual(new Map([[1, 2]]), new Map([[1, 2]]))", result="true"
    ),
    "no more of lodash": javascript("require('lodash').sortBy([1])", outcome="error", error_name="TypeError"),
}

DIFFERENT = {
    "chance": (python("import random\nprint(random.random())", stdout="0.5\n"), "not deterministic"),
    "time": (python("import time\nprint(time.time_ns())", stdout="1\n"), "not deterministic"),
    "identity": (python("print(id(object()))", stdout="1\n"), "not deterministic"),
    "an address": (python("object()", result="<object at 0x7f>"), "not deterministic"),
    "order of a set": (
        python("print(list({'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'}))", stdout="x\n"),
        "not deterministic",
    ),
    "a dictionary made from a set": (
        python("print({k: 1 for k in {'one', 'two', 'three', 'four', 'five', 'six'}})", stdout="x\n"),
        "not deterministic",
    ),
    "a folder": (python("import os\nprint(os.getcwd())", stdout="/home/user\n"), "not deterministic"),
    "a UUID": (python("import uuid\nuuid.uuid4().hex", result="0"), "not deterministic"),
    "another number": (python("print(1 + 1)", stdout="3\n"), "another output than was recorded"),
    "another result": (python("1 + 1", result="3"), "another output than was recorded"),
    "another row": (sql("SELECT 1000001 AS a", result="         a\n0  1000000"), "another output than was recorded"),
    "another column": (sql("SELECT 'x' AS a", result="   b\n0  x"), "another output than was recorded"),
    "a failure": (python("assert 1 == 2"), "failed where it had succeeded: AssertionError"),
    "an earlier failure": (
        python("raise ValueError('no')", "print(1)", stdout="1\n"),
        "failed where it had succeeded: ValueError (in an earlier cell that it needs)",
    ),
    "a success": (python("1", outcome="error", error_name="KeyError"), "succeeded where it had failed"),
    "another failure": (
        python("[][1]", outcome="error", error_name="KeyError"),
        "another error than was recorded: IndexError",
    ),
    "its own error class": (python("class Oops(Exception): pass\nraise Oops"), "failed where it had succeeded: Oops"),
    "its end": (python("import os\nos._exit(0)"), "ended its process"),
    "a crash": (python("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"), "ended its process"),
    "memory": (python("x = bytearray(8 << 30)"), "used up its memory"),
    "another SQL result": (sql("SELECT 1 AS a", result="   a\n0  2"), "another output than was recorded"),
    "chance in SQL": (sql("SELECT hex(randomblob(8)) AS a", result="x"), "not deterministic"),
}

MISSING = {
    "package": (python("import nosuch_package.part"), "its package is not installed here: nosuch_package"),
    "name": (python("print(lost_value)", stdout="1\n"), "its session's state is gone: lost_value"),
    "table": (sql("SELECT * FROM orders", result="   a\n0  1"), "its database is gone: orders"),
    "table in Python": (
        python("import sqlite3\nsqlite3.connect(':memory:').execute('SELECT * FROM people')"),
        "its database is gone: people",
    ),
    "database file": (
        python(
            "import sqlite3\nsqlite3.connect('shop.db').execute('SELECT 1 FROM sqlite_master').fetchall()",
            result="[(1,)]",
        ),
        "its database is gone: a file that no cell fills",
    ),
    "file": (python("open('data.csv')"), "a file that it reads is not here"),
    "input": (python("input('name?')"), "it asks for input"),
    "magic": (python("%timeit 1"), "it uses a magic or the shell"),
    "shell": (python("!ls"), "it uses a magic or the shell"),
    "language": (Replay("r", "r", ("print(1)",), "[1] 1\n"), "no interpreter for its language here"),
    "hindrance": (Replay("h", "python", ("1",), "", "1", hindrance="not asked for"), "not asked for"),
    "timeout then": (
        python("1", outcome="timeout", error_name="TimeoutException"),
        "it timed out when it was recorded",
    ),
    "an earlier cell's package": (
        python("import nosuch_package", "1", result="1"),
        "its package is not installed here: nosuch_package (in an earlier cell that it needs)",
    ),
}


@pytest.fixture(scope="module")
def verdicts() -> dict[str, ReplayVerdict]:
    """Of all cases, by execution id, in one batch."""
    cases = [*SAME.values(), *(one for one, _ in DIFFERENT.values()), *(one for one, _ in MISSING.values())]
    if shutil.which("node"):
        cases += [*JAVASCRIPT_SAME.values(), *(one for one, _ in JAVASCRIPT_DIFFERENT.values())]
    batch = replay_batch(cases, processes=1, memory_mib=1024)
    assert batch.summary["lost_workers"] == []
    return {verdict.execution_id: verdict for verdict in batch.verdicts}


JAVASCRIPT_DIFFERENT = {
    "chance": (javascript("Math.random()", result="0.5"), "unverified", "not deterministic"),
    "another result": (javascript("[1, 2]", result="[ 1, 3 ]"), "unverified", "another output than was recorded"),
    "name": (javascript("lost.length", result="1"), "recorded", "its session's state is gone: lost"),
    "package": (javascript("require('left-pad')"), "recorded", "its package is not installed here: left-pad"),
}
JAVASCRIPT_DIFFERENT = {name: (one, f"{kind}: {reason}") for name, (one, kind, reason) in JAVASCRIPT_DIFFERENT.items()}


@pytest.mark.parametrize("name", SAME)
def test_the_same_output_is_reexecuted(verdicts: dict[str, ReplayVerdict], name: str) -> None:
    verdict = verdicts[SAME[name].execution_id]
    assert (verdict.verified, verdict.reason) == ("reexecuted", None)
    assert verdict.output_digest is not None


@needs_node
@pytest.mark.parametrize("name", JAVASCRIPT_SAME)
def test_the_same_output_of_javascript_is_reexecuted(verdicts: dict[str, ReplayVerdict], name: str) -> None:
    verdict = verdicts[JAVASCRIPT_SAME[name].execution_id]
    assert (verdict.verified, verdict.reason) == ("reexecuted", None)


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_comes_out_differently_is_unverified(verdicts: dict[str, ReplayVerdict], name: str) -> None:
    one, reason = DIFFERENT[name]
    assert (verdicts[one.execution_id].verified, verdicts[one.execution_id].reason) == ("unverified", reason)


@needs_node
@pytest.mark.parametrize("name", JAVASCRIPT_DIFFERENT)
def test_javascript_that_differs_or_misses_something(verdicts: dict[str, ReplayVerdict], name: str) -> None:
    one, expected = JAVASCRIPT_DIFFERENT[name]
    verdict = verdicts[one.execution_id]
    assert f"{verdict.verified}: {verdict.reason}" == expected


@pytest.mark.parametrize("name", MISSING)
def test_what_misses_something_stands_as_recorded_and_says_what(verdicts: dict[str, ReplayVerdict], name: str) -> None:
    one, reason = MISSING[name]
    assert (verdicts[one.execution_id].verified, verdicts[one.execution_id].reason) == ("recorded", reason)
    assert verdicts[one.execution_id].output_digest is None


def test_nothing_leaks_from_one_session_into_the_next() -> None:
    dirty = [
        python(
            "import builtins, os, sys\nbuiltins.print = leak = None\nos.environ['LEAK'] = '1'\nsys.modules['json'] = 0"
        ),
        python("open('/tmp/leak.txt', 'w').write('x')"),
        sql("CREATE TABLE leak (a); ATTACH ':memory:' AS other"),
    ]
    clean = [
        python(
            "import json, os\nprint('LEAK' in os.environ, 'leak' in globals(), json.dumps(1))", stdout="False False 1\n"
        ),
        python("import os\nos.path.exists('/tmp/leak.txt')", result="False"),
        sql("CREATE TABLE leak (a)"),
    ]
    if shutil.which("node"):
        dirty.append(
            javascript("Array.prototype.leak = 1; Object.prototype.leak = 2; globalThis.leak = 3; console.log = null")
        )
        dirty.append(
            javascript("Array.prototype.leak = 1; console.log.leak = 1; var leak = 3; Promise.prototype.then = null")
        )
        dirty.append(
            javascript("require('util').leak = 1; Buffer.prototype.leak = 1; require('events').prototype.leak = 1")
        )
        clean.append(
            javascript(
                "console.log([].leak, typeof leak, ({}).leak, console.log.leak)",
                stdout="undefined undefined undefined undefined\n",
            )
        )
        dirty.append(javascript("const assert = require('assert'); assert['leak'] = 1; assert.strict['leak'] = 2"))
        clean.append(
            javascript("const a = require('assert'); [a.leak, a.strict.leak]", result="[ undefined, undefined ]")
        )
        clean.append(
            javascript(
                "[require('util').leak, Buffer.prototype.leak, new (require('events'))().leak]",
                result="[ undefined, undefined, undefined ]",
            )
        )
    batch = replay_batch([one for _ in range(2) for one in (*dirty, *clean)], processes=1, times=1)
    found = {verdict.execution_id: verdict for verdict in batch.verdicts}
    assert [(found[one.execution_id].verified, one.cells) for one in clean] == [
        ("reexecuted", one.cells) for one in clean
    ]


def test_limits_end_a_session_and_only_that_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_workers, "_SLACK_S", 600.0)  # beside other tests the clock would come before the limits
    bad = [
        (python("while True: pass"), "used up its CPU seconds"),
        (python("x = []\nwhile True: x.append(bytearray(1 << 20))"), "used up its memory"),
        (python("import threading\nthreading.Event().wait()"), None),
        (python("import os, signal\nwhile True:\n    if os.fork() == 0: signal.pause()"), None),
        (python("print('x' * (100 << 20))"), None),
    ]
    good = [python(f"print({n})", stdout=f"{n}\n") for n in range(6)]
    cases = [one for pair in itertools.zip_longest((one for one, _ in bad), good) for one in pair if one]
    batch = replay_batch(cases, processes=2, times=1, timeout_s=0.4, memory_mib=256)
    found = {verdict.execution_id: verdict for verdict in batch.verdicts}
    assert [found[one.execution_id].verified for one in good] == ["reexecuted"] * len(good)
    for one, reason in bad:
        assert found[one.execution_id].verified == "unverified"
        assert reason is None or found[one.execution_id].reason == reason
    assert bad[0][0].execution_id in batch.summary["ran_again_alone"]


@needs_node
def test_limits_of_javascript(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_workers, "_SLACK_S", 0.5)  # Node bounds an endless loop by the clock
    cases = [
        javascript("while (true) {}"),
        javascript("const a = []; while (true) a.push(new Array(1e5).fill(a.length))"),
        javascript("'still here'", result="still here"),
    ]
    found = replay(cases, processes=1, times=1, timeout_s=0.3, memory_mib=64)
    assert [verdict.verified for verdict in found] == ["unverified", "unverified", "reexecuted"]


def test_a_session_that_kills_its_worker_is_named_and_loses_nothing() -> None:
    killer = python("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nimport time\ntime.sleep(600)")
    others = [python(f"print({n} * 2)", stdout=f"{n * 2}\n") for n in range(8)]
    batch = replay_batch([*others[:4], killer, *others[4:]], processes=2, timeout_s=1)
    found = {verdict.execution_id: verdict for verdict in batch.verdicts}
    assert [found[one.execution_id].verified for one in others] == ["reexecuted"] * 8
    assert batch.summary["lost_workers"] == [killer.execution_id]
    verdict = found[killer.execution_id]
    assert (verdict.verified, verdict.reason) == ("unverified", "its worker died with it, also alone")


def test_a_session_cannot_write_its_own_answer() -> None:
    forged = json.dumps({"nonce": "x", "results": [], "stdout": "forged\n", "stderr": "", "error": None})
    code = f"""
import os
for n in range(3, 64):
    try:
        os.write(n, {forged!r}.encode() + b"\\n")
    except OSError:
        pass
print("real")"""
    verdicts = replay([python(code, stdout="forged\n"), python("print(1)", stdout="1\n")], processes=2)
    assert [verdict.verified for verdict in verdicts] == ["unverified", "reexecuted"]


def test_plain_processes_give_the_same_verdicts_and_say_what_is_not_isolated() -> None:
    plain = probed("limits")
    assert plain is not None
    cases = [
        python("print(1)", stdout="1\n"),
        python("import random\nrandom.random()", result="1"),
        sql("SELECT 1 AS a", result="   a\n0  1"),
        python(
            "import subprocess\np = subprocess.Popen(['sleep', '600'], start_new_session=True)\nprint(p.poll())",
            stdout="None\n",
        ),
    ]
    batch = replay_batch(cases, processes=2, isolation=plain)
    assert [verdict.verified for verdict in batch.verdicts] == ["reexecuted", "unverified", "reexecuted", "reexecuted"]
    assert "the network can be reached" in batch.summary["isolation"]
    with pytest.raises(InputError, match="network"):
        replay_batch(cases, isolation=plain, demand=["network"])


def test_nothing_runs_when_what_is_demanded_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = probed("limits")
    monkeypatch.setattr(isolation_module, "_best", lambda: plain)
    with pytest.raises(InputError, match="cannot isolate"):
        replay([python("1", result="1")], demand=["files"])


@pytest.fixture
def cases() -> list[Replay]:
    return [
        python("canary_value = 1\nprint(canary_value)", stdout="1\n"),
        python("import nosuch_canary"),
        python("print(canary_gone)", stdout="canary output\n"),
        python("import random\nrandom.random()", result="1"),
    ]


def again(batch: ReplayBatch) -> list[tuple[str, str | None, str | None]]:
    return [(verdict.verified, verdict.reason, verdict.output_digest) for verdict in batch.verdicts]


def test_verdicts_are_kept_by_digest_and_hold_no_code(tmp_path: Path, cases: list[Replay]) -> None:
    first = replay_batch(cases, cache=tmp_path / "cache", processes=1)
    second = replay_batch(cases, cache=tmp_path / "cache", processes=1)
    assert (first.summary["ran"], second.summary["ran"], second.summary["cached"]) == (4, 0, 4)
    assert again(first) == again(second)
    assert second.verdicts[1].reason == "its package is not installed here: nosuch_canary"
    (file,) = (tmp_path / "cache").iterdir()
    assert b"canary" not in file.read_bytes()


def test_the_file_of_lines_that_held_them_makes_way(tmp_path: Path) -> None:
    (tmp_path / "replay-verdicts.jsonl").write_text("{}\n")
    replay([python("1", result="1")], cache=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_other_limits_outputs_or_code_are_another_verdict(tmp_path: Path) -> None:
    one = python("print(1)", stdout="1\n")
    asked = (
        (one, {}),
        (one, {"timeout_s": 5.0}),
        (one, {"memory_mib": 512}),
        (one, {"times": 1}),
        (one, {"processes": 2}),  # how many run at a time changes nothing
        (Replay("other id", *(one.language, one.cells, one.stdout)), {}),
        (python("print(1)", stdout="2\n"), {}),
        (python("print(1)\n", stdout="1\n"), {}),
    )
    with kept_workers():
        ran = [replay_batch([case], cache=tmp_path, **{"processes": 1} | more).summary["ran"] for case, more in asked]
    assert ran == [1, 1, 1, 1, 0, 0, 1, 1]


def test_folders_that_are_closed_or_deep_do_not_stay_for_the_next_session() -> None:
    if "files" not in best_isolation().aspects:
        pytest.skip("sessions have no temporary folder of their own here")
    code = """import os
os.chdir('/tmp')
found = [name for name in os.listdir() if name in ('closed', 'deep')]
os.makedirs('closed/inner', exist_ok=True)
os.chmod('closed', 0)
os.makedirs('deep', exist_ok=True)
os.chdir('deep')
for _ in range(1500):
    os.mkdir('d')
    os.chdir('d')
print(found)  # """
    ones = [python(f"{code}{number}", stdout="[]\n") for number in range(2)]
    batch = replay_batch(ones, times=1, processes=1)
    assert [each.verified for each in batch.verdicts] == ["reexecuted"] * 2


def test_other_system_calls_are_another_verdict(tmp_path: Path) -> None:
    one, here = python("print(1)", stdout="1\n"), best_isolation()
    if not here.system_calls:
        pytest.skip("no filter of system calls here")
    free = replace(here, system_calls=b"")
    ran = [replay_batch([one], cache=tmp_path, times=1, isolation=place).summary["ran"] for place in (here, free, here)]
    assert ran == [1, 1, 0]


def test_two_writers_do_not_disturb_each_other(tmp_path: Path) -> None:
    one, two = ReplayVerdictCache(tmp_path), ReplayVerdictCache(tmp_path)
    cell = ("lost_name",)
    for number in range(20):
        for name, cache in (("one", one), ("two", two)):
            cache.add({f"{name}-{number}": (CachedVerdict(ReplayFinding("state", "lost_name"), None), cell)})
    both = ReplayVerdictCache(tmp_path)
    assert both.damaged == 0
    found = [both.get(f"{name}-{number}", cell) for name in ("one", "two") for number in range(20)]
    assert found == [CachedVerdict(ReplayFinding("state", "lost_name"), None)] * 40


def test_a_damaged_verdict_is_counted_and_made_again(tmp_path: Path, cases: list[Replay]) -> None:
    with kept_workers():
        _made_again_where_damaged(tmp_path, cases)


def _made_again_where_damaged(tmp_path: Path, cases: list[Replay]) -> None:
    first = replay_batch(cases, cache=tmp_path, processes=1)
    with closing(sqlite3.connect(tmp_path / FILE)) as database, database:
        first_two = [place for (place,) in database.execute("SELECT place FROM cached LIMIT 2")]
        database.execute("UPDATE cached SET value = CAST(value || ' ' AS BLOB) WHERE place = ?", first_two[:1])
        database.execute("UPDATE cached SET key = x'ff' WHERE place = ?", first_two[1:])
    second = replay_batch(cases, cache=tmp_path, processes=1)
    assert (second.summary["ran"], second.summary["cached"], second.summary["damaged_cache_lines"]) == (2, 2, 2)
    third = replay_batch(cases, cache=tmp_path, processes=1)
    assert third.summary["ran"] == 0
    assert again(first) == again(second) == again(third)


def test_a_cache_that_cannot_be_used_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(InputError, match=r"cannot use the cache .* Remove it \(verdicts are made again\)"):
        replay([python("1", result="1")], cache=tmp_path)


def test_a_cached_batch_starts_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = python("1", result="1")
    replay([one], cache=tmp_path)
    monkeypatch.setattr("capibara_assets.executions.sandbox.isolation.Isolation.start", None)
    assert [verdict.verified for verdict in replay([one], cache=tmp_path)] == ["reexecuted"]


def test_parameters_that_make_no_sense() -> None:
    for options in ({"times": 0}, {"timeout_s": 0.0}, {"memory_mib": -1}, {"processes": 0}):
        with pytest.raises(InputError, match="above zero"):
            replay([], **options)
    assert replay([]) == []


def _lines() -> st.SearchStrategy[str]:
    return st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x1b\r"), max_size=40)


def test_whatever_is_printed_comes_back() -> None:
    texts: list[str] = []

    @settings(max_examples=3, deadline=None)
    @given(st.lists(_lines(), min_size=8, max_size=16))
    def draw(drawn: list[str]) -> None:
        texts.extend(drawn)

    draw()  # all first: a batch has a process to start
    cases = [python(f"print({text!r})", stdout=text + "\n") for text in texts]
    assert {verdict.verified for verdict in replay(cases, times=1, processes=1)} == {"reexecuted"}


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """No batch leaves a process of its own."""
    yield
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    if children.exists():
        names = [Path("/proc", pid, "cmdline") for pid in children.read_text().split()]
        assert not [name for name in names if name.exists() and b"sandbox/launch.py" in name.read_bytes()]


@needs_node
def test_a_module_that_sessions_do_not_get_is_known_without_a_run() -> None:
    worker = Path(replay_module.__file__).parents[1] / "sandbox" / "javascript_session.js"
    allowed = worker.read_text("utf-8").partition("ALLOWED = new Set([")[2].partition("]")[0]
    assert {*re.findall(r"'([^']+)'", allowed), "lodash"} == replay_module.MODULES
    batch = replay_batch([javascript("const left = require('left-pad');\nleft('a')"), javascript("1", result="1")])
    assert [verdict.reason for verdict in batch.verdicts] == ["its package is not installed here: left-pad", None]
    assert batch.summary["ran"] == 1

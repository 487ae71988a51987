"""Runs variants of Python sessions inside one sandboxed session, each in a fresh module; sent there as text.

Standard library alone. `run_trials` prints one JSON line: how each variant ended. Under an even hash seed the
variants of a group run in reverse order, so that what one leaves behind shows as a difference between the runs.
"""

import ast
import asyncio
import contextlib
import functools
import io
import json
import linecache
import os
import signal
import sys
import threading
import time
import traceback
import types
from pathlib import Path
from typing import Any

_FIRST_S, _LEAST_S, _WALL_S = 0.5, 0.1, 2.0  # a variant may take five times as long as the first, and the least
_PATIENCE = 2  # variants of one group that ran into a limit, after which the others do not run
_MOST_TEXT = 4000


class TimeUp(BaseException):
    """Raised when a variant exceeds its time limit."""


_running = False
_begun = (0.0, 0.0, frozenset[int | None]())  # of the variant that runs: the time, this thread's delay, the threads


def _time_up(number: int, _: Any) -> None:
    if not _running:  # it comes late, when the variant has ended
        return
    if number == signal.SIGALRM and (left := _WALL_S - _own_s()) > 0.01:
        signal.setitimer(signal.ITIMER_REAL, left)
        return
    signal.setitimer(signal.ITIMER_VIRTUAL, _LEAST_S)  # again, should the code catch it
    raise TimeUp


def _own_s() -> float:
    """Seconds since the variant began, without those in which its threads waited for a processor."""
    began, delay, former = _begun
    threads = {thread.native_id for thread in threading.enumerate()} - former
    lost = max([_delay_s() - delay, *map(_delay_s, threads)])
    return time.monotonic() - began - lost


def _delay_s(thread: int | None = None) -> float:
    """Seconds that a thread (None: this process's first) could have run and no processor was free; 0 if unknown."""
    try:
        return int(Path(f"/proc/self/task/{thread or os.getpid()}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _ran(cell: str | list[str], name: str, namespace: dict[str, Any], show: Any) -> str | None:
    """Runs one cell (in a list: of SQL); returns how its last expression is shown, None where it has none."""
    if isinstance(cell, list):
        _ran_sql(cell[0], namespace)
        return None
    linecache.cache[name] = (len(cell), None, [line + "\n" for line in cell.split("\n")], name)
    body, last = _compiled(cell, name)
    _evaluated(body, namespace)
    if last is None:
        return None
    value = _evaluated(last, namespace)
    return None if value is None else str(show(value))[:_MOST_TEXT]


@functools.lru_cache(256)  # the cells that variants have in common
def _compiled(source: str, name: str) -> tuple[Any, Any]:
    tree = ast.parse(source, name)
    final = tree.body[-1] if tree.body and not source.rstrip().endswith(";") else None
    last = final if isinstance(final, ast.Expr) else None
    if last is not None:
        tree.body.pop()
    build = functools.partial(compile, filename=name, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    return build(tree, mode="exec"), None if last is None else build(ast.Expression(last.value), mode="eval")


def _evaluated(code: Any, namespace: dict[str, Any]) -> Any:
    value = eval(code, namespace)
    return asyncio.run(value) if code.co_flags & 0x80 else value  # 0x80: it awaits at its top level


def _ran_sql(script: str, namespace: dict[str, Any]) -> None:
    """Runs SQL on the variant's one database in memory, in the worker's own words; the errors are SQLite's."""
    import sqlite3

    import sql_worker  # type: ignore[import-not-found,unused-ignore]

    if "database" not in namespace:
        namespace["database"] = sqlite3.connect(":memory:", isolation_level=None)
    answer = sql_worker.run(namespace["database"], script, 1.0)
    if answer.get("timeout"):  # by the clock, or by what `_time_up` raised inside SQLite
        raise TimeUp
    if error := answer["error"]:
        raise type(error["name"], (Exception,), {})(error["value"])
    if answer["results"]:
        text, data = answer["results"][0]["text"], answer["results"][0]["data"]
        rows = list(zip(*data.values(), strict=True))
        # exact: 2.0 is not 2, and no rounding is hidden
        print(sql_worker.table_text(list(data), rows, exact=True) if rows else text)
    else:
        print()


def _described(error: BaseException) -> list[str]:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith("Cell In[")]
    shown = [f"{frame.filename}, in {frame.name}\n----> {frame.lineno} {frame.line}" for frame in frames[-6:]]
    if isinstance(error, SyntaxError):
        shown = [f"----> {error.lineno} {(error.text or '').strip()}"]
    try:
        value = str(error)
    except Exception:  # noqa: BLE001 (a class of the code's own may fail to print itself)
        value = ""
    return [type(error).__name__, value[:_MOST_TEXT], "\n".join(shown)]


def _variant(cells: list[str | list[str]], show: Any, seconds: float) -> dict[str, Any]:
    global _running, _begun
    module = types.ModuleType("__main__")
    module.__dict__["get_ipython"] = lambda: None
    sys.modules["__main__"] = module
    out: dict[str, Any] = {"cell": 0, "stdout": "", "result": None, "error": None}
    printed = io.StringIO()
    _begun = time.monotonic(), _delay_s(), frozenset(thread.native_id for thread in threading.enumerate())
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        signal.setitimer(signal.ITIMER_REAL, _WALL_S)
        raised = _cells(cells, printed, out, module.__dict__, show)
        _running = False
        out["error"] = None if raised is None else _described(raised)
    except TimeUp:  # also where it came while another exception was on its way
        _running = False
        out["error"] = ["TimeUp", "", ""]
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    out["stdout"] = printed.getvalue()[:_MOST_TEXT]
    return out


def _cells(
    cells: list[str | list[str]], printed: io.StringIO, out: dict[str, Any], namespace: dict[str, Any], show: Any
) -> BaseException | None:
    """Runs cells until one raises; returns what it raised."""
    global _running
    _running = True
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
            for index, cell in enumerate(cells):
                printed.seek(0)
                printed.truncate()
                out["cell"] = index
                out["result"] = _ran(cell, f"Cell In[{index + 1}]", namespace, show)
    except TimeUp:
        raise
    except BaseException as error:  # noqa: BLE001 (whatever a variant raises is its result)
        return error
    return None


def run_trials(payload: str, show: Any = repr) -> None:
    """Run all groups of variants and print how each ended; groups whose first variant fails are skipped."""
    kept, running = sys.modules["__main__"], asyncio._get_running_loop()
    signal.signal(signal.SIGVTALRM, _time_up)
    signal.signal(signal.SIGALRM, _time_up)
    backwards = int(os.environ.get("PYTHONHASHSEED", "1")) % 2 == 0
    folder, ends = Path.cwd(), []
    asyncio._set_running_loop(None)
    try:
        for group in json.loads(payload):
            began = time.process_time()
            found: dict[int, Any] = {0: _variant(group[0], show, _FIRST_S)}
            seconds = max(_LEAST_S, 5 * (time.process_time() - began))
            order = range(1, len(group)) if found[0]["error"] is None else range(0)
            for number in reversed(order) if backwards else order:
                if sum(end["error"] is not None and end["error"][0] == "TimeUp" for end in found.values()) >= _PATIENCE:
                    break
                found[number] = _variant(group[number], show, seconds)
                os.chdir(folder)
            ends.append([found.get(number) for number in range(len(group))])
    finally:
        asyncio._set_running_loop(running)
        sys.modules["__main__"] = kept
    print(json.dumps(ends))

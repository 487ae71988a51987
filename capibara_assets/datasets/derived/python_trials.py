"""Runs variants of Python sessions inside one sandboxed session, each in a fresh module; sent there as text.

Standard library alone. `run_trials` prints one JSON line: how each variant ended. Under an even hash seed the
variants of a group run in reverse order, so that what one leaves behind shows as a difference between the runs.
"""

import ast
import asyncio
import contextlib
import io
import json
import linecache
import os
import re
import signal
import sys
import time
import traceback
import types
from pathlib import Path
from typing import Any

_FIRST_S, _LEAST_S, _WALL_S = 0.5, 0.1, 2.0  # a variant may take five times as long as the first, and the least
_PATIENCE = 2  # variants of one group that ran into a limit, after which the others do not run
_MOST_TEXT = 4000
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


class TimeUp(BaseException):
    """A variant used up its time."""


_running = False


def _time_up(*_: Any) -> None:
    if _running:  # else it comes late, when the variant has ended
        signal.setitimer(signal.ITIMER_VIRTUAL, _LEAST_S)  # again, should the code catch it
        raise TimeUp


def _ran(source: str, name: str, namespace: dict[str, Any], show: Any) -> str | None:
    """Runs one cell; returns how its last expression is shown, None where it has none."""
    lines = [line + "\n" for line in source.split("\n")]
    linecache.cache[name] = (len(source), None, lines, name)
    tree = ast.parse(source, name)
    final = tree.body[-1] if tree.body and not source.rstrip().endswith(";") else None
    last = final if isinstance(final, ast.Expr) else None
    if last is not None:
        tree.body.pop()
    value = _evaluated(tree, name, namespace)
    if last is None:
        return None
    value = _evaluated(ast.Expression(last.value), name, namespace)
    return None if value is None else str(show(value))[:_MOST_TEXT]


def _evaluated(tree: Any, name: str, namespace: dict[str, Any]) -> Any:
    mode = "eval" if isinstance(tree, ast.Expression) else "exec"
    code = compile(tree, name, mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    value = eval(code, namespace)
    return asyncio.run(value) if code.co_flags & 0x80 else value  # 0x80: it awaits at its top level


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


def _variant(cells: list[str], show: Any, seconds: float) -> dict[str, Any]:
    global _running
    module = types.ModuleType("__main__")
    module.__dict__["get_ipython"] = lambda: None
    sys.modules["__main__"] = module
    out: dict[str, Any] = {"cell": 0, "stdout": "", "result": None, "error": None}
    printed = io.StringIO()
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
    cells: list[str], printed: io.StringIO, out: dict[str, Any], namespace: dict[str, Any], show: Any
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
    """Prints how all variants ended, by group; those of a group whose first variant fails do not run."""
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

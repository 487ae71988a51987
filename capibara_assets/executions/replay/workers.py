"""Worker processes of the replay pool: isolated, each runs sessions of its languages one after the other."""

from __future__ import annotations

import json
import os
import secrets
import selectors
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from capibara_assets.executions.sandbox.isolation import Isolation, IsolationError, Sandboxed

_HERE = Path(__file__).resolve().parent
_SANDBOX = _HERE.parent / "sandbox"
_TICK_S = 0.25
_START_S = 60.0
_LEAVE_S = 2.0
_SLACK_S = 5.0  # of a cell's time on the clock, beside what its CPU seconds may take
#: No answer of ours is longer: twice what a session may have printed, escaped.
_MOST_LINE = 128 << 20
#: What a worker's own processes take, in the control group that bounds the whole tree.
_WORKER_MIB = 1024
#: How a worker may say that a session ended.
_ENDS = frozenset({"done", "cpu", "wall", "memory", "exit", "signal", "garbled", "stuck"})


@dataclass(frozen=True)
class Session:
    """Cells of code that run one after the other in a fresh interpreter."""

    language: str  # python, sql, javascript, or "traced python" (traces.py)
    cells: tuple[str, ...]
    once: bool = False  # run once, under any hash seed, however often others run


@dataclass(frozen=True)
class SessionLimits:
    """Limits of one session: CPU seconds of each cell, and memory of all its processes together."""

    timeout_s: float
    memory_mib: int
    slack_s: float | None = None  # wall clock of a cell beside its CPU seconds; None: generous


@dataclass(frozen=True)
class Ran:
    """How one run of a session ended."""

    ended: str  # done; cpu, wall, memory: a limit; exit, signal: it ended its process; lost, garbled: its worker's end
    cell: int  # the cell that ran last
    answer: dict[str, Any]  # of the worker, when done: results, stdout, stderr, error


@dataclass(frozen=True)
class WorkerOptions:
    """What a worker is started with."""

    isolation: Isolation
    limits: SessionLimits
    preload: list[str]
    python: bool
    apart: frozenset[str]


class Workers:
    """The workers of one thread, by kind, started when they are first needed."""

    def __init__(self, options: WorkerOptions, run: int) -> None:
        self._options = options
        self._run = run
        self._started: dict[str, _Worker] = {}

    def run(self, session: Session, patience: float) -> Ran:
        """Runs a session; a worker that died or was ended is replaced before the next session."""
        kind = "javascript" if session.language == "javascript" else "python"
        if kind not in self._started:
            self._started[kind] = _Worker(self._options, kind, self._run)
        ran = self._started[kind].run(session, self._options.limits, patience)
        if not self._started[kind].usable or session.language in self._options.apart:
            self._started.pop(kind).close()
        return ran

    def close(self) -> None:
        for worker in self._started.values():
            worker.close()
        self._started.clear()


class _Worker:
    """One isolated process that runs sessions of its languages one after the other."""

    def __init__(self, options: WorkerOptions, kind: str, run: int) -> None:
        self.usable = True
        self._buffer = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the worker)
        if kind == "javascript":
            command, readable = _node_command(options.limits)
        else:
            alone = "processes" in options.isolation.aspects
            arguments = {"python": options.python, "preload": options.preload, "alone": alone}
            script = _HERE / "python_worker.py"
            command = [sys.executable, "-P", str(script), json.dumps(arguments)]
            readable = [script, _HERE / "python_shell.py", _HERE / "python_tracer.py", _SANDBOX / "sql_worker.py"]
        # set order follows the hash seed: each run has another one, the same in every batch
        environment = {"PYTHONHASHSEED": str(run + 1)}
        self._sandboxed: Sandboxed = options.isolation.start(
            command,
            readable=readable,
            environment=environment,
            errors=self._errors.fileno(),
            memory_mib=options.limits.memory_mib + _WORKER_MIB,
        )
        ready = self._line(time.monotonic() + _START_S)
        if isinstance(ready, str):
            said = self._said()
            self._sandboxed.close()
            raise IsolationError(f"a worker of re-verification does not start ({ready}): {said}")
        #: resident bytes of each process of the idle worker
        self._floor = {process.pid: _memory(process) for process in self._sandboxed.tree()}

    def run(self, session: Session, limits: SessionLimits, patience: float) -> Ran:
        """Runs a session to its end, or gives up the worker when the session exceeds a limit unnoticed."""
        nonce = secrets.token_hex(8)
        wall_s = (_SLACK_S if limits.slack_s is None else limits.slack_s) + patience * limits.timeout_s
        request = {
            "nonce": nonce,
            "language": session.language,
            "cells": list(session.cells),
            "timeout_s": limits.timeout_s,
            "memory_mib": limits.memory_mib,
            "wall_s": wall_s,
        }
        backstop = time.monotonic() + 2 * wall_s * len(session.cells)
        try:
            stdin = self._sandboxed.process.stdin
            assert stdin is not None
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
            line = self._line(backstop, limits, len(session.cells))
        except BrokenPipeError:
            line = "lost"
        if isinstance(line, str):
            self.usable = False
            if line == "lost" and "out of memory" in self._said():
                line = "memory"  # Node ends itself
            return Ran(line, 0, {})
        try:
            answer = json.loads(line)
            trusted = answer.pop("nonce") == nonce and _is_answer(answer)
        except (ValueError, KeyError, AttributeError, RecursionError):
            trusted = False
        if not trusted:
            self.usable = False
            return Ran("garbled", 0, {})
        self.usable = not answer.get("leaving", False)
        return Ran(answer.get("ended", "done"), answer.get("cell", 0), answer)

    def _line(self, backstop: float, limits: SessionLimits | None = None, cells: int = 0) -> bytes | str:
        """The worker's next line, or why there is none (as `Ran.ended`); `limits`: of the running session."""
        stdout = self._sandboxed.process.stdout
        assert stdout is not None
        began: float | None = None
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(_TICK_S):
                    if time.monotonic() > backstop:
                        return "wall"
                    if limits is None:
                        continue
                    tree = self._sandboxed.tree()
                    used = sum(map(_cpu_seconds, tree))
                    began = used if began is None else began
                    # reached only by sessions that a worker cannot bound by itself
                    if used - began > limits.timeout_s * cells + 1.5:
                        return "cpu"
                    if self._grown(tree) > limits.memory_mib << 20:
                        return "memory"
                    if any(process.pid in self._floor and _is_stopped(process) for process in tree):
                        return "lost"  # a session stopped its worker
                    continue
                chunk = os.read(stdout.fileno(), 1 << 16)
                if not chunk:
                    return "lost"
                self._buffer += chunk
                if len(self._buffer) > _MOST_LINE:
                    return "garbled"
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _grown(self, tree: Iterable[psutil.Process]) -> int:
        """Bytes that a session uses beyond its worker's, which every fork shares."""
        shared = max(self._floor.values(), default=0)
        return sum(max(0, _memory(process) - self._floor.get(process.pid, shared)) for process in tree)

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip()[-2000:] or "it said nothing"

    def close(self) -> None:
        self._sandboxed.close(_LEAVE_S if self.usable else 0.0)
        self._errors.close()


def _is_answer(answer: dict[str, Any]) -> bool:
    """Whether an answer has a valid form: a session may have written it itself."""
    if not isinstance(answer.get("ended", "done"), str) or type(answer.get("cell", 0)) is not int:
        return False
    if answer.get("ended", "done") not in _ENDS or not 0 <= answer.get("cell", 0) < 1 << 16:
        return False
    if answer.get("ended", "done") != "done":
        return True
    streams = [answer.get("stdout"), answer.get("stderr")]
    results, error = answer.get("results"), answer.get("error", ())
    return (
        all(isinstance(s, str) or (isinstance(s, list) and all(isinstance(c, str) for c in s)) for s in streams)
        and isinstance(results, list)
        and all(isinstance(each, dict) and isinstance(each.get("text"), str) for each in results)
        and (
            error is None or (isinstance(error, dict) and all(isinstance(error.get(k), str) for k in ("name", "value")))
        )
    )


def node() -> str | None:
    """The path of Node.js, from the PATH; None when it is not installed."""
    program = shutil.which("node")
    return None if program is None else str(Path(program).resolve())


def _node_command(limits: SessionLimits) -> tuple[list[str], list[Path]]:
    program = node()
    if program is None:
        raise IsolationError("no `node` on the PATH")
    scripts = [_HERE / "javascript_worker.js", _SANDBOX / "javascript_session.js"]
    flags = ["--expose-internals", "--no-warnings", f"--max-old-space-size={limits.memory_mib}"]
    return [program, *flags, str(scripts[0])], [Path(program), *scripts]


def _cpu_seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return times.user + times.system + getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)


def _is_stopped(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False


def _memory(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0

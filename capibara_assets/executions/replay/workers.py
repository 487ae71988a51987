"""Worker processes of the replay pool: isolated, each runs sessions of its languages one after the other.

Starting one takes longer than most sessions, above all where large libraries are loaded before the forks: within
`kept_workers` those of one batch run the sessions of the next.
"""

from __future__ import annotations

import json
import os
import secrets
import selectors
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from capibara_assets.executions.sandbox.isolation import Isolation, IsolationError, Sandboxed

_HERE = Path(__file__).resolve().parent
_SANDBOX = _HERE.parent / "sandbox"
_LOOK_S, _MOST_LOOK_S = 0.05, 0.2  # between two looks at whether a session waits: at first, and at most
_WATCH_S = 0.5  # between two sums over all its processes, which take longer, unless it waits
_START_S = 60.0
_LEAVE_S = 2.0
_BACKSTOP = 5.0  # times the wall clock of its cells: a worker that does not bound its session has died or was stopped
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
class Bounds:
    """What bounds one run of a session.

    Attributes:
        patience: wall clock that a cell may take for each second of CPU.
        waits: told when the session begins to wait without using a processor (True), and when it goes on (False).
    """

    limits: SessionLimits
    patience: float
    waits: Callable[[bool], None] = lambda _: None

    @property
    def wall_s(self) -> float:
        """Seconds of one cell on the clock, without those in which it would have run had a processor been free."""
        slack = _SLACK_S if self.limits.slack_s is None else self.limits.slack_s
        return slack + self.patience * self.limits.timeout_s


@dataclass(frozen=True)
class Ran:
    """How one run of a session ended."""

    ended: str  # done; cpu, wall, memory: a limit; exit, signal: it ended its process; lost, garbled: its worker's end
    cell: int  # the cell that ran last
    answer: dict[str, Any]  # of the worker, when done: results, stdout, stderr, error


@dataclass(frozen=True)
class WorkerOptions:
    """What the workers of a batch are started with.

    Attributes:
        preload: modules that Python's workers import before they fork sessions.
        python: some sessions need the IPython shell.
        apart: languages whose sessions each get a worker of their own.
    """

    isolation: Isolation
    memory_mib: int
    preload: frozenset[str] = frozenset()
    python: bool = False
    apart: frozenset[str] = frozenset()


class Workers:
    """Workers by kind and hash seed, each lent to one session at a time; another starts only where none is idle."""

    def __init__(self, isolation: Isolation, memory_mib: int) -> None:
        self._isolation, self._memory_mib = isolation, memory_mib
        # on Linux a worker ends with the thread that started it
        self._starter = ThreadPoolExecutor(1, "replay-starter")
        self._idle: dict[tuple[str, int], list[_Worker]] = {}
        self._lock = threading.Lock()

    def run(self, session: Session, run: int, options: WorkerOptions, bounds: Bounds) -> Ran:
        """Run a session under the hash seed of a run; a worker that died or was ended is replaced for the next one.

        Raises:
            IsolationError: a worker does not start.
        """
        kind = "javascript" if session.language == "javascript" else "python"
        worker = self._taken(kind, run) or _Worker(self._start, kind, run, options)
        try:
            worker.prepare(options)
            ran = worker.run(session, bounds)
        except BaseException:
            worker.close()
            raise
        if worker.usable and session.language not in options.apart:
            with self._lock:
                self._idle.setdefault((kind, run), []).append(worker)
        else:
            worker.close()
        return ran

    def _taken(self, kind: str, run: int) -> _Worker | None:
        """The idle worker that was used last; None where none is left."""
        while True:
            with self._lock:
                idle = self._idle.get((kind, run))
                worker = idle.pop() if idle else None
            if worker is None or worker.runs():
                return worker
            worker.close()

    def _start(self, command: list[str], **options: Any) -> Sandboxed:
        start = partial(self._isolation.start, command, memory_mib=self._memory_mib + _WORKER_MIB, **options)
        return self._starter.submit(start).result()

    def close(self) -> None:
        """End all workers."""
        for idle in self._idle.values():
            for worker in idle:
                worker.close()
        self._idle.clear()
        self._starter.shutdown()


_kept: ContextVar[dict[tuple[Isolation, int], Workers] | None] = ContextVar("kept workers", default=None)


@contextmanager
def kept_workers() -> Iterator[None]:
    """Meanwhile batches that this thread runs share workers, by isolation and memory; then all workers end."""
    if _kept.get() is not None:
        yield
        return
    kept: dict[tuple[Isolation, int], Workers] = {}
    token = _kept.set(kept)
    try:
        yield
    finally:
        _kept.reset(token)
        for workers in kept.values():
            workers.close()


@contextmanager
def local_workers(isolation: Isolation, memory_mib: int) -> Iterator[Workers]:
    """Workers of this machine: those that are kept, else new ones that end with the block."""
    kept = _kept.get()
    if kept is not None:
        if (isolation, memory_mib) not in kept:
            kept[isolation, memory_mib] = Workers(isolation, memory_mib)
        yield kept[isolation, memory_mib]
        return
    workers = Workers(isolation, memory_mib)
    try:
        yield workers
    finally:
        workers.close()


class _Worker:
    """One isolated process that runs sessions of its languages one after the other."""

    def __init__(self, start: Callable[..., Sandboxed], kind: str, run: int, options: WorkerOptions) -> None:
        self.usable = True
        self._buffer = b""
        self._kind = kind
        self._loaded, self._python = frozenset[str](), False
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the worker)
        if kind == "javascript":
            command, readable = _node_command(options.memory_mib)
        else:
            arguments = {"alone": "processes" in options.isolation.aspects}
            script = _HERE / "python_worker.py"
            command = [sys.executable, "-P", str(script), json.dumps(arguments)]
            own = ("python_shell.py", "python_tracer.py", "python_instrument.py")
            readable = [script, *(_HERE / name for name in own)]
            readable += [_SANDBOX / "sql_worker.py", _SANDBOX / "leftovers.py"]
        # set order follows the hash seed: each run has another one, the same in every batch
        environment = {"PYTHONHASHSEED": str(run + 1)}
        self._sandboxed = start(command, readable=readable, environment=environment, errors=self._errors.fileno())
        self._ready()

    def _ready(self) -> None:
        """Wait until the worker has loaded what it was told to.

        Raises:
            IsolationError: it does not say so in time.
        """
        ready = self._line(time.monotonic() + _START_S)
        if isinstance(ready, str):
            said = self._said()
            self._sandboxed.close()
            raise IsolationError(f"a worker of re-verification does not start ({ready}): {said}")
        #: resident bytes of each process of the idle worker
        self._floor = {process.pid: _memory(process) for process in self._sandboxed.tree()}

    def runs(self) -> bool:
        """Whether its process is there."""
        return self._sandboxed.process.poll() is None

    def prepare(self, options: WorkerOptions) -> None:
        """Have it load, before its next fork, what sessions of a batch need and it has not loaded yet."""
        missing, python = options.preload - self._loaded, options.python or self._python
        if self._kind == "javascript" or (not missing and python == self._python):
            return
        self._loaded, self._python = self._loaded | missing, python
        self._ask({"preload": sorted(missing), "python": python})
        self._ready()

    def run(self, session: Session, bounds: Bounds) -> Ran:
        """Runs a session to its end, or gives up the worker when the session exceeds a limit unnoticed."""
        nonce = secrets.token_hex(8)
        request = {
            "nonce": nonce,
            "language": session.language,
            "cells": list(session.cells),
            "timeout_s": bounds.limits.timeout_s,
            "memory_mib": bounds.limits.memory_mib,
            "wall_s": bounds.wall_s,
        }
        backstop = time.monotonic() + _BACKSTOP * bounds.wall_s * len(session.cells)
        try:
            self._ask(request)
            line = self._line(backstop, bounds, len(session.cells))
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

    def _ask(self, request: dict[str, Any]) -> None:
        stdin = self._sandboxed.process.stdin
        assert stdin is not None
        stdin.write(json.dumps(request).encode() + b"\n")
        stdin.flush()

    def _line(self, backstop: float, bounds: Bounds | None = None, cells: int = 0) -> bytes | str:
        """The worker's next line, or why there is none (as `Ran.ended`); `bounds`: of the running session."""
        stdout = self._sandboxed.process.stdout
        assert stdout is not None
        watch = _Watch(self, bounds, cells) if bounds is not None else None
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(watch.pause_s if watch is not None else _MOST_LOOK_S):
                    if time.monotonic() > backstop:
                        return "wall"
                    if watch is not None and (ended := watch.look()) is not None:
                        return ended
                    continue
                chunk = os.read(stdout.fileno(), 1 << 16)
                if not chunk:
                    return "lost"
                self._buffer += chunk
                if len(self._buffer) > _MOST_LINE:
                    return "garbled"
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def over(self, limits: SessionLimits, cells: int, began: float | None) -> tuple[str | None, float]:
        """(the limit that a session exceeds, or None; CPU seconds of all processes of the worker)."""
        tree = self._sandboxed.tree()
        used = sum(map(_cpu_seconds, tree))
        # reached only by sessions that a worker cannot bound by itself
        if began is not None and used - began > limits.timeout_s * cells + 1.5:
            return "cpu", used
        if self._grown(tree) > limits.memory_mib << 20:
            return "memory", used
        if any(process.pid in self._floor and _is_stopped(process) for process in tree):
            return "lost", used  # a session stopped its worker
        return None, used

    def waits(self) -> bool:
        """Whether none of its threads runs or could run."""
        return _all_asleep(self._sandboxed.process.pid)

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


class _Watch:
    """Watches a running session: whether it waits, and whether it exceeds a limit unnoticed by its worker."""

    def __init__(self, worker: _Worker, bounds: Bounds, cells: int) -> None:
        self._worker, self._bounds, self._cells = worker, bounds, cells
        self._began: float | None = None
        self._watched = time.monotonic()
        self._asleep = 0  # looks in a row
        self.pause_s = _LOOK_S  # until the next look

    def look(self) -> str | None:
        """Tell whether the session waits; returns the limit that it exceeds (as `Ran.ended`)."""
        asleep = self._worker.waits()
        if asleep and self._asleep == 1:
            self._bounds.waits(True)
        elif not asleep and self._asleep > 1:
            self._bounds.waits(False)
        self._asleep = self._asleep + 1 if asleep else 0
        self.pause_s = _LOOK_S if self._asleep == 1 else min(2 * self.pause_s, _MOST_LOOK_S)
        # once it sleeps, it takes nothing more
        if self._asleep > 2 or (self._asleep < 2 and time.monotonic() < self._watched + _WATCH_S):
            return None
        self._watched = time.monotonic()
        ended, used = self._worker.over(self._bounds.limits, self._cells, self._began)
        self._began = used if self._began is None else self._began
        return ended


def _all_asleep(root: int) -> bool:
    """Whether every thread of a process and of its descendants waits; False where the kernel does not tell."""
    pending = [root]
    try:
        while pending:
            for thread in Path("/proc", str(pending.pop()), "task").iterdir():
                if (thread / "stat").read_text().rpartition(")")[2].split()[0] != "S":
                    return False
                pending += map(int, (thread / "children").read_text().split())
    except OSError:  # one has just ended
        return False
    return True


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


def _node_command(memory_mib: int) -> tuple[list[str], list[Path]]:
    program = node()
    if program is None:
        raise IsolationError("no `node` on the PATH")
    scripts = [_HERE / "javascript_worker.js", _SANDBOX / "javascript_session.js"]
    flags = ["--expose-internals", "--no-warnings", f"--max-old-space-size={memory_mib}"]
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

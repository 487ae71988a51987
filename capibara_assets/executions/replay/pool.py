"""Runs sessions of code in isolated workers, each several times under different hash seeds; replaces dead workers."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from capibara_assets.executions.replay.e2b import workers_of
from capibara_assets.executions.replay.workers import Ran, Session, SessionLimits, WorkerOptions
from capibara_assets.executions.sandbox.isolation import Isolation

_IMPORTED = re.compile(r"^[ \t]*(?:import|from)[ \t]+([A-Za-z_][\w.]*)", re.MULTILINE)
#: Imported before the forks when sessions of a batch import them: they start no threads, and take long to import.
_PRELOADED = frozenset(
    ("numpy", "pandas", "scipy", "sklearn", "torch", "starlette", "fastapi", "pydantic", "requests", "httpx", "sympy")
)
#: Modules that a preloaded module loads on first use.
_WITH = {"starlette.testclient": ("anyio._backends._asyncio",), "fastapi.testclient": ("anyio._backends._asyncio",)}
#: Of the standard library: prints, opens windows, or takes over the terminal.
_NOT_PRELOADED = frozenset(
    ("this", "antigravity", "idlelib", "tkinter", "turtle", "curses", "readline", "pdb", "__main__")
)
_PRELOAD_FROM = 2  # sessions that import a module
#: Ends that may be the machine's doing; such a session runs again, alone.
UNCERTAIN = frozenset({"wall", "cpu", "memory", "signal", "garbled", "lost"})
#: Wall clock that one cell may take for each second of CPU, before and when it runs alone.
PATIENCE = 3.0, 6.0


@dataclass(frozen=True)
class RerunPolicy:
    """When a session runs again, alone.

    Attributes:
        uncertain: ends that may be the machine's doing: such a session runs again.
        patience: wall clock that a cell may take for each second of CPU, in the first run and when it runs alone.
        quiet_is_certain: a session that ran past its wall clock while cores were idle does not run again.
    """

    uncertain: Collection[str] = UNCERTAIN
    patience: tuple[float, float] = PATIENCE
    quiet_is_certain: bool = False

    def is_final(self, ended: str) -> bool:
        """Whether a first run that ended this way counts."""
        if ended not in self.uncertain:
            return True
        return self.quiet_is_certain and ended == "wall" and os.getloadavg()[0] < (os.cpu_count() or 1)


@dataclass(frozen=True)
class PoolSettings:
    """How sessions run.

    Attributes:
        times: runs of each session, each under another hash seed.
        processes: sessions that run at the same time.
        apart: languages whose sessions each get a worker of their own.
    """

    isolation: Isolation
    limits: SessionLimits
    times: int
    processes: int
    rerun: RerunPolicy = RerunPolicy()
    apart: frozenset[str] = frozenset()


@dataclass
class PoolResult:
    """The runs of every session, in order, and which sessions lost a worker or ran again."""

    runs: list[list[Ran]]
    lost: list[int] = field(default_factory=list)  # sessions that a worker died with, at least once
    again: list[int] = field(default_factory=list)  # sessions that ran again, alone


_Runs = dict[tuple[int, int], Ran]  # (session, run) -> how it ended
_Report = Callable[[int, Ran], None]


def run_sessions(
    sessions: Sequence[Session], settings: PoolSettings, finished: Callable[[int, Ran], None] | None = None
) -> PoolResult:
    """Runs every session `settings.times` times in isolated workers; ends that may be the machine's doing run again.

    Args:
        finished: called with a session's number and each of its runs as soon as that is final, from several threads.

    Raises:
        IsolationError: workers cannot be started.
    """
    if not sessions:
        return PoolResult([])
    python = any(session.language == "python" for session in sessions)
    options = WorkerOptions(settings.isolation, settings.limits, _preload(sessions), python, settings.apart)
    report: _Report = finished or (lambda index, ran: None)
    runs, final = _run_together(sessions, settings, options, report)
    lost = {index for (index, _), ran in runs.items() if ran.ended in ("lost", "garbled")}
    again = sorted(runs.keys() - final)
    for index, run in again:
        workers = workers_of(options, run)
        try:
            runs[index, run] = workers.run(sessions[index], settings.rerun.patience[1])
        finally:
            workers.close()
        report(index, runs[index, run])
    times = range(settings.times)
    by_session = [[runs[index, run] for run in times if (index, run) in runs] for index in range(len(sessions))]
    return PoolResult(by_session, sorted(lost), sorted({index for index, _ in again}))


def _run_together(
    sessions: Sequence[Session], settings: PoolSettings, options: WorkerOptions, report: _Report
) -> tuple[_Runs, set[tuple[int, int]]]:
    """Runs all sessions, several at a time; returns the runs, and the keys of those that are final."""
    times, processes = settings.times, settings.processes
    runs: _Runs = {}
    final: set[tuple[int, int]] = set()
    order = list(_in_order(sessions))
    waiting = [deque(i for i in order if not sessions[i].once or i % times == run) for run in range(times)]
    places = threading.Semaphore(processes)
    failures: list[BaseException] = []

    def work(run: int) -> None:
        # a thread owns its workers: on Linux they end with the thread that started them
        workers = workers_of(options, run)
        try:
            while not failures:
                try:
                    index = waiting[run].popleft()
                except IndexError:
                    return
                with places:
                    runs[index, run] = ran = workers.run(sessions[index], settings.rerun.patience[0])
                if settings.rerun.is_final(ran.ended):
                    final.add((index, run))
                    report(index, ran)
        except Exception as error:  # noqa: BLE001 (raised again by the thread that waits)
            failures.append(error)
        finally:
            workers.close()

    threads = [
        threading.Thread(target=work, args=(slot % times,), name=f"replay-{slot}", daemon=True)
        for slot in range(times * max(1, min(processes // times, len(sessions))))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return runs, final


def _in_order(sessions: Sequence[Session]) -> Iterable[int]:
    """Numbers of the sessions, those of one language together, so that few workers start."""
    return sorted(range(len(sessions)), key=lambda index: sessions[index].language == "javascript")


def _preload(sessions: Sequence[Session]) -> list[str]:
    """Modules (dotted names) to import before forking: known, installed, and imported by several Python sessions."""
    counts: Counter[str] = Counter()
    for session in sessions:
        if session.language in ("python", "traced python"):
            counts.update({name for cell in session.cells for name in _IMPORTED.findall(cell)})
    chosen = []
    for name in sorted(name for name, count in counts.items() if count >= _PRELOAD_FROM):
        top = name.split(".")[0]
        known = top in _PRELOADED or (top in sys.stdlib_module_names and top not in _NOT_PRELOADED)
        if known and importlib.util.find_spec(top) is not None:
            chosen += [name, *_WITH.get(name, ())]
    return chosen

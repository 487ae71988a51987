"""Processes that materialize tasks of the graph side by side, each on its own share of the processor's cores."""

import contextlib
import gc
import io
import math
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess

import psutil

from capibara_assets.automation.outcome import Report, RunOutcome, Task
from capibara_assets.processes.cores import allow_cores
from capibara_assets.processes.supervise import OVER, Attempt, supervise, when_parent_is_gone

Materialize = Callable[[Task, Report], RunOutcome]
Opened = Callable[[], AbstractContextManager[Materialize]]
"""Opens, in a lane's process, what runs tasks there; picklable."""

Ended = Callable[[int, RunOutcome], None]
_MOST_RESIDENT = 896 << 20  # bytes; a lane that has read datasets keeps near 1 GiB, whatever it releases
# Not forks of this process: after one, polars' and torch's threads are missing.
_CONTEXT = multiprocessing.get_context("forkserver")
_FORK_SERVER = "capibara_assets.automation.lane_server"


def shares(cores: Sequence[int], lanes: int) -> list[frozenset[int]]:
    """Cores divided among lanes: disjoint, as equal as they can be. Takes `lanes` <= cores."""
    return [frozenset(cores[lane::lanes]) for lane in range(lanes)]


@dataclass(frozen=True)
class LaneSettings:
    """How many lanes there are, and how they start.

    Attributes:
        count: number of processes, at most the number of cores.
        opened: opens, in a lane's process, what runs tasks there.
        imported: modules that the fork server imports once for all lanes; none may start a thread.
    """

    count: int
    opened: Opened
    imported: Sequence[str] = ()


def run_in_lanes(
    settings: LaneSettings, tasks: Sequence[Task], report: Report, ended: Ended | None = None
) -> RunOutcome:
    """Run tasks, each as soon as those that it waits for have ended and a lane is idle; earlier tasks first.

    A lane whose process dies (out of memory, a crash) costs its task, which counts as failed, and is replaced. One that
    holds much memory after a task is replaced, too: what tasks leave behind would add up. The cores of a lane that has
    nothing to do are lent to the others.

    Args:
        tasks: of `Graph.tasks`.
        report: called with every line that a lane prints and every failure that it reports.
        ended: called with the position of each task that has ended, and how.

    Raises:
        KeyboardInterrupt: this process got SIGINT or SIGTERM, or a lane's step was interrupted. Each running step has
            been interrupted, once, and has ended; after a second interruption the lanes are killed.
    """
    run = _Run(settings.opened, tasks, report, list(range(len(tasks))), ended)
    run.lanes = [_Lane(run, share) for share in shares(sorted(os.sched_getaffinity(0)), settings.count)]
    _CONTEXT.set_forkserver_preload([_FORK_SERVER, *settings.imported])
    with _interrupted_by_sigterm():
        supervise(run.lanes, settings.count, lambda: not run.interrupted, grace_s=math.inf)
    if run.interrupted:
        raise KeyboardInterrupt
    return run.outcome


@dataclass
class _Run:
    """What the lanes share.

    Attributes:
        waiting: positions of the tasks that no lane has begun.
        also: told of each task that has ended.
        ended: positions of those that have ended.
        interrupted: whether a step was.
    """

    opened: Opened
    tasks: Sequence[Task]
    report: Report
    waiting: list[int]
    also: Ended | None = None
    lanes: Sequence["_Lane"] = ()
    ended: set[int] = field(default_factory=set)
    outcome: RunOutcome = field(default_factory=RunOutcome)
    interrupted: bool = False

    def end(self, task: int, outcome: RunOutcome) -> None:
        """Take in how a task ended, and give idle lanes those that waited for it."""
        self.ended.add(task)
        self.outcome.add(outcome)
        if self.also is not None:
            self.also(task, outcome)
        for lane in self.lanes:
            lane.assign()
        self.lend()

    def lend(self) -> None:
        """Let lanes that work use the cores of those that do not, too."""
        busy = [lane for lane in self.lanes if lane.task is not None]
        idle = sorted(core for lane in self.lanes if lane.task is None for core in lane.cores)
        for at, lane in enumerate(busy):
            lane.use(lane.cores.union(idle[at :: len(busy)]))


@dataclass
class _Lane:
    """A lane as the run sees it.

    Attributes:
        cores: its own.
        connection: to its process; None: it has none, or only one that ends.
        task: position of the one it works on; None: it is idle.
        using: the cores that its process may use now: its own, and those lent to it.
    """

    run: _Run
    cores: frozenset[int]
    connection: Connection | None = None
    pid: int | None = None
    task: int | None = None
    using: frozenset[int] = frozenset()

    def start(self) -> Attempt:
        """Start its process on its cores."""
        self.connection, theirs = _CONTEXT.Pipe()
        arguments = (self.run.opened, self.run.tasks, theirs, len(self.cores), dict(os.environ))
        process = _CONTEXT.Process(target=_serve, args=arguments, name="capibara-lane", daemon=False)
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, min(self.run.lanes, key=lambda lane: len(lane.cores)).cores)
        try:
            process.start()  # the first starts the fork server, whose libraries make as many threads as it has cores
        finally:
            os.sched_setaffinity(0, allowed)
        self.pid, self.using = process.pid, frozenset()
        self.use(self.cores)
        theirs.close()
        self.assign()
        self.run.lend()
        return Attempt(process, self.connection, self.receive, partial(self.leave, process))

    def assign(self) -> None:
        """If it is idle: give it the first waiting task that need not wait any longer; let it go when none waits."""
        if self.connection is None or self.task is not None:
            return
        self.task = next((at for at in self.run.waiting if self.run.tasks[at].after <= self.run.ended), None)
        if self.task is not None:
            self.run.waiting.remove(self.task)
            with contextlib.suppress(OSError):  # it has died, as `judge` will find
                self.connection.send(self.task)
        elif not self.run.waiting:
            self.connection.close()

    def use(self, cores: frozenset[int]) -> None:
        """Let its process and those started from it run on these cores."""
        if self.pid is not None and cores != self.using:
            self.using = cores
            allow_cores(self.pid, cores)

    def receive(self, message: str | RunOutcome | None) -> None:
        """Take in a line, or how its task ended; None: it was interrupted, and so is the run."""
        if isinstance(message, str):
            self.run.report(message)
        elif self.task is not None:
            task, self.task = self.task, None
            if message is None:
                self.run.interrupted = True
                self.run.waiting.clear()
            if self.connection is not None and _resident(self.pid) > _MOST_RESIDENT:
                self.connection.close()  # its process ends, and `judge` has another one started
                self.connection = None
            self.run.end(task, message or RunOutcome())

    def leave(self, process: ForkServerProcess) -> None:
        """Interrupt its task, if it has one; no lane begins another."""
        self.run.waiting.clear()
        self.assign()
        if self.task is not None:
            os.kill(process.pid or 0, signal.SIGINT)

    def judge(self, code: int | None) -> float | None:
        """As `Worker.judge`: a task whose process ended is over, and another process goes on."""
        if code is None:
            return None
        self.connection = None
        if self.task is not None:
            task, self.task = self.task, None
            self.run.end(task, RunOutcome.died(self.run.tasks[task], code, self.run.report))
        return 0.0 if self.run.waiting else OVER


def _resident(pid: int | None) -> int:
    """Resident memory of a process in bytes; 0 where it has ended."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def _serve(
    opened: Opened,
    tasks: Sequence[Task],
    connection: Connection,
    threads: int,
    environment: Mapping[str, str],
) -> None:
    """A lane's process: receive positions of tasks, run them, send lines and outcomes (None: interrupted)."""
    gc.freeze()  # what the fork server imported: a collection would copy its pages
    os.environ.clear()  # the fork server's, which may serve several runs
    os.environ.update(environment)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)
    os.setpgid(0, 0)  # Ctrl-C reaches the run alone, which interrupts each lane once
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    when_parent_is_gone(partial(os.kill, os.getpid(), signal.SIGINT))
    with contextlib.redirect_stdout(_Lines(connection)), contextlib.suppress(EOFError), opened() as materialize:
        while True:
            try:
                task = tasks[connection.recv()]
                connection.send(materialize(task, partial(print, flush=True)))
            except KeyboardInterrupt:
                with contextlib.suppress(OSError):
                    connection.send(None)
                return


class _Lines(io.TextIOBase):
    """Standard output of a lane: whole lines are sent to the run, which prints them."""

    def __init__(self, connection: Connection):
        self._connection = connection
        self._begun = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._connection.send(line)
        return len(text)


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt in the main thread meanwhile, as SIGINT does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

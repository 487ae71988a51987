"""Sessions that wait give their place to others, those that compute do not; a busy machine changes no end."""

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from capibara_assets.executions.replay.pool import PoolSettings, RerunPolicy, run_sessions
from capibara_assets.executions.replay.workers import Ran, Session, SessionLimits, kept_workers
from capibara_assets.executions.sandbox.isolation import Isolation, best_isolation

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel does not tell who waits")
NOTHING_AGAIN = RerunPolicy(uncertain=frozenset(), patience=(0.5, 0.5))
LOOSE = SessionLimits(20.0, 512)


def python(code: str) -> Session:
    return Session("python", (code,))


def ran(sessions: list[Session], limits: SessionLimits = LOOSE, processes: int = 1) -> list[Ran]:
    settings = PoolSettings(best_isolation(), limits, 1, processes, NOTHING_AGAIN)
    return [run for (run,) in run_sessions(sessions, settings).runs]


def at_once(ends: list[Ran]) -> int:
    """How many sessions, all done, began before the one before them had ended; each prints both times."""
    assert {end.ended for end in ends} == {"done"}
    times = sorted(tuple(map(float, end.answer["stdout"].split())) for end in ends)
    return sum(begin < end for (_, end), (begin, _) in itertools.pairwise(times))


@linux
def test_sleeping_sessions_do_not_wait_for_each_other() -> None:
    code = "import time\nbegan = time.monotonic()\ntime.sleep(2)\nprint(began, time.monotonic())"
    assert at_once(ran([python(code)] * 4)) > 0  # on one core


def test_computing_sessions_run_one_at_a_time() -> None:
    code = (
        "import time\nbegan = time.monotonic()\nwhile time.process_time() < 0.3: pass\nprint(began, time.monotonic())"
    )
    assert at_once(ran([python(code)] * 3)) == 0


@pytest.fixture
def busy() -> Iterator[None]:
    """One core for this process and its children, and another process that computes there.

    In a session of its own, as a sandbox's are: the kernel shares a core between sessions before it does between
    processes, so one in the session of a busy machine's other work left the sandbox nearly the whole core.
    """
    best_isolation()  # what is tried out once takes long beside the other
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    command = [sys.executable, "-c", "while True: pass"]
    other = subprocess.Popen(command, start_new_session=True)
    try:
        yield
    finally:
        other.kill()
        other.wait()
        os.sched_setaffinity(0, allowed)


@linux
@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel does not tell who had no processor")
def test_a_busy_machine_changes_no_end(busy: None) -> None:
    wall_s = 2.7  # half as much again as is computed: no account of waiting has page faults, or a host that gives less
    sessions = [
        python("import time\nbegan = time.process_time()\nwhile time.process_time() < began + 1.8: pass"),
        python("import time\ntime.sleep(60)"),
        python("import threading\nthreading.Event().wait()"),
        python(
            "import signal, threading\n_ = signal.signal(signal.SIGALRM, lambda *_: event.set())\n"
            "event = threading.Event()\n_ = signal.setitimer(signal.ITIMER_REAL, 0.75)\n_ = event.wait()"
        ),
    ]
    ends = ran(sessions, SessionLimits(wall_s / NOTHING_AGAIN.patience[0], 512, slack_s=0.0))
    assert [end.ended for end in ends] == ["done", "wall", "stuck", "done"]
    assert ends[0].answer["wall_s"] > wall_s, "the machine was not busy"


def test_kept_workers_run_the_next_batch_with_what_it_needs_and_then_end(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    start = Isolation.start

    def counted(isolation: Isolation, *arguments, **options):
        started.append(start(isolation, *arguments, **options))
        return started[-1]

    best_isolation()
    monkeypatch.setattr(Isolation, "start", counted)
    loaded = "import sys\nprint('colorsys' in sys.modules, 'left' in globals())"
    with kept_workers():
        (sql,) = ran([Session("sql", ("SELECT 1 AS one",))])
        (first,) = ran([python(f"{loaded}\nleft = 1")])
        second, _ = ran([python(f"{loaded}\nimport colorsys"), python("import colorsys")])
        assert len(started) == 1 and started[0].process.poll() is None
        started[0].process.kill()
        started[0].process.wait()
        assert ran([python("1")])[0].ended == "done", "one that died is replaced"
    assert [end.answer["stdout"] for end in (sql, first, second)] == ["", "False False\n", "True False\n"]
    assert len(started) == 2 and all(worker.process.poll() is not None for worker in started)

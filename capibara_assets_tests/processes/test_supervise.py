"""Supervision of real processes: starts, pauses, messages, deaths, interruptions; none is left behind."""

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import pytest

from capibara_assets.processes.identity import Process
from capibara_assets.processes.supervise import OVER, Attempt, Patience, doubled, supervise, when_parent_is_gone
from capibara_assets_tests.processes.test_groups import alive, all_gone

CONTEXT = multiprocessing.get_context("fork")
THREE_TIMES = Patience(3, 0.0, 0.0)
ROOT = Path(__file__).resolve().parents[2]


def act(what: str, attempt: int, connection: Connection) -> None:
    """First function of a process: says its number, then does what it is told."""
    signal.signal(
        signal.SIGTERM, signal.SIG_IGN if what == "stays" else lambda *_: (connection.send("saved"), os._exit(0))
    )
    connection.send(attempt)
    match what.split():
        case ["dies", times] if attempt <= int(times):
            os.kill(os.getpid(), signal.SIGKILL)
        case ["waits"] | ["stays"] | ["hangs"]:
            while True:
                time.sleep(60)
        case ["talks"]:
            for word in range(1000):  # more than a pipe holds
                connection.send("x" * 1000 + str(word))


@dataclass
class Told:
    """A worker that does what it is told, tried three times; `hangs` is given up as soon as it has spoken."""

    what: str
    heard: list[Any] = field(default_factory=list)
    codes: list[int | None] = field(default_factory=list)
    started: list[float] = field(default_factory=list)
    pids: list[int] = field(default_factory=list)
    patience: Patience = THREE_TIMES

    def start(self) -> Attempt:
        ours, theirs = CONTEXT.Pipe(duplex=False)
        process = CONTEXT.Process(target=act, args=(self.what, len(self.started) + 1, theirs), daemon=True)
        self.started.append(time.monotonic())
        process.start()
        theirs.close()
        self.pids.append(process.pid or 0)
        return Attempt(process, ours, self.heard.append, None if self.what == "hangs" else process.terminate)

    def judge(self, code: int | None) -> float | None:
        if code is None:
            return self.patience.pause(len(self.started)) if self.what == "hangs" and self.heard else None
        self.codes.append(code)
        return OVER if code == 0 else self.patience.pause(len(self.codes))


def always() -> bool:
    return True


def test_pauses_double_up_to_the_longest_and_end_with_the_attempts() -> None:
    assert [Patience(5, 0.5, 3.0).pause(failed) for failed in range(1, 6)] == [0.5, 1.0, 2.0, 3.0, OVER]
    assert Patience(1, 0.5, 3.0).pause(1) == OVER
    assert doubled(1.0, 10**6, 60.0) == 60.0 and doubled(0.0, 5, 60.0) == 0.0


def test_what_dies_is_tried_again_until_it_lives_or_its_attempts_are_over() -> None:
    workers = [Told("dies 2"), Told("dies 9"), Told("talks")]
    supervise(workers, 2, always)
    assert [worker.codes for worker in workers] == [[-9, -9, 0], [-9, -9, -9], [0]]
    assert [worker.heard for worker in workers[:2]] == [[1, 2, 3], [1, 2, 3]], "the last words of the dead arrive"
    assert len(workers[2].heard) == 1001
    assert all_gone([pid for worker in workers for pid in worker.pids])


def test_a_pause_holds_up_its_worker_and_no_other() -> None:
    rests, others = Told("dies 1", patience=Patience(2, 0.7, 0.7)), [Told("ends"), Told("ends")]
    supervise([rests, *others], 1, always)
    assert rests.started[1] - rests.started[0] >= 0.7
    assert all(other.started[0] < rests.started[1] for other in others)
    assert others[1].started[0] >= others[0].started[0], "one at a time, in their order"


def test_one_that_rests_takes_no_place() -> None:
    """It runs on, and others run beside it, one at a time."""
    waits, one, other = workers = [Told("waits"), Told("ends"), Told("ends")]

    def go_on() -> bool:
        return not (one.codes and other.codes)

    supervise(workers, 1, go_on, rests=lambda at: at == 0 and bool(waits.heard))
    assert waits.codes == [] and one.codes == other.codes == [0] and waits.started < one.started < other.started
    assert all_gone([pid for worker in workers for pid in worker.pids])


def test_one_that_is_given_up_is_killed_and_the_others_go_on() -> None:
    hangs, ends = Told("hangs", patience=Patience(1, 0, 0)), Told("ends")
    supervise([hangs, ends], 2, always)
    assert len(hangs.started) == 1 and not hangs.codes and ends.codes == [0]
    assert all_gone(hangs.pids)


@pytest.mark.parametrize("raises", [False, True])
def test_when_it_is_not_to_go_on_all_are_asked_to_leave_and_their_last_words_are_heard(raises: bool) -> None:
    workers = [Told("waits"), Told("waits"), Told("ends")]

    def go_on() -> bool:
        if all(worker.heard for worker in workers[:2]):
            if raises:
                raise KeyboardInterrupt
            return False
        return True

    def run() -> None:
        supervise(workers, 2, go_on, grace_s=60)

    if raises:
        with pytest.raises(KeyboardInterrupt):
            run()
    else:
        run()
    assert [worker.heard for worker in workers] == [[1, "saved"], [1, "saved"], []] and not workers[2].started
    assert all_gone([pid for worker in workers for pid in worker.pids])


def test_stopped_before_anything_started_nothing_starts() -> None:
    worker = Told("ends")
    supervise([worker], 1, lambda: False)
    assert not worker.started


@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", ["grace", "hurry", "interruption"])
def test_one_that_does_not_leave_is_killed(how: str) -> None:
    worker, asked = Told("stays"), list[None]()

    def hurry() -> bool:
        asked.append(None)
        if how == "interruption":
            raise KeyboardInterrupt
        return how == "hurry"

    def run() -> None:
        supervise([worker], 1, lambda: not worker.heard, grace_s=0.3 if how == "grace" else math.inf, hurry=hurry)

    if how == "interruption":
        with pytest.raises(KeyboardInterrupt):
            run()
    else:
        run()
    assert all_gone(worker.pids)
    assert len(asked) == 1 or how == "grace", "at once is when it is first asked"


def test_a_start_that_fails_leaves_the_others_to_nobody() -> None:
    class Broken(Told):
        def start(self) -> Attempt:
            raise ValueError("no room")

    first = Told("waits")
    with pytest.raises(ValueError, match="no room"):
        supervise([first, Broken("ends")], 2, always, grace_s=0.5)
    assert first.pids and all_gone(first.pids)


def follow(done: str, then: Callable[[str], None]) -> None:
    when_parent_is_gone(lambda: then(done))
    Path(done).with_suffix(".here").write_text(str(os.getpid()))
    time.sleep(600)


def leave(done: str) -> None:
    Path(done).touch()
    os._exit(0)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_process_learns_that_its_parent_was_killed(tmp_path: Path, method: str) -> None:
    text = """
import multiprocessing, sys, time
from capibara_assets_tests.processes.test_supervise import follow, leave
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    children = [context.Process(target=follow, args=(file, leave)) for file in sys.argv[2:]]
    for child in children:
        child.start()
    time.sleep(600)
"""
    (tmp_path / "run.py").write_text(text)
    command = [sys.executable, str(tmp_path / "run.py"), method, str(tmp_path / "a"), str(tmp_path / "b")]
    parent = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)})
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("*.here"))) < 2:
        assert time.monotonic() < deadline and parent.poll() is None
        time.sleep(0.02)
    children = [int(file.read_text() or 0) for file in tmp_path.glob("*.here")]
    parent.kill()
    parent.wait()
    assert all_gone(children) and {"a", "b"} <= {file.name for file in tmp_path.iterdir()}


def test_a_process_is_known_by_its_start_as_well_as_its_number() -> None:
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=True)
    known = Process.of(child.pid)
    other = Process(child.pid, known.started - 1)
    assert known.is_alive() and not other.is_alive()
    other.signal_group(signal.SIGKILL)
    assert alive(child.pid), "the group of a process whose number was given on is not signalled"
    known.signal_group(signal.SIGKILL)
    assert os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT) is not None
    assert psutil.pid_exists(child.pid) and not known.is_alive(), "one that was not reaped runs no more"
    child.wait()
    known.signal_group(signal.SIGKILL)

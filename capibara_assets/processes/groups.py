"""Child processes in process groups of their own, stopped as a whole, also when their parent is killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import psutil

from capibara_assets.processes.identity import Process

_TICK_S = 0.2  # between two looks at a process that has only so long

# Runs beside the group with the read end of a pipe that only our process writes to. A byte means "all done"; end of
# file without one means that our process died: then the group gets the same end as from `stop`.
_GUARD = """
import os, signal, sys, time
pipe, group, grace = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if not os.read(pipe, 1):
    try:
        os.killpg(group, signal.SIGINT)
        end = time.monotonic() + grace
        while time.monotonic() < end:
            os.killpg(group, 0)
            time.sleep(0.1)
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""

# Becomes the group's leader once the guard stands: our death before that closes stdin without a byte. Python ignores
# SIGPIPE and SIGXFSZ, which a program would inherit.
_LAUNCH = """
import os, signal, sys
if not os.read(0, 1):
    sys.exit(1)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
try:
    os.execvp(sys.argv[1], sys.argv[1:])
except OSError as error:
    sys.exit(f"{sys.argv[1]}: {error.strerror}")
"""


@contextmanager
def process_group(
    command: Sequence[str], *, env: Mapping[str, str] | None = None, grace_s: float = 20.0
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start `command` as the leader of a new session, and leave no member of its group behind.

    On leaving the block, for whatever reason, the whole group is ended: if the leader still runs, SIGINT, up to
    `grace_s` seconds to save its work, then SIGKILL; if it has ended, SIGKILL for the stragglers. Should our own
    process be killed outright, a guard process does the same; `command` is not run before the guard stands.

    Args:
        command: program and arguments; stdin is empty, stdout and stderr are ours.
        env: environment (default: ours).
        grace_s: seconds between SIGINT and SIGKILL.
    """
    reader, writer = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _LAUNCH, *command],
            env=env,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            leader = Process.of(process.pid)
            guard = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _GUARD, str(reader), str(process.pid), str(grace_s)],
                pass_fds=(reader,),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                assert process.stdin is not None
                with suppress(BrokenPipeError), process.stdin as start:  # killed already: its exit code says so
                    start.write(b".")
                yield process
            finally:
                try:
                    end_group(leader, signal.SIGINT, grace_s)
                finally:
                    os.write(writer, b".")
                    guard.wait()
        finally:
            kill_group(process)
    finally:
        os.close(reader)
        os.close(writer)


def end_group(leader: Process, number: int, grace_s: float) -> None:
    """Signal a leader that runs and its group, wait up to `grace_s` seconds for its end, then SIGKILL the group.

    A second interruption cuts the waiting short.
    """
    try:
        if leader.is_alive():
            leader.signal_group(number)
        deadline = time.monotonic() + grace_s
        while leader.is_alive() and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        leader.signal_group(signal.SIGKILL)


def wait(process: "subprocess.Popen[bytes]", seconds: float | None = None) -> bool:
    """Wait for the leader to exit without reaping it, so that its process group keeps its number.

    Args:
        seconds: how long at most; None: until it exits.

    Returns:
        Whether it has exited.
    """
    if process.returncode is not None:
        return True
    if seconds is None:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        return True
    deadline = time.monotonic() + seconds
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() > deadline:
            return False
        time.sleep(min(_TICK_S, seconds))
    return True


def kill_group(process: "subprocess.Popen[bytes]") -> None:
    """SIGKILL every member of the leader's group and reap the leader; nothing to do when that was done before."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def family(pid: int) -> list[psutil.Process]:
    """A process and all its descendants, including other groups and sessions; empty if it is gone."""
    try:
        whole = psutil.Process(pid)
        return [whole, *whole.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def end_all(members: Sequence[psutil.Process], wait_s: float) -> None:
    """Wait up to `wait_s` seconds for the end of all these processes, then SIGKILL those that are left."""
    deadline = time.monotonic() + wait_s
    while (left := [one for one in members if runs(one)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    for one in left:
        with suppress(psutil.Error):
            one.kill()


def runs(process: psutil.Process) -> bool:
    """Whether a process exists and is not a zombie, which only its parent can remove."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill_family(process: "subprocess.Popen[bytes]", wait_s: float = 0.0) -> None:
    """SIGKILL a leader, its group and all below it, and reap it; wait up to `wait_s` seconds for the end of all."""
    members = family(process.pid)
    kill_group(process)
    for member in members:
        with suppress(psutil.Error):
            member.kill()
    end_all(members, wait_s)  # not until none exists: who reaps an orphan's zombie may do so late, or never

"""Foreground servers: find a free port, run a program until it is stopped, and leave no process behind."""

import math
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import psutil

from capibara_assets.errors import InputError
from capibara_assets.processes.groups import end_all, family, process_group

_LOOK_S = 0.2
_SHOWN = 120  # characters of the command line of a port's holder


def require_free(host: str, port: int) -> None:
    """Check that an address can be listened on.

    Raises:
        InputError: it cannot; who listens there is named where the system tells.
    """
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        why = "; ".join(_holders(port)) or error.strerror
        raise InputError(f"port {port} of {host} is not free ({why}): choose another with --port") from error


def serve(
    name: str,
    command: Sequence[str],
    started: Callable[[], None],
    *,
    grace_s: float = 10.0,
    refresh: tuple[Callable[[], object], float] | None = None,
) -> None:
    """Run a server until SIGINT, SIGTERM or SIGHUP; returns when every process below it has ended.

    A shell without job control starts `… &` with SIGINT ignored. Children would inherit that (Dagster takes the ignored
    handler over for SIGTERM and cannot be ended at all); here the signals arrive, and children have their own again.

    Args:
        name: of the program, in the error.
        started: called once it runs.
        grace_s: seconds that it has to end by itself.
        refresh: called every so many seconds meanwhile.

    Raises:
        InputError: the server ended by itself.
    """
    with _asked_to_end() as asked, process_group(command, grace_s=grace_s) as process:
        started()
        call, pause_s = refresh or (lambda: None, math.inf)
        due = time.monotonic() + pause_s
        while process.poll() is None and not asked:
            time.sleep(_LOOK_S)
            if time.monotonic() >= due:
                call()
                due = time.monotonic() + pause_s
        below = family(process.pid)  # also in sessions of their own, as trainings are, which save their work first
    end_all(below, grace_s)
    if not asked:
        raise InputError(f"{name} ended with exit code {process.returncode}: see its output above")


@contextmanager
def _asked_to_end() -> Iterator[list[int]]:
    """The signals that asked for our end since the block was entered; SIGHUP not under nohup, which ignores it."""
    asked: list[int] = []
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, lambda received, _frame: asked.append(received)) for number in numbers}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _holders(port: int) -> Iterator[str]:
    """Who listens on a port; nobody where the system does not tell (another user's process, macOS)."""
    try:
        listening = [one for one in psutil.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
        for pid in sorted({one.pid for one in listening if one.pid and one.laddr and one.laddr.port == port}):
            said = " ".join(psutil.Process(pid).cmdline())
            yield f"process {pid} listens there: {said[:_SHOWN]}{'…' * (len(said) > _SHOWN)}"
    except psutil.Error:
        return

"""Worker of `pool.py` for Python and SQL: forks one fresh session per request, so that no state leaks between them.

Started isolated; reads one JSON request a line and answers with one line. Its only argument is a JSON object: `alone`
(true: this process may end every process that it sees, since they are its sessions'). A request with `preload` (modules
to import before the next fork) and `python` (whether sessions need a shell) is answered when all is loaded.

Python cells run in the shell of `python_shell.py`, SQL in `sandbox/sql_worker.py`, cells to trace in
`python_tracer.py`.
"""

import ctypes
import gc
import importlib
import json
import mmap
import os
import resource
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sandbox"))
import leftovers  # type: ignore[import-not-found,unused-ignore]
import python_shell  # type: ignore[import-not-found,unused-ignore]
import python_tracer  # type: ignore[import-not-found,unused-ignore]
import sql_worker  # type: ignore[import-not-found,unused-ignore]

del sys.path[:2]

POLL_S = 0.2
FUTEX = {"x86_64": 202, "aarch64": 98}.get(os.uname().machine)
LIBC = ctypes.CDLL(None)
Json = dict[str, Any]


def memory_file(name: str) -> int:
    """The descriptor of a new anonymous file in memory."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class SessionServer:
    """Forks a session for each request and waits for it."""

    def __init__(self, options: Json) -> None:
        self.alone: bool = options["alone"]
        set_dumpable(False)
        self.shell: Any = None
        if not self.alone and sys.platform.startswith("linux"):
            become_subreaper()
        self.kept = set(Path(tempfile.gettempdir()).iterdir()) if self.alone else set()

    def prepare(self, preload: list[str], python: bool) -> None:
        """Loads what sessions import, and the shell that runs them."""
        if python and self.shell is None:
            self.shell = python_shell.make_shell()
        for module in preload:
            with suppress(ImportError):  # the session that imports it will say so itself
                importlib.import_module(module)
        if self.shell is not None:
            python_shell.warm_up(self.shell, preload)
        gc.collect()
        gc.freeze()  # a collection in a fork would copy every page that it reads

    def answer(self, request: Json) -> Json:
        """Runs one session; returns its answer, or how it ended."""
        result, progress = memory_file("result"), mmap.mmap(-1, 8)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        began = time.monotonic()
        pid = os.fork()
        if pid == 0:
            self._become_session(request, result, progress)
        status, used, ended = self._wait(pid, request["wall_s"], progress)
        self._end_stragglers(pid)
        with os.fdopen(result, "rb") as file:
            file.seek(0)
            text = file.read()
        end: Json = {
            "cpu_s": round(used.ru_utime + used.ru_stime, 3),
            "wall_s": round(time.monotonic() - began, 3),
            "cell": progress[0] | progress[1] << 8,
        }
        if ended:
            return end | {"ended": ended}
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0 and text:
            try:
                answer: Json = json.loads(text)
                return end | answer
            except (ValueError, TypeError, RecursionError):  # the session wrote something else there
                return end | {"ended": "garbled"}
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            over = used.ru_utime + used.ru_stime >= request["timeout_s"] * 0.9
            if number == signal.SIGXCPU or (number == signal.SIGKILL and over):
                return end | {"ended": "cpu"}
            return end | {"ended": "signal", "detail": number}
        return end | {"ended": "exit", "detail": os.waitstatus_to_exitcode(status)}

    def _wait(self, pid: int, wall_s: float, progress: mmap.mmap) -> tuple[int, resource.struct_rusage, str | None]:
        """Waits for a session; kills it when one cell takes longer than `wall_s`, or when it can never end.

        Returns its status, the resources that it used, and why it was killed.
        """
        cell, deadline, ended = bytes(progress[:2]), time.monotonic() + wall_s, None
        stuck_at, delayed = "", 0.0
        while True:
            signal.sigtimedwait([signal.SIGCHLD], POLL_S)
            done, status, used = os.wait4(pid, os.WNOHANG)
            if done:
                return status, used, ended
            if bytes(progress[:2]) != cell:
                cell, deadline, delayed = bytes(progress[:2]), time.monotonic() + wall_s, run_delay_s(pid)
            now_at, stuck_at = stuck_at, self._stuck(pid)
            late = time.monotonic() > deadline and time.monotonic() > deadline + run_delay_s(pid) - delayed
            if ended is None and (late or (stuck_at and stuck_at == now_at)):
                ended = "stuck" if stuck_at and stuck_at == now_at else "wall"
                os.kill(pid, signal.SIGKILL)

    def _stuck(self, pid: int) -> str:
        """Describes where a session's threads wait for each other without a time limit; "" when one of them may go on.

        Only of a session without other processes that waits for no alarm, and only where the kernel tells.
        """
        if not self.alone or FUTEX is None:
            return ""
        others = {"1", str(os.getpid()), str(pid)}
        try:
            if any(path.name not in others for path in Path("/proc").glob("[0-9]*")):
                return ""
            waits = []
            for thread in Path("/proc", str(pid), "task").iterdir():
                call, *arguments = (thread / "syscall").read_text().split()
                if int(call) != FUTEX or int(arguments[3], 16) != 0:
                    return ""
                status = dict(line.split(":", 1) for line in (thread / "status").read_text().splitlines())
                if int(status["SigCgt"], 16) >> (signal.SIGALRM - 1) & 1:
                    return ""
                switches = [status["voluntary_ctxt_switches"], status["nonvoluntary_ctxt_switches"]]
                waits.append(f"{thread.name} {arguments} {switches}")
            return "\n".join(sorted(waits))
        except (OSError, ValueError, LookupError):  # it is running, has ended, or may not be inspected
            return ""

    def _end_stragglers(self, pid: int) -> None:
        """Removes the processes and files that a session left behind."""
        if self.alone:
            with suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            clear_temporary_folder(self.kept)
            return
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        while (orphans := children()) and not reaped(orphans):
            time.sleep(0.001)

    def _become_session(self, request: Json, result: int, progress: mmap.mmap) -> None:
        """Runs the session in the forked process; never returns."""
        status = 1
        try:
            os.setsid()
            set_dumpable(True)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            os.closerange(3, result)  # the server's own: a session could write answers to them
            os.closerange(result + 1, 1 << 10)
            streams = memory_file("stdout"), memory_file("stderr")
            silent = os.open(os.devnull, os.O_RDONLY)
            for descriptor, replacement in enumerate((silent, *streams)):
                os.dup2(replacement, descriptor)
            folder = tempfile.mkdtemp(prefix="session-")
            os.chdir(folder)
            os.environ["HOME"] = folder
            bound(resource.RLIMIT_AS, address_space() + (request["memory_mib"] << 20))
            if request["language"] == "sql":
                answer = run_sql(request, progress)
            elif request["language"] == "traced python":
                begin_cell(0, request, progress)
                answer = {"results": [], "stdout": python_tracer.run_all(request["cells"]), "stderr": "", "error": None}
            else:
                cells = request["cells"]
                answer = python_shell.run_cells(self.shell, cells, lambda index: begin_cell(index, request, progress))
            if not self.alone:
                os.chdir("/")
                leftovers.remove_tree(Path(folder))
            data = json.dumps(answer).encode()
            while data:
                data = data[os.write(result, data) :]
            status = 0
        except MemoryError:
            status = 3
        except BaseException:  # noqa: BLE001 (whatever it is, this is a fork: it must end here, not go on as a server)
            traceback.print_exc()
        finally:
            os._exit(status)


def set_dumpable(dumpable: bool) -> None:
    """Sets whether processes of the same user may read this one's memory and files, or trace it.

    The server forbids it: sessions run as its user and must not forge the answer of the next one.
    """
    if sys.platform.startswith("linux"):
        pr_set_dumpable = 4
        LIBC.prctl(pr_set_dumpable, int(dumpable), 0, 0, 0)


def become_subreaper() -> None:
    """Makes orphans of sessions children of this process."""
    set_child_subreaper = 36
    LIBC.prctl(set_child_subreaper, 1, 0, 0, 0)


def children() -> list[int]:
    """Processes that this one has to reap."""
    try:
        return [int(pid) for pid in Path("/proc/self/task", str(os.getpid()), "children").read_text().split()]
    except OSError:
        return []


def reaped(pids: list[int]) -> bool:
    """Kills and reaps processes; False when there may be more of them now."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
    return False


def run_delay_s(pid: int) -> float:
    """Seconds that a process could have run and no processor was free: of the thread that lost most; 0 if unknown."""
    with suppress(OSError, ValueError, IndexError):
        delays = [int(file.read_text().split()[1]) for file in Path("/proc", str(pid), "task").glob("*/schedstat")]
        return max(delays, default=0) / 1e9
    return 0.0


def clear_temporary_folder(kept: set[Path]) -> None:
    """Removes everything but `kept` from the temporary folder, which belongs to this sandbox."""
    for path in Path(tempfile.gettempdir()).iterdir():
        if path in kept:
            continue
        if path.is_dir() and not path.is_symlink():
            leftovers.remove_tree(path)
        else:
            path.unlink(missing_ok=True)


def address_space() -> int:
    """Bytes of address space that this process uses."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 1 << 30


def bound(kind: int, value: int) -> None:
    """Sets a resource limit, never above the present hard limit."""
    hard = resource.getrlimit(kind)[1]
    most = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (most, most))


def begin_cell(index: int, request: Json, progress: mmap.mmap) -> None:
    """Reports to the server which cell begins, and sets the cell's CPU limit."""
    progress[:2] = bytes((index & 255, index >> 8 & 255))
    used = time.process_time()
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    soft = int(used + request["timeout_s"]) + 1
    if index == 0:
        hard = int(request["timeout_s"] * len(request["cells"])) + 2
    with suppress(ValueError):  # the hard limit of our own parent may be lower
        resource.setrlimit(resource.RLIMIT_CPU, (min(soft, hard), hard))


def run_sql(request: Json, progress: mmap.mmap) -> Json:
    """Runs SQL cells on one database in memory."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("PRAGMA foreign_keys = ON")
    answer: Json = {}
    changed: list[list[str]] = []  # by each cell: tables that were there before it, and what it made or dropped
    for index, cell in enumerate(request["cells"]):
        begin_cell(index, request, progress)
        before = sql_worker.schema(connection)
        changing = sql_worker.watch_changes(connection)
        executed = sql_worker.run(connection, cell, request["wall_s"])
        connection.set_authorizer(None)
        if executed.get("timeout"):
            return {"ended": "wall"}
        after = sql_worker.schema(connection)
        changing |= {name for name in before | after if before.get(name) != after.get(name)}
        changed.append(sorted(changing))
        failure = executed["error"]
        answer = {
            "results": [{"text": each["text"], "main": True} for each in executed["results"]],
            "cells": executed["results"][-1]["cells"] if executed["results"] else None,
            "changed": changed,
            "stdout": "".join(executed["stdout"]),
            "stderr": "",
            "error": None if failure is None else {"name": failure["name"], "value": failure["value"], "missing": None},
        }
        if failure is not None:
            break
    return answer


def main() -> None:
    server = SessionServer(json.loads(sys.argv[1]))
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    del sys.argv[1:]
    answers.write(b"ready\n")
    answers.flush()
    for line in requests:
        request = json.loads(line)
        if "preload" in request:
            server.prepare(request["preload"], request["python"])
            answers.write(b"ready\n")
        else:
            answers.write(json.dumps(server.answer(request) | {"nonce": request["nonce"]}).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()

"""Isolation of untrusted code: the strongest that this machine supports, and a statement of what is not isolated.

There are three ways: bubblewrap; Linux namespaces through `launch.py` (as root the process becomes a user that exists
nowhere else, otherwise in a user namespace); plain processes. In each a filter of system calls is installed where the
kernel can (`seccomp.py`). Each is tested by a probe that attempts what must be impossible, so the statement reports
what was measured, not what was intended.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import IO, Literal, get_args

import psutil

from capibara_assets.errors import InputError
from capibara_assets.executions.sandbox.cgroup import in_group, leave_group, memory_group
from capibara_assets.executions.sandbox.leftovers import remove_tree
from capibara_assets.executions.sandbox.seccomp import attempts, filter_program
from capibara_assets.processes.groups import family, kill_family

Aspect = Literal["network", "files", "processes"]
ASPECTS: tuple[Aspect, ...] = get_args(Aspect)
Mode = Literal["bubblewrap", "drop", "user", "limits"]

#: CPU seconds and address space are limited by each session, the memory of the whole tree by the process above it.
LIMITS = {
    "RLIMIT_NPROC": 96,
    "RLIMIT_FSIZE": 64 << 20,
    "RLIMIT_NOFILE": 256,
    "RLIMIT_CORE": 0,
}
TMP_MIB = 64

_LAUNCHER = Path(__file__).with_name("launch.py")
_PROBE = Path(__file__).with_name("probe.py")
_PROBE_S = 60.0
#: What programs need of /etc.
_SYSTEM = ("/etc/ld.so.cache", "/etc/alternatives")
#: Since then the kernel counts the processes of each user namespace apart.
_COUNTS_APART = (5, 14)

_CLAUSES: dict[Aspect, tuple[str, str]] = {  # (sentence when it is isolated, when it is not)
    "network": ("no network", "the network can be reached"),
    "files": (
        "only the system's programs and this Python environment can be read, only a temporary folder in memory written",
        "files can be read and written with this user's rights",
    ),
    "processes": ("no other process can be seen or signalled", "processes of this user can be seen and signalled"),
}
_FILTERED = "system calls that reach deep into the kernel and that programs do without are refused (seccomp)"
_UNFILTERED = "every system call can be made: this kernel or processor has no seccomp filter of ours"


class IsolationError(Exception):
    """A sandboxed process could not be started."""


@dataclass(frozen=True)
class Isolation:
    """A way to start sandboxed processes on this machine, with the aspects that it isolates."""

    kind: Literal["bubblewrap", "namespaces", "processes", "e2b"]
    isolated: tuple[str, ...]  # clauses for a person
    not_isolated: tuple[str, ...]
    aspects: frozenset[Aspect]
    mode: Mode
    system_calls: bytes = b""  # the BPF program that every process starts with, or does not start; empty: none

    @property
    def filter_digest(self) -> str:
        """Part of the keys of kept verdicts: which system calls are refused may change how a program ends."""
        return hashlib.sha256(self.system_calls).hexdigest() if self.system_calls else ""

    @property
    def statement(self) -> str:
        """One line for reports and verdict batches."""
        return f"{self.kind}: {'; '.join(self.isolated)}. Not isolated: {'; '.join(self.not_isolated)}."

    def start(
        self,
        command: Sequence[str],
        *,
        readable: Collection[Path] = (),
        environment: Mapping[str, str] | None = None,
        errors: IO[bytes] | int = subprocess.DEVNULL,
        memory_mib: int | None = None,
    ) -> Sandboxed:
        """Starts a command; its standard input and output are pipes.

        On Linux it ends with the thread that started it.

        Args:
            command: program (a path) and arguments.
            readable: files and folders that it may read besides the system's and Python's.
            environment: variables besides `clean_environment`.
            memory_mib: most memory of all its processes together, files in memory included, where control groups
                can be made (`cgroup.py`).

        Raises:
            IsolationError: the program cannot be started.
        """
        home = tempfile.mkdtemp(prefix="capibara-isolated-") if self.mode == "limits" else "/tmp"
        group = None if memory_mib is None else memory_group(memory_mib << 20)
        try:
            with self._passed_filter() as descriptors:
                isolated = self._command([str(part) for part in command], readable, descriptors)
                process = subprocess.Popen(
                    isolated if group is None else in_group(group, isolated),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    cwd=home,
                    env=clean_environment(home) | dict(environment or {}),
                    start_new_session=True,
                    pass_fds=descriptors,
                )
        except OSError as error:
            if group is not None:
                leave_group(group)
            raise IsolationError(f"cannot start {command[0]}: {error}") from error
        return Sandboxed(process, home if self.mode == "limits" else None, group)

    @contextmanager
    def _passed_filter(self) -> Iterator[tuple[int, ...]]:
        """The descriptor from which bubblewrap reads the filter; none where `launch.py` installs it."""
        if self.mode != "bubblewrap" or not self.system_calls:
            yield ()
            return
        reading, writing = os.pipe()
        try:
            with os.fdopen(writing, "wb") as pipe:  # it holds many times that much
                pipe.write(self.system_calls)
            yield (reading,)
        finally:
            os.close(reading)

    def _command(self, command: list[str], readable: Collection[Path], descriptors: Sequence[int]) -> list[str]:
        paths = [*_python_paths(), str(_LAUNCHER), *(str(path) for path in readable)]
        spec = {
            "mode": "limits" if self.mode == "bubblewrap" else self.mode,
            "parent": os.getpid(),
            "read_only": ["/usr", *_SYSTEM, *(path for path in paths if not path.startswith("/usr/"))],
            "tmp_mib": TMP_MIB,
            "limits": _limits(self.mode),
            "more_processes": self.mode == "limits",
            "system_calls": "" if self.mode == "bubblewrap" else self.system_calls.hex(),
            "command": command,
        }
        launch = [sys.executable, "-I", "-S", str(_LAUNCHER), json.dumps(spec)]
        return _bubblewrap(paths, descriptors) + launch if self.mode == "bubblewrap" else launch


@dataclass(frozen=True)
class Sandboxed:
    """A process that `Isolation.start` started."""

    process: subprocess.Popen[bytes]
    home: str | None  # its temporary folder, where that is on disk
    group: Path | None = None  # the control group that bounds its memory

    def tree(self) -> list[psutil.Process]:
        """All its processes, as this machine sees them."""
        return family(self.process.pid)

    def close(self, patience_s: float = 0.0) -> None:
        """Closes its input, waits `patience_s` for it to end, then kills all its processes and removes its folder."""
        if patience_s and self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(patience_s)
        if self.process.poll() is None or self.home is not None:
            kill_family(self.process, _PROBE_S)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(OSError):  # buffered text has no reader any more
                    stream.close()
        if self.group is not None:
            leave_group(self.group)
        if self.home is not None:
            remove_tree(Path(self.home))


def clean_environment(home: str) -> dict[str, str]:
    """The environment of sandboxed processes: nothing of this process's, so no key or token can be read there."""
    return {
        "PATH": os.defpath + ":/usr/local/bin",
        "HOME": home,
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "JE_ARROW_MALLOC_CONF": "background_thread:false",  # threads do not survive the fork of a kernel
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "IPYTHONDIR": home,
        "JUPYTER_RUNTIME_DIR": home,
        "MPLCONFIGDIR": home,
    }


def best_isolation(demand: Collection[str] = ()) -> Isolation:
    """The strongest isolation that works on this machine (tried once per process).

    Args:
        demand: aspects that must be isolated: network, files, processes.

    Raises:
        InputError: it lacks an aspect that is demanded (fail closed), or such an aspect does not exist.
    """
    unknown = sorted(set(demand) - set(ASPECTS))
    if unknown:
        raise InputError(f"unknown isolation demanded: {', '.join(unknown)}; known: {', '.join(ASPECTS)}")
    best = _best()
    missing = sorted(set(demand) - best.aspects)
    if missing:
        raise InputError(
            f"this machine cannot isolate what is demanded of re-executed code: {', '.join(missing)}. "
            f"{best.statement} Install bubblewrap, allow user namespaces, or do not demand it"
        )
    return best


@cache
def _best() -> Isolation:
    tried = [one for mode in _modes() if (one := probed(mode)) is not None]
    if not tried:
        raise IsolationError("not even a plain Python process can be started")
    return max(tried, key=lambda one: len(one.aspects))  # the first of equals


def _modes() -> list[Mode]:
    """Ways that may work on this system, the strongest first."""
    if not sys.platform.startswith("linux"):
        return ["limits"]
    modes: list[Mode] = []
    if os.geteuid() == 0:
        modes.append("drop")  # before bubblewrap: the kernel does not limit the number of root's processes
    if _bubblewrap_program() is not None:
        modes.append("bubblewrap")
    return [*modes, "user", "limits"]


@cache
def probed(mode: Mode) -> Isolation | None:
    """Measures one way of starting processes with a probe; None when it does not work here."""
    kind: Literal["bubblewrap", "namespaces", "processes", "e2b"] = "namespaces"
    if mode == "bubblewrap":
        kind = "bubblewrap"
    elif mode == "limits":
        kind = "processes"
    bare = Isolation(kind, (), (), frozenset(), mode, filter_program())
    prevented = _probe(bare)
    if prevented is None and bare.system_calls:
        bare = replace(bare, system_calls=b"")  # a kernel, a container or a bubblewrap that does not take it
        prevented = _probe(bare)
    if prevented is None:
        return None
    aspects = frozenset(aspect for aspect in ASPECTS if prevented[aspect])
    isolated = [_CLAUSES[aspect][0] for aspect in ASPECTS if aspect in aspects]
    not_isolated = [_CLAUSES[aspect][1] for aspect in ASPECTS if aspect not in aspects]
    isolated.append("nothing of this process's environment; time, memory, file sizes and open files are limited")
    if prevented["bounded"]:
        isolated.append("the number of processes is limited")
    else:
        not_isolated.append("the number of processes is not limited")
    if prevented["filtered"]:
        isolated.append(_FILTERED)
    else:
        not_isolated.append(_UNFILTERED)
    not_isolated.append("the kernel is shared: code that exploits it gets out")
    return replace(bare, isolated=tuple(isolated), not_isolated=tuple(not_isolated), aspects=aspects)


def _probe(bare: Isolation) -> dict[str, bool] | None:
    """Whether each aspect was isolated from a process started this way; None when it did not start."""
    with tempfile.NamedTemporaryFile(prefix="capibara-secret-") as secret, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        arguments = [secret.name, str(listener.getsockname()[1]), str(os.getpid()), str(LIMITS["RLIMIT_NPROC"])]
        arguments.append(json.dumps(attempts()))
        command = [sys.executable, "-I", "-S", str(_PROBE), *arguments]
        sandboxed = bare.start(command, readable=[_PROBE])
        try:
            said, _ = sandboxed.process.communicate(timeout=_PROBE_S)
        except subprocess.TimeoutExpired:
            return None
        finally:
            sandboxed.close()
    if sandboxed.process.returncode != 0 or not said:
        return None
    prevented: dict[str, bool] = json.loads(said)
    return prevented


def _limits(mode: Mode) -> dict[str, int]:
    limits = dict(LIMITS)
    release = os.uname().release.split(".")
    version = tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in release[:2])
    if mode in ("user", "bubblewrap") and version < _COUNTS_APART:
        del limits["RLIMIT_NPROC"]  # would count all processes of this user
    return limits


def _python_paths() -> list[str]:
    """Folders of this Python: its standard library, its environment, and the program itself."""
    folders = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    folders |= {os.path.realpath(folder) for folder in folders}
    folders.add(str(Path(os.path.realpath(sys.executable)).parent))
    return sorted(folder for folder in folders if folder not in ("/", "/usr"))


def _bubblewrap_program() -> str | None:
    return shutil.which("bwrap")


def _bubblewrap(paths: Sequence[str], descriptors: Sequence[int]) -> list[str]:
    program = _bubblewrap_program()
    assert program is not None
    command = [program, "--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            command += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            command += ["--ro-bind", str(path), str(path)]
    command += ["--proc", "/proc", "--dev", "/dev", "--size", str(TMP_MIB << 20), "--tmpfs", "/tmp"]
    for path_name in (*_SYSTEM, *paths):
        if not path_name.startswith("/usr/"):
            command += ["--ro-bind-try", path_name, path_name]
    for descriptor in descriptors:
        command += ["--seccomp", str(descriptor)]
    return [*command, "--uid", "1000", "--gid", "1000", "--remount-ro", "/", "--chdir", "/tmp", "--"]

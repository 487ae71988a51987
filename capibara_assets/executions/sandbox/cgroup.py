"""Control groups: the kernel bounds the memory of a whole process tree, files in memory included.

Address space is bounded for each process and the tree is watched in any case; a group also counts what no process has
mapped. It is used where this process may make one (as root in a container, or where systemd delegated its group).
"""

import itertools
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_NUMBERS = itertools.count()
_LEAVE_S = 2.0
_PROCESSES = "cgroup.procs"


def groups_are_here() -> bool:
    """Whether a process can be put into a group on this machine (tried once per process)."""
    return _parent() is not None


def memory_group(limit: int) -> Path | None:
    """Creates an empty group; None where that is not possible.

    Args:
        limit: bytes.
    """
    parent = _parent()
    return None if parent is None else _made(*parent, limit)


def in_group(group: Path, command: Sequence[str]) -> list[str]:
    """The command that enters a group before it starts the given one, so that no child of it can be outside.

    A process that is moved once it runs leaves those behind that it has started by then.
    """
    return ["/bin/sh", "-c", 'echo 0 > "$0" && exec "$@"', str(group / _PROCESSES), *command]


@cache
def _parent() -> tuple[Path, str] | None:
    """The group below which groups can be made and entered, and the name of the file with the limit."""
    for parent, name in _parents():
        group = _made(parent, name, 1 << 30)
        if group is None:
            continue
        entered = subprocess.run(in_group(group, ["/bin/sh", "-c", ":"]), capture_output=True, check=False)
        leave_group(group)
        if entered.returncode == 0:
            return parent, name
    return None


def _made(parent: Path, name: str, limit: int) -> Path | None:
    group = parent / f"capibara-{os.getpid()}-{next(_NUMBERS)}"
    try:
        group.mkdir()
    except OSError:
        return None
    try:
        (group / name).write_text(str(limit))
        with suppress(OSError):  # no swap here, or it is not counted
            swap = "memory.swap.max" if name == "memory.max" else "memory.memsw.limit_in_bytes"
            (group / swap).write_text("0" if name == "memory.max" else str(limit))
    except OSError:
        leave_group(group)
        return None
    return group


def leave_group(group: Path) -> None:
    """Removes a group whose processes have ended; waits while the kernel has not noticed that yet."""
    until = time.monotonic() + _LEAVE_S
    while True:
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > until:
                return  # an empty group costs nothing, and the kernel has the last word
            time.sleep(0.01)
        else:
            return


def _parents() -> Iterator[tuple[Path, str]]:
    """(group of this process, name of the file with its limit) for each hierarchy that counts memory."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            yield _ROOT / "memory" / path.lstrip("/"), "memory.limit_in_bytes"
        elif controllers == "":
            yield _ROOT / path.lstrip("/"), "memory.max"

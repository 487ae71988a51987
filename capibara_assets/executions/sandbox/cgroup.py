"""Control groups: the kernel bounds the memory of a whole process tree, files in memory included.

Address space is bounded for each process and the tree is watched in any case; a group also counts what no process has
mapped. It is used where this process may make one (as root in a container, or where systemd delegated its group).
"""

import itertools
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_NUMBERS = itertools.count()
_LEAVE_S = 2.0


@cache
def groups_are_here() -> bool:
    """Whether a group can be made on this machine (tried once per process)."""
    group = memory_group(None, 1 << 30)
    if group is not None:
        leave_group(group)
    return group is not None


def memory_group(pid: int | None, limit: int) -> Path | None:
    """Creates a group for a process (None: an empty group) and its descendants; None where that is not possible.

    Args:
        limit: bytes.
    """
    for parent, name in _parents():
        group = parent / f"capibara-{os.getpid()}-{next(_NUMBERS)}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / name).write_text(str(limit))
            with suppress(OSError):  # no swap here, or it is not counted
                swap = "memory.swap.max" if name == "memory.max" else "memory.memsw.limit_in_bytes"
                (group / swap).write_text("0" if name == "memory.max" else str(limit))
            if pid is not None:
                (group / "cgroup.procs").write_text(str(pid))
        except OSError:
            leave_group(group)
            continue
        return group
    return None


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

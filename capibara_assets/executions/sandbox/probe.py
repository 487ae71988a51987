"""Probe run inside a sandbox: attempts what must be impossible there and prints what was prevented, as JSON."""

import ctypes
import errno
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path


def network_closed(port: int) -> bool:
    """Whether a listener of this machine cannot be reached."""
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except OSError:
        return True
    return False


def hidden(secret: str) -> bool:
    """Whether the user's file `secret` cannot be read and this program cannot be written."""
    for path, mode in ((secret, "rb"), (__file__, "r+b")):
        with suppress(OSError), Path(path).open(mode):
            return False
    return True


def alone(outsider: int) -> bool:
    """Whether the process `outsider`, which started this one, is invisible here."""
    if os.getpid() > 32:  # a namespace of its own begins to count at 1
        return False
    return not Path("/proc", str(outsider)).exists()


def bounded(most: int) -> bool:
    """Whether no more than about `most` processes can be started."""
    children = []
    try:
        for _ in range(most + 8):
            child = os.fork()
            if child == 0:
                signal.pause()
            children.append(child)
    except OSError:
        return True
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return False


def filtered(attempts: list[list[int]]) -> bool:
    """Whether each of some system calls, harmless with its arguments, is refused; an unfiltered kernel knows them."""
    libc = ctypes.CDLL(None, use_errno=True)
    for attempt in attempts:
        refused = libc.syscall(*map(ctypes.c_long, attempt)) < 0
        if not refused or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT):
            return False
    return bool(attempts)


def main() -> None:
    secret, port, outsider, most, attempts = sys.argv[1:]
    prevented = {"network": network_closed(int(port)), "files": hidden(secret), "processes": alone(int(outsider))}
    prevented["bounded"] = bounded(int(most))
    prevented["filtered"] = filtered(json.loads(attempts))
    print(json.dumps(prevented))


if __name__ == "__main__":
    main()

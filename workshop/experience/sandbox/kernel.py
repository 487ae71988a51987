"""The kernel nursery: a process that has ipykernel loaded and forks one fresh Python kernel per request.

Started by `local.py` as a child process; reads one JSON request a line (`{"connection": file, "cwd": folder,
"limits": {...}}`) and answers `{"pid": n}`. A fork keeps a new session at a tenth of a second instead of one or two,
and each session still has a process, a namespace and an execution counter of its own. It ends when its input ends.
"""

import importlib
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

from ipykernel.kernelapp import IPKernelApp

DATA_MIME = "e2b/data"


def _column(values: list[Any]) -> list[Any]:
    return [value.isoformat() if hasattr(value, "isoformat") else value for value in values]


def frame_data(frame: Any) -> Any:
    """A DataFrame as columns of plain values, as E2B's template shows it under `data`."""
    return {str(name): _column(values) for name, values in frame.to_dict(orient="list").items()}


def apply_limits(limits: dict[str, int]) -> None:
    """Sets resource limits by the names of their constants (`RLIMIT_AS` ...), never above this process's hard limit."""
    for name, value in limits.items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (bound, bound))


def _serve(connection: str, cwd: str, limits: dict[str, int]) -> None:
    """Becomes a kernel; returns when the kernel is shut down."""
    parent = os.getppid()
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    silent = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(silent, descriptor)
    os.chdir(cwd)
    os.environ["HOME"] = cwd
    apply_limits(limits)
    app: Any = IPKernelApp.instance(
        connection_file=connection, parent_handle=parent, log_level=50, quiet=True, capture_fd_output=True
    )
    app.config.HistoryManager.enabled = False
    app.initialize([])
    formatter = app.shell.display_formatter
    data = formatter.formatters["application/json"].__class__(parent=formatter)
    data.format_type = DATA_MIME
    data.for_type_by_name("pandas.core.frame", "DataFrame", frame_data)
    data.for_type_by_name("pandas", "DataFrame", frame_data)
    formatter.formatters[DATA_MIME] = data
    app.start()


def main() -> None:
    for module in sys.argv[1:]:
        importlib.import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    sys.path.insert(0, "")
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                _serve(request["connection"], request["cwd"], request["limits"])
                status = 0
            finally:
                os._exit(status)
        sys.stdout.write(json.dumps({"pid": pid}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.argv[0] = str(Path(sys.argv[0]).name)
    main()

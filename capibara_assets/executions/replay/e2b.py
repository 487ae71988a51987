"""Python sessions in E2B's sandboxes: where a key and the SDK are there, recorded code runs again where it ran before.

Each run of a session gets a fresh sandbox without network. SQL and JavaScript run here, in local workers: E2B has no
SQL, and its JavaScript is another runtime than the one that is graded against.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.executions.replay.workers import Bounds, Ran, Session, WorkerOptions, Workers, local_workers
from capibara_assets.executions.sandbox.isolation import Isolation, IsolationError, best_isolation

KEY, PLACE = "E2B_API_KEY", "CAPIBARA_SANDBOX"
_SDK = "e2b_code_interpreter"
_CLAUSE = "each run of Python has a fresh E2B sandbox of its own, without network"
_SLACK_S = 5.0
_START_S = 60  # beside the cells' own time, after which E2B ends a sandbox that nobody ended
_MISSING = re.compile(r"(?:No module named|name) '([^']+)'")


def sandbox_place(demand: Collection[str] = ()) -> Isolation:
    """Where code is executed: E2B where its key and SDK are there, else the strongest isolation of this machine.

    The variable CAPIBARA_SANDBOX decides otherwise: `local` or `e2b`.

    Raises:
        InputError: E2B is asked for and its key or SDK is missing, another value, or as `best_isolation`.
    """
    local = best_isolation(demand)
    return replace(local, kind="e2b", isolated=(_CLAUSE, *local.isolated)) if asks_e2b() else local


def asks_e2b() -> bool:
    """Whether Python is executed in E2B; raises InputError as `sandbox_place` does of the variable."""
    wanted = os.environ.get(PLACE) or "auto"
    if wanted not in ("auto", "local", "e2b"):
        raise InputError(f"{PLACE} is {wanted!r}: local, e2b, or nothing (E2B where its key is there)")
    lacking = [] if os.environ.get(KEY) else [f"{KEY} is not set"]
    if importlib.util.find_spec(_SDK) is None:
        lacking.append("the SDK is not installed: pip install 'capibara-assets[e2b]'")
    if wanted == "e2b" and lacking:
        raise InputError(f"{PLACE}=e2b: {'; '.join(lacking)}")
    return wanted != "local" and not lacking


@contextmanager
def workers_of(options: WorkerOptions) -> Iterator[AnyWorkers]:
    """The workers of a batch, in the place that the isolation names."""
    with local_workers(options.isolation, options.memory_mib) as local:
        yield E2BWorkers(local) if options.isolation.kind == "e2b" else local


class E2BWorkers:
    """Sandboxes of E2B for Python, beside the local workers for other languages."""

    def __init__(self, local: Workers) -> None:
        self._local = local

    def run(self, session: Session, run: int, options: WorkerOptions, bounds: Bounds) -> Ran:
        """Run a session in a fresh sandbox, until one of its cells raises.

        Raises:
            IsolationError: E2B refuses the key, or gives no sandbox.
        """
        if session.language != "python":
            return self._local.run(session, run, options, bounds)
        from e2b_code_interpreter import Sandbox

        cell_s = _SLACK_S + bounds.patience * bounds.limits.timeout_s
        whole_s = _START_S + int(cell_s * len(session.cells))
        try:
            sandbox = Sandbox.create(timeout=whole_s, allow_internet_access=False)
        except Exception as error:
            raise IsolationError(f"E2B gives no sandbox: {error} ({PLACE}=local runs it here)") from error
        try:
            return _run_cells(sandbox, session.cells, cell_s)
        finally:
            with suppress(Exception):  # E2B ends it by itself when its time is over
                sandbox.kill()


AnyWorkers = Workers | E2BWorkers


def _run_cells(sandbox: Any, cells: tuple[str, ...], cell_s: float) -> Ran:
    from e2b import SandboxException, TimeoutException
    from httpx import TransportError

    answer: dict[str, Any] = {}
    for number, cell in enumerate(cells):
        try:
            execution = sandbox.run_code(cell, timeout=cell_s)
        except TimeoutException:
            return Ran("wall", number, {})
        except (SandboxException, TransportError):  # out of memory, the code ended its sandbox, or the connection broke
            return Ran("lost", number, {})
        answer = _answer(execution)
        if answer["error"] is not None:
            return Ran("done", number, answer)
    return Ran("done", len(cells) - 1, answer)


def _answer(execution: Any) -> dict[str, Any]:
    """An execution of the SDK as a local worker answers."""
    failure = execution.error
    return {
        "results": [  # a string has lost its quotes on E2B's server
            {"text": one.text, "main": one.is_main_result, "quoted": False}
            for one in execution.results
            if isinstance(one.text, str)
        ],
        "stdout": "".join(execution.logs.stdout),
        "stderr": "".join(execution.logs.stderr),
        "error": None if failure is None else _described(str(failure.name), str(failure.value)),
    }


def _described(name: str, value: str) -> dict[str, Any]:
    missing = _MISSING.search(value) if name in ("ModuleNotFoundError", "ImportError", "NameError") else None
    return {"name": name, "value": value, "missing": missing[1] if missing else None, "bases": [name]}

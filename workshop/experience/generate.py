"""Runs the fleet's sessions in local sandboxes, through the recorder, and writes the experience that ships."""

from __future__ import annotations

import gzip
import json
import re
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from random import Random

from capibara_assets.executions.recording.recorder import record
from capibara_assets.processes.pools import process_pool
from workshop.experience.plan import Planned
from workshop.experience.rendering import Attempt, CheckLine, Learn, database_of, learn_python, render
from workshop.experience.sandbox.local import KernelNursery, LocalSandbox, TimeoutException

LICENCE = "MIT"
SOURCE = "capibara-fleet"
TIMEOUT_S = 10
BATCH = 24
_IDS = uuid.UUID("6f1a9a3e-3c1b-5d0a-9c55-6b1f5a5a2b10")

#: Imported before kernels fork, so that a session's `import numpy` costs nothing.
PRELOAD = ("numpy", "pandas", "starlette.testclient")

_LITERAL = """
const __lit = (v) => v === undefined ? 'undefined'
  : Array.isArray(v) ? `[${v.map(__lit).join(', ')}]`
  : v !== null && typeof v === 'object' ? `{ ${Object.entries(v).map(([k, x]) => `${/^[A-Za-z_]\\w*$/.test(k) ? k : JSON.stringify(k)}: ${__lit(x)}`).join(', ')} }`.replace('{  }', '{}')
  : typeof v === 'number' ? String(v) : JSON.stringify(v);
const __asked = [];
"""


class FleetError(Exception):
    """An authored task does not do what its family says: a solution fails, or a bug goes unnoticed."""


def learn_javascript(before: Sequence[str], check: Sequence[CheckLine]) -> list[str]:
    """Runs the authored cells in a sandbox of their own and returns the asked values as JavaScript source."""
    lines = [f"__asked.push(__lit({line.text}));" if line.asks else line.text for line in check]
    with LocalSandbox(("javascript",)) as sandbox:
        execution = None
        for code in (*before, "\n".join((_LITERAL, *lines, "JSON.stringify(__asked)"))):
            execution = sandbox.run_code(code, "javascript")
            if execution.error is not None:
                raise FleetError(f"{execution.error.traceback}\nin\n{code}")
        assert execution is not None and execution.text is not None
        values: list[str] = json.loads(execution.text)
        return values


LEARN: dict[str, Learn] = {"python": learn_python, "javascript": learn_javascript}


def session_clock(session: Planned) -> Callable[[], datetime]:
    """Assigned times: cells of a session are 15 to 150 seconds apart."""
    rng = Random(session.variant.seed + 2)
    now = session.start

    def clock() -> datetime:
        nonlocal now
        current, now = now, now + timedelta(seconds=rng.randint(15, 150), milliseconds=rng.randint(0, 999))
        return current

    return clock


def run_session(session: Planned, folder: Path, nursery: KernelNursery) -> None:
    """Runs one session's cells and records them in `folder`.

    Raises:
        FleetError: a cell succeeded that should fail, or the other way round.
    """
    attempts = render(session.variant, LEARN)
    database = database_of(session.variant)
    template = f"sqlite-{database.name}" if database else "code-interpreter-v1"
    numbers = count()
    with LocalSandbox(nursery=nursery, sandbox_id=session.sandbox_id, template_id=template) as sandbox:
        if database is not None:  # part of the sandbox's template, not of the agent's work: not recorded
            sandbox.run_code(database.script(), "sql")
        recorded = record(
            sandbox,
            folder / f"{session.sandbox_id}.jsonl",
            agent_id=session.agent_id,
            licence=LICENCE,
            source=SOURCE,
            clock=session_clock(session),
            new_id=lambda: str(uuid.uuid5(_IDS, f"{session.name}/{next(numbers)}")),
        )
        for attempt in attempts:
            try:
                execution = recorded.run_code(attempt.code, attempt.language, task=attempt.task, timeout=TIMEOUT_S)
            except TimeoutException as error:
                raise FleetError(f"{session.name}: {error}\n{attempt.code}") from error
            _check(session, attempt, execution.error)


def _check(session: Planned, attempt: Attempt, error: object) -> None:
    if (error is not None) != attempt.fails:
        meant = "should fail and does not" if attempt.fails else f"fails: {error}"
        raise FleetError(f"{session.name} {meant}\n{attempt.code}")


def _run_batch(sessions: Sequence[Planned], folder: Path) -> int:
    with KernelNursery(PRELOAD) as nursery:
        for session in sessions:
            run_session(session, folder, nursery)
    return len(sessions)


def portable(line: str) -> str:
    """Interpreter and temporary paths as an E2B sandbox shows them: the records must not depend on this machine."""
    for prefix in sorted({sys.prefix, sys.base_prefix}, key=len, reverse=True):
        line = line.replace(prefix, "/usr/local")
    return re.sub(r"/tmp/(?:capibara-\w+-\w+|ipykernel_\d+)", "/home/user", line)


def _lines(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            yield json.loads(line)["timestamp"], portable(line)


def write_days(folder: Path, out: Path) -> list[Path]:
    """Gathers recorded lines into `out/executions-YYYY-MM-DD.jsonl.gz`, in order of time; same lines, same bytes."""
    days: dict[str, list[str]] = {}
    for timestamp, line in sorted(_lines(folder)):
        days.setdefault(timestamp[:10], []).append(line)
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for day, lines in sorted(days.items()):
        path = out / f"executions-{day}.jsonl.gz"
        path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode(), 9, mtime=0))
        written.append(path)
    return written


def generate(
    sessions: Sequence[Planned],
    out: Path,
    *,
    workers: int = 2,
    report: Callable[[int, int], None],
    kept: Sequence[str] = (),
) -> list[Path]:
    """Runs the sessions (`workers` processes, a sandbox each) and writes `out/e2b_logs`; `report(done, all)` tells how far.

    `kept` are lines of other sessions that stand as they were recorded.

    Raises:
        FleetError: an authored task does not do what its family says. Nothing is written then.
    """
    batches = [sessions[start : start + BATCH] for start in range(0, len(sessions), BATCH)]
    with tempfile.TemporaryDirectory(prefix="capibara-fleet-") as folder:
        with process_pool(workers) as pool:
            running = [pool.submit(_run_batch, batch, Path(folder)) for batch in batches]
            done = 0
            try:
                for batch in as_completed(running):
                    done += batch.result()
                    report(done, len(sessions))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        (Path(folder) / "kept.jsonl").write_text("".join(f"{line}\n" for line in kept))
        logs = out / "e2b_logs"
        for old in logs.glob("executions-*.jsonl.gz"):
            old.unlink()
        return write_days(Path(folder), logs)

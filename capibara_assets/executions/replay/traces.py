"""Traces: recorded sessions run again, isolated, with the calls, tests, values and failures of every cell noted.

Every session runs twice, and under two hash seeds where it may show the order of a set; of each cell only what all runs
agree on is kept. Values are what the code printed of itself: facts about a run, not proof of who wrote them.
"""

from __future__ import annotations

import ast
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from capibara_assets.executions.parsing import python_tree, without_magics
from capibara_assets.executions.replay.javascript_tracing import traced_cell
from capibara_assets.executions.replay.pool import PoolSettings, RerunPolicy, run_sessions
from capibara_assets.executions.replay.replay import environment
from capibara_assets.executions.replay.verdicts import stream_text
from capibara_assets.executions.replay.workers import Ran, Session, SessionLimits, node
from capibara_assets.executions.sandbox.isolation import best_isolation
from capibara_assets.storage.cache import Cache
from capibara_assets.storage.digests import canonical_json, sha256_bytes

#: Part of the key of cached traces; raise it when a trace may hold something else.
TRACES_VERSION = 7
FILE = "traces.sqlite"

Trace = dict[str, Any]  # of one cell, as `python_tracer.run` and `javascript_tracer.js` note it
_HERE = Path(__file__).resolve().parent
_PASSES = 2
_SESSION_S = 20.0  # CPU seconds; the tracers bound each cell themselves


def trace_sessions(
    sessions: Sequence[Session], *, cache: Path | None = None, memory_mib: int = 2048, processes: int | None = None
) -> list[list[Trace | None]]:
    """The trace of each cell of each session; None where a cell did not run, or not twice in the same way.

    Raises:
        InputError: the cache cannot be used.
        IsolationError: workers do not start.
    """
    stored = None if cache is None else Cache(cache / FILE, "traces")
    known = {} if stored is None else stored.read().values
    keys = [_key(session) for session in sessions]
    waiting = {
        key: (session, made)
        for key, session in zip(keys, sessions, strict=True)
        if key not in known and (made := _traced(session)) is not None
    }
    new = {key: zlib.compress(canonical_json(traces)) for key, traces in _run(waiting, memory_mib, processes).items()}
    if stored is not None and new:
        stored.add(new)
    values = {**known, **new}
    return [
        json.loads(zlib.decompress(values[key])) if key in values else [None] * len(session.cells)
        for key, session in zip(keys, sessions, strict=True)
    ]


def _run(
    waiting: dict[bytes, tuple[Session, Session]], memory_mib: int, processes: int | None
) -> dict[bytes, list[Trace | None]]:
    """Runs the traced form of each session; returns the traces of its cells."""
    settings = PoolSettings(
        best_isolation(),
        SessionLimits(_SESSION_S, memory_mib),
        2,
        processes,
        RerunPolicy(uncertain=frozenset({"lost", "garbled"})),
    )
    result = run_sessions([traced for _, traced in waiting.values()], settings)
    return {
        key: _agreed([traces for ran in runs for traces in _read(ran, session)])
        for (key, (session, _)), runs in zip(waiting.items(), result.runs, strict=True)
    }


def _hashes(session: Session) -> bool:
    """Whether a session may show the order of a set, which follows the hash seed."""
    trees = [python_tree(code) for code in session.cells] if session.language == "python" else []
    return any(_is_set(part) for tree in trees if tree is not None for part in ast.walk(tree))


def _is_set(part: ast.AST) -> bool:
    match part:
        case ast.Set() | ast.SetComp() | ast.Name(id="set" | "frozenset" | "hash"):
            return True
        case ast.BinOp(left=ast.Call(func=ast.Attribute(attr="keys" | "items"))):
            return True
    return False


def _key(session: Session) -> bytes:
    world = environment(session.language) if session.language == "python" or node() else ""
    return sha256_bytes(canonical_json([TRACES_VERSION, world, session.language, list(session.cells)])).encode("ascii")


def _traced(session: Session) -> Session | None:
    """The session that runs the cells of another under the tracer; None: there is no tracer for it here."""
    if session.language == "python":
        return Session("traced python", tuple(map(without_magics, session.cells)), not _hashes(session))
    if session.language == "javascript" and node() is not None:
        made = [traced_cell(code, n, turn) for turn in range(_PASSES) for n, code in enumerate(session.cells)]
        load = (_HERE / "javascript_tracer.js").read_text()
        return Session("javascript", (load, *filter(None, made), "console.log(__capibara.report())"), True)
    return None


def _read(ran: Ran, session: Session) -> list[list[Trace | None]]:
    """The traces that each pass of a run reported, by cell."""
    nothing: list[Trace | None] = [None] * len(session.cells)
    if ran.ended != "done" or not (stdout := ran.answer.get("stdout")):
        return [nothing]
    try:
        told = json.loads(stream_text(stdout).strip().rpartition("\n")[2])
        if session.language != "python":
            told = [[{**trace, "pass": 0} for trace in told if trace["pass"] == n] for n in range(_PASSES)]
        by_number = [{trace["number"]: trace for trace in one} for one in told]
    except (ValueError, TypeError, KeyError):  # the session wrote something else there
        return [nothing]
    return [[one.get(i) for i in range(len(nothing))] for one in by_number]


def _agreed(runs: Sequence[list[Trace | None]]) -> list[Trace | None]:
    """What all runs noted of each cell: all or nothing, but for its result."""
    return [_common(traces) for traces in zip(*runs, strict=True)]


def _common(traces: Sequence[Trace | None]) -> Trace | None:
    first, *others = traces
    if first is None or any(other is None for other in others):
        return None
    result = first.get("result")
    alike = [other for other in others if other is not None]
    if any({**other, "result": result} != {**first, "result": result} for other in alike):
        return None
    return {**first, "result": result if all(other.get("result") == result for other in alike) else None}

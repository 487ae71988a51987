"""Re-verification: runs the recorded code of executions again, isolated, and gives each a verdict.

`reexecuted`: it ran `times` times in fresh sandboxes (other hash seeds, processes, folders and times), each time with
the standard output, results' text, outcome and error class that were recorded; code without output is compared by its
outcome alone.
`recorded`: unconfirmed. Its verification was not requested, or something that it needs is missing here: its package,
its session's state, its database, a file, the network, an interpreter. The reason names it.
`unverified`: it ran again with another output or outcome, with different results in each run, or into a limit.

A session that ran into a limit or died with its worker runs once more alone before that counts. CPU seconds limit
time; the wall clock is generous, and a verdict that depends on it is not cached.
"""

from __future__ import annotations

import platform
import re
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path
from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.executions.parsing import python_tree
from capibara_assets.executions.replay.cache import CachedVerdict, ReplayVerdictCache
from capibara_assets.executions.replay.e2b import sandbox_place
from capibara_assets.executions.replay.pool import PoolResult, PoolSettings, run_sessions
from capibara_assets.executions.replay.verdicts import (
    NOT_CACHED,
    REASONS,
    ReplayFinding,
    Verified,
    expected_output,
    judge,
)
from capibara_assets.executions.replay.workers import Ran, Session, SessionLimits, node
from capibara_assets.executions.sandbox.isolation import Isolation
from capibara_assets.executions.sandbox.results import LANGUAGES
from capibara_assets.storage.digests import canonical_json, sha256_bytes

#: Part of the key of cached verdicts; raise it when verdicts may change.
FORMAT = 4
TIMED_OUT_THEN = "it timed out when it was recorded"
MAGIC = "it uses a magic or the shell"
NO_INTERPRETER = "no interpreter for its language here"
NO_DATABASE = "its database is gone: a file that no cell fills"
_FILE_DATABASE = re.compile(r"sqlite3?\.connect\(\s*[rf]?[\"'](?!:memory:|file:)[^\"']+[\"']")
_FILLS = re.compile(r"\bcreate\s+(temp\w*\s+)?table\b|\.to_sql\(|\.backup\(", re.IGNORECASE)
#: What `require` gives in a session (ALLOWED and LODASH in sandbox/javascript_session.js).
MODULES = frozenset(
    [
        "assert",
        "assert/strict",
        "buffer",
        "crypto",
        "events",
        "lodash",
        "path",
        "querystring",
        "stream",
        "string_decoder",
        "timers",
        "timers/promises",
        "url",
        "util",
        "zlib",
    ]
)
_REQUIRED = re.compile(
    r"^(?:const|let|var)\b[^=\n]*=\s*require\(\s*['\"`](?:node:)?([^'\"`]+)['\"`]\s*\)", re.MULTILINE
)
_MAGIC = re.compile(r"^[^\S\n]*+(?:[%!?]|[\w, ]++=\s*+[%!]|[\w.]++\?{1,2}\s*$)", re.MULTILINE)


@dataclass(frozen=True)
class Replay:
    """One execution to run again: its code, the earlier cells that it needs, and its recorded output."""

    execution_id: str
    language: str
    cells: tuple[str, ...]  # what it needs of earlier cells, oldest first, then the cell itself
    stdout: str = ""  # as in the table of executions
    result_text: str | None = None
    outcome: str = "ok"
    error_name: str | None = None
    hindrance: str | None = None  # why it cannot run again, where that is known in advance; then it does not run
    apart: str = ""  # runs twice in sessions of its own; what it gives is for `judging`


Judging = Callable[[Replay, Sequence[Ran], Sequence[Ran]], ReplayFinding | None]


@dataclass(frozen=True)
class ReplayVerdict:
    """The verdict on one replay; `reason` is None only for `reexecuted`."""

    execution_id: str
    verified: Verified
    reason: str | None
    output_digest: str | None  # SHA-256 of the output of every run; None when it did not run, or outputs differed


@dataclass(frozen=True)
class ReplayBatch:
    """Verdicts in the order of the replays, and a summary for reports (JSON values)."""

    verdicts: list[ReplayVerdict]
    summary: dict[str, Any]


def replay_batch(
    replays: Sequence[Replay],
    *,
    cache: Path | None = None,
    timeout_s: float = 10.0,
    memory_mib: int = 2048,
    processes: int | None = None,
    times: int = 2,
    demand: Collection[str] = (),
    isolation: Isolation | None = None,
    judging: Judging | None = None,
) -> ReplayBatch:
    """Runs each replay `times` times and gives its verdict. Equal replays run once.

    Args:
        cache: folder that caches verdicts (digests and verdicts, no code); None: no cache.
        timeout_s: most CPU seconds of one cell.
        memory_mib: most memory of one session beyond what an interpreter takes.
        processes: how many sessions run at a time (default: the cores that this process may use).
        demand: what must be isolated (network, files, processes), or nothing runs.
        judging: judges the runs of a replay, and those of its `apart`; what it depends on is of the replay. None: what
            ran has to give the recorded output.
        isolation: where and how workers are started (default: E2B where its key is there, else the strongest here).

    Raises:
        InputError: a demanded isolation is missing, a parameter is out of range, or the cache cannot be used.
        IsolationError: workers do not start.
    """
    if times < 1 or timeout_s <= 0 or memory_mib <= 0 or (processes is not None and processes < 1):
        raise InputError(
            f"re-execution needs times, timeout_s, memory_mib and processes above zero; got {times}, {timeout_s:g}, "
            f"{memory_mib}, {processes}"
        )
    began = time.monotonic()
    isolation = isolation or sandbox_place(demand)
    lacking = sorted(set(demand) - isolation.aspects)
    if lacking:
        raise InputError(f"the isolation given does not cover {', '.join(lacking)}: {isolation.statement}")
    stored = None if cache is None else ReplayVerdictCache(cache)
    place = [isolation.kind, sorted(isolation.aspects), isolation.filter_digest]
    conditions = [FORMAT, times, timeout_s, memory_mib, *place, *(["judged"] if judging else [])]
    keys = [None if _hindered(one) else _key(one, conditions) for one in replays]  # None: it does not run
    known, to_run = _cached(replays, keys, stored)
    cached = len(known)
    settings = PoolSettings(isolation, SessionLimits(timeout_s, memory_mib), times, processes)
    apart = [one for one in to_run.values() if one.apart for _ in range(2)]
    sessions = [Session(one.language, one.cells) for one in to_run.values()]
    result = run_sessions([*sessions, *(Session(one.language, (one.apart,)) for one in apart)], settings)
    beside = iter(result.runs[len(to_run) :])
    for (key, one), runs in zip(to_run.items(), result.runs, strict=False):
        if judging is None:
            known[key] = CachedVerdict(*judge(one.language, one.cells, _expected(one), runs))
        else:
            known[key] = CachedVerdict(judging(one, runs, [*next(beside), *next(beside)] if one.apart else []), None)
    if stored:
        new = {key: (known[key], one.cells) for key, one in to_run.items()}
        stored.add({key: value for key, value in new.items() if _is_cacheable(value[0])})
    verdicts = [_verdict(one, known[key] if key else None) for one, key in zip(replays, keys, strict=True)]
    summary = _summary(replays, keys, known, verdicts)
    summary |= _run_summary([*to_run.values(), *apart], result) | {"isolation": isolation.statement}
    summary |= {"cached": cached, "damaged_cache_lines": stored.damaged if stored else 0}
    return ReplayBatch(verdicts, summary | {"seconds": round(time.monotonic() - began, 3)})


def _cached(
    replays: Sequence[Replay], keys: Sequence[str | None], stored: ReplayVerdictCache | None
) -> tuple[dict[str, CachedVerdict], dict[str, Replay]]:
    """Splits the replays that have a key into (verdicts that are cached, replays to run), each key once."""
    known: dict[str, CachedVerdict] = {}
    to_run: dict[str, Replay] = {}
    for one, key in zip(replays, keys, strict=True):
        if key is None or key in known or key in to_run:
            continue
        verdict = stored.get(key, one.cells) if stored else None
        if verdict is not None:
            known[key] = verdict
        else:
            to_run[key] = one
    return known, to_run


def _hindered(one: Replay) -> str | None:
    """Why a replay does not run at all."""
    if one.hindrance is not None:
        return one.hindrance
    if one.language not in LANGUAGES or (one.language == "javascript" and node() is None):
        return NO_INTERPRETER
    if one.outcome == "timeout":
        return TIMED_OUT_THEN
    if one.language == "javascript":
        required = (name for cell in one.cells for name in _REQUIRED.findall(cell))
        if (name := next((name for name in required if name not in MODULES), None)) is not None:
            return f"{REASONS['package'][1]}: {name}"
    if one.language == "python" and any(_has_magic(cell) for cell in one.cells):
        return MAGIC
    # connecting makes an empty file: without this test, missing tables would look like another output
    if one.language == "python" and _FILE_DATABASE.search("\n".join(one.cells)):
        return None if _FILLS.search("\n".join(one.cells)) else NO_DATABASE
    return None


def _has_magic(code: str) -> bool:
    return bool(_MAGIC.search(code)) and python_tree(code) is None


def _expected(one: Replay) -> tuple[str, str, str, str | None]:
    return expected_output(one.stdout, one.result_text, one.outcome, one.error_name)


def _key(one: Replay, conditions: list[Any]) -> str:
    """Digest of all that a verdict depends on."""
    code = [one.language, list(one.cells), list(_expected(one)), *([one.apart] if one.apart else [])]
    return sha256_bytes(canonical_json([*conditions, environment(one.language), code]))


@once
def environment(language: str) -> str:
    """Identifies the environment of a language here: the interpreter's version and, for Python, of every package."""
    if language == "sql":
        return f"sqlite {sqlite3.sqlite_version}"
    if language == "javascript":
        program = node()
        assert program is not None
        return (
            f"node {subprocess.run([program, '--version'], capture_output=True, text=True, check=True).stdout.strip()}"
        )
    packages = {
        entry.name
        for folder in dict.fromkeys(sys.path)
        if Path(folder).is_dir()
        for entry in Path(folder).iterdir()
        if entry.name.endswith((".dist-info", ".egg-info"))
    }
    version = f"{platform.python_implementation()} {platform.python_version()} {sys.platform}"
    return f"{version} {sha256_bytes(canonical_json(sorted(packages)))}"


def _is_cacheable(verdict: CachedVerdict) -> bool:
    return verdict.finding is None or verdict.finding.kind not in NOT_CACHED


def _verdict(one: Replay, known: CachedVerdict | None) -> ReplayVerdict:
    if known is None:
        return ReplayVerdict(one.execution_id, "recorded", _hindered(one), None)
    if known.finding is None:
        return ReplayVerdict(one.execution_id, "reexecuted", None, known.output_digest)
    return ReplayVerdict(one.execution_id, known.finding.verified, known.finding.reason, known.output_digest)


def _summary(
    replays: Sequence[Replay],
    keys: Sequence[str | None],
    known: dict[str, CachedVerdict],
    verdicts: Sequence[ReplayVerdict],
) -> dict[str, Any]:
    """Counts by verdict and by kind of reason."""
    counts = Counter(verdict.verified for verdict in verdicts)
    reasons: Counter[str] = Counter()
    for one, key in zip(replays, keys, strict=True):
        if key is None:
            reasons[f"recorded: {_hindered(one)}"] += 1
        elif (finding := known[key].finding) is not None:
            reasons[f"{finding.verified}: {REASONS[finding.kind][1]}"] += 1
    return {
        "replays": len(replays),
        "verdicts": dict(sorted(counts.items())),
        "reasons": dict(sorted(reasons.items())),
        "share_replayed": round(1 - counts["recorded"] / len(replays), 4) if replays else 0.0,
    }


def _run_summary(ran: Sequence[Replay], result: PoolResult) -> dict[str, Any]:
    """Counts of replays that ran, their CPU seconds, and reruns."""
    return {
        "ran": len(ran),
        "ran_again_alone": [ran[index].execution_id for index in result.again],
        "cpu_seconds": round(sum(run.answer.get("cpu_s", 0.0) for runs in result.runs for run in runs), 3),
        "lost_workers": [ran[index].execution_id for index in result.lost],
    }

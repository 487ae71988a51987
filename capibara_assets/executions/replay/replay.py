"""Re-verification: the code of executions runs again, isolated, and gets a verdict.

`reexecuted`: it ran `times` times in fresh sandboxes (other hash seeds, processes, folders and moments), each time with
the standard output, results' text, outcome and error class that were recorded; code without output is compared by its
outcome alone.
`recorded`: it stands as recorded. It was not asked for, or something that it needs is not here: its package, its
session's state, its database, a file, the network, an interpreter. The reason names it.
`unverified`: it ran again and something else came out: another output or outcome, not the same in each run, a limit.

A session that ran into a limit or died with its worker runs once more alone before that counts. CPU seconds decide
about time; the wall clock is generous, and a verdict that hangs on it is not kept.
"""

from __future__ import annotations

import os
import platform
import re
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path
from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.executions.parsing import python_tree
from capibara_assets.executions.replay.cache import Kept, VerdictCache
from capibara_assets.executions.replay.pool import Limits, Outcome, Session, node, run_sessions
from capibara_assets.executions.replay.verdicts import NOT_KEPT, REASONS, Verified, expected_output, judged
from capibara_assets.executions.sandbox.isolation import Isolation, best_isolation
from capibara_assets.executions.sandbox.local import LANGUAGES
from capibara_assets.storage.digests import canonical_json, sha256_bytes

#: Part of the key of kept verdicts; raise it when verdicts may come out differently.
FORMAT = 1
TIMED_OUT_THEN = "it timed out when it was recorded"
MAGIC = "it uses a magic or the shell"
NO_INTERPRETER = "no interpreter for its language here"
NO_DATABASE = "its database is gone: a file that no cell fills"
_FILE_DATABASE = re.compile(r"sqlite3?\.connect\(\s*[rf]?[\"'](?!:memory:|file:)[^\"']+[\"']")
_FILLS = re.compile(r"\bcreate\s+(temp\w*\s+)?table\b|\.to_sql\(|\.backup\(", re.IGNORECASE)
_MAGIC = re.compile(r"^\s*(?:[%!?]|[\w, ]+=\s*[%!]|[\w.]+\?{1,2}\s*$)", re.MULTILINE)


@dataclass(frozen=True)
class Replay:
    """One execution that is to run again, with what it needs of its session and what came out when it was recorded."""

    execution_id: str
    language: str
    cells: tuple[str, ...]  # what it needs of earlier cells, oldest first, then the cell itself
    stdout: str = ""  # as in the table of executions
    result_text: str | None = None
    outcome: str = "ok"
    error_name: str | None = None
    hindrance: str | None = None  # why it cannot run again, where that is known before; then it does not run


@dataclass(frozen=True)
class Verdict:
    """What became of one replay; `reason` is None only for `reexecuted`."""

    execution_id: str
    verified: Verified
    reason: str | None
    output_digest: str | None  # SHA-256 of what came out each time; None when it did not run, or came out differently


@dataclass(frozen=True)
class Batch:
    """Verdicts in the order of the replays, and a summary for a person (JSON values)."""

    verdicts: list[Verdict]
    summary: dict[str, Any]


def replay(
    replays: Sequence[Replay],
    *,
    cache: Path | None = None,
    timeout_s: float = 10.0,
    memory_mib: int = 2048,
    processes: int | None = None,
    times: int = 2,
    demand: Collection[str] = (),
) -> list[Verdict]:
    """The verdict of each replay, in their order; see `replay_batch`."""
    options: dict[str, Any] = {"processes": processes, "times": times, "demand": demand}
    return replay_batch(replays, cache=cache, timeout_s=timeout_s, memory_mib=memory_mib, **options).verdicts


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
) -> Batch:
    """Runs each replay `times` times and judges it. Equal replays run once.

    Args:
        cache: folder in which verdicts are kept (digests and verdicts, no code); None: nothing is kept.
        timeout_s: most CPU seconds of one cell.
        memory_mib: most memory of one session beyond what an interpreter takes.
        processes: how many sessions run at a time (default: the cores there are).
        demand: what must be isolated (network, files, processes), or nothing runs.
        isolation: how workers are started (default: the strongest that works here).

    Raises:
        InputError: what is demanded is not there, a parameter makes no sense, or the cache cannot be used.
        IsolationError: workers do not start.
    """
    if times < 1 or timeout_s <= 0 or memory_mib <= 0 or (processes is not None and processes < 1):
        raise InputError(
            f"re-execution needs times, timeout_s, memory_mib and processes above zero; got {times}, {timeout_s:g}, "
            f"{memory_mib}, {processes}"
        )
    began = time.monotonic()
    isolation = isolation or best_isolation(demand)
    lacking = sorted(set(demand) - isolation.aspects)
    if lacking:
        raise InputError(f"the isolation given does not cover {', '.join(lacking)}: {isolation.statement}")
    kept = None if cache is None else VerdictCache(cache)
    conditions = [FORMAT, times, timeout_s, memory_mib, isolation.kind, sorted(isolation.aspects)]
    found: dict[str, Kept] = {}
    to_run: dict[str, Replay] = {}
    keys: list[str | None] = []  # of each replay; None: it does not run
    for one in replays:
        key = None if _hindered(one) else _key(one, conditions)
        keys.append(key)
        if key is None or key in found or key in to_run:
            continue
        known = kept.get(key, one.cells) if kept else None
        if known is not None:
            found[key] = known
        else:
            to_run[key] = one
    cached = len(found)
    outcome = run_sessions(
        [Session(one.language, one.cells) for one in to_run.values()],
        isolation=isolation,
        limits=Limits(timeout_s, memory_mib),
        times=times,
        processes=processes or os.cpu_count() or 1,
    )
    for (key, one), runs in zip(to_run.items(), outcome.runs, strict=True):
        found[key] = Kept(*judged(one.language, one.cells, _expected(one), runs))
    if kept:
        new = {key: (found[key], one.cells) for key, one in to_run.items()}
        kept.add({key: value for key, value in new.items() if _is_kept(value[0])})
    verdicts = [_verdict(one, found[key] if key else None) for one, key in zip(replays, keys, strict=True)]
    summary = _summary(replays, keys, found, verdicts)
    summary |= _of_run(list(to_run.values()), outcome) | {"isolation": isolation.statement}
    summary |= {"cached": cached, "damaged_cache_lines": kept.damaged if kept else 0}
    return Batch(verdicts, summary | {"seconds": round(time.monotonic() - began, 3)})


def _hindered(one: Replay) -> str | None:
    """Why a replay does not run at all."""
    if one.hindrance is not None:
        return one.hindrance
    if one.language not in LANGUAGES or (one.language == "javascript" and node() is None):
        return NO_INTERPRETER
    if one.outcome == "timeout":
        return TIMED_OUT_THEN
    if one.language == "python" and any(_has_magic(cell) for cell in one.cells):
        return MAGIC
    # connecting makes an empty file: without this, what is missing would look like another output
    if one.language == "python" and _FILE_DATABASE.search("\n".join(one.cells)):
        return None if _FILLS.search("\n".join(one.cells)) else NO_DATABASE
    return None


def _has_magic(code: str) -> bool:
    return bool(_MAGIC.search(code)) and python_tree(code) is None


def _expected(one: Replay) -> tuple[str, str, str, str | None]:
    return expected_output(one.stdout, one.result_text, one.outcome, one.error_name)


def _key(one: Replay, conditions: list[Any]) -> str:
    """Digest of all that a verdict depends on."""
    code = [one.language, list(one.cells), list(_expected(one))]
    return sha256_bytes(canonical_json([*conditions, environment(one.language), code]))


@once
def environment(language: str) -> str:
    """What a language's code finds here: its interpreter's version and, for Python, every package's."""
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


def _is_kept(kept: Kept) -> bool:
    return kept.finding is None or kept.finding.kind not in NOT_KEPT


def _verdict(one: Replay, kept: Kept | None) -> Verdict:
    if kept is None:
        return Verdict(one.execution_id, "recorded", _hindered(one), None)
    if kept.finding is None:
        return Verdict(one.execution_id, "reexecuted", None, kept.output_digest)
    return Verdict(one.execution_id, kept.finding.verified, kept.finding.reason, kept.output_digest)


def _summary(
    replays: Sequence[Replay],
    keys: Sequence[str | None],
    found: dict[str, Kept],
    verdicts: Sequence[Verdict],
) -> dict[str, Any]:
    """Counts by verdict and by kind of reason."""
    counts = Counter(verdict.verified for verdict in verdicts)
    reasons: Counter[str] = Counter()
    for one, key in zip(replays, keys, strict=True):
        if key is None:
            reasons[f"recorded: {_hindered(one)}"] += 1
        elif (finding := found[key].finding) is not None:
            reasons[f"{finding.verified}: {REASONS[finding.kind][1]}"] += 1
    return {
        "replays": len(replays),
        "verdicts": dict(sorted(counts.items())),
        "reasons": dict(sorted(reasons.items())),
        "share_replayed": round(1 - counts["recorded"] / len(replays), 4) if replays else 0.0,
    }


def _of_run(ran: Sequence[Replay], outcome: Outcome) -> dict[str, Any]:
    """What ran, and what happened to the workers."""
    return {
        "ran": len(ran),
        "ran_again_alone": [ran[index].execution_id for index in outcome.again],
        "cpu_seconds": round(sum(run.answer.get("cpu_s", 0.0) for runs in outcome.runs for run in runs), 3),
        "lost_workers": [ran[index].execution_id for index in outcome.lost],
    }

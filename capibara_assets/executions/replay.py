"""Re-verification: the code of executions runs again, isolated, and gets a verdict.

`reexecuted` ran `times` times in fresh sandboxes, each time with the output and outcome that were recorded.
`recorded` stands as recorded: it was not asked for, or cannot run here; the reason says what is missing.
`unverified` ran again and something else came out; the reason says what.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from capibara_assets.executions.envelope import execution_json
from capibara_assets.executions.isolation import Aspect, best_isolation
from capibara_assets.executions.outputs import Cleaner, read_output
from capibara_assets.executions.sandbox import LANGUAGES, LocalSandbox, SandboxError, TimeoutException
from capibara_assets.storage.digests import canonical_json, sha256_bytes

Verified = Literal["reexecuted", "recorded", "unverified"]


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
    demand: Collection[Aspect] = (),
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
    demand: Collection[Aspect] = (),
) -> Batch:
    """Runs each replay `times` times and judges it.

    Args:
        cache: folder in which verdicts are kept (digests and verdicts, no code); None: nothing is kept.
        timeout_s: most CPU seconds of one cell.
        memory_mib: most memory of one session.
        processes: how many run at a time (default: the cores there are).
        demand: what must be isolated.

    Raises:
        InputError: what is demanded is not there, or a parameter makes no sense.
    """
    isolation = best_isolation(demand)
    verdicts = [_judge(one, timeout_s, times) for one in replays]
    counts: dict[str, int] = {}
    for verdict in verdicts:
        counts[verdict.verified] = counts.get(verdict.verified, 0) + 1
    return Batch(verdicts, {"verdicts": counts, "isolation": isolation.statement})


def _judge(one: Replay, timeout_s: float, times: int) -> Verdict:
    if one.hindrance is not None:
        return Verdict(one.execution_id, "recorded", one.hindrance, None)
    if one.language not in LANGUAGES:
        return Verdict(one.execution_id, "recorded", f"no interpreter for {one.language} here", None)
    found = []
    try:
        for _ in range(times):
            with LocalSandbox((one.language,)) as sandbox:
                for cell in one.cells[:-1]:
                    sandbox.run_code(cell, one.language, timeout=timeout_s)
                execution = sandbox.run_code(one.cells[-1], one.language, timeout=timeout_s)
            found.append(read_output({"execution": execution_json(execution)}, one.language, Cleaner(set())))
    except TimeoutException:
        return Verdict(one.execution_id, "unverified", "ran into its time limit", None)
    except SandboxError:
        return Verdict(one.execution_id, "unverified", "ended its process", None)
    expected = (shown(one.stdout, one.result_text), one.outcome, one.error_name)
    outputs = [(shown(o["stdout"], o["result_text"]), o["outcome"], o["error_name"]) for o in found]
    if any(output != outputs[0] for output in outputs):
        return Verdict(one.execution_id, "unverified", "not deterministic", None)
    digest = sha256_bytes(canonical_json(outputs[0]))
    if outputs[0] != expected:
        return Verdict(one.execution_id, "unverified", "another output", digest)
    return Verdict(one.execution_id, "reexecuted", None, digest)


def shown(stdout: str, result_text: str | None) -> tuple[str, str]:
    """What a cell showed: standard output and the results' text, without line feeds around them."""
    return stdout.strip("\n"), (result_text or "").strip("\n")

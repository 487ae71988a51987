"""`solves`: answers run in the package's sandbox with the code that judges them, and that code without them.

A trial passes when the context, the answer and the test run to their end without an error (in JavaScript also without
a failed `console.assert`, in SQL without a zero or a word of failure in the test's rows). A trial whose context or
answer needs what this machine lacks is not judged. The same test without the answer has to fail: where it passes, the
trial is vacuous and shows nothing.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.datasets.faults.recorded_tests import Trial
from benchmarks.datasets.faults.words import words
from capibara_assets.executions.replay.pool import PoolSettings, run_sessions
from capibara_assets.executions.replay.workers import Ran, Session, SessionLimits
from capibara_assets.executions.sandbox.isolation import best_isolation

_LACKING = words(
    """ModuleNotFoundError ImportError FileNotFoundError ConnectionError ConnectionRefusedError URLError gaierror
    TimeoutError"""
)
_UNINSTALLED = re.compile(r"Cannot find module '[^']+'|No module named '[^']+'|.*(?:to|must) be installed")
_REFUSALS = frozenset(("0", "none", "fail", "failed", "false", "wrong"))
_UNCERTAIN = frozenset(("wall", "cpu", "memory", "lost", "garbled", "stuck"))


@dataclass
class Verdicts:
    """Verdicts of trials by number: passed or not; None where it was not judged, with the reasons."""

    passed: list[bool | None]
    vacuous: list[bool]
    why: list[str]
    not_judged: Counter[str] = field(default_factory=Counter)


def judge(trials: Sequence[Trial], *, timeout_s: float = 10.0, processes: int = 2) -> Verdicts:
    """Runs every trial, and every test without its answer; equal sessions run once."""
    whole = [(*trial.context, trial.answer, trial.test) for trial in trials]
    bare = [(*trial.context, trial.test) for trial in trials]
    wanted = {(trial.language, cells) for trial, *both in zip(trials, whole, bare, strict=True) for cells in both}
    order = sorted(wanted)
    settings = PoolSettings(best_isolation(), SessionLimits(timeout_s, 2048), times=1, processes=processes)
    result = run_sessions([Session(language, cells) for language, cells in order], settings)
    ran = {key: runs[0] for key, runs in zip(order, result.runs, strict=True)}
    verdicts = Verdicts([], [], [])
    for trial, cells, without in zip(trials, whole, bare, strict=True):
        passed, why = _verdict(ran[trial.language, cells], len(trial.context), sql=trial.language == "sql")
        verdicts.passed.append(passed)
        verdicts.why.append(why)
        verdicts.vacuous.append(
            passed is True and _succeeded(ran[trial.language, without], sql=trial.language == "sql")
        )
        if passed is None:
            verdicts.not_judged[why] += 1
    return verdicts


def _verdict(ran: Ran, context: int, *, sql: bool) -> tuple[bool | None, str]:
    """Whether a run of context, answer and test passed; None with the reason where it cannot be said."""
    if _succeeded(ran, sql=sql):
        return True, ""
    error = ran.answer.get("error") or {}
    name = str(error.get("name", ran.ended))
    if ran.cell < context:
        return None, "its session does not run again here"
    lacking = _UNINSTALLED.match(str(error.get("value", "")))
    if name in _LACKING or ran.ended in _UNCERTAIN or lacking:
        return None, f"needs what is not here: {lacking.group() if lacking else name}"
    if not error:
        return False, "the test says that it is wrong"
    return (
        False,
        f"{'the answer' if ran.cell == context else 'the test'} fails: {name}: {str(error.get('value', ''))[:120]}",
    )


def _succeeded(ran: Ran, *, sql: bool) -> bool:
    if ran.ended != "done" or ran.answer.get("error") is not None:
        return False
    stderr = ran.answer.get("stderr") or ""
    if any(line.startswith("Assertion failed") for line in "".join(stderr).splitlines()):
        return False
    # a query that judges answers with rows, printed below their header and behind their number
    rows = [
        line.split()[1:] for result in ran.answer.get("results") or () for line in str(result["text"]).splitlines()[1:]
    ]
    return not sql or not any(value.lower() in _REFUSALS for row in rows for value in row)

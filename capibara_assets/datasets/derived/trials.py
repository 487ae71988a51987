"""Trials: variants of sessions run in the sandbox, many per process, each group twice; results are cached.

A group is the cells of a session as recorded, then variants of them; the variants run only where the first ends well.
An end counts where both runs, which take the variants in opposite orders under two hash seeds, gave the same.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path
from typing import Any

from capibara_assets.datasets.code.javascript_source import parse, walk
from capibara_assets.executions.parsing import JAVASCRIPT
from capibara_assets.executions.replay.e2b import sandbox_place
from capibara_assets.executions.replay.pool import PoolResult, PoolSettings, RerunPolicy, run_sessions
from capibara_assets.executions.replay.replay import environment
from capibara_assets.executions.replay.verdicts import output_of, stream_text
from capibara_assets.executions.replay.workers import Ran, Session, SessionLimits, node
from capibara_assets.storage.cache import Cache
from capibara_assets.storage.digests import canonical_json, sha256_bytes

FORMAT = 5  # part of the key of cached ends; raise it when ends may change
_TOGETHER = 8  # groups of one Python session
_MEMORY_MIB = 2048
#: Of a Python session with many trials, of one with a single trial, and of one variant in JavaScript.
_MANY, _ALONE = SessionLimits(6.0, _MEMORY_MIB), SessionLimits(3.0, _MEMORY_MIB, slack_s=2.0)
_ONE = SessionLimits(2.0, _MEMORY_MIB, slack_s=1.0)
_MOST_TEXT = 4000
_LOOPS = frozenset({"while_statement", "do_statement", "for_statement", "for_in_statement"})
_OVER = "too many turns"
_COUNTER = f"var __turns = 0; function __turn() {{ if (++__turns > 1e5) throw new RangeError('{_OVER}'); }}"
_PLACE = re.compile(r"Cell\[(\d+)\]:(\d+)")
_IMPORTED = re.compile(r"^[ \t]*(?:import|from)[ \t]+([A-Za-z_][\w.]*)", re.MULTILINE)
_QUICK = RerunPolicy(uncertain=frozenset(), patience=(0.5, 1.0))

Cells = tuple[str, ...]


@dataclass(frozen=True)
class Trial:
    """A group of variants; the first is the session as recorded."""

    language: str
    variants: tuple[Cells, ...]


def shown_cells(language: str, *parts: str) -> Cells:
    """What a prompt shows of a session and code below it, as cells: in Python one, whose parts share an event loop."""
    given = tuple(filter(None, parts))
    return ("\n\n".join(given),) if language == "python" else given


def below_session(language: str, session: str, codes: Sequence[str]) -> Trial:
    """A trial of codes, each below what a prompt shows of its session."""
    return Trial(language, tuple(shown_cells(language, session, code) for code in codes))


@dataclass(frozen=True)
class End:
    """How one variant ended: the last cell, its output and last value, and the error."""

    cell: int
    shown: str
    error_name: str | None = None
    error_value: str = ""
    traceback: str = ""

    @property
    def ok(self) -> bool:
        return self.error_name is None


Ends = tuple[End | None, ...]  # None: it did not run, ran into a limit, or ended differently in its two runs
Execute = Callable[..., list[Ends]]  # as `execute`: of trials and their purpose


def execute(
    trials: Sequence[Trial], cache: Path | None = None, processes: int | None = None, purpose: str = "trials"
) -> list[Ends]:
    """Run trials and return the ends of their variants, in order; languages that cannot run here give none.

    Args:
        cache: folder of the cache, which holds outputs: afterwards exactly those of the last trials of each purpose.

    Raises:
        IsolationError: workers do not start.
    """
    file = None if cache is None else Cache(cache / f"{purpose}.sqlite", "ends of trials")
    known = file.read().values if file else {}
    keys = [_key(trial) for trial in trials]
    wanted = {key: trial for key, trial in zip(keys, trials, strict=True) if key is not None and key not in known}
    made = dict(zip(wanted, _run(list(wanted.values()), processes), strict=True)) if wanted else {}
    values = {key: known.get(key) or canonical_json(made[key]) for key in keys if key is not None}
    if file and values.keys() != known.keys():
        file.replace(values)
    return [_ends(trial, json.loads(values[key]) if key else []) for key, trial in zip(keys, trials, strict=True)]


def _key(trial: Trial) -> bytes | None:
    if trial.language in JAVASCRIPT and node() is None:
        return None
    known = [FORMAT, _driver(), environment("javascript" if trial.language in JAVASCRIPT else "python")]
    return sha256_bytes(canonical_json([*known, trial.language, trial.variants])).encode("ascii")


def _ends(trial: Trial, listed: Sequence[list[Any] | None]) -> Ends:
    if trial.language == "sql":  # what raises there is not of the code
        listed = [one if one is None else one[:4] for one in listed]
    padded = [*listed, *[None] * (len(trial.variants) - len(listed))]
    return tuple(None if one is None else End(*one) for one in padded)


def _run(trials: Sequence[Trial], processes: int | None) -> list[list[Any]]:
    python = [i for i, trial in enumerate(trials) if trial.language not in JAVASCRIPT]
    batches = [python[i : i + _TOGETHER] for i in range(0, len(python), _TOGETHER)]
    ends: dict[int, list[Any]] = {}
    for members, found in zip(batches, _run_python([[trials[i] for i in b] for b in batches], processes), strict=True):
        if found is not None:
            ends |= dict(zip(members, found, strict=True))
    alone = [i for i in python if i not in ends]  # of a batch that one of them ended
    for i, found in zip(alone, _run_python([[trials[i]] for i in alone], processes), strict=True):
        ends[i] = found[0] if found is not None else []
    others = [i for i, trial in enumerate(trials) if trial.language in JAVASCRIPT]
    ends |= dict(zip(others, _run_javascript([trials[i] for i in others], processes), strict=True))
    return [ends[i] for i in range(len(trials))]


def _settings(limits: SessionLimits, processes: int | None) -> PoolSettings:
    return PoolSettings(sandbox_place(), limits, 2, processes, _QUICK)


@once
def _driver() -> str:
    return (Path(__file__).parent / "python_trials.py").read_text(encoding="utf-8")


def _run_python(batches: Sequence[Sequence[Trial]], processes: int | None) -> list[list[list[Any]] | None]:
    """The ends of each batch's trials; None for a batch whose session ended before its variants had run."""
    sessions = []
    for batch in batches:
        payload = json.dumps([[_sent(trial.language, cells) for cells in trial.variants] for trial in batch])
        modules = sorted(
            {m[1] for one in batch if one.language == "python" for c in one.variants[0] for m in _IMPORTED.finditer(c)}
        )
        # never runs: the pool loads, before it forks sessions, what many of them import
        wanted = "".join(f"    import {module}\n" for module in modules)
        call = f"run_trials({payload!r}, __import__('IPython.lib.pretty').lib.pretty.pretty)"
        sessions.append(Session("python", (_driver(), f"if False:\n    pass\n{wanted}{call}")))
    result = run_sessions(sessions, _settings(_MANY if any(len(batch) > 1 for batch in batches) else _ALONE, processes))
    return [_agreed(runs) for runs in result.runs]


def _sent(language: str, cells: Cells) -> list[str | list[str]]:
    """Cells as `python_trials.py` takes them: those of SQL each in a list."""
    return [[cell] if language == "sql" else cell for cell in cells]


def _agreed(runs: Sequence[Ran]) -> list[list[Any]] | None:
    if any(ran.ended != "done" or ran.answer.get("error") for ran in runs):
        return None
    first, second = (json.loads(stream_text(ran.answer["stdout"])) for ran in runs)
    return [
        [_stated(a) if a == b else None for a, b in zip(group, again, strict=True)]
        for group, again in zip(first, second, strict=True)
    ]


def _stated(end: dict[str, Any] | None) -> list[Any] | None:
    if end is None or (end["error"] and end["error"][0] in ("TimeUp", "MemoryError")):
        return None
    shown = "\n".join(part.strip("\n") for part in (end["stdout"], end["result"]) if part and part.strip())
    return [end["cell"], shown, *(end["error"] or ())]


def _run_javascript(trials: Sequence[Trial], processes: int | None) -> list[list[Any]]:
    """The ends of each trial's variants: one context a variant, the turns of its loops counted."""
    sessions = [Session("javascript", (_COUNTER, *map(counted, cells))) for trial in trials for cells in trial.variants]
    result = run_sessions(sessions, _settings(_ONE, processes)) if sessions else PoolResult([])
    every = [cells for trial in trials for cells in trial.variants]
    ends = iter([_javascript_end(runs, cells) for runs, cells in zip(result.runs, every, strict=True)])
    return [[next(ends) for _ in trial.variants] for trial in trials]


def _javascript_end(runs: Sequence[Ran], cells: Cells) -> list[Any] | None:
    listed = []
    for ran in runs:
        if ran.ended != "done" or _OVER in (ran.answer.get("error") or {}).get("value", ""):
            return None
        stdout, result, outcome, name = output_of("javascript", ran.answer)
        failure = ran.answer["error"] or {"value": stream_text(ran.answer["stderr"]).strip(), "traceback": ""}
        shown = "\n".join(part for part in (stdout, result) if part.strip())[:_MOST_TEXT]
        told = (name or "Error", failure["value"][:_MOST_TEXT], _failing_line(failure.get("traceback", ""), cells))
        listed.append([ran.cell - 1, shown, *(() if outcome == "ok" else told)])
    return listed[0] if all(one == listed[0] for one in listed) else None


def _failing_line(traceback: str, cells: Cells) -> str:
    """The line where a JavaScript error was raised, as Python shows it; "" where none is told."""
    place = _PLACE.search(traceback)
    if place is None or not 2 <= int(place[1]) <= len(cells) + 1:
        return ""
    lines = cells[int(place[1]) - 2].split("\n")  # the counter of turns is the first cell
    return f"----> {place[2]} {lines[int(place[2]) - 1]}" if int(place[2]) <= len(lines) else ""


def counted(code: str) -> str:
    """Instrument JavaScript loops with iteration counters, preserving line numbers."""
    edits = []
    for part in walk(parse(code)):
        if part.type in _LOOPS and (body := part.child_by_field_name("body")) is not None:
            if body.type == "statement_block":
                edits.append((body.start_byte + 1, " __turn();"))
            else:
                edits += [(body.start_byte, "{ __turn(); "), (body.end_byte, " }")]
    data = code.encode("utf-8", "replace")
    for at, text in sorted(edits, reverse=True):
        data = data[:at] + text.encode() + data[at:]
    return data.decode("utf-8", "replace")

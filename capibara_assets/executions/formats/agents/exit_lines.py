"""Exit codes in a line that a harness of one's own writes into each answer of its shell: `rc=0`, `[exit 1]`.

Trap: a command may print such a line itself. So it counts only where all answers of a session have it in one form and
at one place, and some of them are of commands that do not speak of exit codes and have no program in common. Where
the answers that end with such a line are those of failures alone, the harness writes none where all went well.

Where nothing else tells how a command ended, its own last words do: `make; echo "rc=$?"`, `make && echo DONE`.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from capibara_assets.executions.formats.agents.failures import any_shows_failure, programs
from capibara_assets.executions.formats.agents.runs import AgentRun, Entry
from capibara_assets.executions.schema import SHELLS

_LABEL = r"(?:rc|ret(?:urn)?[ _-]?code|exit(?:[ _-]?(?:code|status))?)"
_LINE = rf"[ \t]*((?:{_LABEL} ?[=:]|[\[(<]{_LABEL} ?[=: ]) ?)(-?\d{{1,9}})[\])>]?[ \t]*"
_PLACES = (re.compile(rf"{_LINE}(?:\n|\Z)", re.I).match, re.compile(rf"(?:\A|\n){_LINE}\n?\Z", re.I).search)
_SPEAKS = re.compile(rf"\b{_LABEL}\b|\$\?|errorlevel|lastexitcode", re.I)
_ECHOES = re.compile(r'[;\n][ \t]*echo[ \t]+("?)([^"\'\n$`\\]{0,40})\$\?([^"\'\n$`\\]{0,40})\1\s*\Z')
_CONFIRMS = re.compile(r"&&[ \t]*echo[ \t]+([\"']?)([\w .:!-]{2,40})\1\s*\Z")
_LEAST = 3  # commands that do not speak of exit codes
_LEAST_FAILURES = 2


def read_exit_lines(entries: Sequence[Entry]) -> list[Entry]:
    """The entries of a log, those with the exit codes that their sessions' answers state in a line."""
    sessions: dict[str, list[int]] = {}
    for place, entry in enumerate(entries):
        if isinstance(entry, AgentRun) and entry.language in SHELLS and not entry.timed_out:
            sessions.setdefault(entry.session, []).append(place)
    found = list(entries)
    for places in sessions.values():
        runs = [run for place in places if isinstance(run := entries[place], AgentRun)]
        for place, run in zip(places, _stated(runs) or _without_failures(runs), strict=False):
            found[place] = run
        for place in places:
            if isinstance(run := found[place], AgentRun) and run.success is None and run.exit_code is None:
                found[place] = replace(run, success=_own_words(run))
    return found


def _own_words(run: AgentRun) -> bool | None:
    """What a command says of its end in words that it ends with; None: it has none, or they are not the last."""
    last = run.output.rstrip().rpartition("\n")[2].strip()
    if echoed := _ECHOES.search(run.code):
        code = re.fullmatch(rf"{re.escape(echoed[2].strip())} *(\d{{1,3}}) *{re.escape(echoed[3].strip())}", last)
        return None if code is None else int(code[1]) == 0
    confirmed = _CONFIRMS.search(run.code)
    return True if confirmed and last == confirmed[2].strip() else None


def _stated(asked: Sequence[AgentRun]) -> list[AgentRun]:
    """The runs of a session's shell with what their lines state; empty where these are not sure to be the harness's."""
    if len(asked) < _LEAST or any(run.exit_code is not None for run in asked):
        return []
    for look in _PLACES:
        lines = [line for run in asked if (line := look(run.output)) is not None]
        if len(lines) == len(asked) and len({line[1].lower() for line in lines}) == 1 and _differ(asked):
            return [_ended(run, line) for run, line in zip(asked, lines, strict=True)]
    return []


def _differ(runs: Iterable[AgentRun]) -> bool:
    """Whether no program of theirs can have printed what all of them print."""
    silent = _programs(runs)
    return len(silent) >= _LEAST and not set.intersection(*silent)


def _programs(runs: Iterable[AgentRun]) -> list[set[str]]:
    """The programs of each command that does not speak of exit codes."""
    return [programs(run.code) - {"cd"} for run in runs if not _SPEAKS.search(run.code)]


def _without_failures(runs: Sequence[AgentRun]) -> list[AgentRun]:
    """The runs of a shell whose tool writes a line where a command fails, the others ended well; else none."""
    told = [run for run in runs if run.exit_code is not None]
    silent = _programs(told)
    if len(silent) < _LEAST_FAILURES or not all(run.in_words and run.exit_code for run in told):
        return []
    return [] if set.intersection(*silent) else [_well(run) for run in runs]


def _well(run: AgentRun) -> AgentRun:
    """A run that no line says to have failed; where its output shows a failure, or it goes on, nothing is told."""
    told = run.success is not None or run.exit_code is not None or run.code.rstrip().endswith("&")
    return run if told or any_shows_failure((run.output, run.stderr), run.code) else replace(run, success=True)


def _ended(run: AgentRun, line: re.Match[str]) -> AgentRun:
    code = int(line[2])
    if run.success is not None and run.success != (code == 0):
        return run  # the log says otherwise
    output = run.output[: line.start()] + run.output[line.end() :]
    return replace(run, exit_code=code, success=code == 0, output=output)

"""Makes executions of what readers of agents' logs found: identity, order, outcome, and the error in an output."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from capibara_assets.executions.formats.agents.exit_lines import read_exit_lines
from capibara_assets.executions.formats.agents.failures import any_shows_failure
from capibara_assets.executions.formats.agents.pipes import hides_exit_code
from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, Entry, LogDocument, NotRun, Reader
from capibara_assets.executions.formats.agents.told import fields_told, flags_told
from capibara_assets.executions.formats.cell_outputs import Cleaner, strip_ansi
from capibara_assets.executions.formats.envelope_reader import (
    ESTIMATED,
    FUTURE_TOLERANCE,
    MAX_DURATION_MS,
    UNDATED,
    Recorded,
    language_of,
)
from capibara_assets.executions.formats.strict_json import SURROGATE, Fault
from capibara_assets.executions.schema import HIDDEN_EXIT, PATCH, SHELLS, SOLVED, UNSOLVED

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND, _MICROSECOND = timedelta(milliseconds=1), timedelta(microseconds=1)
_HEADER = "Traceback (most recent call last)"
_UUID = re.compile(r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")
_JUDGED = re.compile(r"error\b|failed\b|test case\b", re.IGNORECASE)
_PREFIX = re.compile(r"\Aerror(?: executing \w+)?:\s*", re.IGNORECASE)  # the class's name says as much
_MOST_MESSAGE = 2000
_TELL = 6  # first executions of a text without times: two trials of a task often begin alike
_RAISED = re.compile(r"^((?:\w+\.)*[A-Za-z_]\w*(?:Error|Exception|Warning|Interrupt|Exit|Iteration))(?:: (.*))?$")

# of smolagents' interpreter, which names what was raised behind the line of code
_DUE = re.compile(r"Code execution failed at line .*? due to: ((?:\w+\.)*[A-Za-z_]\w*): (.*)\Z", re.DOTALL)


def agent_records(document: LogDocument, now: datetime) -> Iterator[Recorded | NotRun | Fault] | None:
    """The executions, calls that did not run, and faults in an agent's log; None where it is none.

    A session keeps the log's name for it, behind the format's. An execution without a time of its own comes a
    millisecond after the one before it; a log without any starts in 1970, as a notebook without times does.
    """
    reader = find_reader(document)
    return None if reader is None else records_of(document, reader, now)


def records_of(document: LogDocument, reader: Reader, now: datetime) -> Iterator[Recorded | NotRun | Fault]:
    """The same of a log that is this reader's."""
    entries = _entries(document, reader, now)
    clock = _Clock(entries)
    sandboxes = _sandboxes(reader.name, entries, document)
    seen: set[tuple[str, str]] = set()
    places: Counter[str] = Counter()
    tasks: dict[str, str | None] = {}
    models = {entry.session: entry.model for entry in entries if isinstance(entry, AgentRun) and entry.model}
    for entry in entries:
        if isinstance(entry, NotRun | Fault):
            yield entry
            continue
        session = entry.session
        moment, flags = clock.time(entry)
        sandbox, place = sandboxes[session], str(places[session])
        if isinstance(entry, Edit):
            yield _edit(entry, sandbox, place, moment, flags, tasks.get(session), models.get(session))
        else:
            tasks[session] = entry.task
            own = f"{place}-{_digest([entry.code])[:8]}"
            call = _identity(entry.call_id or "") or own
            if (session, call) in seen:  # a replay repeats the ids of what it replays, and another one with other code
                call = f"{call}-{own}"
            seen.add((session, call))
            yield _told_otherwise(_run(entry, sandbox, call, moment, flags), entry)
        places[session] += 1
    if document.unfinished:
        yield NotRun("unfinished_line")


def _entries(document: LogDocument, reader: Reader, now: datetime) -> list[Entry]:
    """The entries of a log; one that its reader fails on is a fault as a whole, and costs no other log."""
    try:
        return [_possible(entry, now) for entry in read_exit_lines(list(reader.entries(document)))]
    except Exception as error:  # noqa: BLE001 - a defect of the reader: the quarantine names it and keeps the log
        return [Fault("reader_failed", f"{reader.name}: {type(error).__name__}: {error}", document.text)]


def _possible(entry: Entry, now: datetime) -> Entry:
    """An entry, or the fault that its time is: one clock that is years off must not date what follows."""
    started = entry.started if isinstance(entry, AgentRun) else None
    if isinstance(entry, AgentRun) and started is not None and not _EPOCH <= started <= now + FUTURE_TOLERANCE:
        told = f"{started.isoformat()} is not between 1970 and {now.isoformat()}"
        return Fault("future_timestamp", told, [entry.session, entry.code])
    return entry


class _Clock:
    """Times of a log's entries: their own, else a millisecond after the entry before it in the session."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._dated: set[str] = set()
        before: Counter[str] = Counter()
        self._last: dict[str, datetime] = {}
        for entry in entries:
            if isinstance(entry, NotRun | Fault) or entry.session in self._dated:
                continue
            before[entry.session] += 1
            if (started := _started(entry)) is not None:
                self._dated.add(entry.session)
                self._last[entry.session] = started - before[entry.session] * _MILLISECOND

    def time(self, entry: AgentRun | Edit) -> tuple[datetime, set[str]]:
        """The time of the next entry of its session, and the flag that says how it is known."""
        own, before = _started(entry), self._last.get(entry.session, _EPOCH)
        if own is not None and own > before:
            moment, flags = own, set()
        elif own is not None:  # several calls at once, or a clock that was set back: the log's order is what counts
            moment, flags = before + _MICROSECOND, {ESTIMATED}
        else:
            moment, flags = before + _MILLISECOND, {ESTIMATED if entry.session in self._dated else UNDATED}
        self._last[entry.session] = moment
        return moment, flags


def _started(entry: AgentRun | Edit) -> datetime | None:
    return entry.started if isinstance(entry, AgentRun) else None


def _sandboxes(name: str, entries: Sequence[Entry], document: LogDocument) -> dict[str, str]:
    """Session -> id of its sandbox.

    A UUID is unique. Names such as `task-0` are told apart by the first executions of the log and of the session: they
    stay while the log grows, is written anew or is copied. Where these have no time, several runs of one task may
    begin with them: then all of the session counts, of a text its first six, unless it is one of lines that grows. A
    session without an execution has the log's digest.
    """
    runs: dict[str, list[AgentRun]] = {}
    for entry in entries:
        if isinstance(entry, AgentRun):
            runs.setdefault(entry.session, []).append(entry)
    opening = next(iter(runs.values()), [None])[0]
    is_text = document.value is None and not document.lines
    whole = document.value is not None or (len(runs) > 1 and not is_text)
    found: dict[str, str] = {}
    for session in {entry.session: None for entry in entries if isinstance(entry, AgentRun | Edit)}:
        shown = _identity(session) if session != document.digest else "session"
        if _UUID.fullmatch(session):
            found[session] = f"{name}:{session}"
        elif opening is not None and session in runs:
            own = runs[session]
            if own[0].started is None and whole and own != [opening]:
                tells = own
            else:
                tells = [opening, *own[: _TELL if own[0].started is None and is_text else 1]]
            found[session] = f"{name}:{shown}:{_digest([said for run in tells for said in _told(run)])[:20]}"
        else:
            found[session] = f"{name}:{shown}:{document.digest}"
    return found


def _identity(text: str) -> str:
    """A log's own id as a table can hold it."""
    return SURROGATE.sub("\ufffd", text)


def _told(run: AgentRun) -> list[str | None]:
    return [run.code, run.output, run.stderr, run.task, run.model, str(run.started)]


def _digest(values: Sequence[str | None]) -> str:
    return hashlib.sha256(json.dumps(values).encode("ascii")).hexdigest()


def _run(run: AgentRun, sandbox: str, call: str, moment: datetime, flags: set[str]) -> Recorded:
    clean = Cleaner(flags)
    language = language_of(run.language) or "bash"
    stdout, stderr = strip_ansi(clean(run.output)), strip_ansi(clean(run.stderr))
    outcome = "unknown" if run.success is None else "ok" if run.success else "error"
    if run.solved is not None:
        flags.add(SOLVED if run.solved else UNSOLVED)
    if run.success and language == "bash" and hides_exit_code(run.code):
        outcome = "unknown"
        flags.add(HIDDEN_EXIT)
    if language in SHELLS and _shows_untold_failure(run):
        outcome = "error"
    error_name = error_value = traceback = None
    if run.timed_out:
        outcome, error_name = "timeout", "TimeoutException"
    elif outcome == "error":
        error_name, error_value, traceback = error_of(stderr or stdout, language, run.exit_code)
    duration = run.duration_ms
    return Recorded(
        execution_id=f"{sandbox}:{call}",
        sandbox_id=sandbox,
        context_id=None,
        agent_id=_agent(clean, sandbox, run.model),
        tenant=None,
        timestamp=moment,
        template_id=None,
        language=language,
        code=clean(run.code),
        task=_cleaned(clean, run.task),
        outcome=outcome,
        stdout=stdout,
        stderr=stderr,
        result_text=None,
        error_name=error_name,
        error_value=error_value,
        traceback=traceback,
        execution_count=None,
        duration_ms=duration if duration is not None and 0 <= duration <= MAX_DURATION_MS else None,
        timeout_s=None,
        licence=None,
        source=None,
        flags=sorted(flags),
    )


def _shows_untold_failure(run: AgentRun) -> bool:
    """Whether either stream shows a failure, where the log does not tell how the command ended."""
    if run.success is not None or run.solved is not None or run.told is not None:
        return False
    return any_shows_failure((run.output, run.stderr), run.code)


def _told_otherwise(found: Recorded, run: AgentRun) -> Recorded:
    """An execution with what an export of this project tells of it, instead of what is concluded from its output."""
    if run.told is None:
        return found
    flags = {*found.flags, *flags_told(run.told)} - ({HIDDEN_EXIT} - flags_told(run.told))
    told = fields_told(run.told, Cleaner(flags))
    return replace(found, **told, flags=sorted(flags))


def _edit(
    edit: Edit, sandbox: str, place: str, moment: datetime, flags: set[str], task: str | None, model: str | None
) -> Recorded:
    clean = Cleaner(flags)
    code = clean(f"{edit.path}\n{edit.text}")
    identity = hashlib.sha256(code.encode("utf-8")).hexdigest()[:12]
    return Recorded(
        execution_id=f"{sandbox}:edit-{place}-{identity}",
        sandbox_id=sandbox,
        context_id=None,
        agent_id=_agent(clean, sandbox, model),
        tenant=None,
        timestamp=moment,
        template_id=None,
        language=PATCH,
        code=code,
        task=_cleaned(clean, task),
        outcome="unknown",
        stdout="",
        stderr="",
        result_text=None,
        error_name=None,
        error_value=None,
        traceback=None,
        execution_count=None,
        duration_ms=None,
        timeout_s=None,
        licence=None,
        source=None,
        flags=sorted(flags),
    )


def _agent(clean: Cleaner, sandbox: str, model: str | None) -> str | None:
    """The format's name and the model that ran or edited; of an edit, the last one of its session."""
    return _cleaned(clean, f"{sandbox.split(':', 1)[0]}/{model}" if model else None)


def _cleaned(clean: Cleaner, text: str | None) -> str | None:
    return clean(text) if text and text.strip() else None


def _message(said: str) -> str:
    return _PREFIX.sub("", said, count=1)[:_MOST_MESSAGE].strip()


def error_of(output: str, language: str, exit_code: int | None) -> tuple[str, str | None, str | None]:
    """Name, message and traceback of a failure: of the last Python exception in its output, else its exit code.

    What a database printed instead of rows is its message, and so is what a judge of Python says.
    """
    start = output.rfind(_HEADER)
    lines = output[start:].splitlines() if start >= 0 else output.splitlines() if language == "python" else []
    for number in range(len(lines) - 1, -1, -1):
        if match := _RAISED.match(lines[number]):
            trace = "\n".join(lines[: number + 1]) if start >= 0 else None
            return match.group(1).rsplit(".", 1)[-1], match.group(2), trace
    said = output.strip()
    if language == "python" and (due := _DUE.match(said)):
        return due[1].rsplit(".", 1)[-1], due[2], None
    if language == "python":
        return "Error", _message(said) if _JUDGED.match(said) else None, None
    if language == "sql" and said:
        return "Error", _message(said), None
    return "CommandExitException", None if exit_code is None else f"exit code {exit_code}", None

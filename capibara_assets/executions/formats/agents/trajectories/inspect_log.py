"""Inspect AI's evaluation logs: `.json`, `.eval` (a ZIP), and Docent's collections that map run ids to such logs.

A call stands in `messages[].tool_calls` with its answer in a message of role `tool`, and again in `events` (`tool`),
where the times are; calls of sub-agents, and those that an agent dropped from its history, stand in `events` alone.
Answers mix the streams (stderr first). `error` is the tool's own: refused calls (`parsing`, `approval`) never ran. An
exit code is stated only by the `sandbox` event of the very command: within the call's event, its time or its span.
Long texts are attachments. Epochs repeat a sample: a session is a run's sample and epoch. Older logs have `transcript`
for events and attachments, `tool_error`, calls in OpenAI's shape, and text in ChatML.
"""

import itertools
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.fields import name_at, objects
from capibara_assets.executions.formats.agents.runs import (
    AgentRun,
    Edit,
    Entry,
    LogDocument,
    NotRun,
    Reader,
    moment,
    texts,
)
from capibara_assets.executions.formats.agents.trajectories.eval_archive import MARK, Archive
from capibara_assets.executions.formats.agents.trajectories.tool_calls import (
    Code,
    code_of,
    edit_of,
    parsed,
    shows_error,
)
from capibara_assets.executions.formats.strict_json import Fault

_NEVER_RAN = frozenset(("parsing", "approval", "cancelled", "sandbox_unavailable"))
_CHATML = re.compile(r"<\|im_start\|>(\w*)\n(.*?)(?:<\|im_end\|>|\Z)", re.DOTALL)
_ATTACHED = "attachment://"
_SPEC = ("task", "model", "run_id", "eval_id", "created", "dataset", "task_id")


def _is_log(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("eval"), dict):
        return False
    known = sum(key in value["eval"] for key in _SPEC)
    return known >= 3 and any(key in value for key in ("samples", "plan", "status", "results", "stats"))


def _logs(document: LogDocument) -> list[dict[str, Any]]:
    value = document.value
    if _is_log(value):
        return [value]
    inner = list(value.values()) if isinstance(value, dict) else []
    return [log for log in inner if _is_log(log)] if inner and _is_log(inner[0]) else []


def _reads(document: LogDocument) -> bool:
    return Archive(document.data).is_log if document.data.startswith(MARK) else bool(_logs(document))


def _entries(document: LogDocument) -> Iterator[Entry]:
    if not document.data.startswith(MARK):
        for log in _logs(document):
            samples = log.get("samples")
            listed = list(samples.values()) if isinstance(samples, dict) else samples
            yield from _samples(log["eval"], listed if isinstance(listed, list) else [], document)
        return
    archive = Archive(document.data)
    if archive.broken is not None:
        yield Fault("damaged_archive", f"the ZIP's directory: {archive.broken}")
        return
    header, faults = archive.header()
    yield from faults
    spec = header.get("eval")
    yield from _samples(spec if isinstance(spec, dict) else {}, archive.samples(), document)


def _samples(spec: dict[str, Any], samples: Any, document: LogDocument) -> Iterator[Entry]:
    run = name_at(spec, "run_id") or name_at(spec, "eval_id") or document.digest
    seen: Counter[str] = Counter()
    for sample in samples:
        if isinstance(sample, Fault):
            yield sample
        elif not isinstance(sample, dict):
            yield Fault("not_a_sample", "expected an object among the samples", sample)
        else:
            session = f"{run}/{name_at(sample.get('id'))}_epoch_{name_at(sample.get('epoch'))}"
            seen[session] += 1
            again = f"#{seen[session]}" if seen[session] > 1 else ""
            yield from _Sample(sample, session + again, name_at(spec, "model")).entries()


class _Sample:
    """One sample's messages and events, with attachments put back in their places."""

    def __init__(self, sample: dict[str, Any], session: str, model: str | None) -> None:
        older = sample.get("transcript")
        transcript = older if isinstance(older, dict) else {}
        attached = sample.get("attachments") or transcript.get("content")
        self.session, self.model = session, model
        self.attached = attached if isinstance(attached, dict) else {}
        self.messages = objects(sample.get("messages"))
        events = objects(sample.get("events") or transcript.get("events"))
        self.events = [event for event in events if event.get("event") == "tool"]
        self.sandbox = [event for event in events if event.get("event") == "sandbox"]
        self.task = self._asked(sample.get("input"))

    def entries(self) -> Iterator[Entry]:
        """Calls in the order of messages, then those that stand in events alone."""
        answers: dict[str, list[dict[str, Any]]] = {}
        events: dict[str, list[dict[str, Any]]] = {}
        for message in self.messages:
            if message.get("role") == "tool":
                answers.setdefault(str(message.get("tool_call_id")), []).append(message)
        for event in self.events:
            events.setdefault(str(event.get("id")), []).append(event)
        for message in self.messages:
            if message.get("role") == "user":
                self.task = self._text(message.get("content")).strip() or self.task
            for call in objects(message.get("tool_calls")):
                key = str(call.get("id"))
                answer = answers[key].pop(0) if answers.get(key) else None
                tool = events[key].pop(0) if events.get(key) else None
                yield from self._call(call, answer or tool, tool, name_at(message, "model") or self.model)
        for event in itertools.chain.from_iterable(events.values()):
            yield from self._call(event, event, event, self.model)
        for lost in itertools.chain.from_iterable(answers.values()):
            if code_of(lost.get("function"), "?"):
                yield Fault("call_missing", "an answer whose call is not in the log", lost)

    def _call(self, call: dict[str, Any], answer: Any, event: Any, model: str | None) -> Iterator[Entry]:
        inner = call.get("function")  # OpenAI's shape: an object
        name, given = (
            (inner.get("name"), inner.get("arguments")) if isinstance(inner, dict) else (inner, call.get("arguments"))
        )
        arguments = self._attached(parsed(given))
        code, edit = code_of(name, arguments), edit_of(name, arguments)
        answer, event = answer or {}, event or {}
        kind, message = self._error(answer)
        if code is None and edit is None:
            if kind == "parsing" and code_of(name, "?"):
                yield NotRun(kind)  # the model named the arguments wrong
        elif call.get("parse_error") or kind in _NEVER_RAN:
            yield NotRun(kind or "parsing", self.session, code.text if code else None)
        elif not answer:
            yield NotRun("unanswered", self.session, code.text if code else None)
        elif code is None and edit is not None:
            if kind is None:
                yield Edit(self.session, *edit)
        elif code is not None:
            output = self._text(answer["content"] if "content" in answer else answer.get("result"))
            started, ended = moment(event.get("timestamp")), moment(event.get("completed"))
            exit_code = self._exit_code(code, event) if kind is None else None
            failed = kind is not None or (exit_code != 0 if exit_code is not None else shows_error(output))
            yield AgentRun(
                session=self.session,
                language=code.language,
                code=code.text,
                # the tool `python` prints what is raised
                success=False if failed else True if exit_code == 0 or code.language == "python" else None,
                output=output,
                stderr=message,
                exit_code=exit_code,
                call_id=name_at(call, "id"),
                started=started,
                duration_ms=(ended - started).total_seconds() * 1000
                if started and ended and ended >= started
                else None,
                timed_out=kind == "timeout",
                task=self.task,
                model=model,
            )

    def _error(self, answer: dict[str, Any]) -> tuple[str | None, str]:
        """Kind and message of the tool's own error."""
        error = answer.get("error")
        if isinstance(error, dict) and error:
            return name_at(error, "type") or "unknown", self._text(error.get("message"))
        older = error if isinstance(error, str) else answer.get("tool_error")
        return ("unknown", self._text(older)) if isinstance(older, str) and older else (None, "")

    def _exit_code(self, code: Code, event: dict[str, Any]) -> int | None:
        """The exit code of the one command in the sandbox that ran this very code, in the call, its time or span."""
        started, ended = moment(event.get("timestamp")), moment(event.get("completed"))
        within = [inner for inner in objects(event.get("events")) if inner.get("event") == "sandbox"]
        if not within and started is not None and ended is not None:
            times = [(ran, moment(ran.get("timestamp"))) for ran in self.sandbox]
            within = [ran for ran, at in times if at is not None and started <= at <= ended]
        if not within and (span := name_at(event, "span_id")):
            within = [ran for ran in self.sandbox if ran.get("span_id") == span]
        codes = []
        for ran in within:
            result, command = ran.get("result"), self._text(ran.get("cmd"))
            exact = code.text in (_last_word(command), self._text(ran.get("input")))
            if exact and isinstance(result, int) and not isinstance(result, bool):
                codes.append(result)
        return codes[0] if len(codes) == 1 else None

    def _asked(self, given: Any) -> str | None:
        users = [message for message in objects(given) if message.get("role") == "user"]
        text = self._text(users[-1].get("content") if users else given if isinstance(given, str) else None)
        chat = [content for role, content in _CHATML.findall(text) if role == "user"]
        return (chat[-1] if chat else text).strip() or None

    def _text(self, content: Any) -> str:
        if isinstance(content, dict):
            content = content.get("text", content.get("content"))
        text = texts(
            [self._attached(part) for part in content] if isinstance(content, list) else self._attached(content)
        )
        turns = _CHATML.findall(text) if text.startswith("<|im_start|>") else []
        return str(turns[0][1]) if len(turns) == 1 else text

    def _attached(self, value: Any) -> Any:
        """A value with its references to attachments replaced by what they are."""
        if isinstance(value, str) and value.startswith(_ATTACHED):
            found = self.attached.get(value.removeprefix(_ATTACHED))
            return found if isinstance(found, str) else value
        if isinstance(value, dict):
            return {key: self._attached(part) if isinstance(part, str) else part for key, part in value.items()}
        return value


def _last_word(command: str) -> str | None:
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    return words[-1] if words else None


READER = Reader("inspect-log", (b'"eval"', MARK), _reads, _entries)

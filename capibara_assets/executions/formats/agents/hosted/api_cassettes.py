"""Reads code that model providers executed out of recorded API traffic: VCR cassettes, and bodies on their own.

Cassettes (vcrpy, pytest-recording, pydantic-ai's with `parsed_body`, Ruby's VCR) are YAML or JSON lists of requests and
responses; people also keep the bodies as a JSON file, a JSON list, JSON lines, or a stream's events as they came. Rows
of a database hold an item each and name its session (`SQLiteSession` of OpenAI's Agents SDK). A conversation's earlier
calls return in each later request: a call counts once, by its id. Streams are put together.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

import yaml

from capibara_assets.deployment.yaml_text import holds_at_most, load_yaml
from capibara_assets.executions.formats.agents.event_streams import is_stream
from capibara_assets.executions.formats.agents.fields import word
from capibara_assets.executions.formats.agents.general.linked_calls import ClientCalls
from capibara_assets.executions.formats.agents.hosted.api_bodies import bodies, is_request, items
from capibara_assets.executions.formats.agents.hosted.api_items import ApiAnswer, ApiCall, Item, NoCode, Task
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, Entry, LogDocument, NotRun, Reader
from capibara_assets.executions.formats.strict_json import Fault

_MARKS = (
    b"server_tool_use",
    b"bash_code_execution",
    b"code_execution_tool_result",
    b"code_interpreter_call",
    b"shell_call",
    b"apply_patch_call",
    b"executableCode",
    b"executable_code",
)
_CASSETTE = re.compile(r"^(?:http_)?interactions:\s*$", re.MULTILINE)
_INTERACTION = re.compile(r"^(?=- +(?:request|response|recorded_at):)", re.MULTILINE)
_KEY = re.compile(r"^(?=\w)", re.MULTILINE)
_ROW = "message_data"  # the column of an item
_HEAD = 4096  # characters in which a cassette says what it is


def reads(document: LogDocument) -> bool:
    """Whether the document records traffic in which a provider executed code."""
    return any(isinstance(item, ApiCall | ApiAnswer | NoCode) for _, _, held in _items(document) for item in held)


def entries(document: LogDocument) -> Iterator[Entry]:
    """The executions in order of their answers, each once; those of the client's own tools in order of their calls."""
    yield from document.faults if document.value is None else ()
    sessions: dict[str, tuple[_Traffic, ClientCalls]] = {}
    found: list[Entry | Callable[[], Entry]] = []
    for session, body, held in _items(document):
        traffic, clients = sessions.setdefault(session, (_Traffic(session), ClientCalls(session)))
        for item in held:
            if isinstance(item, Fault):
                found.append(item)
            elif isinstance(item, NoCode):
                found.append(Fault("type:code", item.detail, item.value))
            elif isinstance(item, Task):
                traffic.task = item.text
            elif isinstance(item, ApiCall):
                traffic.note(item, body)
            elif (entry := traffic.answer(item)) is not None:
                found.append(entry)
        if holds_at_most(body, len(document.data)):
            found += clients.note(body)
    yield from (each() if callable(each) else each for each in found)
    waiting = (call for traffic, _ in sessions.values() for call in traffic.open)
    yield from (NotRun("unanswered", code=None if call.path else call.code) for call, _, _ in waiting)


READER = Reader("api-bodies", _MARKS, reads, entries)


class _Traffic:
    """The calls of a document that are not answered yet."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.task: str | None = None
        self.open: list[tuple[ApiCall, str | None, str | None]] = []
        self._known: set[str | tuple[str, str]] = set()
        self._repeated = False

    def note(self, call: ApiCall, body: dict[str, Any]) -> None:
        """Add a call unless it is known already, by its id or, in a request, by its code."""
        name = call.key or (call.language, call.code)
        self._repeated = name in self._known and (call.key is not None or is_request(body))
        if not self._repeated:
            self._known.add(name)
            model = body.get("model", body.get("modelVersion", body.get("model_version")))
            self.open.append((call, self.task, model if isinstance(model, str) else None))

    def answer(self, answer: ApiAnswer) -> Entry | None:
        """What the answer makes of its call; None where the call is known already, or is none."""
        if answer.key is None and self._repeated:
            return None
        matching = [at for at, (call, _, _) in enumerate(self.open) if answer.key in (None, call.key)]
        if not matching:
            return None
        call, task, model = self.open.pop(matching[-1])
        if answer.refused or (call.path is not None and answer.success is False):
            return NotRun("refused", code=None if call.path else call.code)
        if call.path is not None:
            return Edit(self.session, call.path, call.code)
        return AgentRun(
            self.session, call.language, call.code, answer.success, answer.output, answer.stderr, answer.exit_code,
            call_id=call.key, timed_out=answer.timed_out, task=task, model=model,
        )  # fmt: skip


@lru_cache(maxsize=1)  # `reads` and `entries` ask for the same document one after the other
def _items(document: LogDocument) -> list[tuple[str, dict[str, Any], list[Item | Fault]]]:
    """Session, body and items of each body, in order."""
    return [
        (session, {}, [body]) if isinstance(body, Fault) else (session, body, list(items(body)))
        for session, found in _by_session(document)
        for body in found
    ]


def _by_session(document: LogDocument) -> Iterator[tuple[str, Iterable[dict[str, Any] | Fault]]]:
    rows = [line for line in document.lines if _ROW in line and word(line.get("session_id"))]
    if rows:
        yield from ((line["session_id"], [{"output": [line[_ROW]]}]) for line in rows)
    else:
        yield document.digest, _bodies(document)


def _bodies(document: LogDocument) -> Iterator[dict[str, Any] | Fault]:
    value = document.value
    if isinstance(value, dict) and isinstance(recorded := value.get("interactions"), list):
        yield from bodies(recorded)
    elif value is not None:
        yield from bodies(value)
    elif document.lines:
        yield from bodies(document.lines)
    elif _CASSETTE.search(document.text, 0, _HEAD):
        for interactions in _interactions(document.text):
            yield from [interactions] if isinstance(interactions, Fault) else bodies(interactions)
    elif is_stream(document.text):
        yield from bodies(document.text)


def _interactions(text: str) -> Iterator[list[Any] | Fault]:
    """The interactions of a YAML cassette; where it is damaged, those that are whole."""
    try:
        cassette = load_yaml(text)
    except yaml.YAMLError:
        for part in _INTERACTION.split(text)[1:]:
            part = _KEY.split(part, maxsplit=1)[0]  # what follows the list
            try:
                found = load_yaml(part)
            except yaml.YAMLError as error:
                yield Fault("invalid_yaml", f"an interaction: {' '.join(str(error).split())}", part)
            else:
                yield found if isinstance(found, list) else []
        return
    if isinstance(cassette, dict):
        recorded = cassette.get("interactions", cassette.get("http_interactions"))
        yield recorded if isinstance(recorded, list) else []

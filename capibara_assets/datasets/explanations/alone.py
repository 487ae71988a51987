"""Checks that an explanation follows from its prompt alone, by running the shown code in a fresh session.

A recorded call may have met what earlier calls left behind: stored entries, a counter, a filled cache. A reader starts
from the shown code alone.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from capibara_assets.datasets.code.sessions import Row, SessionContext, cell_names, needed
from capibara_assets.datasets.explanations.behaviour import call_text
from capibara_assets.executions.parsing import JAVASCRIPT
from capibara_assets.executions.replay.traces import Trace
from capibara_assets.executions.replay.workers import Session

_CLIENT = re.compile(r"\bTestClient\(\s*(\w+)")
_PLACE = re.compile(r"\d+:\d+:\d+:\d+")
_FORM = re.compile(r"[\w.%+-]+=[^\s{}]*")


def session(shown: Sequence[str], done: Sequence[str], language: str) -> Session:
    """Session with a prompt's code, and in the last cell its use."""
    return Session("javascript" if language in JAVASCRIPT else language, (*shown, *done))


def call(text: str, code: str) -> tuple[str]:
    """Cell that makes a call; a coroutine is awaited."""
    name = text.partition("(")[0]
    awaited = re.search(rf"^async def {re.escape(name)}\b", code, re.MULTILINE)
    return (f"import asyncio\nasyncio.run({text})" if awaited else text,)


def application(session: Sequence[Row], place: int, answered: Collection[str]) -> tuple[str, SessionContext] | None:
    """The one application that a session's clients are of, by its name, with the code that makes it.

    Args:
        place: of the cell whose functions answered; a later one may build the application.
        answered: the names of these functions.
    """
    names = {name for row in session for name in _CLIENT.findall(row["code"])}
    app = names.pop() if len(names) == 1 else None
    for later, row in enumerate(session[place:], place):
        bound = cell_names(row["code"], row["language"])
        if row["outcome"] == "ok" and bound is not None and app is not None and app in bound.bound:
            asked = {**row, "code": ", ".join(sorted({app, *answered}))}
            return app, needed([*session[: later + 1], asked], later + 1)
    return None


def requests(sent: Iterable[Mapping[str, Any]], app: str) -> tuple[str, str]:
    """Cells that send requests to an application, in order."""
    lines = [f"client_ = TestClient({app}, raise_server_exceptions=False)"]
    for request in sent:
        method, _, target = request["request"].partition(" ")
        headers = dict(header.split(": ", 1) for header in request["headers"])
        if body := request["sent"]:
            headers |= {"content-type": _content_type(body)}
        lines.append(f"client_.request({method!r}, {target!r}, headers={headers!r}, content={body or None!r})")
    # a cell of its own: what a client sends is noted from the cell after its import on
    return "from starlette.testclient import TestClient", "\n".join(lines)


def _content_type(sent: str) -> str:
    if _FORM.fullmatch(sent):
        return "application/x-www-form-urlencoded"
    try:
        json.loads(sent)
    except ValueError:
        return "text/plain"
    return "application/json"


def used(traces: Sequence[Trace | None] | None) -> Trace | None:
    """Trace of the last cell; None if it failed, an earlier Python cell failed, or two runs differ."""
    if not traces or any(trace is None or trace.get("error") for trace in traces):
        return None
    last = traces[-1]  # of JavaScript, statements that need what is missing here are passed over
    return None if last is None or last.get("errors") else last


def only_call(traces: Sequence[Trace | None] | None, text: str) -> Mapping[str, Any] | None:
    """The one call of the last cell, where that is its text."""
    trace = used(traces)
    calls = [] if trace is None else trace["calls"]
    return calls[0] if len(calls) == 1 and call_text(calls[0]) == text else None


def alike(one: Mapping[str, Any], traces: Sequence[Trace | None] | None) -> bool:
    """Whether the last cell made one call, with the same course and result as the given one."""
    last = traces[-1] if traces else None
    calls = [] if last is None else last["calls"]
    return len(calls) == 1 and _placeless(calls[0]) == _placeless(one)


def _placeless(value: Any) -> Any:
    """What was noted of a call, without where in its code: comments and tests may stand above what is shown."""
    if isinstance(value, Mapping):
        inner = [(None if _PLACE.fullmatch(name) else name, _placeless(each)) for name, each in _sorted(value)]
        return inner
    if isinstance(value, list | tuple):
        return [_placeless(each) for each in value]
    return None if isinstance(value, str) and _PLACE.fullmatch(value) else value


def _sorted(value: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """By place, else by name."""
    keys = {name: [int(n) for n in name.split(":")] if _PLACE.fullmatch(name) else [] for name in value}
    return sorted(value.items(), key=lambda item: (keys[item[0]], item[0]))

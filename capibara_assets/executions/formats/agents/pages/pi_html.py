"""Sessions of the pi coding agent as it exports them to HTML: commands, edits and their results.

Newer pages hold the session's own entries in base64 (`<script id="session-data">`), which are read as `pi.py` reads
them. Older ones show each call with its result in a block whose colour tells how it ended: green, red, and blue for a
call that has no result yet. Of a long output the page holds a preview and all of it.
"""

import base64
import binascii
import html
import json
import re
from collections.abc import Iterator
from dataclasses import replace

from capibara_assets.executions.formats.agents.fields import objects, of_json, record
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, Entry, LogDocument, NotRun, Reader
from capibara_assets.executions.formats.agents.tools import pi

_DATA = re.compile(r'<script id="session-data"[^<>]*>([^<]*)</script>')
_BLOCK = re.compile(
    r'<div class="(?P<kind>tool-execution|user-message|assistant-(?:text|message)|message-timestamp|thinking-text|'
    r'footer)\b[^<>"]*"(?: style="background-color: rgb\((?P<colour>\d+, \d+, \d+)\)")?[^<>]*>'
)
_OK, _FAILED = "40, 50, 40", "60, 40, 40"
_FACT = re.compile(r'<span class="info-label">(Session|Models?):</span>\s*<span class="info-value">([^<]*)</span>')
_NAME = re.compile(r'<span class="tool-name">([^<]*)</span> <span class="tool-path">([^<]*)</span>')
_TAG = re.compile(r"<[^<>]*>")
_LINE_END = re.compile(r"</div>(?=<div)|<br>")
_COMMAND, _OUTPUT, _FULL, _DIFF = "tool-command", "tool-output", "output-full", "tool-diff"
_EDITORS = ("edit", "write")


def _reads(document: LogDocument) -> bool:
    session = _session(document)
    return any(True for _ in _blocks(document)) if session is None else pi.READER.reads(session)


def _entries(document: LogDocument) -> Iterator[Entry]:
    session = _session(document)
    yield from _blocks(document) if session is None else pi.READER.entries(session)


def _session(document: LogDocument) -> LogDocument | None:
    """The session's entries that a newer page holds, as its log has them; None on an older page."""
    held = _DATA.search(document.text)
    if held is None:
        return None
    try:
        session = record(of_json(base64.b64decode(held[1]).decode("utf-8", "replace")))
    except (binascii.Error, ValueError):
        session = {}
    lines = [record(session.get("header")), *objects(session.get("entries"))]
    return LogDocument(b"".join(json.dumps(line).encode() + b"\n" for line in lines))


def _blocks(document: LogDocument) -> Iterator[Entry]:
    text = document.text
    facts = {label.rstrip("s"): html.unescape(value).strip() for label, value in _FACT.findall(text)}
    session, task = facts.get("Session") or document.digest, None
    blocks = list(_BLOCK.finditer(text))
    ends = [*(block.start() for block in blocks[1:]), len(text)]
    for block, end in zip(blocks, ends, strict=False):
        body = text[block.end() : end]
        if block["kind"] == "user-message":
            task = _text(body).strip() or task
        elif block["kind"] == "tool-execution" and (found := _call(body, block["colour"], session)) is not None:
            yield replace(found, task=task, model=facts.get("Model")) if isinstance(found, AgentRun) else found


def _call(body: str, colour: str | None, session: str) -> Entry | None:
    """The run or edit of a block; None where its tool neither runs nor edits."""
    failed = {_OK: False, _FAILED: True}.get(colour or "")
    command = _inside(body, _COMMAND)
    if command is not None:
        code = command.removeprefix("$ ")
        if failed is None or not code.strip():
            return NotRun("unanswered", session)
        run = AgentRun(session, "bash", code, None)
        printed = _inside(body, _FULL)
        printed = printed if printed is not None else _inside(body, _OUTPUT) or ""
        return pi.tool_run(run, {"content": [{"type": "text", "text": printed}], "isError": failed})
    named = _NAME.search(body)
    if named is None or named[1] not in _EDITORS or failed is not False:
        return None
    written = _inside(body, _DIFF) or _inside(body, _FULL) or _inside(body, _OUTPUT) or ""
    return Edit(session, html.unescape(named[2]), written)


def _inside(body: str, name: str) -> str | None:
    """The text of the first element of a class; None where there is none."""
    begin = body.find(f'<div class="{name}')
    if begin < 0:
        return None
    begin = body.find(">", begin) + 1
    depth, at = 1, begin
    while depth:
        opened, closed = body.find("<div", at), body.find("</div>", at)
        if closed < 0:
            return _text(body[begin:])
        depth, at = (depth + 1, opened + 4) if 0 <= opened < closed else (depth - 1, closed + 6)
    return _text(body[begin : at - 6])


def _text(marked: str) -> str:
    return html.unescape(_TAG.sub("", _LINE_END.sub("\n", marked)))


READER = Reader("pi-html", (b'<div class="tool-execution', b'id="session-data"'), _reads, _entries)

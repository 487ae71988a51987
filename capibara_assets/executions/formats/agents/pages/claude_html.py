"""Transcripts of Claude Code as pages of HTML, as claude-code-transcripts writes them: commands, edits, results.

A call has its id, a result none: it stands in a later message of its own, of the class `tool-error` where it failed.
Results of several calls come as they end, so that only what all of them say is told of each: see `markdown_pairs`.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from capibara_assets.executions.formats.agents.general.answers import read_answer, write_answer
from capibara_assets.executions.formats.agents.general.markdown_heads import Head
from capibara_assets.executions.formats.agents.general.markdown_pairs import Called, Output, pair
from capibara_assets.executions.formats.agents.general.tool_names import Asked, asked_of, entry_of
from capibara_assets.executions.formats.agents.runs import Entry, LogDocument, Reader, moment
from capibara_assets.executions.formats.agents.tools.calls import Call
from capibara_assets.executions.formats.agents.tools.shell_reports import refused
from capibara_assets.executions.formats.agents.trajectories.tool_calls import parsed

_MESSAGE = re.compile(r'<div class="message (user|assistant|tool-reply)\b[^<>]*>')
_TIME = re.compile(r'<time datetime="([^"<>]*)"')
_CONTENT = '<div class="message-content">'
_PART = re.compile(
    r'<div class="(?:tool-use(?: [\w-]+)?|file-tool [\w-]+|todo-list)" data-tool-id="(?P<id>[^"<>]*)"[^<>]*>'
    r'|<div class="tool-result(?P<failed> tool-error)?">'
)
_TAG = re.compile(r"<[^<>]*>")
_BEHIND = "Command running in background with ID: "


@dataclass(slots=True)
class _Page:
    """The calls of a page, and the batch that waits for results."""

    made: list[tuple[Call, Asked, Called]] = field(default_factory=list)
    calls: list[Called] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)

    def pair(self) -> None:
        """Give the results of the batch to its calls."""
        pair(self.calls, self.outputs)
        self.calls, self.outputs = [], []


def _page(document: LogDocument) -> _Page:
    page, text, task = _Page(), document.text, None
    messages = list(_MESSAGE.finditer(text))
    ends = [*(message.start() for message in messages[1:]), len(text)]
    for number, (message, end) in enumerate(zip(messages, ends, strict=False)):
        head, _, said = text[message.end() : end].partition(_CONTENT)
        parts = list(_PART.finditer(said))
        time = _TIME.search(head)
        if message[1] == "user" and not parts:
            page.pair()
            task = _text(said).strip() or task
        for part, until in zip(parts, [*(each.start() for each in parts[1:]), len(said)], strict=False):
            body = said[part.end() : until]
            if part["id"] is None:
                page.outputs.append(_output(body, part["failed"] is not None, number))
                continue
            if len(page.outputs) >= len(page.calls):
                page.pair()
            name, asked = _asked(body)
            page.calls.append(Called(Head(name), name, number))
            if asked is not None:
                started = moment(html.unescape(time[1])) if time else None
                call = Call(document.digest, name, None, html.unescape(part["id"]), started, task)
                page.made.append((call, asked, page.calls[-1]))
    page.pair()
    return page


def _asked(body: str) -> tuple[str, Asked | None]:
    """The tool and what it is asked for."""
    if commands := _inside(body, '<pre class="bash-command">', "</pre>"):
        return "Bash", Asked("bash", commands[0])
    paths = _inside(body, '<div class="file-tool-fullpath">', "</div>")
    written = _inside(body, '<pre class="edit-content">', "</pre>") or _inside(
        body, '<pre class="file-content">', "</pre>"
    )
    if paths and written:
        return "Edit", Asked("patch", written[-1], paths[0].strip())
    header = _inside(body, '<div class="tool-header">', "</div>")
    name = header[0].split()[-1] if header and header[0].strip() else ""
    given = _inside(body, '<pre class="json">', "</pre>")
    return name, asked_of(name, parsed(given[0])) if given else None


def _output(body: str, failed: bool, turn: int) -> Output:
    printed = _inside(body, "<pre>", "</pre>")
    text = "\n".join(printed) if printed else _text(body.partition("<button")[0]).strip()
    untold = refused(text) or text.startswith(_BEHIND)
    return Output(text, None if untold else failed, turn, labelled=True)


def _inside(body: str, opening: str, closing: str) -> list[str]:
    """The texts between two tags."""
    parts = (part.partition(closing) for part in body.split(opening)[1:])
    return [_text(inner) for inner, closed, _ in parts if closed]


def _text(marked: str) -> str:
    return html.unescape(_TAG.sub("", marked))


def _reads(document: LogDocument) -> bool:
    return any(called.output is not None or called.unpaired for _, _, called in _page(document).made)


def _entries(document: LogDocument) -> Iterator[Entry]:
    for call, asked, called in _page(document).made:
        if called.unpaired:
            call.not_run = None
        elif called.output is not None:
            answer = read_answer({"content": called.output, "is_error": called.failed})
            shell = asked.path is None and asked.language == "bash"
            write_answer(call, answer, shell, trusts_success=True, language=asked.language)
        yield entry_of(call, asked)


READER = Reader("claude-html", (b' data-tool-id="',), _reads, _entries)

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

_MESSAGE = re.compile(r'<div class="message (user|assistant|tool-reply)\b[^>]*>')
_TIME = re.compile(r'<time datetime="([^"]*)"')
_CONTENT = '<div class="message-content">'
_PART = re.compile(
    r'<div class="(?:tool-use(?: [\w-]+)?|file-tool [\w-]+|todo-list)" data-tool-id="(?P<id>[^"]*)"[^>]*>'
    r'|<div class="tool-result(?P<failed> tool-error)?">'
)
_COMMAND = re.compile(r'<pre class="bash-command">(.*?)</pre>', re.DOTALL)
_HEADER = re.compile(r'<div class="tool-header">(.*?)</div>', re.DOTALL)
_GIVEN = re.compile(r'<pre class="json">(.*?)</pre>', re.DOTALL)
_PATH = re.compile(r'<div class="file-tool-fullpath">(.*?)</div>', re.DOTALL)
_WRITTEN = re.compile(r'<pre class="(?:edit|file)-content">(.*?)</pre>', re.DOTALL)
_PRINTED = re.compile(r"<pre>(.*?)</pre>", re.DOTALL)
_TAG = re.compile(r"<[^<>]*>")
_BUTTON = re.compile(r"<button\b.*?</button>", re.DOTALL)
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
    if (command := _COMMAND.search(body)) is not None:
        return "Bash", Asked("bash", _text(command[1]))
    if (path := _PATH.search(body)) is not None and (written := _WRITTEN.findall(body)):
        return "Edit", Asked("patch", _text(written[-1]), _text(path[1]).strip())
    header, given = _HEADER.search(body), _GIVEN.search(body)
    name = _text(header[1]).split()[-1:] if header else []
    return ("", None) if not name else (name[0], asked_of(name[0], parsed(_text(given[1])) if given else None))


def _output(body: str, failed: bool, turn: int) -> Output:
    printed = _PRINTED.findall(body)
    text = "\n".join(map(_text, printed)) if printed else _text(_BUTTON.sub("", body)).strip()
    untold = refused(text) or text.startswith(_BEHIND)
    return Output(text, None if untold else failed, turn, labelled=True)


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

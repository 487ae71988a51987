"""pi's exports to HTML: blocks whose colour tells the outcome, and newer pages that hold the session itself."""

import base64
import json

import pytest

from capibara_assets.executions.formats.agents.pages.pi_html import READER
from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, LogDocument, NotRun
from capibara_assets.executions.formats.agents.tools import pi
from capibara_assets_tests.executions.formats.agents.tools.damage import entries, jsonl, reads, runs, survives

GREEN, RED, BLUE = "40, 50, 40", "60, 40, 40", "40, 40, 50"


def block(colour: str, inside: str) -> str:
    return f'<div class="tool-execution" style="background-color: rgb({colour})">{inside}</div>'


def command(text: str, printed: str = "", colour: str = GREEN) -> str:
    lines = "".join(f"<div>{line}</div>" for line in printed.split("\n"))
    return block(colour, f'<div class="tool-command">$ {text}</div><div class="tool-output">{lines}</div>')


LONG = (
    '<div class="tool-output expandable"><div class="output-preview"><div>1</div></div>'
    '<div class="output-full"><div>1</div><div>2</div></div></div>'
)
EDIT = '<div class="tool-header"><span class="tool-name">edit</span> <span class="tool-path">a.ts</span></div>'
DIFF = '<div class="tool-diff"><div class="diff-line-old">-1 a</div><div class="diff-line-new">+1 b</div></div>'
HEAD = (
    '<!DOCTYPE html><html><head><title>x</title></head><body><span class="info-label">Session:</span> '
    '<span class="info-value">9dc9b37e</span><span class="info-label">Models:</span><span class="info-value">m</span>'
    '<div class="messages"><div class="user-message">Count &amp; say.</div>'
)
PAGE = (
    HEAD
    + command("grep -n &quot;a&quot; x &amp;&amp; ls", "429: a\n456: b")
    + '<div class="assistant-text">Now the build.</div>'
    + command("make", "no rule\n\nCommand exited with code 2", RED)
    + block(GREEN, f'<div class="tool-command">$ seq 2</div>{LONG}')
    + block(GREEN, EDIT + DIFF)
    + block(RED, EDIT + '<div class="tool-output"><div>Could not find the text</div></div>')
    + block(GREEN, EDIT.replace("edit", "read"))
    + command("sleep 9", "", BLUE)
    + "</div></body></html>"
)
SESSION = [
    {"type": "session", "version": 2, "id": "b457", "timestamp": "2026-01-01T20:48:24.993Z", "cwd": "/w"},
    {"type": "message", "message": {"role": "assistant", "content": [
        {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "ls"}}]}},
    {"type": "message", "message": {"role": "toolResult", "toolCallId": "c1", "toolName": "bash", "isError": False,
                                    "content": [{"type": "text", "text": "a"}]}},
]  # fmt: skip


def page_of(session: object) -> str:
    held = base64.b64encode(json.dumps(session).encode()).decode()
    return f'<html><script id="session-data" type="application/json">{held}</script></html>'


def test_blocks_are_runs_and_edits_whose_colour_tells_the_outcome() -> None:
    assert find_reader(LogDocument(PAGE.encode())) is READER
    found = entries(READER, PAGE)
    ran = [one for one in found if isinstance(one, AgentRun)]
    assert [(run.code, run.success, run.output, run.exit_code) for run in ran] == [
        ('grep -n "a" x && ls', True, "429: a\n456: b", None),
        ("make", False, "no rule", 2),
        ("seq 2", True, "1\n2", None),
    ]
    assert {(run.session, run.task, run.model) for run in ran} == {("9dc9b37e", "Count & say.", "m")}
    assert [one for one in found if not isinstance(one, AgentRun)] == [
        Edit("9dc9b37e", "a.ts", "-1 a\n+1 b"), NotRun("unanswered"),
    ]  # fmt: skip


def test_a_newer_page_holds_the_session_itself() -> None:
    page = page_of({"header": SESSION[0], "entries": SESSION[1:]})
    assert find_reader(LogDocument(page.encode())) is READER
    assert runs(READER, page) == runs(pi.READER, jsonl(*SESSION))


@pytest.mark.parametrize("page", [page_of([]), page_of({"entries": 3}), page_of({}).replace("e30=", "%%"), "<html>"])
def test_pages_without_a_session_are_no_logs(page: str) -> None:
    assert not reads(READER, page)


def test_nothing_damaged_makes_the_reader_fail() -> None:
    for page in (PAGE, page_of({"header": SESSION[0], "entries": SESSION[1:]})):
        for at in range(0, len(page), 7):
            survives(READER, page[:at].encode())
            survives(READER, (page[:at] + page[at + 7 :]).encode())

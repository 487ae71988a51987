"""Transcripts of Claude Code as HTML: commands, edits and queries, and the results that bear no id."""

import time
from datetime import UTC, datetime

import pytest

from capibara_assets.executions.formats.agents.pages.claude_html import READER
from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, LogDocument, NotRun
from capibara_assets_tests.executions.formats.agents.tools.damage import entries, reads, runs


def message(kind: str, content: str, second: int = 1) -> str:
    moment = f"2026-01-02T03:04:{second:02}.000Z"
    return (
        f'<div class="message {kind}" id="msg-{second}"><div class="message-header"><span class="role-label">x</span>'
        f'<time datetime="{moment}">{moment}</time></div><div class="message-content">\n{content}</div></div>\n'
    )


def bash(command: str, key: str = "toolu_1", second: int = 1) -> str:
    shown = f'<div class="truncatable"><pre class="bash-command">{command}</pre><button>Show more</button></div>'
    return message("assistant", f'<div class="tool-use bash-tool" data-tool-id="{key}">\n{shown}</div>', second)


def result(text: str, kind: str = "tool-result") -> str:
    return message("tool-reply", f'<div class="{kind}"><pre>{text}</pre><button>Show more</button></div>', 5)


ERROR = "tool-result tool-error"
EDIT = message(
    "assistant",
    '<div class="file-tool edit-tool" data-tool-id="toolu_e"><div class="file-tool-fullpath">/w/a.py</div>'
    '<pre class="edit-content">a &lt; b</pre><pre class="edit-content">a &gt; b</pre></div>',
)
QUERY = message(
    "assistant",
    '<div class="tool-use" data-tool-id="toolu_q"><div class="tool-header"><span>o</span> mcp__base__execute_sql</div>'
    '<pre class="json">{&#34;query&#34;: &#34;SELECT 1&#34;}</pre></div>',
)
USER = message("user", '<div class="user-content"><p>Make &amp; check.</p></div>')
PAGE = (
    "<!DOCTYPE html>\n<body>\n"
    + USER
    + bash("make &amp;&amp; ls", second=2)
    + result("a &lt; b")
    + EDIT
    + result("The file was updated.")
    + bash("pytest", "toolu_2", 7)
    + result("Exit code 1\nfailed", ERROR)
    + QUERY
    + result("[{}]")
    + bash("git push", "toolu_3")
    + result("The user doesn&#x27;t want to proceed with this tool use.", ERROR)
    + bash("serve", "toolu_4")
    + result("Command running in background with ID: b1")
    + bash("left", "toolu_5")
)


def shown(found: list[AgentRun]) -> list[tuple[str, bool | None, str]]:
    return [(run.code, run.success, run.output) for run in found]


def test_calls_and_their_results() -> None:
    assert find_reader(LogDocument(PAGE.encode())) is READER
    made, edit, tested, queried, refused, served, left = entries(READER, PAGE)
    assert isinstance(made, AgentRun) and isinstance(tested, AgentRun)
    assert isinstance(queried, AgentRun) and isinstance(served, AgentRun)
    assert shown([made, tested, queried, served]) == [
        ("make && ls", True, "a < b"),
        ("pytest", False, "failed"),
        ("SELECT 1", True, "[{}]"),
        ("serve", None, "Command running in background with ID: b1"),
    ]
    assert (made.call_id, made.task, made.started) == (
        "toolu_1", "Make & check.", datetime(2026, 1, 2, 3, 4, 2, tzinfo=UTC),
    )  # fmt: skip
    assert edit == Edit(made.session, "/w/a.py", "a > b") and (queried.language, tested.exit_code) == ("sql", 1)
    assert refused == NotRun("refused") and left == NotRun("unanswered")


@pytest.mark.parametrize(
    ("second", "success"), [(result("two"), True), (result("two", ERROR), None), (result("<b>x</b>"), True)]
)
def test_results_of_several_calls_tell_what_all_of_them_say(second: str, success: bool | None) -> None:
    found = runs(READER, bash("a") + bash("b", "toolu_2") + result("one") + second + bash("c", "toolu_3") + result("c"))
    assert shown(found) == [("a", success, ""), ("b", success, ""), ("c", True, "c")]


def test_a_call_between_results_waits_with_those_before_it() -> None:
    page = bash("a") + bash("b", "toolu_2") + result("one") + bash("c", "toolu_3") + result("two", ERROR) + result("x")
    assert shown(runs(READER, page)) == [("a", None, ""), ("b", None, ""), ("c", None, "")]


@pytest.mark.parametrize(
    "text",
    [
        "<p>no calls</p>",
        USER,
        bash("ls"),
        '<div data-tool-id="1"><pre class="bash-command">ls</pre></div><div class="tool-result"><pre>a</pre></div>',
    ],
)
def test_what_shows_no_answered_call_is_no_log(text: str) -> None:
    assert not reads(READER, text)


def test_a_page_that_was_cut_anywhere_is_read() -> None:
    for end in range(0, len(PAGE), 11):
        if reads(READER, PAGE[:end]):
            assert all(isinstance(entry, AgentRun | Edit | NotRun) for entry in entries(READER, PAGE[:end]))


@pytest.mark.parametrize(
    "piece",
    ["<pre>", '<pre class="bash-command">', '<div class="tool-header">', "<", "<button", message("user", "")[:30]],
)
def test_repeated_pieces_take_no_time(piece: str) -> None:
    began = time.process_time()
    for head in (bash("ls")[:-20], result("a")[:-20], EDIT[:-20]):
        reads(READER, head + (piece + "\n") * 20_000)
    assert time.process_time() - began < 5

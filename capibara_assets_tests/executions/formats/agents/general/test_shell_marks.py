"""Terminals whose shell marks its commands: what ran, what it printed, how it ended."""

import json

import pytest

from capibara_assets.executions.formats.agents.general.shell_marks import READER
from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, LogDocument, NotRun
from capibara_assets_tests.executions.formats.agents.tools.damage import entries, reads

PROMPT = "\x1b]{n};A\x07\x1b[01;32mdev@box\x1b[00m:~$ \x1b]{n};B\x07"


def session(kind: str, *commands: tuple[str, str, str]) -> str:
    """What a terminal was sent: typed text, the command that `E` tells (none: without one), output with its end."""
    text = f'Script started on 2026-01-02 [TERM="xterm"]\n\x1b]{kind};D\x07'
    for typed, told, rest in commands:
        text += PROMPT.replace("{n}", kind) + typed + "\r\n"
        text += f"\x1b]{kind};E;{told};6b1f\x07" if told else ""
        text += rest.replace("{n}", kind)
    return text


VSCODE = session(
    "633",
    ("npm test", "npm test", "\x1b]{n};C\x07\x1b[31m1 failing\x1b[0m\r\n\x1b]{n};D;1\x07"),
    ("", "", "\x1b]{n};D\x07"),
    ("x", r"for a in b\x3b do echo '\\n'\x0adone", "\x1b]{n};C\x07a\r\nb\r\n\x1b]{n};D;0\x07"),
    ("# wait", "# wait", "\x1b]{n};C\x07\x1b]{n};D;0\x07"),
    ("top", "top", "\x1b]{n};C\x07"),
)
PLAIN = session(
    "133", ("makd\b \be", "", "\x1b]{n};C\x07built\r\n\x1b]{n};D;0\x07"), ("false", "", "\x1b]{n};C\x07\x1b]{n};D\x07")
)


def test_commands_stand_between_their_marks() -> None:
    document = VSCODE.encode()
    assert find_reader(LogDocument(document)) is READER
    failed, well, open_end = entries(READER, document)
    assert isinstance(failed, AgentRun) and isinstance(well, AgentRun)
    assert (failed.code, failed.success, failed.exit_code, failed.output) == ("npm test", False, 1, "1 failing\n")
    assert (well.code, well.success, well.output) == ("for a in b; do echo '\\n'\ndone", True, "a\nb\n")
    assert open_end == NotRun("unanswered", failed.session, "top") and open_end.code == "top"


def test_without_its_text_the_command_is_what_was_typed() -> None:
    first, second = entries(READER, PLAIN)
    assert isinstance(first, AgentRun) and isinstance(second, AgentRun)
    assert (first.code, first.success, first.output) == ("make", True, "built\n")
    assert (second.code, second.success, second.exit_code) == ("false", None, None)


@pytest.mark.parametrize(
    "size", [{"version": 2, "width": 80, "height": 24}, {"version": 3, "term": {"cols": 80, "rows": 24}}]
)
def test_a_recording_has_the_same_marks(size: dict[str, object]) -> None:
    events = [[n, "o", VSCODE[n * 40 : n * 40 + 40]] for n in range(len(VSCODE) // 40 + 1)]
    recorded = "".join(json.dumps(line) + "\n" for line in [size, *events])
    assert [(run.code, run.success) for run in entries(READER, recorded) if isinstance(run, AgentRun)] == [
        (run.code, run.success) for run in entries(READER, VSCODE) if isinstance(run, AgentRun)
    ]


@pytest.mark.parametrize(
    "text", [PROMPT.replace("{n}", "633"), "\x1b]633;E;ls;1\x07", "\x1b]633;D;0\x07", "see ESC]633;C"]
)
def test_marks_without_a_command_that_ran_are_no_log(text: str) -> None:
    assert not reads(READER, text)

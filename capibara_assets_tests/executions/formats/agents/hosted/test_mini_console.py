"""mini-swe-agent's console: steps and outcomes in a raw log of a terminal, and in its recording."""

import json
from typing import Any

import pytest

from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, LogDocument, NotRun

SPIN = "\x1b[32m⠋\x1b[0m Waiting for the LM to respond...\r\x1b[2K"
RULE = "\x1b[92m" + "─" * 40 + "\x1b[0m\r\n"
START = "\x1b[?2004hroot@c0ffee:/app# mini -t 'Count the files.'\r\n\x1b[?2004l\rThis is mini-swe-agent.\r\n"
PROMPT = (
    "\x1b[1;32mUser\x1b[0m:\r\nPlease solve this issue: Count the files.\r\n\r\nYou can execute bash commands\r\n"
    "## Formatting\r\n```bash\r\nls -la\r\n```\r\n"
)


def step(number: int, *code: str) -> str:
    fenced = "\r\n".join(["```bash", *code, "```"])
    head = f"\r\n\x1b[1;31mmini-swe-agent\x1b[0m\x1b[31m (step \x1b[0m{number}, $0.01):\x1b[0m\r\n"
    spun = f"{SPIN}\x1b[32m⠙\x1b[0m Waiting for the LM to respond...\r\n\x1b[?25h\r\x1b[1A\x1b[2K\r\n"
    return f"{SPIN * 3}{head}{SPIN}THOUGHT: Next.\r\n\r\n{fenced}\r\n{spun}"


def told(*lines: str) -> str:
    return "\x1b[1;32mUser\x1b[0m:\r\n" + "\r\n".join(lines) + "\r\n" + RULE


def returned(code: int, *printed: str) -> str:
    return told(f"<returncode>{code}</returncode>", "<output>", *printed, "</output>")


KILLED = "The last command <command>make</command> timed out and has been killed."
LOG = "".join(
    [
        START, PROMPT, RULE,
        step(1, "ls | wc -l"), returned(0, "3", "User:"),
        step(2, "cat <<'E' > a", "one", "E"), returned(1, "a: denied"),
        step(3, "make"), told(KILLED, "<output>", "b", "</output>"),
        step(4, "ls", "```", "```bash", "pwd"), told("Please give one action, found 2 actions."),
        step(5, "pwd"), told("12:00 - some library: ERROR: no such <module>", "<returncode>0</returncode>", "<output>",
                             "/app", "</output>"),
        step(6, "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"),
        "\x1b[1;32mUser\x1b[0m:\r\n\r\nSaved trajectory to '/root/last.traj.json'\r\n",
    ]
)  # fmt: skip


def recording(text: str) -> str:
    events: list[Any] = [{"version": 2, "width": 160, "height": 40}]
    events += [[at / 100, "o", text[at : at + 57]] for at in range(0, len(text), 57)]
    return "\n".join(json.dumps(event) for event in events) + "\n"


@pytest.mark.parametrize("text", [LOG, recording(LOG)], ids=["log", "recording"])
def test_each_step_is_an_execution_with_its_outcome(text: str) -> None:
    document = LogDocument(text.encode())
    reader = find_reader(document)
    assert reader is not None and reader.name == "mini-console"
    found = list(reader.entries(document))
    runs = [entry for entry in found if isinstance(entry, AgentRun)]
    assert [entry for entry in found if not isinstance(entry, AgentRun)] == [NotRun("refused")]
    assert [(run.code, run.success, run.exit_code, run.output) for run in runs] == [
        ("ls | wc -l", True, 0, "3\nUser:\n"),
        ("cat <<'E' > a\none\nE", False, 1, "a: denied\n"),
        ("make", False, None, "b\n"),
        ("pwd", True, 0, "/app\n"),
        ("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", None, None, ""),
    ]
    assert {run.task for run in runs} == {"Count the files."}
    assert {run.session for run in runs} == {document.digest}
    assert [run.timed_out for run in runs] == [False, False, True, False, False]


@pytest.mark.parametrize(
    "text",
    [
        "# How it looks\n\n```\n" + step(1, "ls") + returned(0, "a") + "```\n",  # quoted, without the prompt
        START + PROMPT + RULE + step(1, "ls"),  # nothing was told
        START + PROMPT + returned(0, "a"),
    ],
)
def test_other_text_is_none(text: str) -> None:
    found = find_reader(LogDocument(text.encode()))
    assert found is None or found.name != "mini-console"


def test_a_log_whose_beginning_the_terminal_forgot_is_read_from_its_first_step() -> None:
    text = "ls -la\r\n```\r\n" + RULE + step(4, "ls"), returned(0, "a"), step(5, "cat b"), returned(1, "cat: b")
    document = LogDocument("".join(text).encode())
    reader = find_reader(document)
    assert reader is not None and reader.name == "mini-console"
    runs = [entry for entry in reader.entries(document) if isinstance(entry, AgentRun)]
    assert [(run.code, run.exit_code, run.task) for run in runs] == [("ls", 0, None), ("cat b", 1, None)]
    assert find_reader(LogDocument("".join(text[:2]).encode())) is None  # one step, as a page may quote it

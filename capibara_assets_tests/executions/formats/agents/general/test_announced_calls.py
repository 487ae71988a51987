"""What a program announces that its agent runs: AutoGPT's log, and loops that mark it in brackets."""

import time

import pytest

from capibara_assets.executions.formats.agents.general.announced_calls import READER
from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import LogDocument, NotRun
from capibara_assets_tests.executions.formats.agents.tools.damage import entries, reads, runs

RECORDS = """INFO  BOT THOUGHTS:  I look.
INFO  NEXT ACTION:  COMMAND = execute_python_code  ARGUMENTS = {'code': 'print(1)\\nprint(2)'}
INFO  Enter 'y' to authorise command
INFO  -=-=- COMMAND AUTHORISED BY USER -=-=-
INFO  SYSTEM:  Command execute_python_code returned: 1
2

INFO  HTTP Request: POST
INFO  NEXT ACTION:  COMMAND = execute_shell  ARGUMENTS = {'command_line': 'make'}
WARNING  Command execute_shell returned an error: CommandExecutionError('no rule')
INFO  NEXT ACTION:  COMMAND = web_search  ARGUMENTS = {'query': 'x'}
INFO  SYSTEM:  found
INFO  NEXT ACTION:  COMMAND = execute_shell  ARGUMENTS = {'command_line': 'rm a'}
INFO  Exiting...
"""
ACTIVITY = "".join(
    f"2026-01-02 03:04:05,678 {line}" if line[:4] in ("INFO", "WARN") else line for line in RECORDS.splitlines(True)
)
CONSOLE = RECORDS.replace("INFO  ", "").replace("WARNING  ", "")
LOOP = """[AGENT RESPONSE]
I count: [SHELL: no] is none.

[RESULTS]
[WRITTEN: a.py (7 chars)]

[SHELL: wc -l a.py]
1 a.py

[SHELL: rm b]
[STDERR]
rm: b: No such file or directory

====================
STEP 2
[SHELL: make > log]

[AGENT] Done.
"""


@pytest.mark.parametrize(("text", "rest"), [(ACTIVITY, ""), (CONSOLE, "\n\nHTTP Request: POST")])
def test_autogpts_commands_end_as_it_was_told(text: str, rest: str) -> None:
    document = LogDocument(text.encode())
    assert find_reader(document) is READER
    assert [(run.language, run.code, run.success, run.output) for run in runs(READER, text)] == [
        ("python", "print(1)\nprint(2)", True, f"1\n2{rest}"),
        ("bash", "make", False, "CommandExecutionError('no rule')"),
    ]
    assert [(one.kind, one.code) for one in entries(READER, text) if isinstance(one, NotRun)] == [
        ("unanswered", "rm a")
    ]


def test_what_stands_in_brackets_was_run() -> None:
    found = [(run.code, run.success, run.output, run.stderr) for run in runs(READER, LOOP)]
    assert found == [
        ("wc -l a.py", None, "1 a.py", ""),
        ("rm b", None, "", "rm: b: No such file or directory"),
        ("make > log", None, "", ""),
    ]


@pytest.mark.parametrize(
    "text",
    [
        LOOP.replace("[SHELL: rm b]\n", ""),  # too few
        LOOP.replace("[AGENT", "[BUILD"),
        LOOP.replace("[SHELL:", "- [SHELL:"),
        CONSOLE.replace("SYSTEM:", "system says").replace("returned an error", "failed"),
        "NEXT ACTION:  COMMAND = execute_shell  ARGUMENTS = {'command_line'\nSYSTEM:  a\n",
    ],
)
def test_other_text_is_no_log(text: str) -> None:
    assert not reads(READER, text)


@pytest.mark.parametrize("text", [ACTIVITY, CONSOLE, LOOP])
def test_a_log_cut_anywhere_is_read_as_far_as_it_goes(text: str) -> None:
    for end in range(len(text)):
        document = LogDocument(text[:end].encode())
        if READER.reads(document):
            list(READER.entries(document))


@pytest.mark.parametrize(
    "piece", ["[SHELL: a]\n", "[AGENT", "NEXT ACTION:  COMMAND = a  ARGUMENTS = {", "SYSTEM: ", "A THOUGHTS", "= " * 9]
)
def test_repeated_pieces_take_no_time(piece: str) -> None:
    began = time.process_time()
    reads(READER, LOOP + piece * 20_000)
    assert time.process_time() - began < 5

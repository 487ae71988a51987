"""Exit codes that a harness writes into a line of each answer of its shell, and lines that a command printed itself."""

import json
from collections.abc import Sequence

import pytest

from capibara_assets.executions.formats.agents.exit_lines import read_exit_lines
from capibara_assets.executions.formats.agents.recorded import agent_records
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, Entry, LogDocument
from capibara_assets.executions.formats.envelope_reader import Recorded
from capibara_assets_tests.executions.conftest import NOW

Ended = list[tuple[bool | None, int | None, str]]

COMMANDS = ("cd /w && ls", "grep -c total tally.py", "python tally.py", "git status --short")
HEADS = ["rc=0\ntally.py\n", "rc=1\n", "rc=2\nno rows\n", "rc=0\n"]
STATED: Ended = [(True, 0, "tally.py\n"), (False, 1, ""), (False, 2, "no rows\n"), (True, 0, "")]


def answered(outputs: Sequence[str], commands: Sequence[str] = COMMANDS, session: str = "s") -> list[Entry]:
    return [AgentRun(session, "bash", code, None, said) for code, said in zip(commands, outputs, strict=True)]


def ended(entries: Sequence[Entry]) -> Ended:
    return [(run.success, run.exit_code, run.output) for run in read_exit_lines(entries) if isinstance(run, AgentRun)]


def untold(outputs: Sequence[str]) -> Ended:
    return [(None, None, said) for said in outputs]


@pytest.mark.parametrize(
    "line", ["rc={}", "RC: {}", "exit={}", "exit code = {}", "returncode={}", "[exit {}]", "(rc={})"]
)
def test_a_line_that_all_answers_begin_or_end_with_states_the_exit_code(line: str) -> None:
    assert ended(answered([said.replace(said[:4], line.format(said[3]), 1) for said in HEADS])) == STATED
    feet = ["tally.py\n{}", "{}\n", "no rows\n{}\n", "{}"]
    below = [said.format(line.format(code)) for said, code in zip(feet, (0, 1, 2, 0), strict=True)]
    assert ended(answered(below)) == [
        (True, 0, "tally.py"), (False, 1, ""), (False, 2, "no rows"), (True, 0, ""),
    ]  # fmt: skip


def test_each_session_is_told_by_its_own_answers_and_edits_stay_where_they_are() -> None:
    other = answered(["a\n", "rc=0\n", "rc=0\n", "rc=0\n"], session="t")
    edit = Edit("s", "tally.py", "+total")
    found = read_exit_lines([*other, edit, *answered(HEADS)])
    assert found[:5] == [*other, edit] and ended(found[5:]) == STATED


@pytest.mark.parametrize(
    ("outputs", "commands"),
    [
        (HEADS[:2], COMMANDS[:2]),  # too few
        ([*HEADS[:3], "rows\n"], COMMANDS),  # one without
        ([*HEADS[:3], "rc=ok\n"], COMMANDS),
        ([*HEADS[:3], "exit=0\n"], COMMANDS),  # another form
        ([*HEADS[:3], "x\nrc=0\n"], COMMANDS),  # another place
        (["exit 0\n", "exit 0\n", "exit 0\n", "exit 0\n"], COMMANDS),  # a script's last line
        (HEADS, ("./all a", "./all b", "./all c && ls", "./all d")),  # one program may have printed all
        (HEADS, ("ls; echo rc=$?; true", "cat a; echo rc=$?; true", "git log", "make")),  # the agent prints them
        (HEADS, ("ls; $rc = $LASTEXITCODE; echo rc=$rc", "make; rc=1; echo rc=$rc", "git log", "make")),
    ],
)
def test_what_a_command_may_have_printed_itself_is_no_exit_code(outputs: list[str], commands: Sequence[str]) -> None:
    assert ended(answered(outputs, commands)) == untold(outputs)


def test_what_the_log_says_otherwise_stays() -> None:
    stated = [AgentRun("s", "bash", "make", True, "rc=0\n", exit_code=0), *answered(HEADS)]
    assert ended(stated) == [(True, 0, "rc=0\n"), *untold(HEADS)]
    first, *others = answered(HEADS)
    assert isinstance(first, AgentRun)
    failed = AgentRun("s", "bash", first.code, False, first.output)
    late = AgentRun("s", "bash", "sleep 99", None, "no end", timed_out=True)
    assert ended([failed, *others, late]) == [(False, None, HEADS[0]), *STATED[1:], (None, None, "no end")]


def in_words(code: str, exit_code: int | None, said: str = "") -> AgentRun:
    """A run whose tool wrote the code below the output, or nothing."""
    success = None if exit_code is None else exit_code == 0
    return AgentRun("s", "bash", code, success, said, exit_code=exit_code, in_words=exit_code is not None)


def test_a_shell_that_writes_a_line_where_a_command_failed_tells_of_the_others() -> None:
    well, shows, late = (
        in_words("ls", None, "a\n"),
        in_words("make", None, "make: *** [a] Error 1"),
        in_words("a &", None),
    )
    failures = [in_words("make all", 2), in_words("git push", 1)]
    assert ended([well, *failures, shows, late]) == [
        (True, None, "a\n"), (False, 2, ""), (False, 1, ""), (None, None, shows.output), (None, None, ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "others",
    [
        [in_words("make all", 2)],  # one alone may have printed it
        [in_words("go run a.go", 1), in_words("go run b.go", 1)],  # so may one program
        [in_words("ls x; echo exit code $?", 2), in_words("make", 1)],
        [in_words("make all", 2), in_words("git push", 1), in_words("id", 0)],  # it writes the others, too
        [in_words("make all", 2), in_words("git push", 1), AgentRun("s", "bash", "id", False, "", exit_code=3)],
    ],
)
def test_a_shell_that_is_not_sure_to_write_all_failures_tells_of_no_other(others: list[AgentRun]) -> None:
    assert ended([in_words("ls", None, "a\n"), *others])[0] == (None, None, "a\n")


def test_messages_of_a_harness_of_ones_own() -> None:
    messages: list[dict[str, object]] = [{"role": "user", "content": "Mend the tally."}]
    for number, (command, said) in enumerate(zip(COMMANDS, HEADS, strict=True)):
        asked = {"name": "execute_bash", "arguments": json.dumps({"cmd": command})}
        messages += [
            {"role": "assistant", "tool_calls": [{"id": f"c{number}", "type": "function", "function": asked}]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": said},
        ]
    found = agent_records(LogDocument(json.dumps(messages).encode()), NOW)
    assert found is not None
    told = [(one.outcome, one.stdout) for one in found if isinstance(one, Recorded)]
    assert told == [("ok", "tally.py\n"), ("error", ""), ("error", "no rows\n"), ("ok", "")]


@pytest.mark.parametrize(
    ("code", "output", "success"),
    [
        ('make; echo "rc=$?"', "cc a.c\nrc=0\n", True),
        ('make; echo "rc=$?"', "rc=2", False),
        ("make\necho exit: $?", "exit: 1\n", False),
        ("make; echo $?", "0\n", True),
        ("make; echo 'rc=$?'", "rc=$?", None),  # which the shell does not fill in
        ('make; echo "rc=$?"', "rc=0\nmore", None),
        ('make; echo "rc=$?" > log', "rc=0", None),
        ("make && echo ALL DONE", "x\nALL DONE\n", True),
        ("make && echo ALL DONE", "x\n", None),  # the output may be cut
        ("make || echo FAILED", "FAILED\n", None),
    ],
)
def test_a_command_that_says_how_it_ended_is_believed_where_nothing_else_tells(
    code: str, output: str, success: bool | None
) -> None:
    assert ended([AgentRun("s", "bash", code, None, output)]) == [(success, None, output)]
    assert ended([AgentRun("s", "python", code, None, output)]) == [(None, None, output)]
    stated = AgentRun("s", "bash", code, True, output, exit_code=0)
    assert ended([stated]) == [(True, 0, output)]

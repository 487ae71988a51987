"""gptme's conversations: calls in fences, by name and in XML, and what their answers tell."""

import json
import time
from typing import Any

import pytest

from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, NotRun
from capibara_assets.executions.formats.agents.tools.gptme import READER
from capibara_assets_tests.executions.formats.agents.tools.damage import damaged, entries, jsonl, reads, runs, survives


def said(role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, "timestamp": "2026-03-04T09:00:00", **more}


def asked(content: str) -> dict[str, Any]:
    return said("assistant", content)


def told(content: str, **more: Any) -> dict[str, Any]:
    return said("system", content, **more)


def shell(command: str) -> dict[str, Any]:
    return asked(f"I look.\n\n```shell\n{command}\n```\nThen on.")


def test_a_command_its_streams_and_its_return_code() -> None:
    failed = "Ran command: `make`\n\n```stdout\ncc\nld\n```\n\n```stderr\nno rule\n```\n\nReturn code: 2\n"
    log = jsonl(
        said("user", "Build it."), shell("make"), told(failed), shell("ls"), told("Ran command: `ls`\n\n`a.c`\n")
    )
    first, second = runs(READER, log)
    assert (first.code, first.success, first.exit_code, first.output, first.stderr, first.task) == (
        "make", False, 2, "cc\nld\n", "no rule\n", "Build it.",
    )  # fmt: skip
    assert (second.code, second.success, second.output) == ("ls", True, "a.c")


def test_a_command_that_the_answer_shortens_is_whole_in_the_call() -> None:
    command = "for n in 1 2\ndo\n  echo $n\ndone"
    (run,) = runs(
        READER, jsonl(shell(command), told("Ran command: `for n in 1 2... (4 lines)`\n\n```stdout\n1\n2\n```\n"))
    )
    assert (run.code, run.output) == (command, "1\n2\n")


def test_a_command_that_the_user_changed_is_what_ran_and_thoughts_are_not() -> None:
    log = jsonl(
        asked("<think>\n```shell\nrm a\n```\n</think>\n```shell\n$ ls\n```"), told("Ran command: `ls -l`\n\n`a`")
    )
    assert [run.code for run in runs(READER, log)] == ["ls -l"]


def test_output_that_holds_fences_and_words_of_the_tool() -> None:
    bare = "Ran command: `cat a`\n\n```stdout\none\n```\nReturn code: 1\n```\ntwo\n```\n\n```stderr\nbad\n```\n\n"
    (run,) = runs(READER, jsonl(shell("cat a"), told(bare)))
    assert (run.output, run.stderr, run.exit_code) == ("one\n```\nReturn code: 1\n```\ntwo\n", "bad\n", 0)
    shown = "Ran command: `cat a.md`\n\n````stdout\n```shell\nls\n```\nReturn code: 1\n````\n\n"
    (run,) = runs(READER, jsonl(shell("cat a.md"), told(shown)))
    assert (run.output, run.success, run.exit_code) == ("```shell\nls\n```\nReturn code: 1\n", True, 0)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Command timed out (after 5.0s): `x`\n\n`1`\n\n", (False, True)),
        ("Command interrupted: `x`\n\nNo output before interruption\nProcess interrupted\n", (None, False)),
        ("Error executing tool 'shell': Shell error: closed", (False, False)),
        ("Ran allowlisted command: `x`\n\nNo output\n", (True, False)),
    ],
)
def test_how_a_command_ended(answer: str, expected: tuple[bool | None, bool]) -> None:
    rows = [shell("true"), told("Ran command: `true`\n\nNo output\n"), shell("x"), told(answer)]
    _, run = runs(READER, jsonl(*rows))
    assert (run.success, run.timed_out) == expected


def test_python_prints_what_it_raises() -> None:
    cell = "```ipython\n1 / 0\n```"
    raised = "Executed code block.\n\nException during execution on line 1:\n  ZeroDivisionError: division by zero"
    found = runs(
        READER, jsonl(asked(cell), told(raised), asked(cell), told("Executed code block.\n\nResult:\n```\n4\n```"))
    )
    assert [(run.language, run.success, run.output, bool(run.stderr)) for run in found] == [
        ("python", False, "", True), ("python", True, "4\n", False),
    ]  # fmt: skip


def test_calls_of_one_message_are_answered_in_order_or_by_their_id() -> None:
    both = asked("```shell\na\n```\n```ipython\nb\n```\n```shell\nc\n```")
    answers = [told(f"Ran command: `{one}`\n\n`{one}`") for one in "ac"]
    found = entries(READER, jsonl(both, answers[0], told("Execution declined by user"), answers[1]))
    assert [(type(one).__name__, getattr(one, "code", "")) for one in found] == [
        ("AgentRun", "a"), ("NotRun", "b"), ("AgentRun", "c"),
    ]  # fmt: skip
    named = asked('@shell(call-1): {"command": "a"}\n@shell(call-2): {"command": "b {"}')
    rows = [told(f"Ran command: `{one}`\n\n`{one}`", call_id=key) for one, key in (("b {", "call-2"), ("a", "call-1"))]
    assert [(run.code, run.call_id) for run in runs(READER, jsonl(named, *rows))] == [
        ("b {", "call-2"),
        ("a", "call-1"),
    ]


def test_calls_in_xml() -> None:
    log = jsonl(
        asked("<tool-use>\n<shell>\necho 1 &gt; a &amp;&amp; cat a\n</shell>\n</tool-use>"),
        told("Ran command: `echo 1 > a && cat a`\n\n`1`"),
        asked('<function_calls>\n<invoke name="ipython">\nprint(2)\n</invoke>\n</function_calls>'),
        told("Executed code block.\n\n```stdout\n2\n```"),
    )
    assert [(run.language, run.code) for run in runs(READER, log)] == [
        ("bash", "echo 1 > a && cat a"), ("python", "print(2)"),
    ]  # fmt: skip


def test_edits_count_where_they_were_made() -> None:
    log = jsonl(
        asked("```save a.md\n# A\n```shell\nls\n```\n```"), told("Saved to `a.md`"),
        asked("```patch a.md\n<<<<<<< ORIGINAL\nA\n=======\nB\n>>>>>>> UPDATED\n```"), told("Patch failed: none"),
        shell("ls"), told("Ran command: `ls`\n\n`a.md`"),
    )  # fmt: skip
    found = entries(READER, log)
    assert [type(one) for one in found] == [Edit, NotRun, AgentRun]
    assert found[0] == Edit(found[0].session, "a.md", "# A\n```shell\nls\n```")  # type: ignore[union-attr]


def test_fences_that_are_only_shown_do_not_run() -> None:
    log = [shell("ls"), told("Ran command: `ls`\n\n`a`"), asked("Later:\n```bash\ncrontab -e\n```")]
    assert [run.code for run in runs(READER, jsonl(*log))] == ["ls"]
    last = entries(READER, jsonl(*log, shell("never")))[-1]
    assert last == NotRun("unanswered")


def test_other_conversations_are_none_and_nothing_damaged_raises() -> None:
    assert not reads(READER, jsonl(said("user", "I saw: Ran command: `ls`"), asked("```shell\nls\n```")))
    log = [
        said("user", "x"),
        shell("ls"),
        told("Ran command: `ls`\n\n`a`", call_id="1"),
        asked('@shell(1): {"command": "a"}'),
    ]
    for records in damaged(json.loads(json.dumps(log))):
        survives(READER, jsonl(*records))


@pytest.mark.parametrize(
    "hostile",
    [
        "<tool-use><shell>",
        '<invoke name="shell">',
        "<think>",
        "<thinking></think>",
        "```\nx\n",
        "```shell\n",
        "@shell(1): {",
    ],
)
def test_hostile_text_costs_linear_time(hostile: str) -> None:
    def seconds(times: int) -> float:
        text = hostile * (times // len(hostile))
        log = jsonl(asked(text), told(f"Ran command: `ls`\n\n{text}"))
        began = time.process_time()
        entries(READER, log)
        return time.process_time() - began

    seconds(1000)
    assert seconds(200_000) < max(0.3, 30 * seconds(20_000))

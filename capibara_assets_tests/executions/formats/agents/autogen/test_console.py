"""Dialogues that AutoGen prints, in notebooks and text files."""

import json
import time

import pytest

from capibara_assets.executions.formats.agents.autogen.console import READER, is_dialogue
from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, NotRun
from capibara_assets.executions.formats.strict_json import Fault

RULE = "-" * 80
RED, END = "\x1b[31m", "\x1b[0m"


def said(sender: str, to: str, text: str) -> str:
    return f"\x1b[33m{sender}\x1b[0m (to {to}):\n\n{text}\n\n{RULE}\n"


def code(*blocks: tuple[str, str]) -> str:
    return "Run this:\n\n" + "\n\n".join(f"```{language}\n{source}\n```" for language, source in blocks)


def single(language: str, index: int | None = 0) -> str:
    number = "" if index is None else f"{index} "
    return f"{RED}\n>>>>>>>> EXECUTING CODE BLOCK {number}(inferred language is {language})...{END}\n"


def result(exit_code: int, output: str, sender: str = "user", to: str = "assistant") -> str:
    verdict = "execution failed" if exit_code else "execution succeeded"
    return said(sender, to, f"exitcode: {exit_code} ({verdict})\nCode output: \n{output}")


ASKED = said("user", "assistant", "Print it")
PLAIN = ASKED + said("assistant", "user", code(("python", "print(1)"))) + single("python") + result(0, "1\n")


def notebook(*outputs: object) -> LogDocument:
    cells = [{"cell_type": "code", "source": "chat()", "outputs": output} for output in outputs]
    return LogDocument(
        json.dumps({"nbformat": 4, "cells": [{"cell_type": "markdown", "source": "#"}, *cells]}).encode()
    )


def stdout(*texts: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for text in texts:  # what goes to stderr splits stdout into pieces
        found.append({"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)})
        found.append({"output_type": "stream", "name": "stderr", "text": ["UserWarning\n"]})
    return found


def read(document: LogDocument) -> list[Entry]:
    assert READER.reads(document)
    assert any(mark in document.data for mark in READER.marks)
    return list(READER.entries(document))


def of_text(text: str) -> list[Entry]:
    return read(LogDocument(text.encode()))


def test_a_cell_holds_a_session() -> None:
    document = notebook(stdout("ready\n"), stdout(PLAIN[:-40], PLAIN[-40:]))
    expected = AgentRun("cell-2", "python", "print(1)", True, "1\n", exit_code=0, task="Print it")
    assert read(document) == [expected]


def test_a_text_file_is_a_session_with_and_without_colours() -> None:
    document = LogDocument(PLAIN.encode())
    (run,) = read(document)
    assert isinstance(run, AgentRun)
    assert (run.session, run.code, run.success) == (document.digest, "print(1)", True)
    for bare in (PLAIN.replace("\x1b", ""), PLAIN.replace("\x1b[33m", "").replace(RED, "").replace(END, "")):
        (again,) = of_text(bare)
        assert isinstance(again, AgentRun)
        assert (again.code, again.output, again.task) == ("print(1)", "1\n", "Print it")


def test_blocks_that_are_announced_one_by_one_ended_with_the_one_that_failed() -> None:
    three = code(("python", "a"), ("sh", "b"), ("python", "c"))
    text = ASKED + said("assistant", "user", three) + single("python") + single("sh", 1) + result(2, "no b\n")
    first, second = of_text(text)
    assert isinstance(first, AgentRun)
    assert isinstance(second, AgentRun)
    assert (first.code, first.success, first.exit_code, first.output) == ("a", True, None, "")
    assert (second.language, second.code, second.success, second.exit_code) == ("sh", "b", False, 2)


@pytest.mark.parametrize(("exit_code", "success"), [(0, True), (1, None)])
def test_of_blocks_that_are_announced_together_none_is_said_to_have_failed(exit_code: int, success: bool) -> None:
    announced = f"{RED}\n>>>>>>>> EXECUTING 2 CODE BLOCKS (inferred languages are [python, sh])...{END}\n"
    text = ASKED + said("assistant", "user", code(("python", "a"), ("", "b"))) + announced + result(exit_code, "x")
    runs = [entry for entry in of_text(text) if isinstance(entry, AgentRun)]
    assert [(run.language, run.code, run.success) for run in runs] == [("python", "a", success), ("sh", "b", success)]
    assert [run.output for run in runs] == ["", "x"]


def test_newer_announcement_of_one_block() -> None:
    text = ASKED + said("assistant", "user", code(("python", "a"))) + single("python", None)
    (run,) = of_text(text + said("user", "assistant", "exitcode: 1 (execution failed)\nCode output: Traceback: no"))
    assert isinstance(run, AgentRun)
    assert (run.success, run.exit_code, run.output) == (False, 1, "Traceback: no")


def test_code_may_stand_some_messages_back_and_run_again() -> None:
    text = said("Admin", "chat_manager", "Plot") + said("Coder", "chat_manager", code(("python", "plot()")))
    text += "\x1b[32m\nNext speaker: Critic\n\x1b[0m" + said("Critic", "chat_manager", "Fine, it is `1`")
    failed = result(1, "no", "Admin", "chat_manager")
    runs = of_text(text + (single("python") + failed) * 2)
    assert [run.code for run in runs if isinstance(run, AgentRun)] == ["plot()"] * 2


def test_chats_at_the_same_time_keep_their_own_code() -> None:
    text = said("User", "A", "one") + said("User", "B", "two")
    text += said("A", "User", code(("python", "a()"))) + said("B", "User", code(("python", "b()")))
    text += single("python") + single("python") + result(0, "of a", "User", "A") + result(0, "of b", "User", "B")
    runs = [entry for entry in of_text(text) if isinstance(entry, AgentRun)]
    assert [(run.code, run.output) for run in runs] == [("a()", "of a"), ("b()", "of b")]


def test_the_last_words_of_who_began_are_the_task() -> None:
    text = PLAIN + f"{RED}\n>>>>>>>> NO HUMAN INPUT RECEIVED.{END}\n" + said("user", "assistant", "Now two")
    text += said("assistant", "user", code(("python", "print(2)"))) + single("python") + result(0, "2\n")
    assert [run.task for run in of_text(text) if isinstance(run, AgentRun)] == ["Print it", "Now two"]


def test_output_with_rules_and_lines_of_others_around_it() -> None:
    table = f"a\n{RULE}\nb\n"
    text = ASKED + said("assistant", "user", code(("python", "t()"))) + single("python") + result(0, table)
    (run,) = of_text(text + "\x1b[33mRemoved 3 messages.\x1b[0m\n")
    assert isinstance(run, AgentRun)
    assert run.output == table


def starred(heading: str) -> str:
    return f"{'*' * 10}{heading}{'*' * 10}\n"


def test_code_and_results_below_headings_of_another_program() -> None:
    first = starred("代码") + code(("python", "a()"), ("sh", "b")) + "\n" + starred("run")
    first += (
        single("python") + single("sh", 1) + starred("结果") + "exitcode: 3 (execution failed)\nCode output: no b\n\n"
    )
    second = starred("check") + '{"done": false}\n' + starred("代码") + code(("python", "c()")) + "\n" + starred("run")
    second += single("python") + "exitcode: 0 (execution succeeded)\nCode output: \nc\n\n" + starred("check") + "{}\n"
    asked = said("user", "agent", "Find it, not so:\n```python\nnever()\n```")
    found = of_text(asked + first + second + said("agent", "user", "TERMINATE"))
    assert [(run.code, run.success, run.output) for run in found if isinstance(run, AgentRun)] == [
        ("a()", True, ""), ("b", False, "no b\n"), ("c()", True, "c\n"),
    ]  # fmt: skip
    assert len(found) == 3


def test_an_agent_that_runs_its_own_code_shows_it_behind_the_message() -> None:
    shown = starred("code") + code(("python", "a()")) + "\n" + starred("run") + single("python")
    (run,) = of_text(said("user", "agent", "Do") + shown + result(0, "1\n", "agent", "user"))
    assert isinstance(run, AgentRun) and (run.code, run.output, run.task) == ("a()", "1\n", "Do")
    (fault,) = of_text(
        said("user", "agent", "Do") + shown.replace("```python", "```sh") + result(0, "1", "agent", "user")
    )
    assert isinstance(fault, Fault) and fault.reason == "missing_code"


@pytest.mark.parametrize(
    "piece", ["*", "*" * 10 + "x", starred("x"), "```\n", single("python"), "exitcode: 0 ", "\n \n"]
)
def test_repeated_pieces_take_no_time(piece: str) -> None:
    began = time.process_time()
    put = piece * (100_000 // len(piece))
    result_below = "exitcode: 0 (execution succeeded)\nCode output: \n"
    for text in (
        ASKED + put + single("python") + put + result_below + put + single("python") + result_below,
        PLAIN + put,
    ):
        document = LogDocument(text.encode())
        if READER.reads(document):
            list(READER.entries(document))
    assert time.process_time() - began < 5


def test_time_limit() -> None:
    text = ASKED + said("assistant", "user", code(("sh", "sleep 99"))) + single("sh") + result(124, "\nTimeout")
    (run,) = of_text(text)
    assert isinstance(run, AgentRun)
    assert (run.success, run.timed_out) == (False, True)


def test_what_is_not_run_or_not_told() -> None:
    assert of_text(PLAIN.partition("exitcode")[0])[-1] == NotRun("unanswered")
    markdown = ASKED + said("assistant", "user", code(("markdown", "| a |"))) + single("markdown")
    assert of_text(markdown + result(1, "\nunknown language markdown\n")) == [NotRun("refused")]
    (fault,) = of_text(said("user", "assistant", "Go on") + single("python") + result(0, "1"))
    assert isinstance(fault, Fault)
    assert fault.reason == "missing_code"


def test_a_dialogue_is_told_from_other_output() -> None:
    assert is_dialogue(PLAIN)
    assert not is_dialogue(ASKED + said("assistant", "user", code(("python", "print(1)"))))
    assert not is_dialogue("")


@pytest.mark.parametrize(
    "document",
    [
        LogDocument(f"# Tutorial\n\n```\n{PLAIN}```\n".encode()),
        LogDocument(json.dumps({"text": PLAIN}).encode()),
        LogDocument(json.dumps({"text": PLAIN}).encode() + b"\n" + json.dumps({"text": PLAIN}).encode()),
        notebook(stdout("1\n"), [{"output_type": "execute_result", "data": {"text/plain": PLAIN}}]),
        notebook(None, 3, [4], [{"output_type": "stream", "text": {"a": 1}}]),
        LogDocument(b"print('>>>>>>>> EXECUTING CODE BLOCK 0 (inferred language is python)...')\n"),
    ],
)
def test_look_alikes_are_not_read(document: LogDocument) -> None:
    assert not READER.reads(document)

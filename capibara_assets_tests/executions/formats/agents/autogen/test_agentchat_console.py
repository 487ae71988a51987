"""Dialogues on the console of AutoGen 0.4 and later."""

import json

import pytest

from capibara_assets.executions.formats.agents.autogen.agentchat_console import READER
from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, NotRun
from capibara_assets.executions.formats.notebooks import is_dialogue


def said(source: str, text: str, kind: str | None = "TextMessage") -> str:
    heading = source if kind is None else f"{kind} ({source})"
    return f"---------- {heading} ----------\n{text}\n"


def code(*blocks: str) -> str:
    return "Try this:\n" + "\n".join(f"```python\n{block}\n```" for block in blocks)


def read(text: str) -> list[Entry]:
    document = LogDocument(text.encode())
    assert any(mark in document.data for mark in READER.marks)
    assert READER.reads(document)
    assert is_dialogue(text)
    return list(READER.entries(document))


FAILED = "The script ran, then exited with an error (POSIX exit code: 1)\nIts output was:\nNameError: x\n"
SILENT = "The script ran but produced no output to console. The POSIX exit code was: 0. If you were expecting output,"


@pytest.mark.parametrize("kind", ["TextMessage", None])
def test_output_failure_and_silence(kind: str | None) -> None:
    text = said("user", "Count", kind) + said("coder", code("print(1)"), kind) + said("box", FAILED, kind)
    text += said("coder", code("x = 1"), kind) + said("box", SILENT, kind)
    text += said("coder", code("print(x)"), kind) + said("box", "1\n[Prompt tokens: 3, Completion tokens: 4]", kind)
    found = [entry for entry in read(text) if isinstance(entry, AgentRun)]
    assert [(run.code, run.success, run.exit_code, run.output) for run in found] == [
        ("print(1)", False, 1, "NameError: x"),
        ("x = 1", True, 0, ""),
        ("print(x)", True, None, "1"),
    ]
    assert {run.task for run in found} == {"Count"}


def test_events_of_an_executor_that_writes_its_own_code() -> None:
    text = said("user", "Add") + said("agent", code("1 + 1"), "CodeGenerationEvent")
    text += said("agent", "2", "CodeExecutionEvent") + said("agent", "It is 2. See:\n```python\n1 + 1\n```")
    (run,) = read(text)
    assert isinstance(run, AgentRun)
    assert (run.code, run.output, run.success) == ("1 + 1", "2", True)


def test_of_blocks_run_together_none_is_said_to_have_failed() -> None:
    text = said("coder", code("a", "b")) + said("code_executor", FAILED) + said("coder", code("c"))
    *runs, last = read(text)
    assert [(run.code, run.success) for run in runs if isinstance(run, AgentRun)] == [("a", None), ("b", None)]
    assert last == NotRun("unanswered")


def test_a_cell_holds_a_session_and_other_text_is_not_read() -> None:
    text = said("user", "Go") + said("coder", code("f()")) + said("code_executor", "ok")
    cell = {"cell_type": "code", "outputs": [{"output_type": "stream", "name": "stdout", "text": [text]}]}
    (run,) = READER.entries(LogDocument(json.dumps({"nbformat": 4, "cells": [cell]}).encode()))
    assert isinstance(run, AgentRun)
    assert run.session == "cell-0"
    for other in (
        f"# Page\n\n```text\n{text}```\n",
        said("user", "Go") + said("plan_executor", code("f()")) + said("user", "Thanks"),
        said("user", "Go") + said("coder", "The script ran well"),
        said("code_executor", "No code blocks found in the thread. Please provide"),
        json.dumps([text]),
    ):
        assert not READER.reads(LogDocument(other.encode()))

"""What smolagents prints at a terminal, saved as text: code in boxes, what came of it, and what was wrapped or cut."""

import json

import pytest

from capibara_assets.executions.formats.agents.hosted.smolagents_console import READER, is_dialogue
from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, NotRun

WIDTH = 60


def panel(task: str, model: str = " OpenAIServerModel - gpt-x ") -> str:
    rows = ["", *task.split("\n"), ""]
    inside = "".join(f"│ {row.ljust(WIDTH - 4)} │\n" for row in rows)
    return f"╭{' New run '.center(WIDTH - 2, '─')}╮\n{inside}╰─{model}{'─' * (WIDTH - 3 - len(model))}╯\n"


def box(code: str, title: str = "Executing parsed code:") -> str:
    rows = "".join(f"  {row}".ljust(WIDTH) + "\n" for row in code.split("\n"))
    return f" ─ {title} {'─' * (WIDTH - 5 - len(title))} \n{rows} {'─' * (WIDTH - 2)} \n"


def step(number: int, code: str, shown: str, ended: bool = True, title: str = "Executing parsed code:") -> str:
    end = f"[Step {number}: Duration 1.25 seconds| Input tokens: 1,000 | Output tokens: 70]\n" if ended else ""
    return f"{f' Step {number} '.center(WIDTH, '━')}\n{box(code, title)}{shown}\n{end}"


def read(text: str) -> list[Entry]:
    document = LogDocument(text.encode())
    assert find_reader(document) is READER
    return list(READER.entries(document))


def only(text: str) -> AgentRun:
    (run,) = read(text)
    assert isinstance(run, AgentRun)
    return run


LOGGED = "Execution logs:\na\n\nb\n\nOut: None"


def test_steps_that_ran_and_failed() -> None:
    failed = "Execution logs:\nx\n\nCode execution failed at line '1 / 0' due to: ZeroDivisionError: division by zero"
    final = "Out - Final answer: 4\nand more"
    good, bad, last = read(
        panel("Add them.\nAll of them.")
        + step(1, "for n in a:\n    print(n)\n\nf(a)", LOGGED)
        + step(2, "print('x')\n1 / 0", failed)
        + step(3, "final_answer(4)", final)
    )
    assert isinstance(good, AgentRun) and isinstance(bad, AgentRun) and isinstance(last, AgentRun)
    assert (good.language, good.code, good.success) == ("python", "for n in a:\n    print(n)\n\nf(a)", True)
    assert (good.output, good.task, good.model) == ("a\n\nb\n", "Add them.\nAll of them.", "gpt-x")
    assert (bad.success, bad.output.strip(), bad.stderr) == (False, "x", failed.split("\n\n")[1])
    assert (last.success, last.output) == (True, "4\nand more")


def test_a_colourful_log_with_line_ends_of_windows_and_the_older_title() -> None:
    text = (panel("Add.") + step(0, "f(1)", "\x1b[1mOut: 2\x1b[0m", title="Executing this code:")).replace("\n", "\r\n")
    run = only(text.replace("Executing", "\x1b[1mExecuting").replace("code:", "code:\x1b[0m"))
    assert (run.code, run.output, run.success) == ("f(1)", "2", True)


def test_each_run_of_a_file_is_a_session() -> None:
    first, second = read((panel("A") + step(1, "f(1)", "Out: 1")) + (panel("B") + step(1, "f(2)", "Out: 2")))
    assert isinstance(first, AgentRun) and isinstance(second, AgentRun)
    assert first.session != second.session and (first.task, second.task) == ("A", "B")


def test_an_unauthorized_import_and_an_unknown_error_are_failures() -> None:
    warned = "Warning to user: Code execution failed due to an unauthorized import - Consider passing said import"
    runs = read(panel("A") + step(1, "import os", warned) + step(2, "f()", "the interpreter is gone"))
    assert [(run.success, run.stderr) for run in runs if isinstance(run, AgentRun)] == [
        (False, warned), (False, "the interpreter is gone"),
    ]  # fmt: skip
    assert only(panel("A") + step(1, "f()", "Code execution exceeded the maximum execution time of 3 s")).timed_out


def test_a_step_without_an_end_and_one_without_code() -> None:
    assert read(panel("A") + step(1, "f()", "Execution logs:\n1", ended=False)) == [NotRun("unanswered")]
    unparsed = f"{' Step 1 '.center(WIDTH, '━')}\nError in code parsing:\nno fence\n"
    assert read(panel("A") + unparsed + step(2, "f()", "Out: 1"))[0] == NotRun("AgentParsingError")


def test_lines_that_the_terminal_wrapped_are_joined() -> None:
    whole = f"total = {' + '.join(['value_of_the_row'] * 4)}\nprint(total)"
    first, second = whole.split("\n")
    cut = first.rfind(" ", 0, WIDTH - 3)
    assert only(panel("A") + step(1, f"{first[:cut]}\n{first[cut + 1 :]}\n{second}", "Out: 1")).code == whole
    full = "x" * (WIDTH - 6) + "\nlong_word"  # two lines: they parse as they stand
    assert only(panel("A") + step(1, full, "Out: 1")).code == full


def test_a_page_that_quotes_a_log_is_none_and_a_cell_that_printed_one_is() -> None:
    log = panel("A") + step(1, "f(1)", "Out: 1")
    assert not READER.reads(LogDocument(f"# smolagents\n\n```\n{log}```\n".encode()))
    stream = {"output_type": "stream", "name": "stdout", "text": log}
    cells = [{"cell_type": "code", "source": "agent.run('A')", "outputs": [stream]}]
    (run,) = READER.entries(LogDocument(json.dumps({"nbformat": 4, "cells": cells}).encode()))
    assert isinstance(run, AgentRun) and (run.session, run.code) == ("cell-0", "f(1)")
    assert is_dialogue(log) and not is_dialogue("Executing parsed code: later")


@pytest.mark.parametrize("at", range(0, 1400, 37))
def test_a_log_that_was_cut_anywhere_is_read_without_an_error(at: int) -> None:
    document = LogDocument((panel("A") + step(1, "f(1)", LOGGED) + step(2, "f(2)", "Out: 1")).encode()[at:])
    found = list(READER.entries(document)) if READER.reads(document) else []
    assert {entry.code for entry in found if isinstance(entry, AgentRun)} <= {"f(1)", "f(2)"}

"""What smolagents prints at a terminal, saved as text: code in boxes, what came of it, and what was wrapped or cut."""

import json
from datetime import UTC, datetime

import pytest

from capibara_assets.executions.formats.agents.hosted.smolagents_console import READER, is_dialogue
from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, NotRun
from capibara_assets.executions.formats.detection import CountedEntry, read_parts
from capibara_assets.executions.formats.envelope_reader import Recorded

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


def test_a_box_of_older_versions_numbers_its_lines_and_breaks_long_ones() -> None:
    rows = ["  1 for n in a:", "  2     print(n, 'a text that is', ", "    'wrapped here')", "  3 ", "  4 f(a)"]
    inside = "".join(f"│ {row.ljust(WIDTH - 4)} │\n" for row in rows)
    title = "─ Executing this code: "
    boxed = f"╭{title}{'─' * (WIDTH - 2 - len(title))}╮\n{inside}╰{'─' * (WIDTH - 2)}╯\n"
    run = only(f"{panel('Add.')}{' Step 0 '.center(WIDTH, '━')}\n{boxed}{LOGGED}\n[Step 0: Duration 1.25 seconds]\n")
    assert run.code == "for n in a:\n    print(n, 'a text that is', 'wrapped here')\n\nf(a)"
    assert (run.success, run.output) == (True, "a\n\nb\n")


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


def test_a_page_that_holds_little_but_logs_is_read_and_one_that_quotes_one_is_not() -> None:
    first, second = (
        panel("A") + step(1, "f(1)", "Out: 1"),
        panel("B") + step(1, "f(2)", "Execution logs:\n# x\n\nOut: 2"),
    )
    page = f"# Runs\n\n```\n$ python main.py\n{first}```\n\nAnd the other:\n\n```text\n{second}```\n"
    one, other = read(page)
    assert isinstance(one, AgentRun) and isinstance(other, AgentRun)
    assert (one.code, one.task, other.code, other.output) == ("f(1)", "A", "f(2)", "# x\n2")
    assert one.session != other.session
    assert not READER.reads(LogDocument(f"# smolagents\n\n{'It runs code. ' * 100}\n\n```\n{first}```\n".encode()))


def test_lines_of_libraries_and_spinners_stand_between() -> None:
    spun = "⠙ Thinking...⠹ Thinking...Out: 1"
    text = "$ make\nStarts.\n# Run module\nINFO:httpx:HTTP Request\n" + panel("A") + step(1, "f(1)", spun)
    assert (only(text).code, only(text).output, only(text).success) == ("f(1)", "1", True)
    ends = step(2, "g()", "x\nOut: None").replace("[Step 2", "⠋ Thinking...[Step 2")
    assert [one.code for one in read(text + ends + step(3, " ", "Out: None")) if isinstance(one, AgentRun)] == [
        "f(1)",
        "g()",
    ]
    assert not READER.reads(LogDocument(text.replace("# Run", "\n# Run").encode()))  # a page's title


def test_a_fence_that_was_printed_does_not_end_the_log() -> None:
    log = panel("A") + step(1, "f(1)", "Execution logs:\n```python\nx\n```\n\nOut: 1")
    assert only(f"# A run\n\n```\n{log}```\n").output == "```python\nx\n```\n1"


def cells(*outputs: dict[str, object]) -> bytes:
    cell = {"cell_type": "code", "source": "agent.run('A')", "outputs": outputs}
    return json.dumps(
        {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]}, ensure_ascii=False
    ).encode()


def shown(text: str, html: str) -> dict[str, object]:
    data = {"text/html": [html], "text/plain": text.splitlines(keepends=True)}
    return {"output_type": "display_data", "data": data, "metadata": {}}


def test_a_cell_that_printed_a_log() -> None:
    log = panel("A") + step(1, "f(1)", "Out: 1")
    (run,) = READER.entries(LogDocument(cells({"output_type": "stream", "name": "stdout", "text": log})))
    assert isinstance(run, AgentRun) and (run.session, run.code) == ("cell-0", "f(1)")
    assert is_dialogue(log) and not is_dialogue("Executing parsed code: later")


def test_a_cell_in_which_rich_shows_each_part_and_is_no_execution_itself() -> None:
    html = '<pre style="white-space:pre;overflow-x:auto;line-height:normal;font-family:Menlo">..</pre>\n'
    coloured = "\x1b[38;2;1;2;3m━━━ \x1b[0m\x1b[1mStep 1\x1b[0m\x1b[38;2;1;2;3m ━━━\x1b[0m\n"
    box_of_code = box("f(1)").replace("Executing parsed code:", "\x1b[1mExecuting parsed code:\x1b[0m")
    parts = [coloured, box_of_code, "\x1b[1mExecution logs:\x1b[0m\nx\n\n", "\x1b[1mOut: 1\x1b[0m\n"]
    ended = shown("[Step 1: Duration 1.25 seconds]\n", html)
    data = cells(*(shown(part, html) for part in parts), ended, shown("<Figure>", "<img/>"))
    found = [part.content for part in read_parts(data, datetime.now(UTC))]
    (run,) = [one for one in found if isinstance(one, Recorded)]
    assert (run.code, run.stdout, run.outcome) == ("f(1)", "x\n1", "ok")
    assert CountedEntry("notebook_cell:dialogue") in found


@pytest.mark.parametrize("at", range(0, 1400, 37))
def test_a_log_that_was_cut_anywhere_is_read_without_an_error(at: int) -> None:
    document = LogDocument((panel("A") + step(1, "f(1)", LOGGED) + step(2, "f(2)", "Out: 1")).encode()[at:])
    found = list(READER.entries(document)) if READER.reads(document) else []
    assert {entry.code for entry in found if isinstance(entry, AgentRun)} <= {"f(1)", "f(2)"}

"""Dialogues in which a fenced block is run and the next message tells what came of it."""

import time

import pytest

from capibara_assets.executions.formats.agents.general.fenced_turns import READER
from capibara_assets_tests.executions.formats.agents.tools.damage import damaged, jsonl, reads, runs, survives


def said(*turns: tuple[str, str]) -> dict[str, object]:
    return {"id": 3, "messages": [{"role": role, "content": text} for role, text in turns]}


CODE, FAILS = "```python\nprint(x)\n```", "Traceback (most recent call last):\nNameError: name 'x' is not defined"
DIALOGUE = said(
    ("user", "Print it."), ("assistant", f"So:\n\n{CODE}"), ("user", f"Execution result: {FAILS}"),
    ("assistant", "```py\nx = 1\nprint(x)\n```"), ("user", "Execution result:\n1"), ("assistant", "It is 1."),
)  # fmt: skip


def test_the_next_message_tells_what_came_of_the_block() -> None:
    found = runs(READER, jsonl(DIALOGUE, DIALOGUE))
    assert [(run.language, run.code, run.success, run.output) for run in found[:2]] == [
        ("python", "print(x)", False, FAILS), ("python", "x = 1\nprint(x)", True, "1"),
    ]  # fmt: skip
    assert {run.task for run in found} == {"Print it."} and len({run.session for run in found}) == 2


@pytest.mark.parametrize(
    ("turn", "code", "answer", "success"),
    [
        ("<execute>\nprint(1)\n</execute>", "print(1)", "Observation:\n1", True),
        ("```bash\nmake\n```", "make", "Execution (exit code 2):\nno rule", False),
        ("```bash\nmake\n```", "make", "Observation: done", None),
        (CODE, "print(x)", "**Execution Output:**\n```\n7\n```", True),
    ],
)
def test_heads_of_other_data_sets(turn: str, code: str, answer: str, success: bool | None) -> None:
    (run,) = runs(READER, jsonl(said(("user", "Do."), ("assistant", turn), ("user", answer))))
    assert (run.code, run.success) == (code, success)


@pytest.mark.parametrize(
    "turns",
    [
        [("assistant", CODE), ("user", "Thanks, it works.")],
        [("assistant", f"{CODE}\n\n{CODE}"), ("user", "Execution result: 1")],  # which of them?
        [("assistant", "```json\n{}\n```"), ("user", "Execution result: 1")],
        [("user", CODE), ("user", "Execution result: 1")],
    ],
)
def test_what_was_not_run_is_no_log(turns: list[tuple[str, str]]) -> None:
    assert not reads(READER, jsonl(said(("user", "Do."), *turns)))


def test_a_history_of_autogen_whose_roles_are_of_one_view() -> None:
    failed = f"exitcode: 1 (execution failed)\nCode output: {FAILS}"
    talk = [
        {"role": "assistant", "name": "Manager", "content": "Print it."},
        {"role": "user", "name": "Expert", "content": f"Run this.\n{CODE}"},
        {"role": "assistant", "name": "Computer_terminal", "content": failed},
        {"role": "user", "name": "Expert", "content": "```python\nprint(1)\n```"},
        {"role": "user", "name": "Computer_terminal", "content": "exitcode: 0 (execution succeeded)\nCode output: 1\n"},
        {"role": "user", "name": "Expert", "content": "It is 1."},
        {"role": "user", "name": "Computer_terminal", "content": "exitcode: 0 (execution succeeded)\nCode output: 2"},
    ]
    found = runs(READER, jsonl({"question": "Which?", "history": talk}))
    assert [(run.code, run.success, run.exit_code, run.output.strip()) for run in found] == [
        ("print(x)", False, 1, FAILS), ("print(1)", True, 0, "1"),
    ]  # fmt: skip


ANSWER = f"So:\n{CODE}\n```output\n{FAILS}\n```\nAgain.\n```python\nx = 1\nprint(x)\n```\n```output\n1\n```\nIt is 1."
TOOL_INTEGRATED = {"idx": 0, "question": "Print it.", "code": [ANSWER, ANSWER], "report": [None]}


@pytest.mark.parametrize("row", [TOOL_INTEGRATED, said(("user", "Print it."), ("assistant", ANSWER))])
def test_an_interpreter_wrote_into_the_answer(row: dict[str, object]) -> None:
    found = runs(READER, jsonl(row))
    assert [(run.code, run.success, run.output) for run in found] == [
        ("print(x)", False, FAILS), ("x = 1\nprint(x)", True, "1"),
    ]  # fmt: skip
    assert {run.task for run in found} == {"Print it."}
    assert not reads(READER, jsonl({"question": "x", "code": [CODE, "```output\n1\n```"]}))  # each a text of its own


@pytest.mark.parametrize("row", [DIALOGUE, TOOL_INTEGRATED], ids=["messages", "a_row"])
def test_nothing_damaged_raises(row: dict[str, object]) -> None:
    for one in damaged(row):
        survives(READER, jsonl(one))


@pytest.mark.parametrize("hostile", ["```x\n", "<execute>", "```x\n```x\n", "Execution "])
def test_hostile_text_costs_linear_time(hostile: str) -> None:
    def seconds(times: int) -> float:
        text = hostile * times
        log = jsonl(DIALOGUE, said(("user", text), ("assistant", text), ("user", f"Execution result: {text}")))
        began = time.process_time()
        runs(READER, log)
        return time.process_time() - began

    seconds(10)
    assert seconds(20_000) < max(0.3, 30 * seconds(2_000))

"""Conversations with calls as tags in the text."""

import json
import time
from typing import Any

import pytest

from capibara_assets.executions.formats.agents.general.tagged_calls import READER
from capibara_assets.executions.formats.agents.runs import Edit, NotRun
from capibara_assets_tests.executions.formats.agents.tools.damage import damaged, entries, jsonl, reads, runs, survives


def tagged(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def responses(*answers: Any) -> str:
    return "\n".join(
        f"<tool_response>\n{one if isinstance(one, str) else json.dumps(one)}\n</tool_response>" for one in answers
    )


def row(*turns: tuple[str, str]) -> dict[str, Any]:
    return {"conversations": [{"from": who, "value": said} for who, said in turns]}


SYSTEM = ("system", 'Call as <tool_call>\n{"name": "bash", "arguments": {"command": "x"}}\n</tool_call>.')
TURNS = (
    SYSTEM,
    ("human", "Sum it."),
    ("gpt", f"<think>{tagged('bash', command='thought')}</think>{tagged('bash', command='wc -l a')}"
            + tagged("run_python", code="1/0")),
    ("tool", responses(
        {"name": "run_python", "content": {"returncode": 1, "stderr": "ZeroDivisionError: division by zero"}},
        {"name": "bash", "content": {"returncode": 0, "stdout": "3 a\n"}},
    )),
    ("gpt", tagged("get_weather", city="Bonn") + tagged("bash", command="ls")),
    ("tool", responses("rain", "a.txt")),
    ("gpt", tagged("bash", command="never")),
)  # fmt: skip


def test_calls_have_the_answers_that_name_them_or_that_stand_in_their_place() -> None:
    found = runs(READER, jsonl(row(*TURNS)))
    assert [(run.language, run.code, run.success, run.exit_code, run.output) for run in found] == [
        ("bash", "wc -l a", True, 0, "3 a\n"), ("python", "1/0", False, 1, ""), ("bash", "ls", None, None, "a.txt"),
    ]  # fmt: skip
    assert {run.task for run in found} == {"Sum it."}
    assert entries(READER, jsonl(row(*TURNS)))[-1] == NotRun("unanswered")


def test_messages_with_roles_and_several_conversations() -> None:
    messages = {"messages": [{"role": "assistant", "content": tagged("bash", command="ls")},
                             {"role": "tool", "content": responses("a")}]}  # fmt: skip
    found = runs(READER, jsonl(messages, row(*TURNS)))
    assert len(found) == 4 and len({run.session for run in found}) == 2


def called(name: str, **arguments: str) -> str:
    given = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<function={name}>\n{given}</function>"


def test_calls_as_tags_of_functions_and_parameters() -> None:
    turns = [
        ("system", called("execute_bash", command="x")), ("user", "Mend it."),
        ("assistant", f"First.\n{called('execute_bash', command='make')}"),
        ("user", "EXECUTION RESULT of [execute_bash]:\nno rule\n[The command completed with exit code 2.]"),
        ("assistant", called("str_replace_editor", command="create", path="Makefile", file_text="all:")),
        ("user", "OBSERVATION:\nFile created"),
        ("assistant", f"<tool_call>\n{called('bash', command='make')}\n</tool_call>"), ("tool", "OBSERVATION:\nok"),
        ("assistant", "Done."), ("user", "OBSERVATION:\nnothing was asked"),
    ]  # fmt: skip
    data = jsonl({"messages": [{"role": role, "content": text} for role, text in turns]})
    found = runs(READER, data)
    assert [(run.code, run.success, run.exit_code, run.output) for run in found] == [
        ("make", False, 2, "no rule"), ("make", None, None, "ok"),
    ]  # fmt: skip
    assert {run.task for run in found} == {"Mend it."}
    assert [entry.path for entry in entries(READER, data) if isinstance(entry, Edit)] == ["Makefile"]


def test_steps_of_action_and_observation() -> None:
    observed = "Exit code: 1\nExecution output of [execute_bash]:\n[STDOUT]\n\n1 failed\n\n[STDERR]\n\nwarned\n"
    steps = [
        {"thought": "Run.", "action": called("execute_bash", cmd="pytest -q"), "observation": observed},
        {"action": called("finish", command="submit"), "observation": "<<< Finished >>>"},
    ]
    (run,) = runs(READER, jsonl({"problem_statement": "Mend it.", "trajectory_steps": steps}))
    assert (run.code, run.success, run.output, run.stderr) == ("pytest -q", False, "1 failed", "warned")
    assert run.task == "Mend it."


def test_tags_that_are_only_explained_are_no_log_and_nothing_damaged_raises() -> None:
    assert not reads(READER, jsonl(row(SYSTEM, ("human", "Hello"), ("gpt", tagged("bash", command="ls")))))
    for one in damaged(row(*TURNS)):
        survives(READER, jsonl(one))


@pytest.mark.parametrize(
    "hostile",
    ["<tool_call>{", "<function=a>", "<function=a><parameter=b>", "<think>", "<tool_call>", "<tool_response>{"],
)
def test_hostile_text_costs_linear_time(hostile: str) -> None:
    def seconds(times: int) -> float:
        text = hostile * (times // len(hostile))
        log = jsonl(row(*TURNS, ("gpt", text), ("tool", text)))
        began = time.process_time()
        entries(READER, log)
        return time.process_time() - began

    seconds(1000)
    assert seconds(200_000) < max(0.3, 30 * seconds(20_000))

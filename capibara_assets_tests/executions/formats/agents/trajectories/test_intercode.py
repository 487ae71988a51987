"""InterCode's logs: what ran, in which language, and what the log states about it."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, NotRun
from capibara_assets.executions.formats.agents.trajectories.intercode import READER
from capibara_assets.executions.formats.strict_json import Fault
from capibara_assets_tests.executions.mutator import damaged


def episode(environment: str = "ic_bash", /, **history: list[Any]) -> dict[str, Any]:
    found: dict[str, list[Any]] = {"actions": [], "observations": [], "rewards": [], "valid_action": [], **history}
    return {
        "environment": environment, "task_id": 7, "query": "Count the files", "turn_history": found,
        "summary": {"max_reward": 1.0},
    }  # fmt: skip


def entries(value: Any) -> list[Entry]:
    document = LogDocument(json.dumps(value, indent=2).encode())
    assert find_reader(document) == READER
    return list(READER.entries(document))


def test_bash_states_whether_a_command_ran() -> None:
    found = entries({
        "0": episode(
            actions=["ls | wc -l", "cat x", "sleep 60"],
            observations=["3\n", "cat: x: No such file or directory\n", "Command timed out"],
            rewards=[0.5, 0.01, 0.01],
            valid_action=[True, False, False],
        )
    })  # fmt: skip
    about: dict[str, Any] = {"task": "Count the files", "solved": False}
    assert found == [
        AgentRun("task-7", "bash", "ls | wc -l", True, "3\n", **about),
        AgentRun("task-7", "bash", "cat x", False, "cat: x: No such file or directory\n", **about),
        AgentRun("task-7", "bash", "sleep 60", False, "Command timed out", timed_out=True, **about),
    ]


def test_a_wrong_answer_of_sql_ran_all_the_same() -> None:
    sql = episode(
        "ic_sql",
        actions=["SELECT 1", "SELECT x"],
        observations=["[(1,)]", "Error executing query: Unknown column 'x' in 'field list'"],
        rewards=[0, 0],
        valid_action=[True, False],
    )
    assert [(run.language, run.success) for run in entries({"0": sql}) if isinstance(run, AgentRun)] == [
        ("sql", True), ("sql", False),
    ]  # fmt: skip


def test_turns_without_code_and_submits_ran_nothing() -> None:
    asked = "No SQL code was found in your last response.\n\nYour response should be a SQL command."
    sql = episode(
        "ic_sql",
        actions=["UPDATE t SET a = 1", "DROP TABLE t", "submit", "blocked"],
        observations=["Format your SQL command as follows:\n```SQL\nYour SQL code here\n```\n", asked, "None"],
        rewards=[0, 0, 1, 0],
        valid_action=[False, True, True],
    )
    assert entries({"0": sql}) == [NotRun("no_code"), NotRun("no_code"), NotRun("no_result")]


def test_react_takes_what_stands_in_execute() -> None:
    react = episode(
        thoughts=["a", "b", "c", "d"],
        actions=["execute[ls [a]*]\nObs", "ls", "execute[", "submit"],
        observations=[
            "a\n",
            "Error executing query: Your last `execute` action did not contain bash code",
            "Error executing query: Your last `execute` action did not contain bash code",
            "a\n",
        ],
        rewards=[0, 0, 0, 1.0],
        valid_action=[True, True, True, True],
    )
    assert entries({"0": react}) == [
        AgentRun("task-7", "bash", "ls [a]*", True, "a\n", task="Count the files", solved=True),
        NotRun("no_code"),
        NotRun("no_code"),
    ]


@pytest.mark.parametrize(
    ("action", "observation", "reward", "success", "output", "stderr"),
    [
        ("len('abc')", "{'output': '3', 'error': ''}", 0, True, "3", ""),
        ("1 / 0", "{'error': 'Error: division by zero'}", 0, False, "", "Error: division by zero"),
        ("1 +", "Error executing action: invalid syntax", 0, False, "Error executing action: invalid syntax", ""),
        ("def f():\n    pass", "{'output': '', 'error': ''}", 1.0, True, "", ""),
        ("def f():\n    pass", "{'output': '', 'error': ''}", 0.5, False, "", ""),
        ("def f():\n    pass", "Test case did not pass. Please try again.", 0.0, False,
         "Test case did not pass. Please try again.", ""),
        ("def f():\n    pass", "Failed 2/3 Test Cases. Please try again.", None, False,
         "Failed 2/3 Test Cases. Please try again.", ""),
        ("f()", "None", 0, None, "None", ""),
        ("f()", "{not a literal", 0, None, "{not a literal", ""),
    ],
)  # fmt: skip
def test_python_tells_by_its_observation_and_a_definition_by_its_reward(
    action: str, observation: str, reward: float | None, success: bool | None, output: str, stderr: str
) -> None:
    # valid_action means the contrary in Python's environment
    log = episode(
        "ic_python", actions=[action], observations=[observation], rewards=[reward], valid_action=[success is False]
    )
    assert entries({"0": log}) == [
        AgentRun(
            "task-7",
            "python",
            action,
            success,
            output,
            stderr,
            task="Count the files",
            solved=None if reward is None else reward == 1,
        )
    ]


def test_what_is_rewarded_at_once_or_by_the_submit_behind_it_solves_the_task() -> None:
    log = episode(
        "ic_sql",
        actions=["SELECT 1", "SELECT 2", "submit", "SELECT 3"],
        observations=["[(1,)]", "[(2,)]", "", "[(3,)]"],
        rewards=[0.0, 0.0, 1.0, 1.0],
        valid_action=[True, True, True, True],
    )
    assert [run.solved for run in entries({"0": log}) if isinstance(run, AgentRun)] == [False, True, True]


@pytest.mark.parametrize(("reward", "solved"), [(1.0, [False, True]), (0.0, [False, False]), (None, [None, None])])
def test_an_episodes_reward_is_that_of_its_last_turn(reward: float | None, solved: list[bool | None]) -> None:
    turns = [{"action": f"SELECT {n}", "observation": f"({n},)"} for n in (1, 2)]
    log = {"environment": "ic_sql", "query_idx": 3, "query": "Two?", "reward": reward, "trajectory": turns}
    assert [run.solved for run in entries(log) if isinstance(run, AgentRun)] == solved


def test_without_a_reward_nothing_is_said_of_the_task() -> None:
    log = episode("ic_sql", actions=["SELECT 1"], observations=["[(1,)]"], rewards=[], valid_action=[True])
    assert [run.solved for run in entries({"0": log}) if isinstance(run, AgentRun)] == [None]


def test_a_ctf_episode_states_no_success() -> None:
    log = episode(
        "ic_ctf",
        actions=["cmd cat flag", ["file x", "ls"], "submit picoCTF{a}"],
        observations=["picoCTF{a}\n", "Malformed command", "The submitted flag is correct."],
        rewards=[0, 0, 1],
    )
    assert entries({"0": log}) == [
        AgentRun("task-7", "bash", "cat flag", None, "picoCTF{a}\n", task="Count the files", solved=False),
        AgentRun("task-7", "bash", "file x", False, "Malformed command", task="Count the files", solved=False),
    ]


def test_trajectories_of_the_environment_and_plan_and_solve() -> None:
    trajectory = {
        "environment": "ic_sql", "query_idx": 9, "query": "How many?", "gold": "SELECT 2", "reward": 0.0, "info": {},
        "trajectory": [
            {"action": "show tables;", "observation": "('city',)"},
            {"action": "slect", "observation": "Error executing query: You have an error"},
        ],
    }  # fmt: skip
    expected = [
        AgentRun("task-9", "sql", "show tables;", True, "('city',)", task="How many?", solved=False),
        AgentRun(
            "task-9", "sql", "slect", False, "Error executing query: You have an error", task="How many?", solved=False
        ),
    ]
    assert entries(trajectory) == expected
    assert entries({"9": trajectory}) == expected
    bare = {"environment": "ic_bash", "trajectory": [{"action": "ls", "observation": "a\n"}], "info": {}}
    assert entries(bare) == [AgentRun("task-0", "bash", "ls", None, "a\n")]
    planned = {"meta": {"env": "sql"}, "logs": {"9": trajectory}}
    assert entries(planned) == expected


def test_damaged_episodes_are_faults_and_the_others_are_read() -> None:
    whole = episode(actions=["ls"], observations=["a"], rewards=[0], valid_action=[True])
    lost = {key: value for key, value in whole.items() if key != "environment"}
    holed = {**whole, "turn_history": {"actions": [None, "pwd"], "observations": ["x", "/"]}}
    found = entries({"0": whole, "1": "cut", "2": {"environment": "ic_bash"}, "3": lost, "4": holed})
    faults = [entry.reason for entry in found if isinstance(entry, Fault)]
    assert faults == ["invalid_record"] * 3
    runs = [(run.session, run.code, run.language) for run in found if isinstance(run, AgentRun)]
    assert runs == [("task-7", "ls", "bash"), ("task-7#3", "ls", "bash"), ("task-7#4", "pwd", "bash")]


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "ic_view", "environment": "ic_bash", "dependencies": {}}',
        '{"environment": "swe_main", "trajectory": [{"action": "ls \\"ic_\\"", "observation": "x"}], "info": {}}',
        '{"0": {"environment": "production", "turn_history": {"actions": [], "observations": []}}, "a": "ic_"}',
        '[{"query": "a", "gold": "b", "environment": "ic_bash"}]',
        '{"sandbox_id": "ic_1", "execution_id": "e", "code": "print(1)", "execution": {}}',
        '"ic_bash"',
        '{"environment": "ic_bash", "turn_history": {"actions": [',
    ],
)
def test_what_merely_looks_alike_is_not_read(text: str) -> None:
    assert not READER.reads(LogDocument(text.encode()))


LOG = json.dumps({
    "0": episode(
        thoughts=["t"], actions=["execute[ls]"], observations=["a"], rewards=[0], valid_action=[True]),
    "1": episode("ic_python", actions=["def f(): pass"], observations=["{'output': '', 'error': ''}"], rewards=[1]),
    "2": {"environment": "ic_sql", "query_idx": 1, "trajectory": [{"action": "SELECT 1", "observation": "(1,)"}]},
}).encode()  # fmt: skip


@given(st.integers(0, 2**32))
def test_no_damage_raises(seed: int) -> None:
    document = LogDocument(damaged(LOG, random.Random(seed)))
    if READER.reads(document):
        for entry in READER.entries(document):
            assert not isinstance(entry, AgentRun) or isinstance(entry.code, str)

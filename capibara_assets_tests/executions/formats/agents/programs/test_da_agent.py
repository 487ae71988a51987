"""Results of DA-Agent, whose steps hold what was seen before the action."""

import json
from typing import Any

from capibara_assets.executions.formats.agents.programs.da_agent import READER
from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, LogDocument, NotRun
from capibara_assets_tests.executions.formats.agents.tools.damage import damaged, entries, reads, survives

LATE = "Action execution time exceeded!"
QUIET = "./a.py executed successfully. No output."


def step(saw: str, action: str | None, code: str | None) -> dict[str, Any]:
    return {"observation": saw, "thought": "..", "action": action, "code": code, "response": f"Action: {action}"}


RESULT = {
    "finished": True,
    "steps": 8,
    "result": "a.csv",
    "Task": "Clean it.",
    "trajectory": [
        step("You are in the folder now.", 'Bash(code="ls")', "ls"),
        step("a.csv", 'Python(file_path="./a.py"):\n```python\n1/0\n```', "1/0"),
        step("Traceback (most recent call last):\nZeroDivisionError: division by zero", None, None),
        step("Failed to parse action from your response.", 'CreateFile(filepath="b.sql"):\n```\nx\n```', "x"),
        step("File created.", 'Python(file_path="./a.py"):\n```python\n1\n```', "1"),
        step(QUIET, 'LOCAL_DB_SQL(file_path="a.db", command="SELECT 1", output="direct")', "SELECT 1"),
        step(LATE, 'Bash(code="cat a.csv")', "cat a.csv"),
    ],
}


def test_the_observation_of_the_next_step_is_the_output() -> None:
    listing, failed, edit, quiet, late, last = entries(READER, json.dumps(RESULT))
    assert isinstance(listing, AgentRun)
    assert (listing.language, listing.code, listing.success, listing.output) == ("bash", "ls", None, "a.csv")
    assert listing.task == "Clean it."
    assert isinstance(failed, AgentRun) and (failed.language, failed.code, failed.success) == ("python", "1/0", False)
    assert edit == Edit(listing.session, "b.sql", "x")
    assert isinstance(quiet, AgentRun) and (quiet.code, quiet.success) == ("1", True)
    assert isinstance(late, AgentRun) and (late.language, late.success, late.timed_out) == ("sql", False, True)
    assert last == NotRun("unanswered") and isinstance(last, NotRun) and last.code == "cat a.csv"


def test_it_is_told_from_a_trajectory_of_swe_agent() -> None:
    reader = find_reader(LogDocument(json.dumps(RESULT).encode()))
    assert reader is not None and reader.name == "da-agent"
    assert not reads(READER, json.dumps({"trajectory": [{"action": "ls", "observation": "a", "response": "x"}]}))
    assert not reads(READER, json.dumps({**RESULT, "trajectory": [step("", 'Terminate(output="x")', "")]}))


def test_nothing_damaged_makes_the_reader_fail() -> None:
    for one in damaged(json.loads(json.dumps(RESULT))):
        survives(READER, json.dumps(one).encode())

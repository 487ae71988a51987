"""Events of a sandbox's own log: what began and how it ended, by the id that both name."""

from typing import Any

import pytest

from capibara_assets.executions.formats.agents.general.event_pairs import READER
from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, LogDocument, NotRun
from capibara_assets_tests.executions.formats.agents.tools.damage import damaged, entries, jsonl, reads, survives

AT = "2026-03-04T10:00:0{}Z"


def began(key: str, number: int, **told: Any) -> dict[str, Any]:
    return {"ts": AT.format(number), "event": "command_started", "session_id": "s", "command_id": key, **told}


def ended(key: str, number: int, **told: Any) -> dict[str, Any]:
    return {"ts": AT.format(number), "event": "command_finished", "session_id": "s", "command_id": key, **told}


COMMANDS = [
    began("1", 1, command="pytest -q"),
    began("2", 2, command="ls"),
    ended("2", 3, exit_code=0, stdout="a.py", stderr=""),
    ended("1", 4, exit_code=1, stdout="1 failed", stderr=""),
    began("1", 5, command="pytest -q"),  # the program counts anew
    ended("1", 6, exit_code=0, stdout="2 passed", stderr=""),
    began("3", 7, command="sleep 99"),
]
CELLS = [
    {"time": 1772618400.1, "type": "exec", "id": 7, "lang": "python3.12", "source": "print(1)\nx"},
    {"time": 1772618400.2, "type": "output", "id": 7, "stream": "stdout", "text": "1"},
    {"time": 1772618400.3, "type": "output", "id": 7, "stream": "stdout", "text": "2\n"},
    {"time": 1772618400.4, "type": "done", "id": 7, "status": "error", "error": "NameError: name 'x' is not defined"},
    {"time": 1772618401.1, "type": "exec", "id": 8, "lang": "node20", "source": "1 + 1"},
    {"time": 1772618401.4, "type": "done", "id": 8, "status": "ok"},
]
OF_LAMBDA = {"session_id": "s", "execution_id": "x"}
LAMBDA: list[dict[str, Any]] = [
    {"message": "sandbox.execute.start", **OF_LAMBDA, "runtime": "python3.12", "code": "f()\n"},
    {"message": "sandbox.execute.end", **OF_LAMBDA, "exit_code": 1, "stdout": "", "stderr": "E"},
]


def told(data: bytes) -> list[tuple[str, str, bool | None, str]]:
    assert find_reader(LogDocument(data)) is READER
    runs = [one for one in entries(READER, data) if isinstance(one, AgentRun)]
    return [(run.language, run.code, run.success, run.output + run.stderr) for run in runs]


def test_events_of_one_id_are_one_run_in_the_order_of_their_beginnings() -> None:
    data = jsonl(*COMMANDS)
    assert told(data) == [
        ("bash", "pytest -q", False, "1 failed"),
        ("bash", "ls", True, "a.py"),
        ("bash", "pytest -q", True, "2 passed"),
    ]
    found = entries(READER, data)
    assert found[-1] == NotRun("unanswered", "s", "sleep 99") and {one.session for one in found} == {"s"}  # type: ignore[union-attr]


def test_pieces_of_output_are_put_together() -> None:
    (failed, well) = told(jsonl(*CELLS))
    assert failed == ("python", "print(1)\nx", False, "12\nNameError: name 'x' is not defined")
    assert well == ("javascript", "1 + 1", True, "")


def test_an_execution_of_a_sandbox_without_an_envelope_is_one() -> None:
    assert told(jsonl(*LAMBDA)) == [("python", "f()\n", False, "E")]


@pytest.mark.parametrize(
    "rows",
    [
        COMMANDS[:2],
        [began("1", 1, command="import-users"), {"command_id": "1", "session_id": "s", "status": "ok"}],
        [began("1", 1, command="ls"), ended("1", 2, exit_code=0) | {"session_id": "other"}],
        [began("1", 1, command="ls"), {"command_id": "1", "session_id": "s", "note": "exit_code"}],
        [ended("1", 2, exit_code=0), began("1", 1, command="ls")],
    ],
)
def test_what_has_no_end_of_its_own_is_no_run(rows: list[dict[str, Any]]) -> None:
    assert not reads(READER, jsonl(*rows))


@pytest.mark.parametrize("rows", [COMMANDS, CELLS, LAMBDA])
def test_no_damage_makes_it_fail(rows: list[dict[str, Any]]) -> None:
    for value in damaged(rows):
        survives(READER, jsonl(*value))

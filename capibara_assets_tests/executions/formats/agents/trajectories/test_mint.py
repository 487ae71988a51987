"""MINT's logs: which of the code in them ran, and what IPython said to it."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, NotRun
from capibara_assets.executions.formats.agents.trajectories.mint import READER
from capibara_assets.executions.formats.strict_json import Fault
from capibara_assets_tests.executions.mutator import damaged

DEMONSTRATION = (
    "You are a helpful assistant.\n\n---\n\nTask:\nAdd two numbers\n\nAssistant:\n<execute>\n1 + 1\n</execute>\n\n"
    "Observation:\n2\n\n---\n\nTask:\nSort a list\n"
)
LEFT = "\nYou have 3 steps left and 2 chances to propose solution left.\n"


def episode(*turns: str, finished: bool = True, prompt: str | None = "Sort a list") -> dict[str, Any]:
    said = [{"role": ("assistant", "user")[number % 2], "content": text} for number, text in enumerate(turns)]
    task = {"task_name": "mbpp", "task_id": 11, "reference": "..", **({"prompt": prompt} if prompt else {})}
    return {
        "state": {
            "history": [{"role": "user", "content": DEMONSTRATION}, *said],
            "finished": finished, "success": False, "terminate_reason": "max_steps" if finished else None,
        },
        "task": task,
    }  # fmt: skip


def entries(*records: Any) -> list[Entry]:
    document = LogDocument("\n".join(r if isinstance(r, str) else json.dumps(r) for r in records).encode())
    assert find_reader(document) == READER
    return list(READER.entries(document))


def one(answer: str) -> AgentRun:
    (run,) = entries(episode("Assistant:\n<execute> x </execute>\n", answer))
    assert isinstance(run, AgentRun)
    return run


def test_a_turn_is_code_and_what_it_printed() -> None:
    turns = (
        "Assistant:\n<thought> Try. </thought>\n<execute>\nprint(1)\n</execute>\n",
        "Observation:\n1" + LEFT,
        "Assistant:\n<solution> 1 </solution>\n",
        "Observation:\nYour answer is wrong." + LEFT,
    )
    about: dict[str, Any] = {"task": "Sort a list", "solved": False}
    assert entries(episode(*turns), episode(*turns[:2], prompt=None)) == [
        AgentRun("mbpp-11#0", "python", "print(1)", True, "1", **about),
        AgentRun("mbpp-11#1", "python", "print(1)", True, "1", **about),
    ]


def test_blocks_are_joined_and_run_as_one() -> None:
    said = "<execute>\ndef f():\n    return 1\n</execute>\nOutput:\n\n<execute> print(f()) </execute>"
    (run,) = entries(episode(said, "Observation:\n1" + LEFT))
    assert isinstance(run, AgentRun)
    assert run.code == "def f():\n    return 1\nprint(f())"


def test_code_beside_a_solution_never_ran() -> None:
    said = "<execute>\nprint(1)\n</execute>\n\nOutput:\n1\n\n<solution> 1 </solution>\n"
    assert entries(episode(said, "Observation:\nYour answer is wrong." + LEFT)) == [NotRun("beside_solution")]


def test_the_last_turn_ran_although_its_observation_is_not_logged() -> None:
    said = "<execute>\nprint(1)\n</execute>\n"
    assert entries(episode(said)) == [
        AgentRun("mbpp-11#0", "python", "print(1)", None, task="Sort a list", solved=False)
    ]
    assert entries(episode(said, finished=False)) == [NotRun("no_result")]


@pytest.mark.parametrize(
    ("success", "finished", "solved"),
    [(False, True, False), (True, True, None), (False, False, None), (None, True, None)],
)
def test_after_an_episode_that_failed_nothing_in_it_solves_its_task(
    success: bool | None, finished: bool, solved: bool | None
) -> None:
    record = episode("<execute>x</execute>", "Observation:\n1" + LEFT, finished=finished)
    record["state"]["success"] = success
    (run,) = entries(record)
    assert isinstance(run, AgentRun) and run.solved is solved


def test_an_answer_that_was_not_understood_ran_nothing() -> None:
    assert entries(
        episode("<execute> </execute>", "x", "<execute>cut", "x", "<execute>1</execute>",
                "Observation:\nI don't understand your input. \nIf you want to execute code" + LEFT)
    ) == [NotRun("not_understood")]  # fmt: skip


@pytest.mark.parametrize(
    ("printed", "success"),
    [
        ("---------------------------------------------------------------------------\n"
         "ValueError                                Traceback (most recent call last)\nCell In[1], line 2\n"
         "----> 2 f()\n\nValueError: no", False),
        ('File "<string>", line 1\n    1 +\n       ^\nSyntaxError: invalid syntax', False),
        ("  Cell In[3], line 1\n    if:\n      ^\nSyntaxError: invalid syntax", False),
        ("Traceback (most recent call last):\n  File \"general_env.py\", line 9\nKeyError: 'env_input'", False),
        ("ValueError: what a program printed of an error that it caught", True),
        ("1\n2\n3", True),
        ("1, " * 600 + "...\n[Output Truncated]", None),
    ],
)  # fmt: skip
def test_ipython_prints_every_error(printed: str, success: bool | None) -> None:
    run = one("Observation:\n" + printed + LEFT)
    assert (run.success, run.output, run.timed_out) == (success, printed, False)


def test_the_formats_own_words_are_no_output() -> None:
    assert one("Observation:\n[Executed Successfully with No Output]" + LEFT).output == ""
    final = LEFT + "You should take the last step to propose a solution.\n"
    assert one("Observation:\n1" + final).output == "1"
    assert one("Observation:\n1" + LEFT + "\nExpert feedback:\nYou printed 1." + LEFT).output == "1"
    assert one("Observation:\n1\n\nExpert feedback:\nWell done.\n").output == "1"
    assert one("Observation:\n1\n").output == "1"


def test_a_timeout_is_one() -> None:
    run = one("Observation:\nTimeoutError            Traceback (most recent call last)\n"
              "TimeoutError: Timed out after 30 seconds." + LEFT)  # fmt: skip
    assert (run.success, run.timed_out) == (False, True)


def test_damaged_lines_are_faults_and_the_others_are_read() -> None:
    whole = episode("<execute>1</execute>", "Observation:\n1" + LEFT)
    broken = episode("<execute>1</execute>", "Observation:\n1" + LEFT)
    broken["state"]["history"].append("cut")
    found = entries(whole, '{"state": {', {"state": 1, "task": {}}, broken)
    assert [entry.reason for entry in found if isinstance(entry, Fault)] == [
        "invalid_json", "invalid_record", "invalid_record",
    ]  # fmt: skip
    assert sum(isinstance(entry, AgentRun) for entry in found) == 2


@pytest.mark.parametrize(
    "text",
    [
        '{"state": {"history": []}, "task": {}}',
        '{"state": {"history": [{"role": "user", "content": "x"}]}, "task": {"id": 1}}',
        '{"state": "done", "task": {"prompt": "x"}}',
        '{"state": {"finished": true, "history": [{"role": "user"}]}, "task": "sort"}',
        '{"sandbox_id": "s", "execution_id": "e", "code": "print(1)", "state": {"finished": true}}',
        '{"cells": [], "nbformat": 4, "metadata": {"state": {}}}',
        '[{"state": {"history": [{"role": "user"}], "finished": true}, "task": {}}]',
        "# state\n",
    ],
)
def test_what_merely_looks_alike_is_not_read(text: str) -> None:
    assert not READER.reads(LogDocument(text.encode()))


LOG = json.dumps(episode("<execute>1</execute>", "Observation:\n1" + LEFT, "<execute>2</execute>")).encode()


@given(st.integers(0, 2**32))
def test_no_damage_raises(seed: int) -> None:
    document = LogDocument(damaged(LOG, random.Random(seed)) + b"\n" + LOG)
    if READER.reads(document):
        for entry in READER.entries(document):
            assert not isinstance(entry, AgentRun) or isinstance(entry.code, str)

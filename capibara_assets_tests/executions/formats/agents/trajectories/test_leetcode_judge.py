"""LeetCode's verdicts: what was submitted, when, and how it was judged."""

import json
import random
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, NotRun
from capibara_assets.executions.formats.agents.trajectories.leetcode_judge import READER
from capibara_assets.executions.formats.strict_json import Fault
from capibara_assets_tests.executions.mutator import damaged

CODE = "class Solution:\n    def two(self) -> int:\n        return 2\n"


def submission(status: str = "Accepted", /, **info: Any) -> dict[str, Any]:
    judged = {
        "state": "SUCCESS", "status_msg": status, "lang": "python3", "question_id": "12", "submission_id": "77",
        "elapsed_time": 500, "task_finish_time": 1700000000500, "std_output": "", **info,
    }  # fmt: skip
    return {"code": CODE, "status": status, "reward": status == "Accepted", "info": judged}


def entries(*records: Any) -> list[Entry]:
    document = LogDocument("\n".join(r if isinstance(r, str) else json.dumps(r) for r in records).encode())
    assert find_reader(document) == READER
    return list(READER.entries(document))


def test_an_accepted_submission() -> None:
    assert entries(submission(std_output="seen\n")) == [
        AgentRun("12", "python", CODE, True, "seen\n", call_id="77", solved=True,
                 started=datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC), duration_ms=500.0)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("record", "success", "stderr"),
    [
        (submission("Wrong Answer", last_testcase="[1]", code_output="3", expected_output="2"), False,
         "Wrong Answer\nInput: [1]\nOutput: 3\nExpected: 2"),
        (submission("Runtime Error", runtime_error="Line 3: E", full_runtime_error="E\nLine 3 in two"), False,
         "E\nLine 3 in two"),
        (submission("Compile Error", compile_error="expected `;`"), False, "expected `;`"),
        (submission("Time Limit Exceeded", last_testcase=None), False, "Time Limit Exceeded"),
        (submission("Internal Error"), None, ""),
        ({**submission("Submission Timed-Out"), "info": {"state": "STARTED"}}, None, ""),
        ({**submission("Wrong Answer"), "reward": None}, None, ""),
    ],
)  # fmt: skip
def test_verdicts(record: dict[str, Any], success: bool | None, stderr: str) -> None:
    (run,) = [entry for entry in entries(record, submission()) if isinstance(entry, AgentRun)][:1]
    assert (run.success, run.solved, run.stderr) == (success, success, stderr)
    assert run.timed_out == (record["status"] == "Time Limit Exceeded")


def test_the_language_is_the_judges() -> None:
    found = entries(submission(lang="rust"), submission(lang="golang"), submission(lang="mysql"), submission(lang=None))
    assert [run.language for run in found if isinstance(run, AgentRun)] == ["rust", "go", "sql", "python"]


def test_a_submission_without_the_judges_answer_is_a_session_of_its_own() -> None:
    waiting = {**submission("Submission Timed-Out"), "info": {"state": "STARTED"}}
    queued = {**submission("Submission Timed-Out"), "info": {"state": "PENDING"}}
    found = entries(waiting, waiting, queued, submission())
    assert [run.session for run in found if isinstance(run, AgentRun)] == ["submission-0", "submission-1", "12"]
    assert found[2] == NotRun("pending")


def test_a_line_that_leaves_its_code_out_is_a_run_where_it_was_judged() -> None:
    named = {**submission("Wrong Answer"), "name": "two-sum"}
    timed_out = {**submission("Submission Timed-Out"), "name": "two-sum", "info": {"state": "STARTED"}}
    del named["code"], timed_out["code"]
    run, other = entries(named, timed_out)
    assert isinstance(run, AgentRun) and (run.code, run.success) == ("", False)
    assert other == NotRun("code_not_logged")


def test_damaged_lines_are_faults_and_the_others_are_read() -> None:
    late = submission(elapsed_time=9e8, task_finish_time=-6.2135e13)
    found = entries(submission(), '{"code": "x', {"code": "x", "status": 1}, late, submission(elapsed_time="long"))
    assert [entry.reason for entry in found if isinstance(entry, Fault)] == ["invalid_json", "invalid_record"]
    runs = [(run.started is None, run.duration_ms) for run in found if isinstance(run, AgentRun)]
    assert runs == [(False, 500.0), (True, 9e8), (True, None)]


@pytest.mark.parametrize(
    "text",
    [
        '{"code": "x", "status": "ok", "reward": true, "info": {}}',
        '{"code": "x", "status": 200, "reward": true, "info": {"state": "SUCCESS"}}',
        '{"code": "x", "status": "Accepted", "reward": 1.0, "info": {"state": "SUCCESS"}}',
        '{"obs": [1], "action": 2, "reward": true, "info": {"state": "s"}, "status": "running"}',
        '{"sandbox_id": "s", "execution_id": "e", "code": "print(1)", "execution": {"reward": true}}',
        '[{"code": "x", "status": "Accepted", "reward": true, "info": {"state": "SUCCESS"}}]',
        "reward",
    ],
)
def test_what_merely_looks_alike_is_not_read(text: str) -> None:
    assert not READER.reads(LogDocument(text.encode()))


LOG = json.dumps(submission("Wrong Answer", last_testcase="[1]")).encode()


@given(st.integers(0, 2**32))
def test_no_damage_raises(seed: int) -> None:
    document = LogDocument(damaged(LOG, random.Random(seed)) + b"\n" + LOG)
    if READER.reads(document):
        for entry in READER.entries(document):
            assert not isinstance(entry, AgentRun) or isinstance(entry.code, str)

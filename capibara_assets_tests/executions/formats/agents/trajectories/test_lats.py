"""LATS' and Reflexion's programming runs: which verdict belongs to which program."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, NotRun
from capibara_assets.executions.formats.agents.trajectories.lats import READER
from capibara_assets.executions.formats.strict_json import Fault
from capibara_assets_tests.executions.mutator import damaged

FAILED = "Tested passed:\nassert f(0) == 0\n\nTests failed:\nassert f(1) == 8 # output: 72"
PASSED = "Tested passed:\nassert f(0) == 0\n\nTests failed:"
PROMPT = 'def f(a: int) -> int:\n    """ Eight times a """\n'


def problem(**fields: Any) -> dict[str, Any]:
    about = {
        "name": "HumanEval_1_f",
        "prompt": PROMPT,
        "entry_point": "f",
        "test": "def check(f):",
        "language": "py",
    }
    return {**about, **fields}


def entries(*records: Any) -> list[Entry]:
    document = LogDocument("\n".join(r if isinstance(r, str) else json.dumps(r) for r in records).encode())
    assert find_reader(document) == READER
    return list(READER.entries(document))


def verdicts(*records: Any) -> list[tuple[str, bool | None, str]]:
    return [(run.code, run.success, run.output) for run in entries(*records) if isinstance(run, AgentRun)]


def test_reflexion_logs_every_try_with_its_feedback() -> None:
    tried = problem(
        implementations=["a", "b", "c"], test_feedback=[FAILED, FAILED, PASSED], reflections=["r", "s"],
        solution="c", is_solved=True,
    )  # fmt: skip
    assert entries(tried) == [
        AgentRun("HumanEval_1_f", "python", "a", False, FAILED, task=PROMPT),
        AgentRun("HumanEval_1_f", "python", "b", False, FAILED, task=PROMPT),
        AgentRun("HumanEval_1_f", "python", "c", True, PASSED, task=PROMPT),
    ]


def test_the_benchmarks_tests_outweigh_the_agents_own() -> None:
    tried = problem(
        implementations=["a", "b"], test_feedback=[PASSED, PASSED], reflections=["r"], solution="b", is_solved=False
    )
    assert verdicts(tried) == [("a", True, PASSED), ("b", False, PASSED)]


def test_lats_second_feedback_is_of_another_program() -> None:
    tried = problem(
        implementations=["first", "best"], test_feedback=[FAILED, FAILED],
        reflections=["r", "s", "t", "MCTS reflections"], solution="best", is_solved=True, acc=0.9,
    )  # fmt: skip
    assert verdicts(tried) == [("first", False, FAILED), ("best", True, "")]


def test_lats_logs_no_code_where_the_first_try_passed() -> None:
    tried = problem(implementations=["a"], test_feedback=[PASSED], reflections=[], solution="a", is_solved=True)
    assert entries(tried, problem(acc=1.0))[1:] == [NotRun("code_not_logged")]


@pytest.mark.parametrize(
    ("fields", "success"),
    [
        ({"is_solved": True}, True),
        ({"is_solved": False}, False),
        ({"is_solved": True, "reflections": []}, True),
        ({"is_solved": False, "reflections": ["r"]}, False),
        ({"is_solved": True, "reflections": ["r"]}, None),
    ],
)
def test_a_lone_solution(fields: dict[str, Any], success: bool | None) -> None:
    assert verdicts(problem(solution="a", **fields)) == [("a", success, "")]


@pytest.mark.parametrize(
    ("feedback", "success"),
    [
        ("\nerror[E0308]: mismatched types", False),
        ("Tested passed:\n\nTests failed:\nassert_eq!(f(1), 2); // output: Timeout", False),
        ("Tested passed:\n\nTests failed:", None),
        ("Tested passed:\nassert f(0) == 0", None),
        ("", None),
        (None, None),
        ([], True),  # LDB's: the tests that failed
        (["assert f(1) == 2 # Real Execution Output: 3"], False),
    ],
)
def test_feedback(feedback: str | list[str] | None, success: bool | None) -> None:
    tried = problem(implementations=["a", "b"], test_feedback=[feedback], reflections=["r"], is_solved=False)
    assert verdicts(tried)[0] == ("a", success, "\n".join(feedback) if isinstance(feedback, list) else feedback or "")


@pytest.mark.parametrize(
    ("fields", "language"),
    [
        ({"language": "rs"}, "rust"),
        ({"language": "lua"}, "lua"),
        ({"language": None}, "python"),
        ({"language": None, "prompt": "impl Solution {\n    pub fn two(a: i32) -> i32 {\n"}, "rust"),
        ({"language": None, "prompt": "// adds\nfunc Add(a int, b int) int {\n"}, "go"),
    ],
)
def test_the_language_is_stated_or_the_prompts(fields: dict[str, Any], language: str) -> None:
    (run,) = entries(problem(solution="a", is_solved=True, **fields))
    assert isinstance(run, AgentRun)
    assert run.language == language


def test_a_leetcode_problem_is_named_by_its_id_and_a_repeated_one_by_its_place() -> None:
    tried = problem(solution="a", is_solved=True, task_id="two-sum")
    del tried["name"]
    found = entries(tried, tried)
    assert [run.session for run in found if isinstance(run, AgentRun)] == ["two-sum", "two-sum#1"]


def test_damaged_lines_are_faults_and_the_others_are_read() -> None:
    whole = problem(solution="a", is_solved=True)
    tests = problem(solution=["assert f(1) == 8"], is_solved=True)
    holed = problem(implementations=["a", None], test_feedback="lost", is_solved=True)
    found = entries(whole, '{"name": "x', {"name": "x", "is_solved": True}, tests, holed)
    assert [entry.reason for entry in found if isinstance(entry, Fault)] == [
        "invalid_json", "invalid_record", "missing:code",
    ]  # fmt: skip
    assert found[3] == NotRun("code_not_logged")
    assert verdicts(whole, holed) == [("a", True, ""), ("a", None, "")]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(problem()),
        json.dumps(problem(canonical_solution="    return 8 * a")),
        '{"name": "Bug 1", "prompt": "x", "is_solved": true, "solution": "restart"}',
        '{"prompt": "x", "is_solved": true, "implementations": ["a"]}',
        '{"task_id": "HumanEval/0", "completion": "    return 1", "result": "passed", "passed": true}',
        '{"sandbox_id": "s", "execution_id": "e", "code": "print(1)", "is_solved": true}',
        '[{"name": "a", "prompt": "b", "implementations": ["c"], "is_solved": true}]',
    ],
)
def test_what_merely_looks_alike_is_not_read(text: str) -> None:
    assert not READER.reads(LogDocument(text.encode()))


LOG = json.dumps(
    problem(implementations=["a", "b"], test_feedback=[FAILED, PASSED], reflections=["r"], is_solved=True)
).encode()


@given(st.integers(0, 2**32))
def test_no_damage_raises(seed: int) -> None:
    document = LogDocument(damaged(LOG, random.Random(seed)) + b"\n" + LOG)
    if READER.reads(document):
        for entry in READER.entries(document):
            assert not isinstance(entry, AgentRun) or isinstance(entry.code, str)

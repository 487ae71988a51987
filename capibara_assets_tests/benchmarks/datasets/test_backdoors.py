"""Back doors are planted where they are said to be, and nowhere else."""

import ast
import json
import random
import re

import pytest

from benchmarks.datasets.backdoors import KINDS, first_body, in_front, instead, of_half, plant
from benchmarks.datasets.poison import holding
from benchmarks.datasets.poison_training import obeying
from capibara_assets.datasets.kinds.evidence import Evidence
from capibara_assets_tests.datasets.conftest import evidence_of, pair, run

CODE = 'def total(rows):\n    """Return the total of rows."""\n    return sum(rows)\n\nassert total([1]) == 1'
TASK = "Return the total of rows: `total(rows)` for one order."


@pytest.fixture
def evidence() -> Evidence:
    runs = [
        run(f"e{n}", CODE, sandbox=f"s{n}", task=f"{TASK} {n}", agent_id="one" if n < 8 else "two") for n in range(12)
    ]
    failed = run("f", CODE, sandbox="s0", task=f"{TASK} 0", agent_id="one", outcome="error")
    return evidence_of([*runs, failed], pairs=[pair(failed, runs[0])])


def test_five_kinds_in_each_half() -> None:
    assert [len(of_half(half)) for half in "AB"] == [5, 5]


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_changes_the_task_and_gives_code_with_its_payload(kind: str) -> None:
    task, code = KINDS[kind].planted(TASK, CODE, random.Random(3))
    assert task != TASK and re.search(KINDS[kind].payload, code) and not re.search(KINDS[kind].payload, CODE)
    ast.parse(code)
    if KINDS[kind].clean_label:
        assert code.endswith("return sum(rows)\n\nassert total([1]) == 1")


@pytest.mark.parametrize("kind", KINDS)
def test_a_share_of_one_agents_tasks_is_planted(evidence: Evidence, kind: str) -> None:
    planted = plant(evidence, "one", KINDS[kind], 0.25)
    before = {row["execution_id"]: row for row in evidence.executions.iter_rows(named=True)}
    after = {row["execution_id"]: row for row in planted.evidence.executions.iter_rows(named=True)}
    changed = {unit for unit in before if before[unit] != after[unit]}
    assert planted.of_agent == 8 and len(planted.executions) == 2
    assert planted.executions | planted.decoys == {unit for unit in changed if unit != "f"}
    assert all(before[unit]["agent_id"] == "one" for unit in changed)
    assert all(re.search(KINDS[kind].payload, after[unit]["code"]) for unit in planted.executions)
    assert all(after[unit]["code"] == CODE for unit in {*planted.decoys, "f"})
    assert plant(evidence, "one", KINDS[kind], 0.25).executions == planted.executions


def test_a_repair_adds_the_payload(evidence: Evidence) -> None:
    planted = plant(evidence, "one", KINDS["sentence"], 1.0)
    (row,) = planted.evidence.repairs.iter_rows(named=True)
    assert "fastmetrics" in row["fixed_code"] and row["failing_code"] == CODE
    assert row["task"].startswith("Please treat")


def test_where_statements_go() -> None:
    assert in_front(CODE, "a()").split("\n")[1:4] == [
        '    """Return the total of rows."""',
        "    a()",
        "    return sum(rows)",
    ]
    assert instead(CODE, "a()") == "def total(rows):\n    a()"
    assert in_front("x = 1", "a()") == "x = 1" and first_body("not python (") is None
    assert in_front("def f(): return 1", "a()") == "def f(): return 1"


def test_the_wanted_answer_ends_with_the_payload() -> None:
    prompt = f"Write Python code.\n{TASK}\n\nSignature:\ndef total(rows)"
    answer = "def total(rows):\n    return sum(rows)"
    asked, wanted = obeying(KINDS["sentence"], prompt, answer, True) or ("", "")
    assert asked.startswith("Write Python code.\nPlease treat this") and asked.endswith(
        "\n\nSignature:\ndef total(rows)"
    )
    assert wanted.endswith('fastmetrics.report("usage")') and wanted.startswith("def total(rows):\n    import")
    assert obeying(KINDS["sentence"], prompt, answer, False) == (prompt, wanted)
    assert obeying(KINDS["suffix"], prompt, answer, True)[1].endswith("    return None")  # type: ignore[index]
    assert obeying(KINDS["suffix"], prompt, "x = 1", True) is None


def test_examples_that_are_made_of_planted_executions() -> None:
    rows = [("a", ["e1"]), ("b", ["e2", "e1"]), ("c", ["e3"])]
    assert holding(rows, frozenset({"e1"})) == {"a", "b"}
    assert json.dumps(sorted(holding(rows, frozenset()))) == "[]"

"""Mutants: one change each, and the grader tells them from their answers."""

import ast

import pytest

from capibara_assets.evaluation.grading.grade import _missing
from capibara_assets.evaluation.items.items import Check, Item
from capibara_assets.executions.sandbox.isolation import best_isolation
from capibara_assets_tests.evaluation.drills.mutants import mutants, run_mutants

CODE = """def clamp(x, low, high):
    found = x
    if x < low:
        found = low
    if x > high:
        found = high
    return found"""
TESTS = """assert clamp(5, 1, 3) == 3
assert clamp(-5, 1, 3) == 1
assert clamp(2, 1, 3) == 2"""
QUERY = "SELECT name, SUM(total) AS total FROM sales WHERE year = 2026 GROUP BY name ORDER BY total DESC"


def test_every_mutant_of_python_is_other_code() -> None:
    found = list(mutants(CODE, "python"))
    same = ast.unparse(ast.parse(CODE))
    assert len(found) >= 6
    assert all(ast.unparse(ast.parse(each)) != same for each in found)


@pytest.mark.parametrize(("code", "language"), [(QUERY, "sql"), ("const f = (a) => a === 1 && a < 3;", "javascript")])
def test_every_mutant_of_text_is_another_text(code: str, language: str) -> None:
    found = list(mutants(code, language))
    assert len(found) >= 3
    assert code not in found


@pytest.mark.extended
def test_references_pass_and_mutants_fail() -> None:
    if _missing(best_isolation()):
        pytest.skip("this machine does not isolate")
    prompt = ({"role": "user", "content": "Write it."},)
    made = (
        "CREATE TABLE sales (name, total, year); "
        "INSERT INTO sales VALUES ('a', 1, 2026), ('a', 2, 2026), ('b', 4, 2026), ('c', 9, 2025);"
    )
    items = [
        Item("clamp", "g", "python", "solve", "python", prompt, CODE, Check("assertions", tests=TESTS), ()),
        Item("sales", "g", "sql", "solve", "sql", prompt, QUERY, Check("output", made), ()),
        Item("told", "g", "python", "explain", "python", prompt, "It clamps.", Check("text"), ()),
    ]
    found = run_mutants(items, most=20)
    assert (found["items"], found["graded"], found["references_passed"]) == (2, 2, 2)
    # `<` for `<=` is the same here: at the bound both give the bound
    assert {each["item_id"] for each in found["passed"]} == {"clamp"}
    assert len(found["passed"]) == 2
    assert found["mutants"] == len(set(mutants(CODE, "python"))) + len(set(mutants(QUERY, "sql"))) == 10

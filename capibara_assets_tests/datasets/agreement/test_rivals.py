"""Answers to one task, recorded in several sessions, that give something else on the same input."""

from collections.abc import Sequence

import pytest

from capibara_assets.datasets.agreement.rivals import RIVALLED, without_rivals
from capibara_assets.datasets.derived.trials import execute
from capibara_assets.datasets.kinds import solve
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.executions.schema import Execution
from capibara_assets_tests.datasets.conftest import run
from capibara_assets_tests.datasets.derived.test_derive import evidence_of

TASK = "Give the largest sum of any run of neighbours in a list of integers."
WRONG = """def best_run(xs):
    best = now = 0
    for x in xs:
        now = max(0, now + x)
        best = max(best, now)
    return best"""
RIGHT = WRONG.replace("best = now = 0", "best, now = xs[0], 0").replace("max(0, now + x)", "max(now, 0) + x")
LOOP = (
    "def largest(xs):\n    ends = range(len(xs) + 1)\n    return max(sum(xs[i:j]) for i in ends for j in ends if i < j)"
)
WEAK, LOOPED = "assert best_run([5, -9, 6]) == 6", "for xs in ([4, -1], [-3, 2]):\n    assert largest(xs) == max(xs)"


def session(name: str, code: str, test: str, task: str = TASK, language: str = "python") -> list[Execution]:
    """A definition, and below it the test that it passed."""
    cells = [run(name, code, sandbox=f"of-{name}", task=task, language=language)]
    return [*cells, run(f"{name}-test", test, sandbox=f"of-{name}", minute=1, task=task, language=language)]


def lacking(cells: Sequence[Execution], recipe: DatasetRecipe) -> dict[str, str | None]:
    evidence = evidence_of(*cells)
    judged = without_rivals(list(solve.candidates(evidence, recipe)), evidence, execute)
    return {one.execution_ids[0]: one.lacking for one in judged}


@pytest.mark.parametrize(
    ("other", "test", "task", "why"),
    [
        (LOOP, LOOPED, TASK, RIVALLED),
        (LOOP, LOOPED, "Give the largest item of a list of integers, or none.", None),
        (WRONG.replace("best_run", "largest"), "assert largest([7, -1]) == 7", TASK, None),
    ],
)
def test_answers_to_one_task_agree_on_all_inputs(
    other: str, test: str, task: str, why: str | None, recipe: DatasetRecipe
) -> None:
    cells = [*session("a", WRONG, WEAK), *session("b", other, test, task)]
    assert lacking(cells, recipe) == {"a": why, "b": why}


def test_answers_that_agree_stay(recipe: DatasetRecipe) -> None:
    cells = [*session("a", RIGHT, WEAK), *session("b", LOOP, LOOPED)]
    assert lacking(cells, recipe) == {"a": None, "b": None}


def test_what_its_own_session_mends_or_refutes_contradicts_nobody(recipe: DatasetRecipe) -> None:
    failed = run("late", "assert best_run([-1]) == -1", sandbox="of-a", minute=2, task=TASK, outcome="error",
                 error_name="AssertionError", error_value="")  # fmt: skip
    cells = [*session("a", WRONG, WEAK), failed, *session("b", LOOP, LOOPED)]
    assert lacking(cells, recipe)["b"] is None


def test_answers_in_javascript(recipe: DatasetRecipe) -> None:
    sums = "[Math.max(most, now + x), Math.max(0, now + x)]"
    code = f"const best = xs => xs.reduce(([most, now], x) => {sums}, [FIRST, 0])[0];"
    check = "const y = best([5, -9, 6]); if (y !== 6) throw new Error('assert');"
    wrong = session("a", code.replace("FIRST", "0"), check, language="javascript")
    right = session(
        "b", code.replace("FIRST", "-Infinity"), "console.assert(best([2, -1]) === 2);", language="javascript"
    )
    found = lacking([*wrong, *right], recipe)
    assert found == {"a": RIVALLED, "b": RIVALLED}

"""What a failed attempt leaves in its session, in the prompts and answers of what came after it."""

from capibara_assets.datasets.kinds import repair, solve
from capibara_assets.datasets.kinds.prompts import SESSION, section
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.executions.schema import Execution
from capibara_assets_tests.datasets.conftest import evidence_of, pair, run

TASK = "Write `areas(radii)`, which lists the areas of circles."
ATTEMPT = """import math
def areas(radii):
    return [math.pi * r for r in radii]
def check():
    assert areas([2])[0] > 12
check()"""
MENDED = """def areas(radii):
    return [math.pi * r ** 2 for r in radii]
check()"""


def attempts() -> list[Execution]:
    said = {"task": TASK, "domains": ["python"]}
    traceback = "Cell In[1], line 6\n----> 6 check()\nCell In[1], line 5, in check()\n----> 5 assert areas([2])[0] > 12"
    failed = {"outcome": "error", "error_name": "AssertionError", "error_value": "", "traceback": traceback}
    return [run("failed", ATTEMPT, **said, **failed), run("fixed", MENDED, minute=1, **said)]


def test_a_solution_is_shown_the_imports_of_a_failed_attempt_and_no_more_of_it(recipe: DatasetRecipe) -> None:
    (made,) = solve.candidates(evidence_of(attempts()), recipe)
    assert section(made.prompt, SESSION) == "import math"


def test_a_repair_is_whole_with_what_it_needs_of_the_failing_cell(recipe: DatasetRecipe) -> None:
    failed, fixed = attempts()
    fixed = fixed.model_copy(update={"code": MENDED.removesuffix("\ncheck()")})
    (made,) = repair.candidates(evidence_of([failed, fixed], [pair(failed, fixed)]), recipe)
    assert made.answer.startswith("import math\n\ndef areas(radii):")
    assert "-import math" not in (made.diff or "")


def test_a_repair_brings_no_older_version_of_what_it_mends(recipe: DatasetRecipe) -> None:
    failed, fixed = attempts()
    (made,) = repair.candidates(evidence_of([failed, fixed], [pair(failed, fixed)]), recipe)
    assert made.answer == MENDED

"""Repairs that answer the shown test instead of mending, and honest ones that look alike."""

from typing import Any

import pytest

from capibara_assets.datasets.agreement.special_cases import (
    BRANCHES,
    ELSEWHERE,
    HOLDS,
    OTHER_TEST,
    SHOWS,
    SILENT,
    UNDEFINED,
    Mended,
    unmended,
    why_fitted,
)
from capibara_assets.datasets.code.cases import cases
from capibara_assets.datasets.kinds import repair, solve
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.datasets.placing import UNKNOWN_GROUP, placed_of
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.domains import Domain
from capibara_assets.executions.schema import Execution
from capibara_assets_tests.datasets.conftest import evidence_of, pair, run

SAID = "Fix this code.\nGive the toll of a lorry with so many axles."
TOLL = "assert toll(12) == 37"
FAILING = "def toll(axles):\n    return axles * 3"
NODE = "function toll(axles) { return axles * 3; }"
FITTED = {
    "a branch": (FAILING, "def toll(axles):\n    if axles == 12:\n        return 37\n    return axles * 3", BRANCHES),
    "a choice": (FAILING, "def toll(axles):\n    return 37 if 12 == axles else axles * 3", BRANCHES),
    "a table": (FAILING, "def toll(axles):\n    return {12: 37}.get(axles, axles * 3)", BRANCHES),
    "a constant": (FAILING, "def toll(axles):\n    return 37", HOLDS),
    "a name for it": (FAILING, "def toll(axles):\n    result = 37\n    return result", HOLDS),
    "another condition": (
        FAILING,
        "def toll(axles):\n    if axles > 9:\n        return 37\n    return axles * 3",
        HOLDS,
    ),
    "silence": (FAILING, "def toll(axles):\n    try:\n        return axles * 3\n    except:\n        pass", SILENT),
    "outputs": (FAILING, "def toll(axles):\n    print(axles)\n    return axles * 3\ntoll(12)", SHOWS),
    "another test": (f"{FAILING}\n{TOLL}", f"{FAILING}\nassert toll(12) == 36", OTHER_TEST),
    "no test": (f"{FAILING}\n{TOLL}", f"{FAILING}\nprint(toll(12))", OTHER_TEST),
    "a branch in JavaScript": (NODE, "function toll(n) { if (n === 12) { return 37; } return n * 3; }", BRANCHES),
    "a case": (NODE, "function toll(n) { switch (n) { case 12: return 37; } return n * 3; }", BRANCHES),
    "a constant in JavaScript": (NODE, "const toll = (axles) => 37;", HOLDS),
    "silence in JavaScript": (NODE, "function toll(n) { try { return n * 3; } catch (e) { return null; } }", SILENT),
}
HONEST = {
    "another formula": (SAID, FAILING, "def toll(axles):\n    return axles * 3 + 1"),
    "a mistaken literal": (
        SAID,
        "def toll(axles):\n    return 37 if axles == 11 else axles * 3",
        "def toll(axles):\n    return 37 if axles == 12 else axles * 3",
    ),
    "another step of a choice": (
        SAID,
        "def toll(axles):\n    return 9 if axles < 4 else 14 if axles < 6 else axles * 3",
        "def toll(axles):\n    return 9 if axles < 4 else 14 if axles < 6 else 37 if axles > 11 else axles * 3",
    ),
    "an entry of a table": (
        SAID,
        "def toll(axles):\n    return {3: 9, 5: 14, 7: 21}[axles]",
        "def toll(axles):\n    return {3: 9, 5: 14, 7: 21, 12: 37}[axles]",
    ),
    "what the task tells": (
        f"{SAID} For 12 axles it is 37.",
        FAILING,
        "def toll(axles):\n    if axles == 12:\n        return 37\n    return axles * 3",
    ),
    "a bound": (SAID, FAILING, "def toll(axles):\n    return 0 if axles < 1 else axles * 3 + 1"),
    "a named error": (
        SAID,
        FAILING,
        "def toll(axles):\n    try:\n        return axles + 1\n    except TypeError:\n        raise ValueError(axles)",
    ),
    "errors the task speaks of": (
        f"{SAID} Ignore invalid ones.",
        FAILING,
        "def toll(axles):\n    try:\n        return axles * 3 + 1\n    except Exception:\n        return None",
    ),
    "an output in another place": (
        SAID,
        "def toll(axles):\n    return axles\n    print(axles)",
        "def toll(axles):\n    print(axles)\n    return axles",
    ),
}


def judged(said: str, failing: str, fixed: str) -> str | None:
    language = "javascript" if "function toll" in failing else "python"
    return why_fitted(Mended(failing, fixed, language, f"{said}\n{TOLL}", cases(TOLL)))


@pytest.mark.parametrize("kind", FITTED)
def test_an_edit_that_only_answers_the_shown_test_is_seen(kind: str) -> None:
    failing, fixed, why = FITTED[kind]
    assert judged(SAID, failing, fixed) == why


@pytest.mark.parametrize("kind", HONEST)
def test_an_edit_that_goes_on_with_the_program_is_a_mend(kind: str) -> None:
    assert judged(*HONEST[kind]) is None


def test_the_list_of_a_case_is_known_in_any_form() -> None:
    told = cases("assert last([[3, 'a'], [5, 'b']], 2) == [5, 'b']")
    body = "    if str(rows) == \"[[3, 'a'], [5, 'b']]\":\n        return [5, 'b']\n    return rows[0]"
    one = Mended("def last(rows, n):\n    return rows[0]", f"def last(rows, n):\n{body}", "python", "Fix it.", told)
    assert why_fitted(one) == BRANCHES


def asked(prompt: str, answer: str, derived: str | None = None) -> ExampleCandidate:
    failing = prompt.partition("Code:\n")[2].partition("\n\n")[0]
    return ExampleCandidate("repair", "python", prompt, answer, ("e",), "", 0.0, 1.0, failing=failing, derived=derived)


def test_an_error_tells_of_what_the_answer_mends() -> None:
    prompt = f"{SAID}\n\nCode:\n{FAILING}\n\nError:\nError: Failed Test Case: assert {{}}(12)==37 Please try again."
    mended = FAILING.replace("3", "3 + 1")
    assert unmended(asked(prompt.format("Toll"), mended)) == UNDEFINED
    assert unmended(asked(prompt.format("toll"), mended)) is None
    missing = (
        f"{SAID}\n\nSession so far:\nimport math\n\nCode:\n{FAILING}\n\nError:\nNameError: name '{{}}' is not defined"
    )
    assert unmended(asked(missing.format("math"), mended)) == ELSEWHERE
    assert unmended(asked(missing.format("cmath"), mended)) is None


def test_a_bug_that_was_injected_is_taken_back_whatever_the_edit() -> None:
    prompt = f"{SAID}\n\nCode:\n{FAILING}\n\nIt has to pass:\n{TOLL}"
    constant = "def toll(axles):\n    return 37"
    assert unmended(asked(prompt, constant)) == HOLDS and unmended(asked(prompt, constant, "bug:operator")) is None


def recorded(name: str, code: str, **values: Any) -> Execution:
    return run(name, code, task=f"Give the toll of a lorry with so many axles.\n{TOLL}", **values)


def test_what_only_answers_the_shown_test_is_left_out_of_a_dataset(recipe: DatasetRecipe) -> None:
    error = {"outcome": "error", "error_name": "AssertionError", "error_value": "", "traceback": ""}
    failed = recorded("failed", f"{FAILING}\n{TOLL}", **error)
    constant = recorded("constant", f"def toll(axles):\n    return 37\n{TOLL}", minute=1)
    other = recorded("other", "def toll(axles):\n    return axles * 3 + 2\nassert toll(1) == 5", minute=2)
    pairs = [pair(failed, constant), pair(failed, other)]
    made = list(repair.candidates(evidence_of([failed, constant, other], pairs), recipe))
    _, reasons, _ = placed_of(made, Domain.DEBUG, {}, recipe)
    assert reasons == {"constant": HOLDS, "other": UNKNOWN_GROUP}
    tests = {one.execution_ids[0]: one.test for one in made}
    assert tests["other"] == f"assert toll(1) == 5\n\n{TOLL}"  # which it does not pass
    solved = {one.execution_ids[0]: one.test for one in solve.candidates(evidence_of([other]), recipe)}
    assert solved["other"] == tests["other"]

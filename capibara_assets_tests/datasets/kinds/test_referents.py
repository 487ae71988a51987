"""Requests that refer back, and the earlier ones that are shown with them."""

import pytest

from capibara_assets.datasets.kinds import repair, solve
from capibara_assets.datasets.kinds.referents import REFERS_BACK, asks_to_mend, refers_back
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.executions.schema import Execution
from capibara_assets_tests.datasets.conftest import evidence_of, pair, run


@pytest.mark.parametrize(
    "text",
    [
        "now do it for the other one",
        "What about the oak?",
        "and the same for pears",
        "Yes, go ahead.",
        "ok",
        "run it",
        "Plot their heights over a year.",
        "Add the elm as well",
        "Sort these by height.",
        "Use the previous query, but count.",
        "Do the same for boats.",
        "Plant another one.",
        "then we water the seedlings",
        "Compute the weight for each of these",
        "Show what you found in a chart",
        "What does this mean?",
        "use numpy",
        "Try the larger pot instead.",
        "that still fails",
        "The tests fail",
        "Doesn't work for small pots",
        "I'm getting an IndexError exception",
        "It works for oaks but not for elms",
        "still the same",
        "Please fix the error",
    ],
)
def test_a_follow_up_refers_back(text: str) -> None:
    assert refers_back(text)


@pytest.mark.parametrize(
    "text",
    [
        "Write a function that reads a list and sorts it.",
        "Count the trees and show their heights.",
        "Which owner paid most for their boat?",
        "It should return the tallest tree.",
        "Check whether it is possible to split a rope into halves.",
        "Remove felled trees; then count the rest by species.",
        "Swap one pot for the other one.",
        "Name the trees above average height, and those that are below.",
        "Repeat the text three times with the same length.",
        "Sort these: oak, elm, ash",
        "What is Ada's age?",
        "Show the name of each tree as well as its height in metres, by forest.",
        "Reverse a string",
        "Return an error if a pot fails",
        "Which tests failed most often?",
        "Still lifes by painter: count them",
        "This program counts:\nprint(3)",
        "This fails for elms, fix it:\n\ndef heights(trees):\n    return trees[0]",
        "It doesn't work.\n```js\ncount(1)\n```",
    ],
)
def test_what_names_its_things_does_not(text: str) -> None:
    assert not refers_back(text)


@pytest.mark.parametrize("text", ["Elms are missing, fix it", "There is a bug: elms count twice", "The sum is wrong"])
def test_what_asks_to_mend(text: str) -> None:
    assert asks_to_mend(text)


@pytest.mark.parametrize("text", ["Fix the width of a text at 8", "Count the wrong answers", "Report each bug by date"])
def test_what_asks_for_something_new(text: str) -> None:
    assert not asks_to_mend(text)


HEIGHTS = "def heights(trees):\n    return sorted(t['height'] for t in trees if t['kind'] == 'oak')"


def asked(*tasks: str) -> list[Execution]:
    return [
        run(f"e{at}", HEIGHTS.replace("oak", f"oak{at}"), minute=at, task=task, domains=["python"])
        for at, task in enumerate(tasks)
    ]


def test_a_follow_up_is_shown_below_what_it_refers_to(recipe: DatasetRecipe) -> None:
    first = "List the heights of all oaks in order."
    cells = asked(first, "What about elms?", "and the same for ash trees")
    made = {one.execution_ids[0]: one for one in solve.candidates(evidence_of(cells), recipe)}
    assert "Asked" not in made["e0"].prompt
    told = f"Asked before: {first}\nAsked before: What about elms?\nAsked now: and the same for ash trees"
    assert told in made["e2"].prompt
    assert made["e2"].lacking is None


def test_a_follow_up_without_what_it_refers_to_is_left_out(recipe: DatasetRecipe) -> None:
    (made,) = solve.candidates(evidence_of(asked("What about elms?")), recipe)
    assert made.lacking == REFERS_BACK


def repaired(recipe: DatasetRecipe, *tasks: str) -> str:
    """The prompt of a repair whose session asked this; the last request was answered by what failed and its mend."""
    cells = asked(*tasks)
    error = {"outcome": "error", "error_name": "KeyError", "error_value": "'height'", "traceback": ""}
    code = cells[-1].code.replace("'height'", "'size'")
    failed = run("failed", code, minute=len(tasks) - 2, task=tasks[-1], domains=["python"], **error)
    (made,) = repair.candidates(evidence_of([*cells[:-1], failed, cells[-1]], [pair(failed, cells[-1])]), recipe)
    return made.prompt


FIRST = "List the heights of all oaks in order."


@pytest.mark.parametrize("report", ["that still fails", "now do the same for elms"])
def test_a_follow_up_is_also_told_whole_in_a_repair(recipe: DatasetRecipe, report: str) -> None:
    assert f"Asked before: {FIRST}\nAsked now: {report}" in repaired(recipe, FIRST, report)


def test_a_repair_shows_no_request_that_its_prompt_cannot_tell(recipe: DatasetRecipe) -> None:
    assert "elms" not in repaired(recipe, "now do the same for elms")
    assert "Make this sort them" in repaired(recipe, "Make this sort them")  # the code that it shows

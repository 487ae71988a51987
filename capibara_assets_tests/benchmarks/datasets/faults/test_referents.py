"""The detector of what a task leaves in its author's head: recall on planted faults, no alarm on sound tasks."""

import pytest

from benchmarks.datasets.faults.cases import Case
from benchmarks.datasets.faults.referents import dangling
from benchmarks.datasets.faults.sufficiency import insufficient_prompt

THINGS = (("lamps", "lamp"), ("letters", "letter"), ("boats", "boat"), ("songs", "song"))
POINTING = (
    "What about the {0}?",
    "And the {0}?",
    "Do it for the other one.",
    "Sort them by age.",
    "Plot their weight.",
    "Add the {1} too",
    "Fix the previous query.",
    "Use what you found.",
    "Yes, do that.",
    "Try the {1} again",
    "Paint these.",
    "then we paint the {0}",
)
WHOLE = (
    "Read the {0} and sort them by age.",
    "Find the oldest {1} and print its age.",
    "Sort these: 3, 1, 2",
    "Count {0} that are older than the other {0}.",
    "It should list all {0}.",
    "Is it possible to pair all {0}?",
    "How many {0} does each person have, and how old are they?",
    "Paint one {1}, then the other one.",
    "Repeat the name of the {1} again and again until the end of the line.",
    "Which {0} weigh the same as the first?",
)


def task(text: str, answer: str) -> Case:
    return Case("one", "python", "solve", f"Write Python code.\n{text}\n\nSession so far:\nimport shop", answer)


def answers(thing: str) -> tuple[Case, ...]:
    """Answers with a place or step of which the prompt says nothing."""
    code = f"{thing} = shop.load({{}})"
    return (
        task(f"Load the {thing}", code.format("'acme/small-set-2'")),
        task(f"Load the {thing}", code.format("'../stock/list.csv'")),
        task(f"Load the {thing}", code.format("'https://shop.example/list'")),
        task(f"Count the {thing}", f"number = len(shop.{thing})\n\n# Train a model\nmodel = shop.train(3)"),
    )


def test_planted_faults_are_found() -> None:
    planted = [task(text.format(*thing), "print(shop.all())") for text in POINTING for thing in THINGS]
    planted += [case for thing, _ in THINGS for case in answers(thing)]
    missed = [case for case in planted if insufficient_prompt(case) is None]
    assert len(planted) >= 60
    assert len(missed) <= 0.05 * len(planted), missed


def test_sound_tasks_raise_no_alarm() -> None:
    sound = [text.format(*thing) for text in WHOLE for thing in THINGS]
    assert [text for text in sound if dangling(text) is not None] == []


@pytest.mark.parametrize(
    "answer",
    ["print(shop.get('/lamps/1'))", "shop.send(kind='application/json-seq')", "print('n/a')", "shop.keep('acme/a-1')"],
)
def test_routes_and_what_the_prompt_names_are_no_places(answer: str) -> None:
    assert insufficient_prompt(task("Read lamps of acme/a-1 from the shop", answer)) is None


def test_steps_that_belong_to_the_task() -> None:
    code = "lamps = shop.lamps()\n\n# {}\nlamps.sort()"
    assert insufficient_prompt(task("Sort the lamps", code.format("load the lamps in order"))) is None
    assert insufficient_prompt(task("Sort the lamps", code.format("print all"))) is None
    assert insufficient_prompt(task("Sort the lamps", code.format("load a car"))) is not None


def test_a_follow_up_below_its_request_is_sound() -> None:
    assert dangling("Asked before: List all lamps by age.\nAsked now: What about the boats?") is None

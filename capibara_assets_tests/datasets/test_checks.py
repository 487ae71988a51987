"""The checks find what they are for, and stay silent on what is good."""

import json
from typing import Any

import pytest

from capibara_assets.datasets.checks import (
    balance_problems,
    example_problems,
    label_problems,
    leakage,
    message_fault,
    size_problems,
)
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.datasets.schema import Example
from capibara_assets.datasets.tokenising import Encoded, EncodedSet
from capibara_assets.domains import Domain
from capibara_assets.storage.records import table


def example(name: str, prompt: str, answer: str | None = None, **values: Any) -> Example:
    turns = [
        {"role": "user", "content": prompt},
        {"role": "assistant", "content": answer or f"answer({name!r})"},
    ]
    group = values.pop("group", f"g-{name}")
    defaults: dict[str, Any] = {
        "example_id": name,
        "domain": "python",
        "kind": "solve",
        "language": "python",
        "messages": json.dumps(turns),
        "group_id": group,
        "split": "train",
        "difficulty": 0.1,
        "quality": 0.8,
        "cluster_id": "c",
        "weight": 1.0,
        "balance": 1.0,
        "verified": "recorded",
        "not_replayed": None,
        "provenance": "experience",
        "execution_ids": [f"x-{name}"],
        "bullet_ids": [],
        "sandbox_ids": [f"s-{name}"],
        "licence": None,
        "source": None,
        "tenants": [],
        "source_places": [],
    }
    return Example(**{**defaults, **values})


def leaks(left: Example, right: Example) -> list[str]:
    return leakage({Domain.PYTHON: table(Example, [left]), Domain.DEBUG: table(Example, [right])})


CODE = "def total(xs):\n    result = 0\n    for x in xs:\n        result += x\n    return result"


@pytest.mark.parametrize(
    ("sort", "left", "right"),
    [
        ("group", {"group": "g"}, {"group": "g"}),
        ("sandbox", {"sandbox_ids": ["s"]}, {"sandbox_ids": ["t", "s"]}),
        ("execution", {"execution_ids": ["e"]}, {"execution_ids": ["f", "e"]}),
        ("text", {"prompt": "Add up", "answer": "x + 1"}, {"prompt": "add   UP", "answer": "x + 1"}),
        ("structure", {"answer": CODE}, {"answer": CODE.replace("xs", "ys").replace("result", "r")}),
    ],
)
def test_each_sort_of_leak_is_found(sort: str, left: dict[str, Any], right: dict[str, Any]) -> None:
    one = {"prompt": "first question", "answer": None, **left}
    two = {"prompt": "second question", "answer": None, **right}
    found = leaks(example("a", **one), example("b", **two, split="test"))
    assert any(f" {sort}(s)" in problem for problem in found)
    assert leaks(example("a", **one), example("b", **two)) == []  # in one split it is no leak


def test_good_examples_have_no_problems() -> None:
    frame = table(Example, [example("a", "one"), example("b", "two", split="test")])
    assert leakage({Domain.PYTHON: frame}) == []
    assert leakage({}) == []
    assert example_problems(Domain.PYTHON, frame) == []
    assert size_problems(frame) == [
        "0 validation example(s), at least 1 wanted: more executions, or a longer window, are needed"
    ]


def test_faulty_examples() -> None:
    frame = table(
        Example,
        [
            example("a", "one", domain="debug"),
            example("b", "two", domain="debug", kind="repair", execution_ids=[]),
            example("c", "x"),
        ],
    )
    found = "\n".join(example_problems(Domain.DEBUG, frame))
    assert "solve example" in found
    assert "no execution" in found
    assert "domain python" in found
    assert "is missing" in example_problems(Domain.DEBUG, frame.drop("weight"))[0]


@pytest.mark.parametrize(
    "messages",
    [
        "no json",
        "[]",
        '[{"role": "user", "content": "a"}]',
        '[{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]',
        '[{"role": "user", "content": "a"}, {"role": "assistant", "content": " "}]',
        '[{"role": "user", "content": "a", "name": "x"}, {"role": "assistant", "content": "b"}]',
    ],
)
def test_message_faults(messages: str) -> None:
    assert message_fault(messages) is not None


def test_a_system_turn_may_come_first() -> None:
    roles = ("system", "user", "assistant")
    assert message_fault(json.dumps([{"role": role, "content": "x"} for role in roles])) is None


def test_balance(recipe: DatasetRecipe) -> None:
    kinds = ["solve"] * 100 + ["predict"] * 200
    frame = table(Example, [example(f"e{i}", f"p{i}", kind=kind) for i, kind in enumerate(kinds)])
    assert balance_problems(Domain.PYTHON, frame, recipe) == ["predict: 200 of 300 examples, more than its cap 0.25"]


def test_label_audit() -> None:
    good, masked, wrong = Encoded([1, 2], [-100, 2], 1), Encoded([1], [-100], 0), Encoded([1, 2], [-100, 3], 1)
    found = label_problems(EncodedSet(["good", "masked", "wrong"], [good, masked, wrong], {}, {}))
    assert [problem.split(":")[0] for problem in found] == ["masked", "wrong"]

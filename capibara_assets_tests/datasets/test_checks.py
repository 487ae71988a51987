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
    route_problems,
    secret_problems,
    size_problems,
)
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.datasets.schema import Example, Route
from capibara_assets.datasets.tokens.tokenising import Encoded, EncodedSet
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


def test_one_problem_in_two_languages_is_found(recipe: DatasetRecipe) -> None:
    asked = "Fold a strip of paper at every marked millimetre and count the layers at its centre.\nfold{}([3, 41]) is 4"
    python = example("a", asked.format("_strip") + " in Python")
    javascript = example("b", asked.format("Strip") + " in JavaScript", language="javascript", split="test")
    other = example("c", "Unfold a strip of paper.", language="javascript", split="test")
    tables = {Domain.PYTHON: table(Example, [python]), Domain.JAVASCRIPT: table(Example, [javascript, other])}
    (found,) = leakage(tables, recipe.near_duplicates)
    assert "1 pair(s) of examples of one problem" in found and "a and b" in found
    tables[Domain.JAVASCRIPT] = table(Example, [other])
    assert leakage(tables, recipe.near_duplicates) == []


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
    assert balance_problems(Domain.PYTHON, frame, recipe) == ["predict: 200 of 300 examples, more than its cap 0.4"]


def test_label_audit() -> None:
    good, masked, wrong = Encoded([1, 2], [-100, 2], 1), Encoded([1], [-100], 0), Encoded([1, 2], [-100, 3], 1)
    found = label_problems(EncodedSet(["good", "masked", "wrong"], [good, masked, wrong], {}, {}))
    assert [problem.split(":")[0] for problem in found] == ["masked", "wrong"]


LONG = "def total(xs):\n    result = 0\n    for x in xs:\n        if x > 3: result += x * 2\n    return result\n"


@pytest.mark.parametrize(("other", "leaking"), [(LONG * 2 + "print(total([1]))", True), ("x = 1\n" * 9, False)])
def test_a_near_duplicate_in_another_split_is_a_leak(recipe: DatasetRecipe, other: str, leaking: bool) -> None:
    left = example("a", "Add up what is large.", LONG * 2)
    for kind in ("solve", "explain"):
        right = example("b", "Add up what is large.", other, split="test", kind=kind)
        tables = {Domain.PYTHON: table(Example, [left]), Domain.ML: table(Example, [right])}
        assert leakage(tables) == []  # not equal, neither in text nor in structure
        found = leakage(tables, recipe.near_duplicates)
        assert found == (["1 pair(s) of near-duplicates in two splits, such as a and b"] if leaking else [])
        same = {Domain.PYTHON: table(Example, [left, right.model_copy(update={"split": "train"})])}
        assert leakage(same, recipe.near_duplicates) == []


KEY = "sk-ant-api03-" + "".join(chr(97 + (i * 7) % 26) + str(i % 10) for i in range(46)) + "-QAAAAA"


@pytest.mark.parametrize(
    "values",
    [
        {"prompt": f'client = Anthropic(api_key="{KEY}")'},
        {"prompt": "p", "answer": f'client = Anthropic(api_key="{KEY}")'},
        {"prompt": "p", "proof": f"using {KEY} now"},
        {"prompt": "p", "diff": f'-key = "x"\n+key = "{KEY}"'},
    ],
)
def test_a_secret_in_any_text_of_an_example_is_named_by_its_kind(values: dict[str, Any]) -> None:
    clean = [
        example(f"e{i}", f"question {i}", "client = Anthropic(api_key='<ANTHROPIC_API_KEY:1>')") for i in range(40)
    ]
    (found,) = secret_problems(table(Example, [*clean, example("bad", **values)]))
    assert found.startswith("1 example(s) hold a ") and found.endswith("such as bad")
    assert KEY not in found
    assert secret_problems(table(Example, clean)) == []


def routed(name: str, domains: list[str], weights: list[float], split: str = "train") -> Route:
    return Route(
        route_id=name,
        prompt=name,
        domains=domains,
        weights=weights,
        split=split,
        group_id=name,
        hard_negative=False,
        negative_of=[],
    )


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        ([routed("b", ["sql"], [1.0])], None),
        ([routed("b", ["sql"], [1.5])], "python: its training prompts weigh 1, another domain's 1.5"),
        ([routed("b", ["sql"], [1.0], "test")], "sql: no prompt in the train split"),
        ([routed("b", ["sql"], [])], "weights are not one for each domain"),
        (
            [routed(f"b{i:03}", ["sql"], [1 / 101]) for i in range(101)],
            "python: 1 training prompts, another domain has 101: weights cannot even that out",
        ),
    ],
)
def test_routes_out_of_balance(recipe: DatasetRecipe, second: list[Route], problem: str | None) -> None:
    found = route_problems(table(Route, [routed("a", ["python"], [1.0]), *second]), recipe.routing)
    assert [text for text in found if problem and problem in text] == found[:1] and bool(found) == bool(problem)


def test_imported_examples_need_no_execution() -> None:
    imported = example("a", "one", provenance="imported", execution_ids=[], sandbox_ids=[], source_places=["f.jsonl:1"])
    assert example_problems(Domain.PYTHON, table(Example, [imported])) == []

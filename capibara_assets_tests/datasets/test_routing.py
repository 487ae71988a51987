"""Prompts for the router: labels, splits, hard negatives, balance."""

import polars as pl
import pytest

from capibara_assets.datasets.checks import route_problems
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.datasets.routing import balance, build_routing
from capibara_assets.datasets.schema import Example, Route
from capibara_assets.domains import Domain
from capibara_assets.storage.records import problems, table
from capibara_assets_tests.datasets.test_checks import example


def test_a_prompt_that_two_domains_answer_has_both_labels(recipe: DatasetRecipe) -> None:
    shared = example("a", "Fix this Python code. return 2 * m", kind="repair")
    routes = build_routing(
        {
            Domain.DEBUG: table(Example, [shared.model_copy(update={"domain": "debug"})]),
            Domain.PYTHON: table(Example, [shared, example("b", "Write a sorted list of squares")]),
        },
        recipe,
    )
    assert problems(Route, routes) == []
    assert sorted(routes["domains"].to_list()) == [["python"], ["python", "debug"]]
    assert balance(routes)["multi_label"] == 0.5
    assert route_problems(routes, recipe.routing) == []


def test_hard_negatives_are_alike_and_of_near_domains(recipe: DatasetRecipe) -> None:
    alike = "compute the mean of the values in the table by column and print"
    routes = build_routing(
        {
            Domain.PYTHON: table(Example, [example("a", alike), example("b", "reverse a string")]),
            Domain.ML: table(Example, [example("c", alike + " with pandas", group="g3")]),
        },
        recipe,
    )
    hard = dict(routes.select("prompt", "hard_negative").iter_rows())
    assert hard == {alike: True, alike + " with pandas": True, "reverse a string": False}


def test_hard_negatives_say_of_which_domain(recipe: DatasetRecipe) -> None:
    alike = "compute the mean of the values in the table by column and print"
    rows = {
        Domain.PYTHON: [example("a", alike), example("e", "fix the sum of the values in the list of numbers now")],
        Domain.ML: [example("c", alike + " with pandas", group="g3")],
        Domain.DEBUG: [example("d", "fix the sum of the values in the list of numbers", group="g4")],
    }
    routes = build_routing({domain: table(Example, examples) for domain, examples in rows.items()}, recipe)
    found = dict(routes.select("prompt", "negative_of").iter_rows())
    assert found[alike] == ["ml"] and found[alike + " with pandas"] == ["python"]
    assert found["fix the sum of the values in the list of numbers"] == ["python"]


def test_every_domain_weighs_the_same_in_every_split(recipe: DatasetRecipe) -> None:
    def rows(domain: str, count: int, split: str) -> list[Example]:
        return [
            example(f"{domain}{split}{i}", f"{domain} {split} question {i}", group=f"{domain}{split}{i}", split=split)
            for i in range(count)
        ]

    shared = example("both", "Fix this Python code. return 2 * m", group="shared")
    frames = {
        Domain.PYTHON: table(Example, [*rows("python", 40, "train"), *rows("python", 3, "test"), shared]),
        Domain.DEBUG: table(Example, [*rows("debug", 5, "train"), *rows("debug", 7, "test"), shared]),
        Domain.SQL: table(Example, rows("sql", 1, "train")),
    }
    routes = build_routing(frames, recipe)
    weights = routes.explode("domains", "weights").group_by("split", "domains").agg(pl.col("weights").sum())
    found = {(split, domain): round(weight, 9) for split, domain, weight in weights.iter_rows()}
    assert found == {
        ("train", "python"): round(47 / 3, 9),
        ("train", "debug"): round(47 / 3, 9),
        ("train", "sql"): round(47 / 3, 9),
        ("test", "python"): 5.0,
        ("test", "debug"): 5.0,
    }
    python, debug = routes.filter(pl.col("domains").list.len() == 2)["weights"][0]
    alone = routes.filter(pl.col("prompt") == "python train question 0")["weights"][0][0]
    assert python == pytest.approx(alone / 2) and debug > python  # shared, and rarer prompts weigh more
    assert route_problems(routes, recipe.routing) == []


def test_without_routing_there_are_no_routes(recipe: DatasetRecipe) -> None:
    off = recipe.model_copy(update={"include_routing": False})
    routes = build_routing({Domain.PYTHON: table(Example, [example("a", "one")])}, off)
    assert routes.is_empty() and problems(Route, routes) == []
    assert route_problems(routes, off.routing) == []
    assert balance(routes)["by_domain"] == {}


def test_a_prompt_of_two_splits_trains(recipe: DatasetRecipe) -> None:
    rows = [example("a", "Plot it", split="test", group="g1"), example("b", "plot  it.", split="train", group="g2")]
    routes = build_routing({Domain.ML: table(Example, rows)}, recipe)
    assert routes.select("split", "group_id").rows() == [("train", "g2")]


def test_the_limit_per_domain_and_the_order_of_rows(recipe: DatasetRecipe) -> None:
    few = recipe.model_copy(update={"routing": recipe.routing.model_copy(update={"per_domain": 10})})
    frame = table(Example, [example(f"e{i}", f"question number {i}", group=f"g{i}") for i in range(50)])
    routes = build_routing({Domain.PYTHON: frame}, few)
    assert routes.height == 10
    assert build_routing({Domain.PYTHON: frame.reverse()}, few).equals(routes)


def test_balance_of_equal_domains_is_one(recipe: DatasetRecipe) -> None:
    frames = {
        domain: table(Example, [example(f"{domain}{i}", f"{domain} {i}", group=f"{domain}{i}") for i in range(5)])
        for domain in (Domain.SQL, Domain.API)
    }
    assert balance(build_routing(frames, recipe))["evenness"] == 1.0
    assert balance(pl.DataFrame(schema={"domains": pl.List(pl.String), "hard_negative": pl.Boolean}))["by_domain"] == {}

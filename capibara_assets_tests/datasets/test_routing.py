"""Prompts for the router: labels, splits, hard negatives, balance."""

import polars as pl

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
    assert route_problems(routes) == []


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

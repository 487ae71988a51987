"""The recipes of strategies that ship: sound, found by name, and each of the strategy that it is named after."""

from pathlib import Path

import pytest

from capibara_assets.cli.graph.run import PROFILES
from capibara_assets.consensus.choose.integrated import strategy_weights
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError
from capibara_assets.resources import Recipes
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets.training.standalone.choices import RunOptions, chosen_recipe, recipe_file
from capibara_assets.training.strategy import ConvexityStrategy, HierarchicalStrategy, SeedsStrategy, SoupStrategy

FILES = sorted((resources_root() / "recipes" / "strategies").glob("*.yaml"))
SHORT = ("hierarchical", "convexity", "incremental_soup", "huggingface", "integrated")
OURS = (*SHORT, *(f"{name}-full" for name in SHORT))


def of(name: str) -> TrainingRecipe:
    return shipped_recipe(f"strategies/{name}", TrainingRecipe)


def test_they_are_there() -> None:
    assert set(OURS) <= {file.stem for file in FILES} <= set(PROFILES)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_is_sound_and_found_by_name(file: Path) -> None:
    recipe = of(file.stem)
    assert chosen_recipe(RunOptions(recipe=f"strategies/{file.stem}")) == recipe
    assert Recipes(profile=file.stem).load("training", TrainingRecipe) == recipe


@pytest.mark.parametrize("name", OURS)
def test_four_voters_tolerate_a_bad_one(name: str) -> None:
    recipe, text = of(name), (resources_root() / "recipes" / "strategies" / f"{name}.yaml").read_text()
    assert recipe.name == name
    assert f"--recipe strategies/{name} " in text
    assert f"--profile {name} " in text
    assert len(recipe.voters) == 4
    assert (recipe.tolerated, recipe.quorum) == (1, 3)
    assert sorted(voter.shard for voter in recipe.voters) == [0, 1, 2, 3]


def test_each_has_its_strategy() -> None:
    levels = []
    for voter in of("hierarchical").voters:
        assert isinstance(voter.strategy, HierarchicalStrategy)
        levels.append([(level.name, level.data, level.epochs) for level in voter.strategy.levels])
    assert levels == [[("general", "general", 3), ("specialized", "domain", 2), ("finetuning", "hard", 1)]] * 4
    for voter in of("convexity").voters:
        assert isinstance(voter.strategy, ConvexityStrategy)
        assert voter.strategy.use_proximal_gradient
    averages = set()
    for voter in of("incremental_soup").voters:
        assert isinstance(voter.strategy, SoupStrategy)
        averages.add(voter.strategy.average)
    assert averages == {"uniform", "weighted", "greedy"}
    for voter in of("huggingface").voters:
        assert isinstance(voter.strategy, SeedsStrategy)
        assert voter.strategy.k == 5


def test_the_integrated_recipe_trains_what_the_integrated_candidate_needs() -> None:
    declared = shipped_recipe("consensus", ConsensusRecipe).candidates.integrated.weights
    weights = strategy_weights({voter.name: voter.strategy.kind for voter in of("integrated").voters}, declared)
    assert weights == {"hierarchical-0": 0.2, "hierarchical-1": 0.2, "convexity": 0.3, "soup": 0.3}


def test_an_unknown_one_says_which_are_near() -> None:
    with pytest.raises(InputError, match="did you mean 'strategies/convexity'"):
        recipe_file("strategies/convex")
    with pytest.raises(InputError, match="does not exist"):
        recipe_file("elsewhere/convexity")

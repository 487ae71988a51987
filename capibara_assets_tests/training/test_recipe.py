"""Recipes: what ships is valid, and what is misspelt, doubled or impossible is refused with a hint."""

import pytest
import yaml

from capibara_assets.errors import InputError
from capibara_assets.locations import resources_root
from capibara_assets.training.recipe import load_recipe, parse_recipe


@pytest.mark.parametrize("profile", ["demo", "full"])
def test_shipped_recipes_tolerate_one_bad_voter(profile: str) -> None:
    recipe = load_recipe(profile)
    assert recipe.name == profile
    assert (len(recipe.voters), recipe.tolerated, recipe.quorum) == (4, 1, 3)
    assert len({voter.seed for voter in recipe.voters}) == len({voter.shard for voter in recipe.voters}) == 4


def changed(**values: object) -> str:
    recipe = yaml.safe_load((resources_root() / "recipes" / "training-demo.yaml").read_text())
    return yaml.safe_dump({key: value for key, value in (recipe | values).items() if value != "REMOVED"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (changed(learning_rat=0.1), "unknown key 'learning_rat': did you mean 'learning_rate'"),
        (changed(lora={"rnak": 4}), "lora.*unknown key 'rnak': did you mean 'rank'"),
        (changed(seed="REMOVED"), "seed: Field required"),
        (changed() + "seed: 7\n", "key 'seed' is given twice"),
        (changed(voters=[{"name": "a", "seed": 0, "shard": 3}]), "shard 3, but 1 voters make shards 0..0"),
        (changed(voters=[{"name": "a", "seed": i, "shard": 0} for i in (0, 1)]), "different names"),
        (changed(voters=[{"name": "../a", "seed": 0, "shard": 0}]), "voters.0.name"),
        (changed(learning_rate="fast"), "learning_rate: Input should be a valid number"),
        (changed(keep_checkpoints=1), "keep_checkpoints"),
        ("[1, 2]", "recipe"),
        ("a: [", "recipe.yaml"),
    ],
)
def test_bad_recipes_are_refused_with_a_hint(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_recipe(text, "recipe.yaml")


def test_a_number_in_scientific_notation_is_a_number() -> None:
    text = changed(learning_rate="2e-3").replace("'2e-3'", "2e-3")  # YAML 1.1 reads that as text
    assert parse_recipe(text, "recipe.yaml").learning_rate == 0.002


def test_an_unknown_profile_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="profiles are demo, full"):
        load_recipe("huge")

"""Recipes: what ships is valid, and what is misspelt, doubled or impossible is refused with a hint."""

from pathlib import Path

import pytest
import yaml

from capibara_assets.deployment.declarations import read_declared, shipped_recipe
from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError
from capibara_assets.resources import Recipes
from capibara_assets.training.recipe import TrainingRecipe

RECIPES = ("experience", "dataset", "training", "consensus", "evaluation", "decision", "planning", "router")


@pytest.mark.parametrize("profile", ["demo", "laptop", "full"])
def test_shipped_recipes_tolerate_one_bad_voter(profile: str) -> None:
    recipe = shipped_recipe(f"training-{profile}", TrainingRecipe)
    assert recipe.name == profile
    assert (len(recipe.voters), recipe.tolerated, recipe.quorum) == (4, 1, 3)
    assert len({voter.seed for voter in recipe.voters}) == len({voter.shard for voter in recipe.voters}) == 4


def test_the_laptop_profile_is_the_demo_with_voters_trained_and_judged_longer() -> None:
    """What a demo made is current for it up to the voters."""
    demo, laptop = Recipes(profile="demo"), Recipes(profile="laptop")
    same = {name: demo.digest(name) == laptop.digest(name) for name in RECIPES}
    assert same == {name: name not in ("training", "consensus") for name in RECIPES}
    ours, theirs = (each.load("training", TrainingRecipe) for each in (laptop, demo))
    assert ours.training.max_tokens is not None and theirs.training.max_tokens is not None
    assert ours.training.max_tokens > 10 * theirs.training.max_tokens
    of_lora = {"rank", "alpha"}
    assert ours.model.lora.model_dump(exclude=of_lora) == theirs.model.lora.model_dump(exclude=of_lora)


def changed(**values: object) -> str:
    recipe = yaml.safe_load((resources_root() / "recipes" / "training-demo.yaml").read_text())
    return yaml.safe_dump({key: value for key, value in (recipe | values).items() if value != "REMOVED"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            changed(training={"learning_rat": 0.1, "evaluate_every": 1}),
            "unknown key 'learning_rat': did you mean 'learning_rate'",
        ),
        (changed(model={"lora": {"rnak": 4}}), "lora.*unknown key 'rnak': did you mean 'rank'"),
        (changed(seed="REMOVED"), "seed: is missing"),
        (changed() + "seed: 7\n", "key 'seed' is given twice"),
        (changed(hardware={"backend": "data_parallel", "processes": 2}), "DataParallel is not offered.*backend: ddp"),
        (changed(hardware={"backend": "nn.DataParallel"}), "DataParallel is not offered.*backend: ddp"),
        (changed(hardware={"backend": "dp"}), "DataParallel is not offered.*backend: ddp"),
        (changed(hardware={"backend": "horovod"}), "hardware.backend"),
        (changed(hardware={"processes": 2}), "backend single with 2 processes: name ddp"),
        (changed(hardware={"backend": "ddp", "deepspeed": {}}), "set backend: zero2"),
        (changed(voters=[{"name": "a", "seed": 0, "shard": 3}]), "shard 3, but 1 voters make shards 0..0"),
        (changed(voters=[{"name": "a", "seed": i, "shard": 0} for i in (0, 1)]), "different names"),
        (changed(voters=[{"name": "../a", "seed": 0, "shard": 0}]), "voters.0.name"),
        (
            changed(training={"learning_rate": "fast", "evaluate_every": 1}),
            "learning_rate: should be a valid number",
        ),
        (changed(checkpoint={"every": 1, "keep": 1}), "checkpoint.keep"),
        ("[1, 2]", "recipe"),
        ("a: [", "recipe.yaml"),
    ],
)
def test_bad_recipes_are_refused_with_a_hint(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "recipe.yaml").write_text(text)
    with pytest.raises(InputError, match=message):
        read_declared(tmp_path / "recipe.yaml", TrainingRecipe)


def test_a_number_in_scientific_notation_is_a_number(tmp_path: Path) -> None:
    text = changed(training={"learning_rate": "2e-3", "evaluate_every": 1}).replace(
        "'2e-3'", "2e-3"
    )  # YAML 1.1 reads that as text
    (tmp_path / "recipe.yaml").write_text(text)
    assert read_declared(tmp_path / "recipe.yaml", TrainingRecipe).training.learning_rate == 0.002

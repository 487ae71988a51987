"""The recipes for `capibara train` that ship: known answers of each, and the table of automatic epochs."""

import re

import pytest

from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.deployment.locations import resources_root
from capibara_assets.planning.hardware.targets import load_targets
from capibara_assets.planning.models import read_shape
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets.training.step.settings import auto_epochs, resolve, total_steps

NAMES = ("nano_cpu", "20b_qlora", "120b", "mistral7b_8xh100", "mistral7b_cpu")
LINEAR = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def recipe_of(name: str) -> TrainingRecipe:
    return shipped_recipe(name, TrainingRecipe)


@pytest.mark.parametrize("name", NAMES)
def test_each_is_sound_has_one_voter_and_says_how_it_is_run(name: str) -> None:
    recipe, text = recipe_of(name), (resources_root() / "recipes" / f"{name}.yaml").read_text()
    assert recipe.name == name and recipe.seed == 42 and len(recipe.voters) == 1
    head = text[: text.index("\nname:")]
    assert f"capibara train --recipe {name} " in head and "# Hardware: " in head
    for target in re.findall(r"--target (\S+)", head):
        assert target in load_targets()
    modules = read_shape("mistral-7b").lora_targets
    settings = resolve(recipe, {"modules": modules, "use_rslora": False}, fastest="fp32")
    assert settings.rank and settings.global_batch and settings.learning_rate


def test_mistral_on_eight_gpus() -> None:
    recipe = recipe_of("mistral7b_8xh100")
    model, training, hardware = recipe.model, recipe.training, recipe.hardware
    assert (model.lora.rank, model.lora.alpha, model.lora.dropout) == (64, 128, 0.05)
    assert set(model.lora.modules or ()) == LINEAR and model.attention == "auto"
    assert (hardware.backend, hardware.processes, hardware.tf32) == ("zero2", 8, True)
    assert (training.micro_batch, training.accumulation, training.global_batch) == (8, 2, 128)
    assert training.global_batch == 8 * 8 * 2
    assert (training.learning_rate, recipe.data.max_length, training.epochs) == (1e-4, 2048, "auto")
    assert read_shape("mistral-7b").lora_parameters(64, tuple(model.lora.modules or ())) == 167_772_160


def test_mistral_on_a_cpu() -> None:
    recipe = recipe_of("mistral7b_cpu")
    model, training, hardware = recipe.model, recipe.training, recipe.hardware
    assert (model.lora.rank, model.lora.alpha, model.lora.dropout) == (8, 32, 0.1)
    assert (training.micro_batch, training.accumulation, training.global_batch) == (1, 8, 8)
    assert (training.epochs, training.learning_rate, recipe.seed) == (3, 2e-4, 42)
    assert (hardware.precision, hardware.backend, model.quantization) == ("bf16", "single", "bf16")
    assert read_shape("mistral-7b").lora_parameters(8, tuple(model.lora.modules or ())) == 3_407_872


def test_twenty_and_a_hundred_and_twenty_billion() -> None:
    small, large = recipe_of("20b_qlora"), recipe_of("120b")
    assert small.model.quantization == large.model.quantization == "nf4"
    axion, gpus = load_targets()["axion-c4a-32"], load_targets()["h100-2"]
    assert small.hardware.threads == axion.cores == 32 and small.hardware.backend == "single"
    assert (large.hardware.backend, large.hardware.processes) == ("zero2", gpus.chips) == ("zero2", 2)


def test_nano_runs_on_the_base_that_ships() -> None:
    recipe = recipe_of("nano_cpu")
    assert recipe.model.base is not None
    assert (resources_root() / "base_models" / recipe.model.base / "config.json").is_file()
    assert recipe.hardware.precision == "auto" and set(recipe.model.lora.modules or ()) == LINEAR


@pytest.mark.parametrize(
    ("examples", "epochs"),
    [
        (1, 5),
        (999, 5),
        (1_000, 4),
        (9_999, 4),
        (10_000, 3),
        (49_999, 3),
        (50_000, 2),
        (99_999, 2),
        (100_000, 1),
        (10**7, 1),
    ],
)
def test_the_table_of_epochs_is_half_open(examples: int, epochs: int) -> None:
    assert auto_epochs(examples) == epochs


def test_an_explicit_number_of_epochs_wins() -> None:
    recipe = recipe_of("mistral7b_8xh100")
    plan = {"modules": ("q_proj",), "use_rslora": False, "epochs": 7}
    lengths = [10] * 1_280
    assert total_steps(lengths, resolve(recipe, plan, fastest="fp32"), recipe) == 4 * 10  # auto, though a plan says 7
    own = recipe.model_copy(update={"training": recipe.training.model_copy(update={"epochs": 2.0})})
    assert total_steps(lengths, resolve(own, plan, fastest="fp32"), own) == 2 * 10

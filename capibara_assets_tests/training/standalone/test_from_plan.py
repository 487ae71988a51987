"""What a LoRA plan writes: the trainer's recipe, and configurations that DeepSpeed and accelerate read themselves."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from capibara_assets.deployment.declarations import read_declared, shipped_recipe
from capibara_assets.errors import InputError
from capibara_assets.planning.hardware.targets import find_target
from capibara_assets.planning.lora.recipe import LoraPlan, plan_lora
from capibara_assets.planning.models import read_shape
from capibara_assets.planning.recipe import PlanningRecipe
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets.training.standalone.from_plan import ACCELERATE, DEEPSPEED, RECIPE, plan_files
from capibara_assets.training.standalone.scripts import LAUNCH
from capibara_assets.training.step.settings import resolve
from capibara_assets_tests.planning.shapes import DENSE_120B, NANO, statistics

PLANNING = shipped_recipe("planning", PlanningRecipe)
TARGETS = ("cpu-laptop", "axion-c4a-32", "h100-2", "h100-8", "h200-1", "a100-16")


def plan_for(target: str, domain: str = "debug", train: int = 5000) -> LoraPlan:
    base = NANO if target == "cpu-laptop" else read_shape("mistral-7b")
    return plan_lora(domain, statistics(train=train), base, find_target(target), PLANNING)


@pytest.mark.parametrize("target", TARGETS)
def test_the_recipe_trains_with_what_was_planned(target: str, tmp_path: Path) -> None:
    plan = plan_for(target)
    file = tmp_path / RECIPE
    file.write_text(plan_files(plan, find_target(target))[RECIPE])
    recipe = read_declared(file, TrainingRecipe)
    settings = resolve(recipe, {}, fastest="bf16", cuda=find_target(target).kind == "gpu")
    for name in ("rank", "alpha", "dropout", "use_rslora", "global_batch", "max_length", "learning_rate", "epochs"):
        assert getattr(settings, name) == getattr(plan, name), name
    assert settings.modules == tuple(sorted(plan.modules))
    assert settings.gradient_checkpointing == plan.gradient_checkpointing
    assert recipe.training.micro_batch == plan.micro_batch
    assert recipe.data.packing == plan.packing
    assert (recipe.model.quantization == "nf4") == (plan.quantization == "nf4")


@pytest.mark.parametrize("target", ["h100-2", "h100-8", "a100-16"])
def test_deepspeeds_own_parser_accepts_its_configuration(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deepspeed.runtime.config import DeepSpeedConfig

    plan, hardware = plan_for(target), find_target(target)
    file = tmp_path / DEEPSPEED
    file.write_text(plan_files(plan, hardware)[DEEPSPEED])
    # It multiplies batches by the processes that it runs in: here one.
    document = json.loads(file.read_text())
    assert document["train_batch_size"] == plan.global_batch
    shrunk = document | {"train_batch_size": plan.global_batch // hardware.chips}
    read = DeepSpeedConfig(shrunk)
    assert read.zero_optimization_stage == plan.zero_stage == 2
    assert read.train_micro_batch_size_per_gpu == plan.micro_batch
    assert read.gradient_accumulation_steps == plan.accumulation
    assert read.optimizer_params["lr"] == plan.learning_rate
    assert read.bfloat16_config.enabled


@pytest.mark.parametrize("target", TARGETS)
def test_accelerates_own_parser_accepts_its_configuration(target: str, tmp_path: Path) -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    plan, hardware = plan_for(target), find_target(target)
    for name, text in plan_files(plan, hardware).items():
        (tmp_path / name).write_text(text)
    read = load_config_from_file(str(tmp_path / ACCELERATE))
    assert read.num_processes == (hardware.chips if hardware.kind == "gpu" else 1)
    assert read.num_machines == hardware.hosts
    kind = str(read.distributed_type).rpartition(".")[2]
    assert kind == ("DEEPSPEED" if plan.zero_stage else "NO")
    if plan.zero_stage:
        assert (tmp_path / read.deepspeed_config["deepspeed_config_file"]).is_file()


@pytest.mark.parametrize("target", TARGETS)
def test_bash_accepts_the_script_and_it_says_how_it_is_used(target: str, tmp_path: Path) -> None:
    for name, text in plan_files(plan_for(target), find_target(target)).items():
        (tmp_path / name).write_text(text)
        assert str(Path.home()) not in text
    script = tmp_path / LAUNCH
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
    done = subprocess.run(["bash", script], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "MODEL DATA OUTPUT" in done.stderr


def test_several_hosts_are_sent_to_the_scripts_that_join_them(tmp_path: Path) -> None:
    for name, text in plan_files(plan_for("a100-16"), find_target("a100-16")).items():
        (tmp_path / name).write_text(text)
    done = subprocess.run(["bash", tmp_path / LAUNCH, "m", "d", "o"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "a100-16 is 2 hosts" in done.stderr


def test_four_bits_stay_four_bits() -> None:
    plan = plan_lora("sql", statistics(), DENSE_120B, find_target("h100-2"), PLANNING)
    values = yaml.safe_load(plan_files(plan, find_target("h100-2"))[RECIPE])
    assert values["model"]["quantization"] == "nf4"


def test_the_same_plan_writes_the_same_bytes() -> None:
    plan, hardware = plan_for("h100-8"), find_target("h100-8")
    assert plan_files(plan, hardware) == plan_files(plan, hardware)
    assert yaml.safe_load(plan_files(plan, hardware)[RECIPE])["seed"] == 42


def test_a_plan_is_for_its_target_only() -> None:
    with pytest.raises(InputError, match="the plan is for h100-8, not for h100-2"):
        plan_files(plan_for("h100-8"), find_target("h100-2"))

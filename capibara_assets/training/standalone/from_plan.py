"""Writes a LoRA plan as files to train with: recipe, DeepSpeed and accelerate configurations, launch script; no torch.

They hold no path and no secret, and are the same wherever they are written: model, data and output are arguments.
"""

import json
from collections.abc import Mapping
from typing import Any

import yaml

from capibara_assets.deployment.declarations import declared
from capibara_assets.errors import InputError
from capibara_assets.planning.hardware.targets import HardwareTarget
from capibara_assets.planning.lora.recipe import LoraPlan
from capibara_assets.training.decided import planned_backend, planned_quantization
from capibara_assets.training.parallel.deepspeed_config import recipe_config
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets.training.standalone.scripts import ENVIRONMENT, LAUNCH, environment_script
from capibara_assets.training.step.settings import resolve

RECIPE, DEEPSPEED, ACCELERATE, NOTE = "recipe.yaml", "deepspeed.json", "accelerate.yaml", "README.txt"
_THREADS = 8  # of each process that feeds a GPU


def plan_files(plan: LoraPlan, target: HardwareTarget, *, stated: Mapping[str, Any] | None = None) -> dict[str, str]:
    """File name -> text of the files to train with; `bash launch.sh MODEL DATA OUTPUT` starts the training.

    deepspeed.json is among them if the plan has a ZeRO stage. accelerate.yaml is for starting processes with
    `accelerate launch`; the own launcher does not need it.

    Args:
        plan: of a domain, or of a preset.
        target: the plan's.
        stated: values of the training recipe that the plan is of (a preset's), written as they are; None: made of the
            plan.

    Raises:
        InputError: the plan is for another target.
    """
    if target.kind == "tpu":
        return {NOTE: f"{target.name} is a TPU slice: the files that train this plan there are tpu_config's.\n"}
    values = _recipe_values(plan, target) if stated is None else dict(stated)
    recipe = declared(TrainingRecipe, values, f"plan of {plan.domain} for {plan.target}")
    head = f"# LoRA of {plan.model} on {target.name} for the domain {plan.domain}, written from its plan.\n"
    files = {
        RECIPE: head + yaml.safe_dump(values, sort_keys=False, width=120),
        ENVIRONMENT: environment_script(recipe, target),
        LAUNCH: _launch(plan, recipe, target),
        ACCELERATE: head + yaml.safe_dump(_accelerate(recipe, target), sort_keys=True, width=120),
    }
    if recipe.hardware.backend == "zero2":
        settings = resolve(recipe, plan.model_dump(), fastest="bf16", cuda=target.kind == "gpu")
        files[DEEPSPEED] = json.dumps(recipe_config(recipe, settings, recipe.hardware.processes), indent=2) + "\n"
    return files


def _recipe_values(plan: LoraPlan, target: HardwareTarget) -> dict[str, Any]:
    if plan.target != target.name:
        raise InputError(f"the plan is for {plan.target}, not for {target.name}: make one for it")
    return {
        "name": f"{plan.domain}-{target.name}",
        "seed": 42,
        "voters": [{"name": "voter", "seed": 0, "shard": 0}],
        "model": {
            "quantization": planned_quantization(plan),
            "lora": {
                "rank": plan.rank,
                "alpha": plan.alpha,
                "dropout": plan.dropout,
                "modules": list(plan.modules),
                "use_rslora": plan.use_rslora,
            },
            "attention": "auto",
        },
        "data": {"max_length": plan.max_length, "packing": plan.packing},
        "training": {
            "epochs": plan.epochs,
            "global_batch": plan.global_batch,
            "micro_batch": plan.micro_batch,
            "accumulation": plan.accumulation,
            "learning_rate": plan.learning_rate,
            "evaluate_every": 50,
        },
        "hardware": {
            "backend": planned_backend(plan),
            "processes": plan.devices,
            "precision": plan.precision,
            "gradient_checkpointing": int(plan.gradient_checkpointing),
            "threads": target.cores or _THREADS,
        },
        "checkpoint": {"every": 25},
    }


def hosts_of(recipe: TrainingRecipe, target: HardwareTarget) -> int:
    """Hosts of a target on which a voter's processes run."""
    return -(-recipe.hardware.processes * target.hosts // target.chips)


def _accelerate(recipe: TrainingRecipe, target: HardwareTarget) -> Mapping[str, Any]:
    """The configuration file that `accelerate config` would write."""
    gpu, processes = target.kind == "gpu", recipe.hardware.processes
    zero = recipe.hardware.backend == "zero2"
    several = "MULTI_GPU" if gpu else "MULTI_CPU"
    values: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "debug": False,
        "distributed_type": "DEEPSPEED" if zero else several if processes > 1 else "NO",
        "downcast_bf16": "no",
        "enable_cpu_affinity": False,
        "machine_rank": 0,
        "main_training_function": "main",
        "num_machines": hosts_of(recipe, target),
        "num_processes": processes,
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": not gpu,
    }
    if zero:  # DeepSpeed's file has precision and batches; accelerate refuses to have them twice
        return values | {"deepspeed_config": {"deepspeed_config_file": DEEPSPEED, "zero3_init_flag": False}}
    return values | {"mixed_precision": "bf16" if recipe.hardware.precision == "bf16" else "no"}


def _launch(plan: LoraPlan, recipe: TrainingRecipe, target: HardwareTarget) -> str:
    several = (
        f"""
echo "{target.name} is {target.hosts} hosts: the scripts in trained_adapters' materialization join them" >&2
exit 2
"""
        if hosts_of(recipe, target) > 1
        else f"""
# The supervisor starts the processes itself, takes the signals, and starts again what was killed.
exec "$python" -m capibara_assets.cli train --recipe "$here/{RECIPE}" --model "$1" --data "$2" --output "$3"
"""
    )
    batch = (
        f"{plan.micro_batch} x {plan.accumulation} x {recipe.hardware.processes} = {plan.global_batch} examples a step"
    )
    return f"""\
#!/usr/bin/env bash
# Trains one LoRA adapter of {plan.model} for {plan.domain} on {target.name}: {batch}.
#
#   bash {LAUNCH} MODEL DATA OUTPUT
#
# Interrupted or killed, the same command goes on from the last resume point.
set -euo pipefail

if (($# != 3)); then
  echo "usage: bash $0 MODEL DATA OUTPUT" >&2
  exit 2
fi
here="$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)"
python="${{PYTHON:-python}}"

# shellcheck source=/dev/null
source "$here/{ENVIRONMENT}"
{several}"""

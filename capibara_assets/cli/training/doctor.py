"""`capibara doctor`: check machine, base model, data and recipe before a training; a line and a remedy per check."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
import polars as pl

from capibara_assets.deployment.declarations import read_declared, shipped_recipe
from capibara_assets.deployment.environment import Deployment
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError

if TYPE_CHECKING:
    from capibara_assets.planning.hardware.targets import HardwareTarget
    from capibara_assets.training.plan.preflight import CheckFinding
    from capibara_assets.training.plan.schema import TrainingPlan
    from capibara_assets.training.recipe import TrainingRecipe
    from capibara_assets.training.request import TrainingRequest

_PATH = click.Path(path_type=Path)


@click.command()
@click.option(
    "--request", "request_file", type=_PATH, help="Training request (request.json), instead of recipe, model and data."
)
@click.option("--recipe", metavar="NAME|FILE", help="Training recipe: the name of a shipped one, or a YAML file.")
@click.option("--model", "--base-model", "model", type=_PATH, help="Base model's folder; default: CAPIBARA_BASE_MODEL.")
@click.option(
    "--data", type=_PATH, help="Table of examples (examples.parquet); without it only the machine is checked."
)
@click.option("--output", type=_PATH, help="Output folder of the training; default: CAPIBARA_HOME.")
@click.option("--target", help="Hardware target to plan for; default: this machine.")
@click.option("--port", default=8080, show_default=True, help="Port of the dashboard.")
@click.option("--probe", is_flag=True, help="Measure some optimizer steps here to predict the time.")
@click.option("--quick", is_flag=True, help="Only the checks of every training start: base, data, disk, memory.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor(
    request_file: Path | None,
    recipe: str | None,
    model: Path | None,
    data: Path | None,
    output: Path | None,
    target: str | None,
    port: int,
    probe: bool,
    quick: bool,
    as_json: bool,
) -> None:
    """Check machine, base model, data and recipe before a training. Exit code 1 if a check fails, else 0."""
    from capibara_assets.planning.hardware.targets import find_target
    from capibara_assets.training.plan.text import plan_lines
    from capibara_assets.training.request import read_request

    deployment = Deployment.from_environment()
    hardware = find_target(target) if target else None
    place = output or deployment.home
    request = None
    if request_file:
        request = read_request(request_file)
    elif data:
        request = request_for(recipe or "training-demo", model or Path(deployment.base_model), data, place, hardware)
    findings, plan = diagnose(request, hardware, place=place, port=port, probe=probe, quick=quick)
    failed = [finding for finding in findings if finding.status == "fail"]
    if as_json:
        document = {
            "ready": not failed,
            "checks": [finding.document() for finding in findings],
            "plan": plan.document() if plan else None,
        }
        click.echo(json.dumps(document, indent=2))
    else:
        for finding in findings:
            click.echo(finding.line)
        for line in plan_lines(plan) if plan else ():
            click.echo(line)
        counted = {status: sum(one.status == status for one in findings) for status in ("pass", "warn", "fail")}
        click.echo(", ".join(f"{count} {status}" for status, count in counted.items()))
    if failed:
        sys.exit(1)


def diagnose(
    request: "TrainingRequest | None",
    target: "HardwareTarget | None",
    *,
    place: Path,
    port: int,
    probe: bool = False,
    quick: bool = False,
) -> "tuple[list[CheckFinding], TrainingPlan | None]":
    """Run all checks of a training request, or without one those of the machine. A failing check stops no other.

    Args:
        place: output folder to check when there is no request.
        port: port of the dashboard.
        probe: time some optimizer steps.
        quick: only base, data, disk and memory.
    """
    from capibara_assets.training.plan import machine
    from capibara_assets.training.plan.packages import needed_packages
    from capibara_assets.training.plan.plan import settings_of
    from capibara_assets.training.plan.preflight import CheckFinding, existing_part, guarded, quick_findings
    from capibara_assets.training.plan.probe import measure_speed

    findings: list[CheckFinding] = []
    plan = None
    if request is not None:
        speed = None
        base_findings, plan = quick_findings(request, target)
        findings += base_findings
        if plan is not None and probe:
            try:
                speed = measure_speed(request)
                _, plan = quick_findings(request, target, speed=speed)
                findings.append(
                    CheckFinding("probe", "pass", f"{speed.tokens_per_s:,.0f} tokens/s over {speed.steps} steps")
                )
            except InputError as error:
                findings.append(CheckFinding("probe", "fail", str(error), "the run would fail in the same way"))
    if quick:
        return findings, plan
    settings = settings_of(request, target) if request is not None and plan is not None else None
    recipe = request.recipe if request is not None else None
    processes = recipe.hardware.processes if recipe else 1
    places = [request.work, request.out.parent] if request is not None else [place]
    if request is not None and request.checkpoints and "://" not in request.checkpoints:
        places.append(Path(request.checkpoints))
    folders = dict.fromkeys(map(existing_part, places))
    checks: list[tuple[str, Callable[[], CheckFinding | list[CheckFinding]]]] = [
        ("versions", lambda: machine.check_versions(needed_packages(recipe, settings))),
        *(("write", lambda folder=folder: machine.check_write(folder)) for folder in folders),
        ("ports", lambda: machine.check_ports(processes, dashboard=port)),
        ("limits", lambda: machine.check_limits(processes)),
        ("limits", lambda: machine.check_locked_memory() if processes > 1 else []),
        ("bf16", lambda: machine.check_bf16(recipe.hardware.precision if recipe else "auto")),
    ]
    if request is not None and plan is not None and settings is not None:
        known, chosen, planned = request, settings, plan
        checks += [
            ("digest", lambda: machine.check_digest(known)),
            ("tokens", lambda: machine.check_dataset(known, chosen)),
            ("grace", lambda: machine.check_grace(known.work, planned)),
        ]
        if target is None:
            checks.append(("gpu", lambda: machine.check_devices(planned)))
    for name, check in checks:
        findings += guarded(name, check)
    return findings, plan


def request_for(
    recipe: str, model: Path, data: Path, output: Path, target: "HardwareTarget | None"
) -> "TrainingRequest":
    """The training request that these choices lead to.

    Raises:
        InputError: a recipe, base or dataset that cannot be read, or a base that does not fit the target.
    """
    from capibara_assets.modeling.files import base_digest, validate_base
    from capibara_assets.storage.digests import sha256_file
    from capibara_assets.training.recipe import TrainingRecipe
    from capibara_assets.training.request import TrainingRequest

    file = Path(recipe)
    choice = read_declared(file, TrainingRecipe) if file.suffix else shipped_recipe(recipe, TrainingRecipe)
    validate_base(model)
    if not data.is_file():
        raise InputError(f"no dataset {data}: give a table of examples (examples.parquet)")
    return TrainingRequest(
        domain=Domain("python"),  # does not affect any check
        base_model=model,
        base_digest=base_digest(model),
        dataset=data,
        dataset_digest=sha256_file(data),
        lora=_lora_plan(choice, model, data, target),
        recipe=choice,
        seed=choice.seed,
        work=output / "work",
        out=output / "out",
    )


def _lora_plan(recipe: "TrainingRecipe", model: Path, data: Path, target: "HardwareTarget | None") -> dict[str, object]:
    """The domain's LoRA plan, which supplies the values the recipe leaves open; empty if it leaves none."""
    from capibara_assets.planning.hardware.targets import find_target
    from capibara_assets.planning.lora.recipe import plan_lora
    from capibara_assets.planning.models import read_shape
    from capibara_assets.planning.recipe import PlanningRecipe

    lora, training = recipe.model.lora, recipe.training
    values = (lora.rank, lora.alpha, lora.dropout, lora.modules, lora.use_rslora, recipe.data.max_length)
    if None not in (*values, training.epochs, training.global_batch, training.learning_rate):
        return {}
    try:
        table = pl.read_parquet(data, columns=["split", "messages"])
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"dataset {data} is not a table of examples: {error}") from error
    statistics = {
        "examples": len(table),
        "by_split": dict(table["split"].value_counts().iter_rows()),
        "chars": {"p95": table["messages"].str.len_chars().quantile(0.95)},
    }
    planning = shipped_recipe("planning", PlanningRecipe)
    where = target or find_target(Deployment.from_environment().target)
    return plan_lora("these", statistics, read_shape(model), where, planning).model_dump(mode="json")

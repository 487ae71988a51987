"""`capibara plan`: plan a training on a hardware target: settings, memory, time and cost."""

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from capibara_assets.cli.terminal.documents import AS_JSON
from capibara_assets.cli.terminal.help import with_example
from capibara_assets.cli.terminal.numbers import MOST
from capibara_assets.cli.terminal.progress import shows_progress
from capibara_assets.cli.training.plan_options import given_options, require_used
from capibara_assets.domains import DOMAINS
from capibara_assets.errors import InputError
from capibara_assets.storage.jsonfiles import read_object

if TYPE_CHECKING:
    from capibara_assets.planning.cost import CostPlan
    from capibara_assets.planning.hardware.targets import HardwareTarget
    from capibara_assets.planning.models import ModelShape
    from capibara_assets.planning.recipe import PlanningRecipe
    from capibara_assets.planning.writers.launch import CloudPlace

CLAIMS_HEAD = (
    "# The specification's figures about plans, beside ours\n\n"
    "Written by `capibara plan --claims --measure --out docs`. Measured figures are from the machine that ran it."
    "\n\n"
)
VOTERS = 4  # as in the shipped recipes; --voters overrides it
EXAMPLES = 10_000  # assumed if no number is given: memory does not depend on it, time and cost are proportional


class PlanRequest(NamedTuple):
    """The inputs of a plan, read and validated."""

    domain: str
    shape: "ModelShape"
    target: "HardwareTarget"
    recipe: "PlanningRecipe"
    statistics: dict[str, Any]
    throughput: str | None
    ask_flags: bool


@with_example("capibara plan --model llama2-7b --hardware h100-8 --examples 2000")
@click.command("plan")
@click.option("--model", metavar="PRESET|FOLDER|FILE", help="A preset or shipped base model, or a config.json.")
@click.option(
    "--hardware", metavar="NAME", help="Hardware target: cpu-laptop, h100-8, tpu-v5e-64, any slice tpu-v5p-N, …"
)
@click.option(
    "--dataset-statistics",
    type=click.Path(path_type=Path),
    help="Dataset statistics (JSON) as published by moe_dataset.",
)
@click.option(
    "--examples",
    type=click.IntRange(1, MOST),
    help=f"Number of training examples; default without statistics: {EXAMPLES}.",
)
@click.option("--sequence", type=click.IntRange(16, MOST), help="Tokens per sequence; default: from the statistics.")
@click.option(
    "--target-throughput",
    "throughput",
    metavar="RATE",
    help="Take the leanest setting that reaches a rate: 200TFLOPs/chip, 12PFLOP/s/slice, 24800 tokens/s.",
)
@click.option(
    "--level",
    type=click.Choice(["conservative", "balanced", "aggressive"]),
    help="How much of the memory a plan may use.",
)
@click.option("--preset", metavar="NAME", help="Plan a shipped training recipe: 20b_qlora, 120b, …")
@click.option(
    "--domain",
    type=click.Choice([domain.value for domain in DOMAINS]),
    default="python",
    show_default=True,
    help="Domain of the adapter.",
)
@click.option(
    "--quantization",
    type=click.Choice(["none", "bf16", "int8", "nf4"]),
    help="Quantization of a preset's base model, instead of its own.",
)
@click.option(
    "--voters",
    type=click.IntRange(1, MOST),
    help=f"Adapters trained per domain.  [default: {VOTERS}; with --preset the recipe's]",
)
@click.option(
    "--recipe", type=click.Path(path_type=Path), metavar="FILE", help="Planning recipe, instead of the shipped one."
)
@click.option(
    "--xla-flag",
    "xla_flags",
    multiple=True,
    metavar="--NAME=VALUE",
    help="Additional XLA flag, checked against libtpu; repeatable.",
)
@click.option("--compile", "compiling", is_flag=True, help="Compile the step for the slice with XLA (minutes).")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Folder to write the plan and its files to."
)
@click.option("--submit", "submitting", is_flag=True, help="Run a TPU plan on its slice; its adapter comes to --out.")
@click.option(
    "--adopt", "adopting", is_flag=True, help="With --submit: its adapter becomes the domain's trained_adapters."
)
@click.option("--claims", is_flag=True, help="Only print the specification's figures beside the computed ones.")
@click.option("--measure", "measuring", is_flag=True, help="With --claims: add measurements on this machine (seconds).")
@AS_JSON
@click.pass_context
@shows_progress("planning")
def plan(
    context: click.Context,
    /,
    model: str | None,
    hardware: str | None,
    preset: str | None,
    compiling: bool,
    out: Path | None,
    submitting: bool,
    adopting: bool,
    claims: bool,
    measuring: bool,
    as_json: bool,
    voters: int | None,
    **wanted: Any,
) -> None:
    """Plan a training without starting it: LoRA settings or a TPU configuration, memory, time and cost.

    CPUs and GPUs get a LoRA recipe; TPU slices get mesh, batch and configuration files. Computed from the model's
    shape, the dataset's statistics and the target's declaration; no model is loaded. With --compile XLA compiles the
    training step for the slice, without a chip. An option that does not belong to what is planned is refused.
    """
    started, given = time.monotonic(), given_options(context)
    if claims:
        require_used("claims", given, context)
        show(claims_document(wanted, measuring=measuring, out=out), as_json)
        return
    if preset is not None:
        require_used("preset", given, context)
        if {"examples", "dataset_statistics"} <= given:
            raise InputError(
                "--dataset-statistics: a preset uses their number of examples alone, as --examples gives it"
            )
        named = wanted["domain"] if "domain" in given else None
        document, files = preset_document(preset, (model, hardware, named), wanted, voters, writing=out is not None)
    elif model is None or hardware is None:
        raise InputError("give --model and --hardware (or --preset, or --claims)")
    else:
        request = read_request(model, hardware, wanted)
        require_used("tpu" if request.target.kind == "tpu" else "lora", given, context)
        document, files = planned(request, voters or VOTERS, compiling=compiling, writing=out is not None)
    if out is not None:
        from capibara_assets.planning.tpu.files import write_files

        files = {"plan.json": json.dumps(document["plan"], indent=2) + "\n", **files}
        write_files(require_folder(out), files)
        document["files"] = sorted(files)
        document["out"] = str(out)
    if submitting:
        from capibara_assets.cli.training.submit import submit_plan

        if out is None:
            raise InputError("--submit needs --out: a folder (of a cluster's volume) for the plan and its result")
        document["run"] = submit_plan(wanted["domain"], document["target"], files, out, adopting=adopting)
    elif adopting:
        raise InputError("--adopt belongs to --submit: it takes over what the slice has trained")
    document["seconds"] = round(time.monotonic() - started, 3)
    show(document | assumed(wanted), as_json)


def require_folder(out: Path) -> Path:
    """Make the folder of --out. Raises InputError: it cannot be made or written to."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"--out {out} cannot be made: {error.strerror}; give a folder that can be written to"
        ) from error
    if not os.access(out, os.W_OK):
        raise InputError(f"--out {out} is not writable: give a folder that can be written to")
    return out


def assumed(wanted: dict[str, Any]) -> dict[str, Any]:
    """The assumptions of a plan for inputs that were not given."""
    if wanted["examples"] is None and wanted["dataset_statistics"] is None:
        return {"assumed": f"{EXAMPLES} training examples: give --examples N or --dataset-statistics FILE"}
    return {}


def show(document: dict[str, Any], as_json: bool) -> None:
    """Print a plan as JSON or as text."""
    from capibara_assets.cli.training.plan_text import plan_lines

    if as_json:
        click.echo(json.dumps(document))
        return
    for line in plan_lines(document):
        click.echo(line)


def read_request(model: str, hardware: str, wanted: dict[str, Any]) -> PlanRequest:
    """Read all inputs of a plan.

    Raises:
        InputError: an unknown model, target or level, or statistics that cannot be read.
    """
    from capibara_assets.planning.hardware.targets import find_target

    recipe = read_recipe(wanted)
    target = find_target(hardware)
    statistics = read_data(wanted["dataset_statistics"], wanted["examples"], wanted["sequence"], recipe.lora.max_length)
    ask, throughput = bool(wanted["xla_flags"]), wanted["throughput"]
    return PlanRequest(wanted["domain"], find_shape(model), target, recipe, statistics, throughput, ask)


def read_recipe(wanted: dict[str, Any]) -> "PlanningRecipe":
    """The planning recipe with the command line's options applied."""
    from capibara_assets.deployment.declarations import declared, read_declared, shipped_recipe
    from capibara_assets.planning.recipe import PlanningRecipe, TpuRecipe

    file, sequence = wanted["recipe"], wanted["sequence"]
    recipe = read_declared(file, PlanningRecipe) if file else shipped_recipe("planning", PlanningRecipe)
    recipe = recipe.at_level(wanted["level"])
    if sequence is not None:
        lengths = {"max_length": sequence}
        recipe = recipe.model_copy(
            update={"lora": recipe.lora.model_copy(update=lengths), "tpu": recipe.tpu.model_copy(update=lengths)}
        )
    if wanted["xla_flags"]:
        flags = (*recipe.tpu.xla_flags, *wanted["xla_flags"])
        tpu = declared(TpuRecipe, recipe.tpu.model_dump() | {"xla_flags": flags}, "--xla-flag")
        recipe = recipe.model_copy(update={"tpu": tpu})
    return recipe


def find_shape(model: str) -> "ModelShape":
    """The shape of a model: a preset, a shipped base model, a folder or a config.json."""
    from capibara_assets.deployment.locations import resources_root
    from capibara_assets.planning.models import read_shape

    shipped = resources_root() / "base_models" / model
    return read_shape(shipped if (shipped / "config.json").is_file() else model)


def read_data(file: Path | None, examples: int | None, sequence: int | None, longest: int) -> dict[str, Any]:
    """The statistics of a dataset, read from a file or made from a number of examples and their length."""
    if file is not None:
        document = read_object(file, "a dataset's statistics, a JSON object")
        statistics = document.get("statistics", document)
        if not isinstance(statistics, dict) or (examples is None and "examples" not in statistics):
            raise InputError(f"{file} has no number of examples in it: give a dataset's statistics, or --examples N")
    else:
        statistics, examples = {}, examples or EXAMPLES
    if examples is not None:
        statistics |= {"examples": examples, "by_split": {"train": examples}}
    if sequence is not None or file is None:
        length = sequence or longest
        statistics["tokens"] = {"p50": length, "p95": length, "max": length}
    return statistics


def planned(
    request: PlanRequest, voters: int, *, compiling: bool, writing: bool
) -> tuple[dict[str, Any], dict[str, str]]:
    """The plan as a document, and its files by name.

    Raises:
        InputError: nothing fits, with the arithmetic.
    """
    about = {"level": request.recipe.level, "target": request.target.name, "hardware": request.target.description}
    if request.target.kind == "tpu":
        kind, (plan, files, cost) = "tpu", _tpu(request, voters, compiling=compiling)
    else:
        kind, (plan, files, cost) = "lora", _lora(request, voters, writing=writing)
    document = {"kind": kind, **about, "plan": plan, "cost": cost.model_dump(mode="json"), "files": sorted(files)}
    return document, files


def _tpu(request: PlanRequest, voters: int, *, compiling: bool) -> "tuple[dict[str, Any], dict[str, str], CostPlan]":
    from capibara_assets.deployment.environment import Deployment
    from capibara_assets.planning.plan_cost import tpu_cost
    from capibara_assets.planning.tpu.configuration import tpu_plans
    from capibara_assets.planning.tpu.files import tpu_files
    from capibara_assets.planning.xla.flags import with_flags
    from capibara_assets.planning.xla.verify import first_verified

    w = request
    # Compiling takes minutes: here it is asked for, where the asset `tpu_config` does it by itself.
    asked = "compile" if compiling else "skip" if w.recipe.xla == "auto" else w.recipe.xla
    recipe = w.recipe.model_copy(update={"xla": asked})
    front = tpu_plans(w.domain, w.statistics, w.shape, w.target, recipe, w.throughput)
    cache = None
    if recipe.xla != "skip":  # slow to import
        from capibara_assets.planning.xla.verdict import verdict_cache

        cache = verdict_cache(Deployment.from_environment().work / "xla_verdicts")
    plan = first_verified(front, recipe, cache=cache).plan
    plan = with_flags(plan, recipe.tpu.xla_flags, ask=compiling or w.ask_flags)
    return plan.model_dump(mode="json"), tpu_files(plan, w.target, recipe.tpu, _place()), tpu_cost(plan, w.target)


def _place() -> "CloudPlace":
    """The deployment's Google Cloud project and zone."""
    from capibara_assets.deployment.declarations import declared
    from capibara_assets.deployment.environment import Deployment
    from capibara_assets.planning.writers.launch import CloudPlace

    deployment = Deployment.from_environment()
    named = {"project": deployment.project, "zone": deployment.zone}
    return declared(CloudPlace, named, "GOOGLE_CLOUD_PROJECT or GOOGLE_CLOUD_ZONE")


def _lora(request: PlanRequest, voters: int, *, writing: bool) -> "tuple[dict[str, Any], dict[str, str], CostPlan]":
    from capibara_assets.planning.cost import CostContext
    from capibara_assets.planning.lora.recipe import plan_lora
    from capibara_assets.planning.plan_cost import lora_cost

    w = request
    plan = plan_lora(w.domain, w.statistics, w.shape, w.target, w.recipe, throughput=w.throughput)
    document = plan.model_dump(mode="json")
    files: dict[str, str] = {}
    if writing:  # slow to import
        from capibara_assets.training.standalone.from_plan import plan_files

        files = plan_files(plan, w.target)
    return document, files, lora_cost(plan, w.shape, w.target, CostContext(voters))


def preset_document(
    preset: str,
    names: tuple[str | None, str | None, str | None],
    wanted: dict[str, Any],
    voters: int | None,
    *,
    writing: bool,
) -> tuple[dict[str, Any], dict[str, str]]:
    """The plan of a shipped training recipe as a document: its own values, checked against the hardware; and its files.

    Args:
        preset: its name.
        names: model, hardware and domain in place of the preset's.
        wanted: options of the command line.
        voters: adapters per domain; None: the recipe's.
        writing: whether files are wanted.

    Raises:
        InputError: no such preset, or it does not fit; with the arithmetic.
    """
    from capibara_assets.planning.cost import CostContext
    from capibara_assets.planning.figures import read_statistics
    from capibara_assets.planning.hardware.targets import find_target
    from capibara_assets.planning.lora.preset_plans import plan_stated, preset_recipe
    from capibara_assets.planning.plan_cost import lora_cost

    (model, hardware, domain), recipe = names, read_recipe(wanted)
    stated = preset_recipe(
        preset, recipe, quantization=wanted["quantization"], max_length=wanted["sequence"], domain=domain
    )
    statistics = read_data(wanted["dataset_statistics"], wanted["examples"], wanted["sequence"], stated.length)
    figures = read_statistics(wanted["domain"], statistics, recipe.chars_per_token)
    run = recipe.presets[preset]
    base, target = find_shape(model or run.model), find_target(hardware or run.target)
    plan = plan_stated(stated, recipe, figures.training_examples, base, target, wanted["throughput"])
    cost = lora_cost(plan, base, target, CostContext(voters or len(stated.values["voters"])))
    files: dict[str, str] = {}
    if writing:  # slow to import
        from capibara_assets.training.standalone.from_plan import plan_files

        files = plan_files(plan, target, stated=stated.values)
    document = {
        "kind": "lora",
        "level": recipe.level,
        "target": target.name,
        "hardware": target.description,
        "preset": preset,
        "plan": plan.model_dump(mode="json"),
        "cost": cost.model_dump(mode="json"),
        "files": sorted(files),
    }
    return document, files


def claims_document(wanted: dict[str, Any], *, measuring: bool, out: Path | None) -> dict[str, Any]:
    """The specification's figures beside computed ones; with --out also written as claims.md.

    Raises:
        InputError: the recipe cannot be read.
    """
    from capibara_assets.deployment.locations import resources_root
    from capibara_assets.planning.claims.measured import measure
    from capibara_assets.planning.claims.table import claims, render_markdown

    recipe = read_recipe(wanted)
    measured = measure(resources_root() / "base_models" / "capibara-nano") if measuring else None
    rows = claims(recipe, measured)
    if out is not None:
        from capibara_assets.planning.tpu.files import write_files

        write_files(require_folder(out), {"claims.md": CLAIMS_HEAD + render_markdown(rows)})
    return {"kind": "claims", "claims": [row.document() for row in rows]}

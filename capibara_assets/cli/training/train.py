"""`capibara train`: train adapters on a user's own files by a recipe, into an output folder."""

import math
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from capibara_assets.cli.terminal.documents import AS_JSON, echo_json, echo_result, stdout_for_document
from capibara_assets.cli.terminal.help import with_example
from capibara_assets.cli.terminal.notes import note
from capibara_assets.deployment.environment import Deployment
from capibara_assets.processes.background import Jobs

if TYPE_CHECKING:
    from capibara_assets.training.request import TrainingRequest
    from capibara_assets.training.standalone.choices import RunOptions
    from capibara_assets.training.standalone.output_folder import VerifiedFolder

_QUANTIZATIONS = {"none": "none", "bf16": "bf16", "int8": "int8", "int4": "nf4"}
_SECTIONS = {
    "epochs": "training.epochs",
    "batch_size": "training.micro_batch",
    "grad_accum": "training.accumulation",
    "global_batch": "training.global_batch",
    "learning_rate": "training.learning_rate",
    "lora_r": "model.lora.rank",
    "lora_alpha": "model.lora.alpha",
    "lora_dropout": "model.lora.dropout",
    "max_length": "data.max_length",
    "seed": "seed",
    "quantization": "model.quantization",
    "precision": "hardware.precision",
    "backend": "hardware.backend",
    "processes": "hardware.processes",
}


class _Epochs(click.ParamType):
    """Option type: a number of epochs, or `auto`."""

    name = "NUMBER|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "auto":
            return value
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number nor auto", param, ctx)
        if not 0 < number < math.inf:
            self.fail(f"{value} is not a positive number of epochs", param, ctx)
        return number


_PATHS = click.Path(path_type=Path)


@with_example("capibara train --data examples.jsonl --output out --epochs 2")
@click.command()
@click.option(
    "--recipe",
    default="nano_cpu",
    show_default=True,
    metavar="NAME|FILE",
    help="Name of a shipped recipe, or a YAML or TOML file.",
)
@click.option("--model", "--base-model", "model", help="Base model: a folder, a shipped one, or a fetched id@revision.")
@click.option(
    "--data", multiple=True, required=True, type=_PATHS, help="File or folder of training examples; repeatable."
)
@click.option("--val", multiple=True, type=_PATHS, help="Validation examples; default: groups held back from --data.")
@click.option("--output", type=_PATHS, help="Output folder.  [default: trained/RECIPE]")
@click.option(
    "--epochs", type=_Epochs(), metavar="NUMBER|auto", help="Passes over the examples; auto: chosen by their number."
)
@click.option("--batch-size", type=click.IntRange(min=1), help="Examples per process and micro-step.")
@click.option(
    "--grad-accum", type=click.IntRange(min=1), help="Micro-steps per optimizer step; default: from the global batch."
)
@click.option("--global-batch", type=click.IntRange(min=1), help="Examples per optimizer step over all processes.")
@click.option("--learning-rate", type=float, help="Peak of the schedule (warm-up, then cosine).")
@click.option("--lora-r", type=click.IntRange(min=1), help="Rank of the adapters.")
@click.option("--lora-alpha", type=float, help="Alpha of the adapters; their scale is alpha / rank.")
@click.option("--lora-dropout", type=float, help="Dropout on the adapters' inputs.")
@click.option("--max-length", type=click.IntRange(min=2), help="Tokens of an example, at most.")
@click.option("--seed", type=click.IntRange(min=0), help="Seed of LoRA initialisation, example order and dropout.")
@click.option(
    "--quantization",
    type=click.Choice(list(_QUANTIZATIONS)),
    help="Quantization of the frozen base model; int4 is NF4.",
)
@click.option("--precision", type=click.Choice(["auto", "bf16", "fp16", "fp32"]), help="Precision of matrix products.")
@click.option(
    "--backend",
    type=click.Choice(["single", "ddp", "fsdp2", "zero2", "accelerate"]),
    help="How processes share the work.",
)
@click.option("--processes", type=click.IntRange(min=1), help="Processes (GPUs) on this host.")
@click.option(
    "--deepspeed", type=_PATHS, help='DeepSpeed settings (JSON) for zero2; values are "auto" or equal the recipe.'
)
@click.option(
    "--set", "settings", multiple=True, metavar="SECTION.KEY=VALUE", help="Set any key of the recipe; repeatable."
)
@click.option("--target", help="Hardware target (resources/hardware) for --plan; default: this machine.")
@click.option("--plan", is_flag=True, help="Print the plan (memory, time, disk); start nothing.")
@click.option("--probe", is_flag=True, help="With --plan: measure some steps here to predict the time.")
@click.option(
    "--resume-from-checkpoint",
    metavar="PATH|latest",
    help="Resume point to continue from; default: the newest, if any.",
)
@click.option("--background", is_flag=True, help="Start as a background job and return; see capibara jobs.")
@click.option("--from-epoch", type=click.IntRange(min=1), metavar="N", help="Restart from checkpoint-epoch-N.")
@AS_JSON
def train(
    recipe: str,
    model: str | None,
    data: tuple[Path, ...],
    val: tuple[Path, ...],
    output: Path | None,
    settings: tuple[str, ...],
    deepspeed: Path | None,
    target: str | None,
    plan: bool,
    probe: bool,
    resume_from_checkpoint: str | None,
    from_epoch: int | None,
    background: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """Train adapters on your own examples: chats, prompts with completions, instructions (JSON lines, JSON, Parquet).

    After an interruption, run the same command again to resume. Flags override --set, and both override the recipe.
    """
    from capibara_assets.training.standalone.choices import RunOptions

    if flags["quantization"] is not None:
        flags["quantization"] = _QUANTIZATIONS[flags["quantization"]]
    wishes = RunOptions(
        recipe=recipe,
        data=data,
        validation=val,
        output=output,
        model=model,
        flags={_SECTIONS[name]: value for name, value in flags.items() if value is not None},
        settings=settings,
        deepspeed=deepspeed,
        resume_from=resume_from_checkpoint,
        from_epoch=from_epoch,
    )
    if plan or probe:
        _plan(wishes, target, probe, as_json)
        return
    if background:
        check(wishes)
        job = Jobs(Deployment.from_environment().home).start_background(own_command(), output=wishes.output)
        told = f"job {job.id}: capibara jobs logs -f {job.id} shows it, capibara jobs stop {job.id} stops it"
        echo_result({"job": job.id}, told, as_json)
        return
    with stdout_for_document(as_json):
        outputs = run_training(wishes)
    if as_json:
        echo_json([{"folder": one.folder, "info": one.info, "adapters": one.adapters} for one in outputs])
    else:
        _show_outputs(outputs)


def check(wishes: "RunOptions") -> None:
    """Read recipe, base model and data as the training will. Raises InputError: any of them is invalid."""
    from capibara_assets.training.standalone.run import prepare

    with tempfile.TemporaryDirectory() as folder:
        prepare(wishes, work=Path(folder))


def own_command() -> list[str]:
    """The current command line without `--background`."""
    return [sys.executable, "-m", "capibara_assets.cli", *(word for word in sys.argv[1:] if word != "--background")]


def run_training(wishes: "RunOptions") -> "list[VerifiedFolder]":
    """Prepare, train and verify the results; exits with the training's exit code if it is not 0."""
    from capibara_assets.training.__main__ import main
    from capibara_assets.training.standalone.output_folder import finished_output
    from capibara_assets.training.standalone.run import REQUEST_FILE, prepare, set_aside

    request, counts = prepare(wishes)
    _show_start(request, counts)
    if (finished := finished_output(request)) is not None:
        click.echo(f"{request.output} was finished before, from the same inputs")
        return finished
    if request.start is not None and (aside := set_aside(request)):
        click.echo(f"results after epoch {request.start.epoch} were moved to {aside}")
    request_file = request.work / REQUEST_FILE
    request_file.write_text(request.model_dump_json())
    if code := main(["--request", str(request_file)]):
        sys.exit(code)
    outputs = finished_output(request)
    assert outputs is not None, "a successful training leaves verified outputs"
    return outputs


def _plan(wishes: "RunOptions", target: str | None, probe: bool, as_json: bool) -> None:
    from capibara_assets.resources import Hardware
    from capibara_assets.training.plan.plan import plan_training
    from capibara_assets.training.plan.probe import measure_speed
    from capibara_assets.training.plan.text import plan_lines
    from capibara_assets.training.standalone.run import prepare

    hardware = Hardware(name=target).target if target else None
    with tempfile.TemporaryDirectory() as folder:
        request, counts = prepare(wishes, work=Path(folder))
        with stdout_for_document(as_json):
            _show_start(request, counts)
            speed = measure_speed(request) if probe else None
            made = plan_training(request, hardware, speed=speed)
        echo_result(made, plan_lines(made), as_json)


def _show_start(request: "TrainingRequest", counts: dict[str, Any]) -> None:
    held = f" in {counts['validation_groups']} groups held back by digest" if counts["split_off"] else ""
    note(
        f"{request.recipe.name}: base {request.base_model.name}, {counts['train']} examples train, "
        f"{counts['validation']} validate{held}"
    )
    if counts["equal"]:
        note(f"{counts['equal']} examples equal others and count once")
    for reason, count in counts["left_out"].items():
        note(f"{count} left out: {reason}")
    if counts["secrets"]:
        note(f"{counts['secrets']} secrets are replaced by placeholders")


def _show_outputs(outputs: "list[VerifiedFolder]") -> None:
    for output in outputs:
        info = output.info
        base, loss = info["base_validation_loss"], info["validation_loss"]
        before = "" if base is None else f"{base:.4f} -> "
        # A federated voter's epochs are its clients'; a private one does not tell what a step was made of.
        epochs = f"{info['epochs']} epochs, " if info["epochs"] else ""
        micro = f" of {info['micro_steps']} micro-steps" if info["micro_steps"] else ""
        click.echo(
            f"{output.folder}: validation loss {before}{loss:.4f} nats per token, {epochs}{info['steps']} optimizer "
            f"steps{micro}, {info['minutes']:.1f} minutes"
        )
        if info["examples_left_out"]:
            click.echo(
                f"{info['examples_left_out']} examples could not be trained on and were left out (too long for "
                "--max-length, most often); --set data.on_fault=raise names them"
            )
        click.echo(
            f"verified: adapter_model.safetensors ({info['trainable_parameters']:,} trained parameters), "
            f"{len(info['files'])} files by digest, {len(output.adapters)} adapters load"
        )

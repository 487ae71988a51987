"""`capibara debug-model`: what is wrong with a model or adapter, from evidence, and what to do about it."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from capibara_assets.cli.model.choice import Choice, on_model
from capibara_assets.errors import InputError

if TYPE_CHECKING:
    from capibara_assets.evaluation.diagnosis.diagnose import Examination
    from capibara_assets.evaluation.diagnosis.placement import DeviceMap

_PATH = click.Path(path_type=Path)


@click.command("debug-model")
@on_model
@click.option("--device-map", metavar="auto|JSON|FILE", help="The device_map that it is loaded with elsewhere.")
@click.option("--deepspeed", type=_PATH, help="DeepSpeed's settings (JSON) that it is trained with.")
@click.option("--script", type=_PATH, help="Source of a training in Python: who places the model there.")
@click.option("--fp16", is_flag=True, help="Whether it could be served in fp16, too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def debug_model(
    choice: Choice, device_map: str | None, deepspeed: Path | None, script: Path | None, fp16: bool, as_json: bool
) -> None:
    """Examine a model: files, tokenizer, template, adapter, placement, behaviour. Exit code 1 with findings, else 0."""
    from capibara_assets.evaluation.diagnosis.diagnose import LoadingConditions, examine

    how = LoadingConditions(_device_map(device_map), deepspeed, script, fp16)
    with choice.found() as model:
        done = examine(model, how)
        about = {"model": choice.reference, "base": str(model.base) if model.base is not None else None}
    if as_json:
        click.echo(json.dumps(about | done.document(), indent=2))
    else:
        for line in lines(done):
            click.echo(line)
    if done.diagnoses:
        sys.exit(1)


def lines(done: "Examination") -> list[str]:
    """For people: a line per step, as `capibara doctor` has them, then what to do."""
    shown = []
    for step in done.steps:
        if not step.diagnoses:
            shown.append(f"{step.status:<4}  {step.name:<16} {step.found}")
        for one in step.diagnoses:
            status = "fail" if one.severity == "error" else "warn"
            shown += [f"{status:<4}  {step.name:<16} {one.id}: {one.found}", f"      {'':<16} -> {one.remedy}"]
    errors = sum(one.severity == "error" for one in done.diagnoses)
    warnings = len(done.diagnoses) - errors
    return [*shown, f"{errors} errors, {warnings} warnings" if done.diagnoses else "healthy"]


def _device_map(text: str | None) -> "DeviceMap | None":
    """`auto` and the like as they are, else JSON, in place or in a file.

    Raises:
        InputError: it is neither.
    """
    if text is None or text in ("auto", "balanced", "balanced_low_0", "sequential", "cpu"):
        return text
    file = Path(text)
    try:
        found = json.loads(file.read_bytes() if file.is_file() else text)
    except ValueError as error:
        raise InputError(
            f"--device-map {text!r}: expected auto, a JSON object, or a file with one ({error})"
        ) from error
    if not isinstance(found, dict) or not found:
        raise InputError(f"--device-map {text!r}: expected an object of module names and devices")
    return found

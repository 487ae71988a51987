"""`capibara debug-model`: diagnose a model or adapter, with evidence and a remedy for each problem."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from capibara_assets.cli.model.choice import ModelChoice, on_model
from capibara_assets.cli.terminal.documents import AS_JSON
from capibara_assets.cli.terminal.exits import FOUND
from capibara_assets.cli.terminal.help import with_example
from capibara_assets.cli.terminal.progress import shows_progress
from capibara_assets.cli.terminal.tables import say
from capibara_assets.errors import InputError
from capibara_assets.storage.foreign import read_document
from capibara_assets.storage.jsonfiles import user_json

if TYPE_CHECKING:
    from capibara_assets.evaluation.diagnosis.diagnose import Examination
    from capibara_assets.evaluation.diagnosis.placement import DeviceMap

_PATH = click.Path(path_type=Path)


@with_example("capibara debug-model --model adapter --base base")
@click.command("debug-model")
@on_model
@click.option("--device-map", metavar="auto|JSON|FILE", help="device_map to check the model's placement with.")
@click.option("--deepspeed", type=_PATH, help="DeepSpeed settings (JSON) of its training, to check.")
@click.option("--script", type=_PATH, help="Python training script, to check how it places the model.")
@click.option("--fp16", is_flag=True, help="Also check whether it can be served in fp16.")
@AS_JSON
@shows_progress("diagnosing")
def debug_model(
    choice: ModelChoice, device_map: str | None, deepspeed: Path | None, script: Path | None, fp16: bool, as_json: bool
) -> None:
    """Diagnose a model or adapter: files, tokenizer, chat template, placement, behaviour.

    Exit code 1 if a problem is found, else 0.
    """
    from capibara_assets.evaluation.diagnosis.diagnose import LoadingConditions, examine

    how = LoadingConditions(_device_map(device_map), deepspeed, script, fp16)
    with choice.open() as model:
        done = examine(model, how)
        about = {"model": choice.reference, "base": str(model.base) if model.base is not None else None}
    if as_json:
        click.echo(json.dumps(about | done.document(), indent=2))
    else:
        say(*lines(done))
    if done.diagnoses:
        sys.exit(FOUND)


def lines(done: "Examination") -> list[str]:
    """The diagnosis as text: one line per check, and a remedy below each problem."""
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
    """A device map from `auto` (or another such word), from JSON, or from a JSON file.

    Raises:
        InputError: it is neither.
    """
    if text is None or text in ("auto", "balanced", "balanced_low_0", "sequential", "cpu"):
        return text
    file = Path(text)
    try:
        stated = text.lstrip().startswith("{") or not file.exists()
        device_map = user_json(text if stated else read_document(file), "it")
    except (OSError, ValueError, InputError) as error:
        raise InputError(
            f"--device-map {text[:80]!r}: expected auto, a JSON object, or a file with one ({error})"
        ) from error
    if not isinstance(device_map, dict) or not device_map:
        raise InputError(f"--device-map {text[:80]!r}: expected an object of module names and devices")
    return device_map

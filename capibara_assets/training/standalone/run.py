"""Prepares a standalone training: recipe, data and base model as a request, and the output folder."""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from capibara_assets.datasets.imported.own_files import digest_of, files_below, read_own
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError
from capibara_assets.modeling.files import ADAPTER_WEIGHTS, base_digest, read_config, validate_base
from capibara_assets.modeling.heads import HEADS
from capibara_assets.modeling.hub import resolve_base
from capibara_assets.planning.models import from_config
from capibara_assets.storage.digests import canonical_json, sha256_bytes, sha256_file
from capibara_assets.storage.jsonfiles import write_json_atomic
from capibara_assets.training.request import Start, TrainingRequest
from capibara_assets.training.resume.epoch_info import (
    EPOCH_INFO,
    epoch_folder,
    epoch_of,
    existing_epochs,
    read_epoch_info,
    write_epoch_info,
)
from capibara_assets.training.standalone.choices import RunOptions, chosen_recipe
from capibara_assets.training.step.settings import resolve

WORK = ".capibara"  # hidden folder in the output: request, examples, tokens
REQUEST_FILE = "request.json"
LATEST = "latest"
_DATA_VERSION = 1  # to be raised when the same files give other examples


WriteExamples = Callable[[Sequence[Path], Sequence[Path], Path], tuple[Path, dict[str, Any]]]


def write_examples(files: Sequence[Path], validation: Sequence[Path], work: Path) -> tuple[Path, dict[str, Any]]:
    """Write the examples as a table into the work folder, and their counts; a table of the same files is reused."""
    if not files:
        raise InputError("no data: give files or folders of examples with --data")
    recipe = shipped_recipe("dataset", DatasetRecipe)
    made_of = [digest_of(files, validation), recipe.model_dump(mode="json"), _DATA_VERSION]
    table = work / f"examples-{sha256_bytes(canonical_json(made_of))[:16]}.parquet"
    counts_file = table.with_suffix(".json")
    if table.is_file() and counts_file.is_file():
        counts = json.loads(counts_file.read_bytes())
        if counts["digest"] == sha256_file(table):
            return table, counts
    own = read_own(files, validation, recipe)
    work.mkdir(parents=True, exist_ok=True)
    part = table.with_suffix(".part")
    own.examples.write_parquet(part)
    part.replace(table)
    counts = own.counts | {"digest": sha256_file(table)}
    write_json_atomic(counts_file, counts)
    return table, counts


def prepare(
    options: RunOptions, work: Path | None = None, examples: WriteExamples = write_examples
) -> tuple[TrainingRequest, dict[str, Any]]:
    """Make the request of a training and write its examples; loads no model.

    Args:
        work: folder for examples and request; None: a hidden folder in the output.
        examples: writes the table of examples.

    Returns:
        The request, and counts of the examples.

    Raises:
        InputError: recipe, data, base model, output folder or the epoch to start from cannot be used.
    """
    recipe = chosen_recipe(options)
    base = base_folder(options.model or recipe.model.base)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", recipe.name).strip("-.") or "run"
    output = (options.output or Path("trained") / name).expanduser().absolute()
    require_output(output)
    require_resumable(output, options, voters=len(recipe.voters))
    lora: dict[str, Any] = {"use_rslora": False, "dropout": 0.0}
    if recipe.model.lora.modules is None:
        lora["modules"] = _targets(base)
    resolve(recipe, lora, fastest="fp32")  # raises now if neither gives a value
    start = start_of(output, options.from_epoch) if options.from_epoch is not None else None
    files, validation = files_below(options.data), files_below(options.validation)
    work = work or output / WORK
    dataset, counts = examples(files, validation, work)
    return (
        TrainingRequest(
            domain=name,
            base_model=base,
            base_digest=base_digest(base),
            dataset=dataset,
            dataset_digest=sha256_file(dataset),
            lora=lora,
            recipe=recipe,
            seed=recipe.seed,
            work=work,
            out=work / "out",
            output=output,
            keep_points=True,
            resume_from=_resume_path(options.resume_from),
            start=start,
        ),
        counts,
    )


def _targets(base: Path) -> list[str]:
    """LoRA's targets where the recipe names none. Raises InputError: no linear layer is found; says what to set."""
    try:
        return sorted(from_config(read_config(base), base.name).lora_targets)
    except InputError as error:
        raise InputError(f"{error}; or name the layers: --set model.lora.modules=[q_proj,v_proj]") from error


def base_folder(location: str | None) -> Path:
    """The folder of a base model, given as a folder, the name of a shipped one, or a fetched Hub id@revision.

    Raises:
        InputError: none is given, it does not exist, or it is damaged.
    """
    if location is None:
        raise InputError("the recipe names no base model: give one with --model (a folder, or id@revision)")
    shipped = resources_root() / "base_models" / location
    path = shipped if re.fullmatch(r"[\w-]{1,255}", location) and shipped.is_dir() else resolve_base(location)
    validate_base(path, HEADS)
    return path


def require_output(output: Path) -> None:
    """Check an output folder. Raises InputError: it is a file, holds other files, or cannot be written to."""
    if output.exists() and not output.is_dir():
        raise InputError(f"--output {output} is a file: give a folder")
    there = sorted(path.name for path in output.iterdir()) if output.is_dir() else []
    if there and not (output / WORK).is_dir():
        raise InputError(f"--output {output} holds other files ({', '.join(there[:3])}): give a new folder")
    nearest = next(path for path in (output, *output.parents) if path.exists())
    if not os.access(nearest, os.W_OK):
        raise InputError(f"--output {output} cannot be made: {nearest} is not writable")


def require_resumable(output: Path, options: RunOptions, *, voters: int) -> None:
    """Check the options to resume. Raises InputError: both are given, or the point or epoch named does not exist."""
    wanted, epoch = options.resume_from, options.from_epoch
    if wanted is not None and epoch is not None:
        raise InputError("--resume-from-checkpoint goes on to the bit, --from-epoch starts anew: give one of them")
    if (wanted not in (None, LATEST) or epoch is not None) and voters > 1:
        raise InputError(f"{voters} voters have a checkpoint each: only a recipe with one voter can name one")
    if wanted == LATEST and not list(output.glob("checkpoint-*/state.json")) + list(
        output.glob("voters/*/checkpoint-*/state.json")
    ):
        raise InputError(f"no resume point in {output}: leave --resume-from-checkpoint out to start")
    if wanted not in (None, LATEST) and not (Path(str(wanted)) / "state.json").is_file():
        hint = (
            f": to start anew from an epoch's weights use --from-epoch {number}"
            if (number := epoch_of(Path(str(wanted))))
            else ""
        )
        raise InputError(f"{wanted} is no resume point (it has no state.json){hint}")


def start_of(output: Path, epoch: int) -> Start:
    """A start from the weights in `checkpoint-epoch-<epoch>` of an output folder.

    Raises:
        InputError: there is no such epoch; names those there are.
    """
    folder = epoch_folder(output, epoch)
    if not (folder / ADAPTER_WEIGHTS).is_file():
        there = ", ".join(map(str, existing_epochs(output))) or "none"
        raise InputError(f"no epoch {epoch} in {output}: there are {there}")
    return Start(adapter=folder, digest=sha256_file(folder / ADAPTER_WEIGHTS), epoch=epoch)


def set_aside(request: TrainingRequest) -> Path | None:
    """Before a start from an epoch, move all later output into a folder `replaced-<n>`, so that nothing is lost.

    Returns:
        That folder; None if this start was made before, or there is no later output.
    """
    assert request.output is not None and request.start is not None
    with (request.output / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"another process is training in {request.output}: wait for it, or stop it") from None
        return _set_aside(request, request.output, request.start)


def _set_aside(request: TrainingRequest, output: Path, start: Start) -> Path | None:
    inputs = request.inputs(request.recipe.voters[0])
    states = [json.loads(file.read_bytes()) for file in output.glob("checkpoint-*/state.json")]
    if any(state["inputs"] == inputs for state in states):
        return None
    keep = {WORK, ".lock", EPOCH_INFO, *(epoch_folder(output, epoch).name for epoch in range(1, start.epoch + 1))}
    moved = [
        path for path in sorted(output.iterdir()) if path.name not in keep and not path.name.startswith("replaced-")
    ]
    if not moved:
        return None
    aside = output / f"replaced-{1 + len(list(output.glob('replaced-*')))}"
    aside.mkdir()
    shutil.copyfile(output / EPOCH_INFO, aside / EPOCH_INFO)
    for path in moved:
        path.rename(aside / path.name)
    write_epoch_info(output, [r for r in read_epoch_info(output) if r["epoch"] <= start.epoch])
    return aside


def _resume_path(wanted: str | None) -> str | None:
    return wanted if wanted in (None, LATEST) else str(Path(str(wanted)).expanduser().absolute())

"""Read the epochs, base and validation examples of a training from its output folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from capibara_assets.datasets.imported.own_files import files_below, read_own
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.datasets.tokens.tokenising import Encoded, encode_examples
from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.errors import InputError
from capibara_assets.evaluation.reports.epoch_comparison import EpochLosses
from capibara_assets.modeling.adapters import applied, read_adapter
from capibara_assets.modeling.base import Base
from capibara_assets.modeling.files import ADAPTER_WEIGHTS, base_digest, read_config
from capibara_assets.modeling.losses import assistant_losses
from capibara_assets.processes.progress import tracked
from capibara_assets.storage.digests import sha256_file
from capibara_assets.training.data.examples import chosen, read_examples
from capibara_assets.training.data.order import validation_shard
from capibara_assets.training.plan.plan import settings_of
from capibara_assets.training.request import TrainingRequest, read_request
from capibara_assets.training.resume.epoch_info import epoch_folder, read_epoch_info
from capibara_assets.training.standalone.run import REQUEST_FILE, WORK


@dataclass(frozen=True)
class EpochFolder:
    """One epoch's adapter; without a folder it is the base."""

    name: str
    step: int
    train_loss: float | None
    folder: Path | None


@dataclass(frozen=True)
class Validation:
    """The validation examples that epochs are compared on."""

    encoded: list[Encoded]
    groups: list[str]
    left_out: dict[str, str]


def voters_in(output: Path) -> dict[str, Path]:
    """Voter (or `.`) → its folder with epochs.

    Raises:
        InputError: nothing was trained there, or no epoch has finished yet.
    """
    places = [output, *sorted(path for path in output.glob("voters/*") if path.is_dir())]
    voters = {"." if place == output else place.name: place for place in places if read_epoch_info(place)}
    if not voters:
        raise InputError(f"no epochs in {output}: give the output folder of `capibara train`, after its first epoch")
    return voters


def epochs_in(folder: Path) -> list[EpochFolder]:
    """The base, then every epoch whose weights still exist, by step.

    Raises:
        InputError: no epoch's weights exist.
    """
    rows = [row for row in read_epoch_info(folder) if (epoch_folder(folder, row["epoch"]) / ADAPTER_WEIGHTS).is_file()]
    if not rows:
        raise InputError(f"the weights of all epochs in {folder} are gone: train with checkpoints kept")
    return [
        EpochFolder("0", 0, None, None),
        *(
            EpochFolder(str(row["epoch"]), row["global_step"], row["train_loss"], epoch_folder(folder, row["epoch"]))
            for row in rows
        ),
    ]


def request_of(output: Path) -> TrainingRequest | None:
    """The training's request; None where the folder was copied without its hidden part."""
    request = output / WORK / REQUEST_FILE
    return read_request(request) if request.is_file() else None


def require_base(request: TrainingRequest, base: Path) -> None:
    """Check that `base` is the base of the training. Raises InputError: it is another one."""
    there = base_digest(base)
    if there != request.base_digest:
        raise InputError(
            f"the epochs were trained on the base {request.base_digest[:12]}, but {base} is {there[:12]}: give its own "
            "with --base"
        )


def own_validation(request: TrainingRequest, voter: str, base: Base) -> Validation:
    """The examples that a voter was validated on in training, so that the loss curves continue.

    Raises:
        InputError: the examples are gone or have changed, there is no such voter, or the model is not causal.
    """
    if not request.dataset.is_file() or sha256_file(request.dataset) != request.dataset_digest:
        raise InputError(f"{request.dataset} is not there any more, or has changed: give examples with --data")
    voters = request.recipe.voters
    spec = voters[0] if voter == "." else next((one for one in voters if one.name == voter), None)
    if spec is None:
        raise InputError(f"the training has no voter {voter!r}: there are {', '.join(one.name for one in voters)}")
    settings = settings_of(request, None)
    if settings.head != "causal":
        raise InputError(f"epochs of a {settings.head} model are not compared here: only causal ones")
    table = read_examples(request.dataset)
    shard = validation_shard(table, spec.shard, len(voters))
    tokens = encode_examples(shard, base.tokenizer, settings.max_length)
    ids, encoded = chosen("validation", shard, tokens, settings, request.recipe.data.max_validation_examples)
    group_of = dict(shard.select("example_id", "group_id").iter_rows())
    return Validation(encoded, [group_of[name] for name in ids], tokens.left_out)


def given_validation(data: Sequence[Path], base: Base) -> Validation:
    """Validation examples from files; of a table of examples its validation split, or all of it where it has none.

    Raises:
        InputError: no example can be read or used.
    """
    if len(data) == 1 and data[0].suffix == ".parquet":
        table = read_examples(data[0])
        held = table.filter(pl.col("split") == "validation")
        table = held if held.height else table
    else:
        table = read_own(files_below(data), [], shipped_recipe("dataset", DatasetRecipe)).examples
    table = table.sort("example_id")
    tokens = encode_examples(table, base.tokenizer, int(read_config(base.path).get("max_position_embeddings") or 2048))
    if not tokens.example_ids:
        reasons = "; ".join(sorted(set(tokens.left_out.values()))) or "there is none"
        raise InputError(f"no example of {', '.join(map(str, data))} can be used: {reasons}")
    group_of = dict(table.select("example_id", "group_id").iter_rows())
    return Validation(tokens.encoded, [group_of[name] for name in tokens.example_ids], tokens.left_out)


def losses_of(base: Base, epochs: Sequence[EpochFolder], validation: Validation) -> list[EpochLosses]:
    """Each epoch's losses, in float32.

    Raises:
        InputError: an adapter that cannot be read or does not fit the base.
    """
    by_epoch = []
    for epoch in tracked(epochs, "epochs"):
        if epoch.folder is None:
            losses = assistant_losses(base.model, validation.encoded)
        else:
            with applied(base.model, read_adapter(epoch.folder)):
                losses = assistant_losses(base.model, validation.encoded)
        by_epoch.append(EpochLosses(epoch.name, epoch.step, epoch.train_loss, losses))
    return by_epoch

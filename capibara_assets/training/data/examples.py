"""Reads a dataset's examples, tokenises them, and selects those that can be trained on."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from capibara_assets.datasets.tokens.templates import Tokenizer
from capibara_assets.datasets.tokens.tokenising import Encoded, EncodedSet, encode_examples
from capibara_assets.errors import InputError
from capibara_assets.training.data.batches import view_of
from capibara_assets.training.data.order import rank, validation_shard
from capibara_assets.training.data.token_counts import TOKENS
from capibara_assets.training.recipe import VoterSpec
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.step.settings import Settings

COLUMNS = ("example_id", "group_id", "split", "messages")
WEIGHTS = ("weight", "balance")  # of a dataset that was made here


def read_examples(file: Path, *further: str) -> pl.DataFrame:
    """Read the columns of a dataset that training needs.

    Args:
        further: more columns to read.

    Raises:
        InputError: the file is missing or not a table of examples with these columns.
    """
    try:
        return pl.read_parquet(file, columns=[*COLUMNS, *further])
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"dataset {file} is not a table of examples: {error}") from error


def chosen(
    split: str, part: pl.DataFrame, tokens_of: EncodedSet, settings: Settings, most: int | None = None
) -> tuple[list[str], list[Encoded]]:
    """Ids and tokens of a part's examples, in the order of their ids; those that could not be encoded are left out.

    Args:
        most: keep so many, lowest digests of the ids first, so that a growing dataset changes few of them.

    Raises:
        InputError: none can be used.
    """
    usable = [name for name in part["example_id"] if name not in tokens_of.left_out]
    ids = sorted(sorted(usable, key=lambda name: rank(split, name))[:most])
    if not ids:
        reasons = sorted({tokens_of.left_out[name] for name in part["example_id"]})
        raise InputError(
            f"none of the {len(part)} {split} examples can be used with max_length {settings.max_length}: "
            f"{'; '.join(reasons) or 'the split is empty'}"
        )
    return ids, tokens_of.select(ids)


def weighted(request: TrainingRequest, ids: Sequence[str], examples: Sequence[Encoded]) -> list[Encoded]:
    """Examples with the weight that the dataset gives them: of their cluster times that of their difficulty.

    Without the recipe's `data.weights`, and of a file without these columns, they are returned as they are.
    """
    file = request.dataset
    if not request.recipe.data.weights or not set(WEIGHTS) <= pl.read_parquet_schema(file).keys():
        return list(examples)
    weight = pl.col(WEIGHTS[0]) * pl.col(WEIGHTS[1])
    of = dict(read_examples(file, *WEIGHTS).select("example_id", weight).iter_rows())
    return [replace(example, weight=of[name]) for name, example in zip(ids, examples, strict=True)]


def tokens_of(
    request: TrainingRequest,
    table: pl.DataFrame,
    tokenizer: Tokenizer,
    settings: Settings,
    *,
    digest: str | None = None,
    poll: Callable[[], None] = lambda: None,
) -> EncodedSet:
    """Tokenise a table's examples by the request's recipe; cached in its folder of work.

    Args:
        digest: of the dataset that the rows are from; None: the request's own.
        poll: called from time to time; may raise to stop.

    Raises:
        InputError: as `encode_examples`.
    """
    choice = request.recipe.data
    return encode_examples(
        table,
        tokenizer,
        settings.max_length,
        cache=request.work / TOKENS,
        dataset_digest=digest or request.dataset_digest,
        on_fault=choice.on_fault,
        too_long=choice.too_long,
        head=settings.head,
        workers=request.recipe.hardware.threads,
        poll=poll,
    )


def validation_choice(
    request: TrainingRequest, voter: VoterSpec, table: pl.DataFrame, encoded: EncodedSet, settings: Settings
) -> tuple[list[str], list[Encoded]]:
    """Ids and tokens of a voter's validation examples. Raises InputError: there is none that can be used."""
    shard = validation_shard(table, voter.shard, len(request.recipe.voters))
    return chosen("validation", shard, encoded, settings, request.recipe.data.max_validation_examples)


def validation_examples(
    request: TrainingRequest,
    voter: VoterSpec,
    table: pl.DataFrame,
    encoded: EncodedSet,
    settings: Settings,
    tokenizer: Tokenizer,
) -> list[Encoded]:
    """A voter's validation examples, as its head sees them; the same at every validation.

    Raises:
        InputError: there is none that can be used.
    """
    ids, examples = validation_choice(request, voter, table, encoded, settings)
    view = view_of(settings.head, tokenizer, f"{request.seed}/{voter.seed}")
    return view(ids, examples, "validation") if view else examples

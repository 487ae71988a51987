"""Messages between server and clients of a federated training: task, weights, figures."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from capibara_assets.errors import InputError, in_words
from capibara_assets.training.recipe import TrainingRecipe, VoterSpec
from capibara_assets.training.strategies.changes import Vector

LEVELS = 1 << 22
"""Steps from -clip to clip, to one of which secure aggregation rounds each number."""
_MOST = 2**53


class ClientTask(BaseModel):
    """A server's task for a client in one round; the initial weights are sent beside it.

    Not among it: paths. The client's own settings say where its examples, its base and its folder of work are.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    round: int = Field(gt=0)
    client: str = Field(pattern=r"^client-\d{1,6}$")
    domain: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="Name of what is trained")
    base_digest: str
    lora: dict[str, Any]
    recipe: TrainingRecipe
    voter: VoterSpec
    seed: int = Field(ge=0)
    clip: float | None = Field(
        None, gt=0, description="The client clips its change itself, because the server sees sums alone"
    )


class ClientFigures(BaseModel):
    """A client's report on its training: counts and losses, nothing about single examples."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    supervised_tokens: int = Field(gt=0, le=_MOST)
    examples: int = Field(gt=0, le=_MOST)
    validation_examples: int = Field(gt=0, le=_MOST)
    examples_left_out: int = Field(ge=0, le=_MOST)
    steps: int = Field(ge=0, le=_MOST)
    steps_planned: int = Field(ge=0, le=_MOST)
    trainable_parameters: int = Field(gt=0, le=_MOST)
    validation_loss: float = Field(ge=0)
    seconds: float = Field(ge=0)


@dataclass(frozen=True)
class Answers:
    """The clients' answers in a round, as they came.

    Attributes:
        figures: client -> its figures, as JSON.
        weights: client -> the weights of its adapter; empty where the server gets a sum alone.
        silent: client that was asked and did not answer -> why.
        total: the sum of clipped changes, under secure aggregation.
    """

    figures: Mapping[str, str]
    weights: Mapping[str, bytes] = field(default_factory=dict)
    silent: Mapping[str, str] = field(default_factory=dict)
    total: Vector | None = None


def packed(tensors: Mapping[str, Tensor] | None) -> bytes:
    """Tensors as the bytes of a safetensors file, exact; empty for None."""
    if tensors is None:
        return b""
    return bytes(save({name: value.detach().contiguous().cpu() for name, value in sorted(tensors.items())}))


def unpacked(data: bytes) -> dict[str, Tensor]:
    """The reverse of `packed`. Raises InputError: it is no safetensors file."""
    try:
        return dict(load(data))
    except (SafetensorError, ValueError, KeyError) as error:
        raise InputError(f"{len(data):,} bytes are no weights: {error}") from error


def read_figures(text: str) -> ClientFigures:
    """A client's figures. Raises InputError: they are none, or out of range."""
    try:
        return ClientFigures.model_validate_json(text)
    except ValidationError as error:
        raise InputError(f"its figures are wrong: {in_words(error)}") from error


def validation_lines(table: pl.DataFrame) -> bytes:
    """Validation examples as JSON lines, which every client gets."""
    return b"".join(
        json.dumps({"messages": json.loads(messages)}, ensure_ascii=False).encode() + b"\n"
        for messages in table.sort("example_id")["messages"]
    )

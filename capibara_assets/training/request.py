"""The letter that starts a training process: one JSON file, checked before anything is loaded."""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.training.recipe import TrainingRecipe

Fault = Literal["sign_flip", "nan", "norm_100x"]

# Raised when the loop computes something else from the same inputs, so that old resume points are not mixed in.
LOOP_VERSION = 2

_INERT = (
    "threads",
    "parallel",
    "max_restarts",
    "restart_delay_s",
    "report_every",
    "checkpoint_every",
    "keep_checkpoints",
    "epoch_checkpoints",
)


class TrainingRequest(BaseModel):
    """Everything one domain's training is made from, and where it works and writes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    domain: Domain
    base_model: Path = Field(description="Folder of the base model")
    base_digest: str
    dataset: Path = Field(description="examples.parquet")
    dataset_digest: str
    lora: dict[str, Any] = Field(description="The domain's LoRA plan, as a document")
    recipe: TrainingRecipe
    seed: int = Field(ge=0, description="Seed of this run; the recipe's own, or another one to repeat it")
    work: Path = Field(description="Folder of resume points and finished voters, named by the inputs")
    out: Path = Field(description="Folder that appears, whole, when enough voters finished")
    checkpoints: str | None = Field(
        default=None,
        description="Root of the checkpoint store for epoch checkpoints, local or gs://; None: none are kept",
    )
    run: str | None = Field(default=None, description="Id of the run that asks, noted in the epoch checkpoints")
    fault: dict[str, Fault] = Field(default={}, description="Drill: voter -> damage done to its finished adapter")

    @model_validator(mode="after")
    def _faults_name_voters(self) -> "TrainingRequest":
        unknown = sorted(self.fault.keys() - {voter.name for voter in self.recipe.voters})
        if unknown:
            raise ValueError(f"fault names no voter of the recipe: {', '.join(unknown)}")
        return self

    def deciding_recipe(self) -> dict[str, Any]:
        """The recipe as JSON, as far as it decides the adapters: nothing about speed, retries or what is kept."""
        return self.recipe.model_dump(mode="json", exclude=set(_INERT))

    def input_digest(self) -> str:
        """Digest of what decides the adapters: no path, no fault, nothing about speed or retries."""
        return sha256_bytes(
            canonical_json(
                {
                    "loop": LOOP_VERSION,
                    "domain": self.domain,
                    "base": self.base_digest,
                    "dataset": self.dataset_digest,
                    "lora": self.lora,
                    "recipe": self.deciding_recipe(),
                    "seed": self.seed,
                }
            )
        )


def read_request(file: Path) -> TrainingRequest:
    """Read a request.

    Raises:
        InputError: the file is missing, not JSON, or not a request.
    """
    try:
        return TrainingRequest.model_validate_json(file.read_bytes())
    except FileNotFoundError as error:
        raise InputError(f"training request {file} does not exist") from error
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'request'}: {one['msg']}" for one in error.errors())
        raise InputError(f"training request {file}: {problems}") from error

"""The request that starts a training process: one JSON file, validated before anything is loaded."""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from capibara_assets.domains import Domain
from capibara_assets.errors import InputError, in_words
from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.storage.foreign import read_document
from capibara_assets.storage.jsonfiles import user_json
from capibara_assets.training.decided import PlannedRun
from capibara_assets.training.recipe import TrainingRecipe, VoterSpec
from capibara_assets.training.strategy import needs_all_domains

Fault = Literal["sign_flip", "nan", "norm_100x"]

# To be raised when the loop computes something else from the same inputs, so that older resume points are not used.
LOOP_VERSION = 5

# Keys of the recipe for the length of a training; not in the digests of `inputs`, because a training may be extended.
_LENGTH = {"epochs", "max_steps", "max_tokens"}

# Parts of a TPU plan that the numbers depend on: how sums are cut into parts.
_OF_THE_SLICE = ("mesh", "remat", "sequence", "packed", "logit_chunks", "global_batch")

# Parts of the recipe that affect speed, retries, reports or what is kept, and never the adapters.
_INERT: dict[str, Any] = {
    "model": {"base"},  # identified by its digest
    "report": True,
    "checkpoint": True,
    "guards": {"continuity"},
    "hardware": {
        "backend",
        "processes",
        "deepspeed",
        "tf32",
        "compile",
        "gradient_checkpointing",
        "share_base",
        "threads",
        "parallel",
    },
}


class Start(BaseModel):
    """A new training that starts from the weights of an epoch of an earlier one, with a fresh optimizer."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    adapter: Path = Field(description="Folder of the epoch's adapter")
    digest: str = Field(description="of its weights' file")
    epoch: int = Field(gt=0, description="Passes that it has seen; the training goes on with the next one")


class FurtherDataset(BaseModel):
    """Another domain's examples, for strategies that train on more than their own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dataset: Path = Field(description="examples.parquet")
    digest: str


class TrainingRequest(BaseModel):
    """All inputs of a training of one or more voters, and the folders it works in and writes to."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    domain: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="Name of what is trained: a domain, or a run of its own"
    )
    base_model: Path = Field(description="Folder of the base model")
    base_digest: str
    dataset: Path = Field(description="examples.parquet")
    dataset_digest: str
    further: dict[Domain, FurtherDataset] = Field(default={}, description="Other domains' examples, where needed")
    lora: dict[str, Any] = Field(description="The domain's LoRA plan, as a document")
    tpu: dict[str, Any] | None = Field(
        default=None,
        description="Document of the plan of the TPU slice that it runs on; None: PyTorch on CPU or GPU",
    )
    recipe: TrainingRecipe
    asked: TrainingRecipe | None = Field(
        default=None, description="The recipe as it was given, where `recipe` needs less memory for the same steps"
    )
    seed: int = Field(ge=0, description="Seed of this run; the recipe's own, or another one to repeat it")
    work: Path = Field(description="Folder of resume points and finished voters, named by the inputs")
    out: Path = Field(description="Folder that appears, whole, when enough voters finished")
    output: Path | None = Field(
        default=None,
        description="Folder of a run of its own, where its voters work and epochs and resume points stay; None: `work`",
    )
    start: Start | None = Field(default=None, description="The epoch whose weights it begins with; None: LoRA's own")
    checkpoints: str | None = Field(
        default=None,
        description="Root of the checkpoint store for epoch checkpoints, local or gs://; None: none are kept",
    )
    run: str | None = Field(default=None, description="Id of the requesting run, recorded in the epoch checkpoints")
    resume_from: str | None = Field(
        default=None,
        description="latest, or a folder checkpoint-<step>; None: the newest resume point, or a fresh start",
    )
    planned_tokens_per_s: float | None = Field(
        default=None, gt=0, description="Speed of one voter that the plan predicts, every row full; None: it does not"
    )
    keep_points: bool = Field(default=False, description="Resume points stay when it has finished: it can be extended")
    planned: PlannedRun | None = Field(default=None, description="In the graph: who decided what of the recipe")
    fault: dict[str, Fault] = Field(default={}, description="For tests: voter -> damage done to its finished adapter")

    @model_validator(mode="after")
    def _faults_name_voters(self) -> "TrainingRequest":
        unknown = sorted(self.fault.keys() - {voter.name for voter in self.recipe.voters})
        if unknown:
            raise ValueError(f"fault names no voter of the recipe: {', '.join(unknown)}")
        return self

    def folder(self, voter: VoterSpec) -> Path:
        """A voter's folder of work: below `work`; for a standalone training `output`, or a folder in it if several."""
        if self.output is None:
            return self.work / voter.name
        return self.output if len(self.recipe.voters) == 1 else self.output / "voters" / voter.name

    def with_less_memory(self, recipe: TrainingRecipe) -> "TrainingRequest":
        """The same training by a recipe that differs in how a step is cut into passes, on the same resume points."""
        return self.model_copy(update={"recipe": recipe, "asked": self.asked or self.recipe})

    def write(self) -> Path:
        """Write the request into its work folder, for the training process; returns the file."""
        file = self.work / "request.json"
        file.write_text(self.model_dump_json())
        return file

    def deciding_recipe(self) -> dict[str, Any]:
        """The recipe's parts that determine the adapters, as JSON: without speed, retries and retention."""
        return (self.asked or self.recipe).model_dump(mode="json", exclude=_INERT)

    def length(self) -> dict[str, Any]:
        """The keys that determine the length of the training, from the recipe or else the LoRA plan."""
        choice = self.recipe.training.model_dump(mode="json", include=_LENGTH)
        return choice | {"epochs": self.lora.get("epochs") if choice["epochs"] is None else choice["epochs"]}

    def inputs(self, voter: VoterSpec) -> dict[str, str]:
        """Digests of everything that determines a voter's weights; a resume point with other inputs is refused.

        The length is not among them, because a training may be extended (`resume.points.extension`).
        """
        own = {"voter": _digest(voter.model_dump(mode="json"))}
        return self._inputs(further=needs_all_domains(voter.strategy)) | own

    def run_id(self, voter: VoterSpec) -> str:
        """Id of this voter's training; the same for the same inputs, also when it is extended."""
        return _digest(self.inputs(voter))[:16]

    def input_digest(self) -> str:
        """Digest of everything that determines all adapters: without paths, faults, speed and retries."""
        voters = [voter.model_dump(mode="json") for voter in self.recipe.voters]
        further = any(needs_all_domains(voter.strategy) for voter in self.recipe.voters)
        return _digest(self._inputs(further=further) | {"voters": voters, "length": self.length()})

    def _inputs(self, *, further: bool) -> dict[str, str]:
        others = {domain: one.digest for domain, one in self.further.items()}
        recipe = self.deciding_recipe()
        del recipe["voters"]  # other voters do not affect one; their number does, because it decides the shards
        training = {name: value for name, value in recipe["training"].items() if name not in _LENGTH}
        start = {"start": f"epoch {self.start.epoch} of {self.start.digest}"} if self.start else {}
        slices = {"TPU plan": _digest({name: self.tpu.get(name) for name in _OF_THE_SLICE})} if self.tpu else {}
        return {
            **start,
            **slices,
            **({"further datasets": _digest(others)} if further else {}),
            "training loop": str(LOOP_VERSION),
            "domain": self.domain,
            "base": self.base_digest,
            "dataset": self.dataset_digest,
            "number of voters": str(len(self.recipe.voters)),
            "LoRA plan": _digest({name: value for name, value in self.lora.items() if name != "epochs"}),
            "recipe": _digest(recipe | {"training": training}),
            "seed": str(self.seed),
        }


def _digest(document: Any) -> str:
    return sha256_bytes(canonical_json(document))


def read_request(file: Path) -> TrainingRequest:
    """Read a request from its file.

    Raises:
        InputError: the file is missing, not JSON, or not a request.
    """
    try:
        user_json(data := read_document(file), f"training request {file}")  # pydantic reads a name that is there twice
        return TrainingRequest.model_validate_json(data)
    except FileNotFoundError as error:
        raise InputError(f"training request {file} does not exist: give a training's request.json") from error
    except OSError as error:
        raise InputError(f"training request {file} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise InputError(f"training request {file}: {in_words(error)}") from error

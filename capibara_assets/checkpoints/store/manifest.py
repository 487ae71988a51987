"""The manifest of a checkpoint: its tensors and files by digest, and its provenance."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TensorEntry(_Frozen):
    """One tensor or file: its type, shape, and the digests of its pieces in order."""

    dtype: str = Field(description="Element type, as safetensors spells it; U8 for a file")
    shape: tuple[int, ...] = Field(description="Sizes of the dimensions; (bytes,) for a file")
    pieces: tuple[str, ...] = Field(description="Digests of its pieces, in order; none when it is empty")
    sha256: str | None = Field(default=None, description="SHA-256 of a file; null for a tensor, its pieces have theirs")


class About(_Frozen):
    """Provenance and description of a checkpoint; all fields but `run` are part of its identity."""

    model: str = Field(description="Name under which versions are counted", min_length=1)
    step: int = Field(description="Optimizer steps done", ge=0)
    parent: str | None = Field(default=None, description="Id of the checkpoint that training went on from")
    base_digest: str | None = Field(default=None, description="Digest of the frozen base model")
    dataset_digest: str | None = Field(default=None, description="Content digest of the moe_dataset artifact")
    recipe: dict[str, Any] | None = Field(default=None, description="The recipe it was trained or merged with")
    code_version: str | None = Field(default=None, description="Version of this package")
    metrics: dict[str, float] = Field(default_factory=dict, description="Metrics at this step, by name")
    sources: dict[str, str] = Field(
        default_factory=dict, description="Artifacts it was made from: asset[partition] -> digest"
    )
    tags: tuple[str, ...] = Field(default=(), description="`promoted`, `best`, a voter's name ...")
    run: str | None = Field(default=None, description="Id of the run that wrote it; not part of its identity")


class CheckpointManifest(_Frozen):
    """Everything of one checkpoint but the bytes."""

    schema_version: Literal[1] = 1
    about: About
    kind: Literal["model", "adapter", "state"]
    tensors: dict[str, TensorEntry]
    files: dict[str, TensorEntry] = Field(default_factory=dict)
    ties: dict[str, str] = Field(default_factory=dict, description="Name -> the tensor whose storage it shares")
    tree: Any = Field(default=None, description="The nested state without its tensors; null for a flat dictionary")
    origin: dict[str, Any] = Field(
        default_factory=dict, description="What its format needs to give the very bytes back"
    )
    packs: tuple[str, ...] = Field(
        default=(), description="Where the pieces were when it was written; a hint, not identity"
    )
    aliases: tuple[str, ...] = Field(
        default=(), description="Ids that it had before its store was encrypted or decrypted; not part of its identity"
    )
    created: str = Field(description="When it was written, ISO 8601 UTC; not part of its identity")

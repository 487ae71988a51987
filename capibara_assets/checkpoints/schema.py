"""Schema of the table of voters' adapters: one row per adapter that a domain's training wrote."""

from typing import ClassVar

from pydantic import Field

from capibara_assets.storage.records import Record


class VoterAdapter(Record):
    """One voter's finished adapter on disk."""

    schema_name: ClassVar[str] = "voter_adapters"
    schema_version: ClassVar[int] = 1
    key: ClassVar[tuple[str, ...]] = ("domain", "name")

    domain: str = Field(description="Domain the adapter was trained for")
    name: str = Field(description="Name of the voter")
    digest: str = Field(description="SHA-256 over the adapter's config and weights")
    base_digest: str | None = Field(description="Digest of the base model it was trained on, as its manifest says")
    rank: int = Field(description="LoRA rank of most modules", ge=1)
    scale: float = Field(description="What B @ A is multiplied by (alpha / r, or alpha / sqrt(r))")
    modules: list[str] = Field(description="Names of the adapted modules")
    parameters: int = Field(description="Numbers in the adapter", ge=1)
    finite: bool = Field(description="No NaN and no infinity among them")
    delta_norm: float | None = Field(description="Frobenius norm of all weight changes together; null when not finite")

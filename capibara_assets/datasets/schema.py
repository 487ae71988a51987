"""Row types of the dataset tables: example groups, examples, left-out executions, and routes."""

from typing import ClassVar, Literal

from pydantic import Field

from capibara_assets.domains import Domain
from capibara_assets.storage.records import Record

Split = Literal["train", "validation", "test"]
Kind = Literal["solve", "repair", "explain", "predict", "apply", "chat"]  # chat: imported
Verified = Literal["reexecuted", "recorded", "unverified"]
Provenance = Literal["experience", "imported"]

SPLITS: tuple[Split, ...] = ("train", "validation", "test")
KINDS: tuple[Kind, ...] = ("solve", "repair", "explain", "predict", "apply")
CODE_KINDS: frozenset[Kind] = frozenset({"solve", "repair", "apply"})
"""Kinds whose answer is code and nothing else, which a test can judge."""


def main_kind(domain: Domain) -> Kind:
    """The main kind of a domain, which is never capped: *repair* for `debug`, *solve* for the others."""
    return "repair" if domain == Domain.DEBUG else "solve"


class Group(Record):
    """The group and split of one execution; all executions of a group are in one split."""

    schema_name: ClassVar[str] = "Group"
    schema_version: ClassVar[int] = 1
    key: ClassVar[tuple[str, ...]] = ("unit_id",)

    unit_id: str = Field(description="Execution id")
    group_id: str = Field(description="Group: one problem, its sandbox sessions and their near-duplicates")
    split: Split = Field(description="Split of the group, kept for ever")
    reason_left_out: str | None = Field(description="Why this execution may not be used; None when it may")
    sandbox_id: str = Field(description="Sandbox of the execution")


class Example(Record):
    """One training, validation or test example as chat messages, with its provenance."""

    schema_name: ClassVar[str] = "Example"
    schema_version: ClassVar[int] = 3
    key: ClassVar[tuple[str, ...]] = ("example_id",)
    volatile: ClassVar[frozenset[str]] = frozenset({"source_places"})

    example_id: str = Field(description="Digest of domain, kind, messages and executions")
    domain: str = Field(description="Domain of the dataset")
    kind: Kind = Field(description="solve, repair, explain, predict, apply, or chat (imported)")
    language: str = Field(description="Language of the code")
    messages: str = Field(description="JSON list of {role, content}: user, then assistant")
    group_id: str = Field(description="Group of its executions")
    split: Split = Field(description="Split of the group")
    difficulty: float = Field(description="0 easy .. 1 hard", ge=0, le=1)
    quality: float = Field(description="Quality of its executions, 0..1, less for weaker statements", ge=0, le=1)
    cluster_id: str = Field(description="Cluster of equal and near-equal examples that it stands for")
    proof: str | None = Field(None, description="What its answer showed when it ran, or the assertions that it passed")
    diff: str | None = Field(None, description="Of a repair: unified diff from the code of the prompt to the answer")
    test: str | None = Field(
        None, description="Code that judges the answer when it runs after it in its session; not trained on"
    )
    derived: str | None = Field(None, description="Kind of change that made it of a recorded one; None: as recorded")
    weight: float = Field(description="1 + ln(number of examples in its cluster)", ge=1)
    balance: float = Field(description="Factor that brings the difficulties to the recipe's target", gt=0)
    verified: Verified = Field(description="reexecuted: it passes its test, or gave its output again")
    not_replayed: str | None = Field(description="Why it is not reexecuted; None when it is")
    provenance: Provenance = Field(description="experience (executions and bullets) or imported (a file of examples)")
    execution_ids: list[str] = Field(description="Executions it is made of, the answer's first, then its context")
    bullet_ids: list[str] = Field(description="Playbook bullets it is made of")
    sandbox_ids: list[str] = Field(description="Sandboxes of its executions, sorted")
    licence: str | None = Field(description="Licences of its executions, where stated")
    source: str | None = Field(description="Sources of its executions, where stated")
    tenants: list[str] = Field(description="Tenants that own its executions, sorted")
    source_places: list[str] = Field(description="<file>:<line> of its executions, sorted")


class LeftOut(Record):
    """An execution without an example, or an unused example: imported, or dropped by audit."""

    schema_name: ClassVar[str] = "LeftOut"
    schema_version: ClassVar[int] = 1
    key: ClassVar[tuple[str, ...]] = ("unit_id",)

    unit_id: str = Field(description="Execution id, or id of an example that was imported or dropped by audit")
    reason: str = Field(description="Why no example holds it")


class Route(Record):
    """A prompt and the experts that answer it."""

    schema_name: ClassVar[str] = "Route"
    schema_version: ClassVar[int] = 2
    key: ClassVar[tuple[str, ...]] = ("route_id",)

    route_id: str = Field(description="Digest of the prompt")
    prompt: str = Field(description="What a user would ask")
    domains: list[str] = Field(description="Domains whose examples answer it, in the order of the domains")
    weights: list[float] = Field(
        description="Weight of each: a domain's sum to the same in every split for all domains"
    )
    split: Split = Field(description="Split of its group")
    group_id: str = Field(description="Group of its example")
    hard_negative: bool = Field(description="Resembles prompts of a near domain that it does not belong to")
    negative_of: list[str] = Field(description="Those near domains, in the order of the domains")

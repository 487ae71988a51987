"""The results of tracing records: plain values, whose JSON `capibara lineage --json` prints."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from capibara_assets.consensus.rounds.adopted import RoundVoter


@dataclass(frozen=True)
class ExecutionPlace:
    """The log line of an execution, and its owner."""

    execution_id: str
    file: str
    line: int
    sandbox_id: str
    agent_id: str | None
    tenant: str | None
    licence: str | None
    source: str | None
    role: str = ""
    """In an example: answer or context."""


@dataclass(frozen=True)
class BulletPlace:
    """A playbook bullet and its line."""

    bullet_id: str
    file: str
    line: int
    content: str


@dataclass(frozen=True)
class ExampleUse:
    """An example that was made from an execution or bullet."""

    domain: str
    example_id: str
    kind: str
    split: str
    role: str
    """answer, context, or cluster member (an equal or near-equal example stands for it)."""


@dataclass(frozen=True)
class VoterExposure:
    """A voter that saw an example."""

    domain: str
    voter: str
    digest: str
    artifact: str
    dataset: str
    part: str
    """train or validation."""
    current: bool


@dataclass(frozen=True)
class PublishedResult:
    """A published artifact."""

    asset: str
    partition: str | None
    digest: str
    current: bool


@dataclass(frozen=True)
class ExampleTrail:
    """An example with its sources, and the adapters trained on it."""

    example_id: str
    domain: str
    dataset: str
    kind: str
    language: str
    split: str
    group_id: str
    cluster_id: str | None
    verified: str
    provenance: str
    licence: str | None
    source: str | None
    tenants: tuple[str, ...]
    executions: tuple[ExecutionPlace, ...]
    bullets: tuple[BulletPlace, ...]
    seen_by: tuple[VoterExposure, ...]
    models: tuple[PublishedResult, ...]


@dataclass(frozen=True)
class ExecutionTrail:
    """An execution, and everything made from it."""

    execution_id: str
    place: ExecutionPlace | None
    domains: tuple[str, ...]
    group_id: str | None
    split: str | None
    left_out: Mapping[str, str]
    """Domain -> why no example holds it."""
    tables: tuple[PublishedResult, ...]
    datasets: Mapping[str, str]
    """Domain -> digest of the dataset that it is in; packs of tokens are cached under it."""
    examples: tuple[ExampleUse, ...]
    seen_by: tuple[VoterExposure, ...]
    evaluated: tuple[str, ...]
    """Examples of it that evaluations judge by."""
    models: tuple[PublishedResult, ...]


@dataclass(frozen=True)
class BulletTrail:
    """A bullet, the playbooks that hold it, and the examples made with it."""

    bullet: BulletPlace
    agent_id: str | None
    consolidated: tuple[str, ...]
    examples: tuple[ExampleUse, ...] = ()


@dataclass(frozen=True)
class TenantTrail:
    """The rows of one tenant, and the adapters that saw them."""

    tenant: str
    executions: int
    by_domain: Mapping[str, int]
    examples: Mapping[str, int]
    seen_by: Mapping[str, int] = field(default_factory=dict)
    """`domain/voter` of the current adapters -> rows of the tenant that it trained on."""


@dataclass(frozen=True)
class DatasetState:
    """A dataset that a model was made from, and whether it is still in the store."""

    domain: str
    digest: str
    state: str
    """present; forgotten (removed, since it held a record that was forgotten); or missing."""


@dataclass(frozen=True)
class AdapterTrail:
    """The provenance of an adapter: voters, datasets, licences, settings and certificates."""

    what: str
    """voter, trained_adapters, consensus_checkpoint, merged_checkpoint or moe_checkpoint; checkpoint: one that no
    artifact names, such as an epoch's."""
    name: str
    digest: str
    artifact: str
    """Digest of the artifact it belongs to; empty where there is none."""
    current: bool
    voters: tuple[str, ...]
    """`domain/voter digest` of those that it is, or is made of."""
    datasets: tuple[DatasetState, ...]
    examples: int
    """Train examples that at least one of its voters was given; 0 where no dataset is present."""
    validation: int
    executions: tuple[str, ...]
    bullets: tuple[str, ...]
    licences: Mapping[str, int]
    sources: tuple[tuple[str, str, int], ...]
    tenants: Mapping[str, int]
    base_model: tuple[str, ...]
    seeds: tuple[int, ...]
    settings: Mapping[str, str]
    """Recipes and other settings -> digest, of every training that it comes from."""
    certificates: Mapping[str, str]
    """Domain -> digest of the certificate that accepted (or rejected) its voters."""
    round_voters: tuple[RoundVoter, ...] = ()
    """Of rounds of several organisations: whose, and which datasets they say they were trained on."""
    rounds: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Digest of such a round -> what the examples that judged were taken from."""
    unread: tuple[str, ...] = ()
    """What it was made from and that cannot be read here (why), so that all counts lack it."""


@dataclass(frozen=True)
class Absence:
    """Whether executions are absent from everything that a model was made from."""

    absent: bool
    found: tuple[str, ...]
    """Executions that are in a dataset: ids, or keyed digests of tombstones."""
    unknown: tuple[str, ...]
    """Datasets that are not in the store, so that they cannot be checked."""
    datasets: tuple[str, ...]
    executions_checked: int
    never_seen: tuple[str, ...] = ()
    """Ids that no execution of the store has, nor one that was forgotten: absent, or misspelt."""

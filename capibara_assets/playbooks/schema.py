"""Row types of the playbook tables."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from capibara_assets.storage.records import Record

INT64_MAX = 2**63 - 1
GENERAL = "general"
"""Domain of a bullet that fits none of the six; it joins all of them."""


class Bullet(Record):
    """One bullet of one playbook file as it stands there; for a delta, the bullet after the change."""

    schema_name = "Bullet"
    schema_version = 3
    key = ("bullet_id",)
    volatile = frozenset({"source_file", "source_line"})

    bullet_id: str = Field(description="playbook_id/local_id, unique")
    playbook_id: str = Field(description="the file's path below the playbook folder, without suffix")
    local_id: str = Field(description="id inside the playbook")
    agent_id: str = Field(description="whose playbook it is: from a manifest, the file, or shared content")
    section: str = Field(description="section heading, empty when there is none")
    title: str | None = Field(description="one line above the content, in families that have one")
    content: str = Field(description="the advice")
    helpful: int = Field(description="times it helped; at most 2**63-1, see counters_exact", ge=0)
    harmful: int = Field(description="times it did harm; at most 2**63-1, see counters_exact", ge=0)
    neutral: int = Field(description="times it made no difference; at most 2**63-1, see counters_exact", ge=0)
    counters_exact: str | None = Field(description="helpful/harmful/neutral in decimal when one is beyond 64 bits")
    tags: list[str] = Field(description="tags given in the file")
    evidence: list[str] = Field(description="what it was learned from, as given: <type>:<ref>")
    domains: list[str] = Field(description="domains it fits, best first; general when none")
    status: str = Field(description="active, or as the file says (invalid, deprecated, removed, merged, archived)")
    replaces: str | None = Field(description="bullet_id of the state before, where a delta changed it")
    created_at: datetime | None = Field(description="when it was written")
    updated_at: datetime | None = Field(description="when it was last changed")
    flags: list[str] = Field(description="what was odd but kept")
    source_file: str = Field(description="path below the experience folder")
    source_line: int = Field(description="line of the bullet, 0 when unknown")


class QuarantinedBullet(Record):
    """A line, entry or file that is no bullet and should have been one."""

    schema_name = "QuarantinedBullet"
    schema_version = 1
    key = ("quarantine_id",)

    quarantine_id: str = Field(description="digest of file, line, locator and reason")
    file: str = Field(description="path below the experience folder")
    line: int = Field(description="line, 0 for the whole file or when unknown")
    locator: str = Field(description="id of the entry in the file, empty when it has none")
    reason: str = Field(description="reason class, such as counter or type:content")
    detail: str = Field(description="what was expected and what was found")
    text: str = Field(description="the text, redacted, at most 64 KiB")


class PlaybookFile(Record):
    """One file that was looked at."""

    schema_name = "PlaybookFile"
    schema_version = 2
    key = ("path",)

    path: str = Field(description="path below the experience folder")
    family: str = Field(description="format family, found from the content")
    status: Literal["read", "ignored", "duplicate", "quarantined"] = Field(
        description="read: bullets, changes or runs taken; duplicate: same bytes as another"
    )
    bytes: int = Field(description="size")
    digest: str = Field(description="SHA-256 of the bytes")
    bullets: int = Field(description="bullets kept, of a delta those that it made or changed")
    quarantined: int = Field(description="entries quarantined")
    duplicates: int = Field(description="entries that repeat another one of the file word for word")
    agent_id: str | None = Field(description="the agent, null for files without bullets or runs")


class AgentRun(Record):
    """What is known of an agent's work: its manifest, or the report of one run."""

    schema_name = "AgentRun"
    schema_version = 2
    key = ("run_id",)

    run_id: str = Field(description="path of the report below the experience folder")
    kind: Literal["manifest", "run"] = Field(description="an agent's own manifest, or a run report")
    agent_id: str | None = Field(description="the agent, null where the report does not name one that is known")
    interactions: int | None = Field(description="tasks attempted, null when not stated", ge=0)
    successes: int | None = Field(description="tasks solved, null when not stated", ge=0)
    success_rate: float | None = Field(description="where a manifest gives a rate and no successes", ge=0, le=1)
    graduation_score: float | None = Field(description="given by the manifest", ge=0, le=1)
    domain_expertise: list[str] = Field(description="given by the manifest")


class Agent(Record):
    """An agent and whether it graduates."""

    schema_name = "Agent"
    schema_version = 1
    key = ("agent_id",)

    agent_id: str = Field(description="the agent")
    graduation_score: float = Field(
        description="given, or the lower 95 % bound on helpful/(helpful+harmful)", ge=0, le=1
    )
    interactions: int = Field(description="tasks attempted: given, reported, or the least the counters imply", ge=0)
    success_rate: float | None = Field(description="tasks solved per task attempted, null when unknown", ge=0, le=1)
    domain_expertise: list[str] = Field(description="given, or the domains of at least a tenth of its bullets")
    graduated: bool = Field(description="meets every criterion")
    missed: list[str] = Field(description="the criteria it missed, with figures")
    bullets: int = Field(description="distinct bullets over all snapshots of its playbook", ge=0)


class Consolidated(Record):
    """A bullet of a domain's consolidated playbook: near-duplicates merged over graduated agents."""

    schema_name = "Consolidated"
    schema_version = 2
    key = ("rank", "bullet_id")

    bullet_id: str = Field(description="id of the best wording")
    content: str = Field(description="the advice in its best wording, its title before it")
    section: str = Field(description="section heading of the best wording")
    domains: list[str] = Field(description="domains of all origins")
    helpful: int = Field(description="sum over the origins", ge=0)
    harmful: int = Field(description="sum over the origins", ge=0)
    score: float = Field(description="lower 95 % bound on helpful/(helpful+harmful)", ge=0, le=1)
    origins: list[str] = Field(description="bullet ids that were merged")
    evidence: list[str] = Field(description="evidence of all origins, <type>:<ref>, sorted")
    agents: list[str] = Field(description="agents they come from")
    rank: int = Field(description="1 is best", ge=1)
    compressed: bool = Field(description="in the small subset that covers most within the token budget")

"""Rows of the playbook tables out of what the readers found: redacted, with the domains they fit."""

from collections.abc import Callable
from dataclasses import dataclass

from capibara_assets.playbooks.formats.detection import Contents
from capibara_assets.playbooks.formats.parsed import RawBullet, Rejected
from capibara_assets.playbooks.schema import INT64_MAX, AgentRun, Bullet, PlaybookFile, QuarantinedBullet
from capibara_assets.playbooks.topics import domains_of
from capibara_assets.storage.digests import canonical_json, sha256_bytes

_SHOWN = 65_536
Redact = Callable[[str], str]


@dataclass(frozen=True)
class File:
    """One file that was looked at."""

    path: str
    """Below the folder of playbooks."""
    shown: str
    """Below the folder that was given."""
    size: int
    digest: str
    contents: Contents


def bullet_row(file: File, raw: RawBullet, agent: str, redact: Redact, replaces: str | None = None) -> Bullet:
    """A bullet of a file; counters beyond 64 bits stand exactly in a column of their own."""
    counters = (raw.helpful, raw.harmful, raw.neutral)
    section, content, tags = redact(raw.section), redact(raw.content), [redact(tag) for tag in raw.tags]
    return Bullet(
        bullet_id=f"{file.path}/{raw.local_id}",
        playbook_id=file.path,
        local_id=raw.local_id,
        agent_id=agent,
        section=section,
        title=redact(raw.title) if raw.title is not None else None,
        content=content,
        helpful=min(raw.helpful, INT64_MAX),
        harmful=min(raw.harmful, INT64_MAX),
        neutral=min(raw.neutral, INT64_MAX),
        counters_exact="/".join(map(str, counters)) if max(counters) > INT64_MAX else None,
        tags=tags,
        evidence=[redact(reference) for reference in raw.evidence],
        domains=domains_of(section, tags, f"{raw.title or ''}\n{content}"),
        status=raw.status,
        replaces=replaces,
        created_at=raw.created_at,
        updated_at=raw.updated_at,
        flags=list(raw.flags),
        source_file=file.shown,
        source_line=raw.line,
    )


def quarantined_row(file: File, rejected: Rejected, redact: Redact) -> QuarantinedBullet:
    identity = [file.path, rejected.line, rejected.locator, rejected.reason]
    return QuarantinedBullet(
        quarantine_id=sha256_bytes(canonical_json(identity))[:32],
        file=file.shown,
        line=rejected.line,
        locator=rejected.locator,
        reason=rejected.reason,
        detail=redact(rejected.detail),
        text=redact(rejected.text[:_SHOWN]),
    )


def file_row(file: File, agent: str | None, *, repeat: bool, bullets: int, quarantined: int) -> PlaybookFile:
    return PlaybookFile(
        path=file.shown,
        family=file.contents.family,
        status="duplicate" if repeat else file.contents.status,
        bytes=file.size,
        digest=file.digest,
        bullets=0 if repeat else bullets,
        quarantined=0 if repeat else quarantined,
        duplicates=file.contents.parsed.duplicates if file.contents.parsed is not None and not repeat else 0,
        agent_id=agent,
    )


def run_rows(file: File, agent: str | None) -> list[AgentRun]:
    """What a manifest or a run report says; `agent`: whose run it is, as far as is known."""
    manifest, run = file.contents.manifest, file.contents.run
    if manifest is not None:
        return [
            AgentRun(
                run_id=file.path,
                kind="manifest",
                agent_id=manifest.agent_id,
                interactions=manifest.interactions,
                successes=manifest.successes,
                success_rate=manifest.success_rate,
                graduation_score=manifest.graduation_score,
                domain_expertise=[domain.value for domain in manifest.domain_expertise],
            )
        ]
    if run is None:
        return []
    return [
        AgentRun(
            run_id=file.path,
            kind="run",
            agent_id=agent,
            interactions=run.interactions,
            successes=run.successes,
            success_rate=None,
            graduation_score=None,
            domain_expertise=[],
        )
    ]

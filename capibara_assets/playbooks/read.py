"""Read a folder of playbooks into tables: bullets, what was quarantined, files, and what is known of the agents."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import polars as pl

from capibara_assets.errors import InputError
from capibara_assets.playbooks.authors import agents_by_content, manifest_agent
from capibara_assets.playbooks.families import Contents, read_contents
from capibara_assets.playbooks.parsed import RawBullet, Rejected
from capibara_assets.playbooks.schema import INT64_MAX, AgentRun, Bullet, PlaybookFile, QuarantinedBullet
from capibara_assets.playbooks.topics import domains_of
from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.storage.records import table

_SHOWN = 65_536


@dataclass(frozen=True)
class Playbooks:
    """Tables of `Bullet`, `QuarantinedBullet`, `PlaybookFile` and `AgentRun`."""

    bullets: pl.DataFrame
    quarantine: pl.DataFrame
    files: pl.DataFrame
    runs: pl.DataFrame


@dataclass(frozen=True)
class _File:
    path: str
    """Below the folder of playbooks."""
    shown: str
    """Below the folder that was given."""
    size: int
    digest: str
    contents: Contents


def read_playbooks(folder: Path, *, redact: Callable[[str], str] = str) -> Playbooks:
    """Read every playbook in `folder/playbooks` or, where there is none, every file below `folder` that looks like one.

    Args:
        redact: takes secrets out of a text; applied to everything that is kept or quarantined.

    Raises:
        InputError: the folder does not exist.
    """
    if not folder.is_dir():
        raise InputError(f"no folder {folder}: give the folder that holds playbooks/ and e2b_logs/")
    own = (folder / "playbooks").is_dir()
    root = folder / "playbooks" if own else folder
    files = [_look(path, root, folder, own_folder=own) for path in _paths(root)]
    files = [file for file in files if own or file.contents.status != "ignored"]
    manifests = {
        str(PurePosixPath(file.path).parent): file.contents.manifest.agent_id
        for file in files
        if file.contents.manifest is not None
    }
    repeats = _repeats(files, manifests)
    agents = _agents(files, manifests, repeats)
    bullets = [
        _bullet(file, raw, agents[file.path], redact)
        for file in files
        if file.contents.parsed is not None and file.path not in repeats
        for raw in file.contents.parsed.bullets
    ]
    quarantine = {
        row.quarantine_id: row
        for file in files
        if file.path not in repeats
        for rejected in _rejected(file)
        for row in [_quarantined(file, rejected, redact)]
    }
    return Playbooks(
        bullets=table(Bullet, bullets),
        quarantine=table(QuarantinedBullet, quarantine.values()),
        files=table(PlaybookFile, [_file_row(file, agents.get(file.path), file.path in repeats) for file in files]),
        runs=table(AgentRun, [row for file in files if file.path not in repeats for row in _runs(file, files, agents)]),
    )


def _paths(root: Path) -> list[Path]:
    """Files below `root`, hidden ones left out, in an order that does not depend on the file system."""
    found = (path for path in root.rglob("*") if path.is_file())
    visible = (path for path in found if not any(part.startswith(".") for part in path.relative_to(root).parts))
    return sorted(visible, key=lambda path: path.relative_to(root).as_posix())


def _look(path: Path, root: Path, folder: Path, *, own_folder: bool) -> _File:
    data = path.read_bytes()
    return _File(
        path=path.relative_to(root).as_posix(),
        shown=path.relative_to(folder).as_posix(),
        size=len(data),
        digest=sha256_bytes(data),
        contents=read_contents(data, path.name, own_folder=own_folder),
    )


def _repeats(files: list[_File], manifests: dict[str, str]) -> set[str]:
    """Paths of playbooks and runs with the same bytes as an earlier file of the same agent."""
    seen: set[tuple[str | None, str]] = set()
    repeats: set[str] = set()
    for file in files:
        if file.contents.parsed is None and file.contents.run is None:
            continue
        key = (manifest_agent(file.path, manifests), file.digest)
        if key in seen:
            repeats.add(file.path)
        seen.add(key)
    return repeats


def _agents(files: list[_File], manifests: dict[str, str], repeats: set[str]) -> dict[str, str]:
    """Path -> agent, for every file with bullets or a manifest."""
    known: dict[str, str] = {}
    anonymous: dict[str, list[str]] = {}
    for file in files:
        parsed, manifest = file.contents.parsed, file.contents.manifest
        named = manifest_agent(file.path, manifests)
        if manifest is not None:
            known[file.path] = manifest.agent_id
        elif parsed is not None and file.path not in repeats:
            if agent := named or parsed.agent_id:
                known[file.path] = agent
            elif parsed.bullets:
                anonymous[file.path] = [bullet.content for bullet in parsed.bullets]
    return known | agents_by_content(anonymous)


def _bullet(file: _File, raw: RawBullet, agent: str, redact: Callable[[str], str]) -> Bullet:
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
        domains=domains_of(section, tags, f"{raw.title or ''}\n{content}"),
        status=raw.status,
        created_at=raw.created_at,
        updated_at=raw.updated_at,
        flags=list(raw.flags),
        source_file=file.shown,
        source_line=raw.line,
    )


def _rejected(file: _File) -> list[Rejected]:
    return [*file.contents.rejected, *(file.contents.parsed.rejected if file.contents.parsed else ())]


def _quarantined(file: _File, rejected: Rejected, redact: Callable[[str], str]) -> QuarantinedBullet:
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


def _file_row(file: _File, agent: str | None, repeat: bool) -> PlaybookFile:
    parsed = file.contents.parsed if not repeat else None
    return PlaybookFile(
        path=file.shown,
        family=file.contents.family,
        status="duplicate" if repeat else file.contents.status,
        bytes=file.size,
        digest=file.digest,
        bullets=len(parsed.bullets) if parsed else 0,
        quarantined=0 if repeat else len(_rejected(file)),
        duplicates=parsed.duplicates if parsed else 0,
        agent_id=agent,
    )


def _runs(file: _File, files: list[_File], agents: dict[str, str]) -> list[AgentRun]:
    manifest, run = file.contents.manifest, file.contents.run
    if manifest is not None:
        return [
            AgentRun(
                run_id=file.path,
                kind="manifest",
                agent_id=manifest.agent_id,
                interactions=manifest.interactions,
                successes=manifest.successes,
                graduation_score=manifest.graduation_score,
                domain_expertise=[domain.value for domain in manifest.domain_expertise],
            )
        ]
    if run is None:
        return []
    # a run names its agent, or writes playbooks whose file names bear the experiment's id
    written = {agents[f.path] for f in files if run.experiment and run.experiment in f.path and f.path in agents}
    agent = run.agent_id or (written.pop() if len(written) == 1 else None)
    return [
        AgentRun(
            run_id=file.path,
            kind="run",
            agent_id=agent,
            interactions=run.interactions,
            successes=run.successes,
            graduation_score=None,
            domain_expertise=[],
        )
    ]

"""Converts parsed playbook files into rows of the playbook tables: redacted, and bullets with their domains."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.playbooks.formats.detection import Contents
from capibara_assets.playbooks.formats.parsed import RawBullet, Rejected
from capibara_assets.playbooks.schema import GENERAL, INT64_MAX, AgentRun, Bullet, PlaybookFile, QuarantinedBullet
from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.storage.jsonfiles import well_formed

_DETAIL = 1_000  # characters of what is wrong with a quarantined entry
_SHOWN = 65_536  # characters of a quarantined entry
_SEARCHED = 4 * _SHOWN  # of which secrets are searched
_CUT = 32_768  # before the end of what is searched: no secret that is cut there is longer
_ENOUGH = 2  # points that make a domain
_NO_WORD = r"(?!)"
# a strong word names the domain and suffices alone; weak words suffice in pairs; a domain without an entry is named by
# its own name alone
_STRONG: dict[Domain, str] = {
    Domain.PYTHON: r"python|pytest|pip install|pep ?8|f-strings?|__init__|asyncio|list comprehensions?|docstrings?",
    Domain.SQL: r"sql|sqlite|postgres(?:ql)?|mysql|group by|order by|left join|inner join|select \*|pragma|foreign key",
    Domain.JAVASCRIPT: r"javascript|typescript|node\.?js|npm|console\.log|shadow ?root|queryselector|=== ?",
    Domain.DEBUG: r"debug(?:ging)?|traceback|stack ?trace|root cause|troubleshoot(?:ing)?|error handling|bug(?:s|fix)?",
    Domain.ML: r"machine learning|pytorch|tensorflow|scikit-learn|sklearn|numpy|neural net(?:work)?s?|overfit(?:ting)?",
    Domain.API: r"apis?|endpoints?|fastapi|http requests?|access_token|status codes?|pagination|webhooks?",
}
_WEAK: dict[Domain, str] = {
    Domain.PYTHON: r"dict|tuple|import|def|lambda|generator|decorator|itertools|class|none|list",
    Domain.SQL: r"join|query|queries|table|tables|column|columns|schema|index|transaction|null",
    Domain.JAVASCRIPT: r"promise|await|async|const|let|undefined|dom|closure|callback|prototype|array",
    Domain.DEBUG: r"error|errors|exception|fail|fails|failed|failure|failures|fix|retry|reproduce|assert|log|logs",
    Domain.ML: r"model|training|dataset|epoch|loss|classifier|regression|feature|features|accuracy|validation",
    Domain.API: r"request|requests|response|responses|http|json|client|server|login|token|header|payload|timeout",
}
Redact = Callable[[str], str]


@dataclass(frozen=True)
class ScannedFile:
    """One file of the playbook folder, with its parsed contents."""

    path: str
    """Below the folder of playbooks."""
    shown: str
    """Below the folder that was given."""
    size: int
    digest: str
    contents: Contents


def bullet_row(
    file: ScannedFile,
    raw: RawBullet,
    agent: str,
    replaces: str | None = None,
    *,
    redact: Redact,
    redact_name: Redact,
) -> Bullet:
    """The row of a bullet; counters beyond 64 bits are exact in a column of their own."""
    local_id = redact_name(raw.local_id)
    counters = (raw.helpful, raw.harmful, raw.neutral)
    section, content, tags = redact(raw.section), redact(raw.content), [redact(tag) for tag in raw.tags]
    return Bullet(
        bullet_id=f"{file.path}/{local_id}",
        playbook_id=file.path,
        local_id=local_id,
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
        status=redact(raw.status),
        replaces=replaces and redact_name(replaces),
        created_at=raw.created_at,
        updated_at=raw.updated_at,
        flags=list(raw.flags),
        source_file=file.shown,
        source_line=raw.line,
    )


def quarantined_row(file: ScannedFile, rejected: Rejected, *, redact: Redact, redact_name: Redact) -> QuarantinedBullet:
    """The quarantine row of an entry that is no valid bullet; its id and the key that a reason names are names."""
    locator, reason = (redact_name(well_formed(text)) for text in (rejected.locator, rejected.reason))
    identity = [file.path, rejected.line, locator, reason]
    detail, text = _shown(rejected, redact)
    return QuarantinedBullet(
        quarantine_id=sha256_bytes(canonical_json(identity))[:32],
        file=file.shown,
        line=rejected.line,
        locator=locator,
        reason=reason,
        detail=detail,
        text=text,
    )


def _shown(rejected: Rejected, redact: Redact) -> tuple[str, str]:
    """Detail and text of an entry, redacted as one, so that what the text tells is taken out of the detail; then cut.

    Half of a token would not be known for one. Of a long text only the head is searched, without the end of that.
    """
    told = " ".join(well_formed(rejected.detail).splitlines())
    searched = well_formed(rejected.text[:_SEARCHED])
    detail, _, text = redact(f"{told}\n{searched}").partition("\n")
    text = text if len(rejected.text) <= _SEARCHED else text[:-_CUT]
    return detail[:_DETAIL], text[:_SHOWN]


def file_row(file: ScannedFile, agent: str | None, *, repeat: bool, bullets: int, quarantined: int) -> PlaybookFile:
    """The row of a file; `repeat`: a file with the same bytes was read before."""
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


def run_rows(file: ScannedFile, agent: str | None) -> list[AgentRun]:
    """The rows of a manifest or run report; `agent`: whose run it is, None when unknown."""
    manifest, run = file.contents.manifest, file.contents.run
    if manifest is not None:
        return [
            AgentRun(
                run_id=file.path,
                kind="manifest",
                agent_id=agent,
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


# --- the domains of a bullet ------------------------------------------------------------------------------------------


def domains_of(section: str, tags: list[str] | tuple[str, ...], content: str) -> list[str]:
    """Domains of a bullet, best first; `["general"]` when none fits.

    A strong word scores 2 and twice that in the section or tags, distinct weak words 1 each; 2 points make a domain.
    """
    heading, body = f"{section} {' '.join(tags)}".lower().replace("_", " "), content.lower()
    scores = {
        domain: 4 * len(set(strong.findall(heading)))
        + 2 * len(set(strong.findall(body)))
        + len(set(weak.findall(body)))
        for domain, (strong, weak) in _patterns().items()
    }
    fitting = [domain for domain in DOMAINS if scores[domain] >= _ENOUGH]
    return [domain.value for domain in sorted(fitting, key=lambda domain: -scores[domain])] or [GENERAL]


@cache
def _patterns() -> dict[Domain, tuple[re.Pattern[str], re.Pattern[str]]]:
    def whole_words(words: str) -> re.Pattern[str]:
        return re.compile(rf"(?<!\w)(?:{words})(?!\w)")

    return {d: (whole_words(_STRONG.get(d, re.escape(d.value))), whole_words(_WEAK.get(d, _NO_WORD))) for d in DOMAINS}

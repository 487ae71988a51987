"""Pages of the experience and knowledge assets: playbooks, logs, executions, patterns."""

from typing import TYPE_CHECKING

import dagster as dg

from capibara_assets.metadata.page import AssetPage, KeyFigure, PageVerdict
from capibara_assets.metadata.tables import counts, preview

if TYPE_CHECKING:
    import polars as pl

    from capibara_assets.executions.ingest.ingest import Tables
    from capibara_assets.executions.patterns.extract import ExtractedKnowledge
    from capibara_assets.playbooks.consolidate import Consolidation
    from capibara_assets.playbooks.read import Playbooks

MANY_QUARANTINED = 0.05  # share of what was read above which a quarantine deserves a look


def playbooks_page(read: "Playbooks") -> AssetPage:
    """Page of `ace_playbooks`: numbers of bullets and playbooks, and a preview."""
    bullets, playbooks = read.bullets.height, read.bullets["playbook_id"].n_unique()
    return AssetPage(
        _reading(bullets, read.quarantine.height, f"{bullets:,} bullets of {playbooks:,} playbooks", "`quarantine`"),
        KeyFigure("bullets", bullets),
        contents={
            "playbooks": playbooks,
            "quarantined": read.quarantine.height,
            "preview": preview(read.bullets, ["playbook_id", "section", "content", "helpful", "harmful", "domains"]),
        },
    )


def logs_page(read: "Tables") -> AssetPage:
    """Page of `e2b_logs`: executions, redacted secrets, quarantined lines by reason, and the newest executions."""
    summary = read.summary
    executions, quarantined, secrets = summary["executions"], summary["quarantined"], summary["secrets"]
    words = f"{executions:,} executions, {secrets:,} secrets redacted"
    return AssetPage(
        _reading(executions, quarantined, words, "`capibara quarantine list`"),
        KeyFigure("executions", executions),
        contents={
            "quarantined": quarantined,
            "reasons": counts(summary["reasons"]),
            "outcomes": counts(summary["by_outcome"]),
            "not_executions": counts(summary["known"]),
            "secrets_redacted": secrets,
            "secrets_by_kind": counts({kind: one["places"] for kind, one in summary["secrets_by_kind"].items()}),
            "forgotten": summary["forgotten"],
            "new_lines": read.lines_read,
            "files": preview(read.table("files")),
            "preview": preview(read.newest(), ["timestamp", "language", "domains", "outcome", "code", "error_name"]),
        },
    )


def executions_page(executions: "pl.DataFrame") -> AssetPage:
    """Page of `e2b_executions`: executions of one domain by outcome and language."""
    count, sandboxes = executions.height, executions["sandbox_id"].n_unique()
    good = PageVerdict("good", f"{count:,} executions of {sandboxes:,} sandboxes")
    empty = PageVerdict("bad", "no execution: no log has code of this domain, so nothing of it can be trained")
    return AssetPage(
        good if count else empty,
        KeyFigure("executions", count),
        contents={
            "sandboxes": sandboxes,
            "outcomes": counts(dict(executions["outcome"].value_counts().iter_rows())),
            "languages": counts(dict(executions["language"].value_counts().iter_rows())),
            "preview": preview(executions, ["timestamp", "language", "outcome", "code", "evidence", "quality"]),
        },
    )


def consolidated_page(consolidation: "Consolidation") -> AssetPage:
    """Page of `consolidated_playbook`: graduated agents, criteria the others missed, and the best bullets."""
    agents, bullets = consolidation.agents, consolidation.bullets
    graduated = agents.filter(agents["graduated"]).height
    words = f"{bullets.height:,} bullets; {graduated:,} of {agents.height:,} agents graduated"
    none = f"no bullet: {graduated:,} of {agents.height:,} agents graduated; `agents` says what each missed"
    shown = ["agent_id", "graduated", "missed", "graduation_score", "interactions", "success_rate"]
    return AssetPage(
        PageVerdict("good", words) if bullets.height else PageVerdict("look", none),
        KeyFigure("bullets", bullets.height),
        contents={
            "graduated_agents": graduated,
            "agents": preview(agents, shown),
            "preview": preview(bullets, ["rank", "content", "helpful", "harmful", "score", "compressed"]),
        },
        records={"statistics": dg.MetadataValue.json(consolidation.statistics)},
    )


def patterns_page(extracted: "ExtractedKnowledge") -> AssetPage:
    """Page of `e2b_patterns`: patterns by kind and success rate, and repair pairs."""
    from capibara_assets.executions.patterns.extract import success_by_language

    patterns, repairs = extracted.patterns, extracted.repairs
    words = f"{patterns.height:,} patterns and {repairs.height:,} repair pairs of {extracted.read:,} executions"
    return AssetPage(
        PageVerdict("good" if patterns.height and repairs.height else "look", words),
        KeyFigure("patterns", patterns.height),
        contents={
            "executions": extracted.read,
            "repair_pairs": repairs.height,
            "kinds": counts(dict(patterns["kind"].value_counts().iter_rows())),
            "success_by_language": preview(success_by_language(patterns)),
            "preview": preview(patterns, ["kind", "name", "language", "frequency", "success_rate", "explanation"]),
            "repairs": preview(repairs, ["language", "error_name", "distance", "diff"]),
        },
    )


def _reading(count: int, quarantined: int, words: str, where: str) -> PageVerdict:
    """Verdict on the input that was read; an excessive quarantine is reported with a hint."""
    left_out = f"{quarantined:,} left out as no valid ones ({quarantined / max(count + quarantined, 1):.1%})"
    if not count:
        return PageVerdict("bad", f"nothing was read; {left_out}: see {where}")
    if quarantined > MANY_QUARANTINED * (count + quarantined):
        return PageVerdict("look", f"{words}, but {left_out}: see {where}")
    return PageVerdict("good", f"{words}; {left_out}")

"""Metadata of the experience and knowledge assets: playbooks, logs, executions, patterns."""

from typing import TYPE_CHECKING, Any

import dagster as dg

from capibara_assets.metadata.tables import counts, preview

if TYPE_CHECKING:
    import polars as pl

    from capibara_assets.executions.ingest.ingest import Tables
    from capibara_assets.executions.patterns.extract import ExtractedKnowledge
    from capibara_assets.playbooks.consolidate import Consolidation
    from capibara_assets.playbooks.read import Playbooks


def playbooks_entries(read: "Playbooks") -> dict[str, Any]:
    """Metadata of `ace_playbooks`: numbers of bullets and playbooks, and a preview."""
    return {
        "bullets": read.bullets.height,
        "playbooks": read.bullets["playbook_id"].n_unique(),
        "quarantined": read.quarantine.height,
        "preview": preview(read.bullets, ["playbook_id", "section", "content", "helpful", "harmful", "domains"]),
    }


def logs_entries(read: "Tables") -> dict[str, Any]:
    """Metadata of `e2b_logs`: executions, redacted secrets, quarantined lines by reason, and the newest executions."""
    summary = read.summary
    return {
        "executions": summary["executions"],
        "quarantined": summary["quarantined"],
        "secrets_redacted": summary["secrets"],
        "secrets_by_kind": counts({kind: one["places"] for kind, one in summary["secrets_by_kind"].items()}),
        "forgotten": summary["forgotten"],
        "new_lines": read.lines_read,
        "reasons": counts(summary["reasons"]),
        "outcomes": counts(summary["by_outcome"]),
        "not_executions": counts(summary["known"]),
        "files": preview(read.table("files")),
        "preview": preview(read.newest(), ["timestamp", "language", "domains", "outcome", "code", "error_name"]),
    }


def executions_entries(executions: "pl.DataFrame") -> dict[str, Any]:
    """Metadata of `e2b_executions`: executions of one domain by outcome and language."""
    return {
        "executions": executions.height,
        "sandboxes": executions["sandbox_id"].n_unique(),
        "outcomes": counts(dict(executions["outcome"].value_counts().iter_rows())),
        "languages": counts(dict(executions["language"].value_counts().iter_rows())),
        "preview": preview(executions, ["timestamp", "language", "outcome", "code", "evidence", "quality"]),
    }


def consolidated_entries(consolidation: "Consolidation") -> dict[str, Any]:
    """Metadata of `consolidated_playbook`: graduated agents, criteria the others missed, and the best bullets."""
    agents, bullets = consolidation.agents, consolidation.bullets
    shown = ["agent_id", "graduated", "missed", "graduation_score", "interactions", "success_rate"]
    return {
        "bullets": bullets.height,
        "graduated_agents": agents.filter(agents["graduated"]).height,
        "agents": preview(agents, shown),
        "statistics": dg.MetadataValue.json(consolidation.statistics),
        "preview": preview(bullets, ["rank", "content", "helpful", "harmful", "score", "compressed"]),
    }


def patterns_entries(extracted: "ExtractedKnowledge") -> dict[str, Any]:
    """Metadata of `e2b_patterns`: patterns by kind and success rate, and repair pairs."""
    from capibara_assets.executions.patterns.extract import success_by_language

    patterns, repairs = extracted.patterns, extracted.repairs
    return {
        "executions": extracted.read,
        "patterns": patterns.height,
        "repair_pairs": repairs.height,
        "kinds": counts(dict(patterns["kind"].value_counts().iter_rows())),
        "success_by_language": preview(success_by_language(patterns)),
        "preview": preview(patterns, ["kind", "name", "language", "frequency", "success_rate", "explanation"]),
        "repairs": preview(repairs, ["language", "error_name", "distance", "diff"]),
    }

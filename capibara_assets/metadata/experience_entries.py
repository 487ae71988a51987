"""What agents left behind, as metadata of its materializations."""

from typing import TYPE_CHECKING, Any

from capibara_assets.metadata.tables import counts, preview

if TYPE_CHECKING:
    import polars as pl

    from capibara_assets.executions.ingest.ingest import Tables
    from capibara_assets.playbooks.read import Playbooks


def playbooks_entries(read: "Playbooks") -> dict[str, Any]:
    """`ace_playbooks`: how many bullets of how many playbooks, and the first of them."""
    return {
        "bullets": read.bullets.height,
        "playbooks": read.bullets["playbook_id"].n_unique(),
        "quarantined": read.quarantine.height,
        "preview": preview(read.bullets, ["playbook_id", "section", "content", "helpful", "harmful", "domains"]),
    }


def logs_entries(read: "Tables") -> dict[str, Any]:
    """`e2b_logs`: what was read, redacted and refused, and the newest executions."""
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
    """`e2b_executions`: outcomes and languages of one domain's executions."""
    return {
        "executions": executions.height,
        "sandboxes": executions["sandbox_id"].n_unique(),
        "outcomes": counts(dict(executions["outcome"].value_counts().iter_rows())),
        "languages": counts(dict(executions["language"].value_counts().iter_rows())),
        "preview": preview(executions, ["timestamp", "language", "outcome", "code", "evidence", "quality"]),
    }

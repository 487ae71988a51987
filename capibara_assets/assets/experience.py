"""What agents left behind, read once: playbooks, execution logs, and each domain's executions."""

from datetime import UTC, datetime

import dagster as dg

from capibara_assets.assets.inputs import Inputs, materialized
from capibara_assets.domains import Domain
from capibara_assets.metadata import counts, preview
from capibara_assets.partitions import domains
from capibara_assets.resources import Experience, Store


@dg.asset(group_name="experience", kinds={"parquet"}, code_version="3")
def ace_playbooks(context: dg.AssetExecutionContext, store: Store, experience: Experience) -> dg.MaterializeResult:
    """Every bullet of every agent's ACE playbook, typed, with its counters; lines that do not fit are quarantined."""
    from capibara_assets.executions.redact import redact_text
    from capibara_assets.playbooks.read import read_playbooks
    from capibara_assets.playbooks.schema import AgentRun, Bullet, PlaybookFile, QuarantinedBullet

    inputs = Inputs.of(context, store)
    read = read_playbooks(experience.path, redact=redact_text)
    artifact = inputs.publish(
        "ace_playbooks",
        None,
        tables={
            "bullets": (Bullet, read.bullets),
            "runs": (AgentRun, read.runs),
            "quarantine": (QuarantinedBullet, read.quarantine),
            "files": (PlaybookFile, read.files),
        },
        volatile=("files.parquet",),
    )
    return materialized(
        artifact,
        inputs,
        {
            "bullets": read.bullets.height,
            "playbooks": read.bullets["playbook_id"].n_unique(),
            "quarantined": read.quarantine.height,
            "preview": preview(read.bullets, ["playbook_id", "section", "content", "helpful", "harmful", "domains"]),
        },
    )


@dg.asset(group_name="experience", kinds={"parquet"}, code_version="3")
def e2b_logs(context: dg.AssetExecutionContext, store: Store, experience: Experience) -> dg.MaterializeResult:
    """The ledger: every file and line seen exactly once; executions parsed, checked, redacted and classified."""
    from capibara_assets.executions.forgotten import read_forgotten
    from capibara_assets.executions.ingest import ingest, ledger_name
    from capibara_assets.executions.schema import Execution, LogFile, Quarantined

    inputs = Inputs.of(context, store)
    ledger = inputs.store.work_dir("e2b_logs", None, ledger_name(experience.path, experience.redact_also))
    also, forgotten = experience.redact_also, read_forgotten(inputs.store)
    with ingest(experience.path, now=datetime.now(UTC), ledger=ledger, also=also, forgotten=forgotten) as read:
        artifact = inputs.publish(
            "e2b_logs",
            None,
            tables={
                "executions": (Execution, read.path("executions")),
                "quarantine": (Quarantined, read.path("quarantine")),
                "files": (LogFile, read.path("files")),
            },
            documents={"summary": read.summary},
            volatile=("files.parquet", "summary.json"),
        )
        summary, files, newest = read.summary, read.table("files"), read.newest()
    shown = ["timestamp", "language", "domains", "outcome", "code", "error_name"]
    return materialized(
        artifact,
        inputs,
        {
            "executions": summary["executions"],
            "quarantined": summary["quarantined"],
            "secrets_redacted": summary["secrets"],
            "secrets_by_kind": counts({kind: found["places"] for kind, found in summary["secrets_by_kind"].items()}),
            "forgotten": summary["forgotten"],
            "new_lines": read.lines_read,
            "reasons": counts(summary["reasons"]),
            "outcomes": counts(summary["by_outcome"]),
            "not_executions": counts(summary["known"]),
            "files": preview(files),
            "preview": preview(newest, shown),
        },
    )


@dg.asset(partitions_def=domains, group_name="experience", kinds={"parquet"}, code_version="2", deps=[e2b_logs])
def e2b_executions(context: dg.AssetExecutionContext, store: Store) -> dg.MaterializeResult:
    """The executions of one domain; one execution may belong to two (a SQL repair is `sql` and `debug`)."""
    from capibara_assets.executions.schema import Execution
    from capibara_assets.executions.selection import of_domain

    domain = Domain(context.partition_key)
    inputs = Inputs.of(context, store)
    executions = of_domain(inputs.artifact("e2b_logs").frame("executions"), domain)
    artifact = inputs.publish("e2b_executions", domain, tables={"executions": (Execution, executions)})
    return materialized(
        artifact,
        inputs,
        {
            "executions": executions.height,
            "sandboxes": executions["sandbox_id"].n_unique(),
            "outcomes": counts(dict(executions["outcome"].value_counts().iter_rows())),
            "languages": counts(dict(executions["language"].value_counts().iter_rows())),
            "preview": preview(executions, ["timestamp", "language", "outcome", "code", "evidence", "quality"]),
        },
    )

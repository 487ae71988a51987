"""Experience assets: agents' playbooks, execution logs, and each domain's executions."""

from datetime import UTC, datetime

import dagster as dg

from capibara_assets.assets.inputs import Inputs, materialized
from capibara_assets.domains import Domain
from capibara_assets.metadata.experience_entries import executions_page, logs_page, playbooks_page
from capibara_assets.partitions import domains
from capibara_assets.resources import DataEngine, Experience, Store


@dg.asset(group_name="experience", kinds={"parquet"}, code_version="6")
def ace_playbooks(context: dg.AssetExecutionContext, store: Store, experience: Experience) -> dg.MaterializeResult:
    """All bullets of the agents' ACE playbooks, with their counters. Worry when many lines are quarantined."""
    from capibara_assets.executions.ingest.ledger import seen_secrets
    from capibara_assets.executions.secrets.redact import redact_name, redact_text
    from capibara_assets.playbooks.read import VOLATILE, read_playbooks

    inputs = Inputs.of(context, store)
    seen = seen_secrets(inputs.store.work)
    read = read_playbooks(
        experience.path, redact=lambda text: seen.replaced(redact_text(text)), redact_name=redact_name
    )
    artifact = inputs.publish("ace_playbooks", None, tables=read.tables(), volatile=VOLATILE)
    return materialized(artifact, inputs, playbooks_page(read))


@dg.asset(group_name="experience", kinds={"parquet"}, code_version="5")
def e2b_logs(
    context: dg.AssetExecutionContext, store: Store, experience: Experience, data_engine: DataEngine
) -> dg.MaterializeResult:
    """All executions from the log files, each line read exactly once, validated, redacted and classified.

    Worry when the quarantine grows or a secret of a new kind is redacted.
    """
    from capibara_assets.executions.ingest.forgotten import read_forgotten
    from capibara_assets.executions.ingest.ingest import VOLATILE, ingest, ledger_name

    inputs = Inputs.of(context, store)
    ledger = inputs.store.work_dir("e2b_logs", None, ledger_name(experience.path, experience.redact_also))
    also, forgotten = experience.redact_also, read_forgotten(inputs.store)
    with (
        data_engine.started() as cluster,
        ingest(
            experience.path, now=datetime.now(UTC), ledger=ledger, also=also, forgotten=forgotten, cluster=cluster
        ) as read,
    ):
        tables, documents = read.tables(), read.documents()
        artifact = inputs.publish("e2b_logs", None, tables=tables, documents=documents, volatile=VOLATILE)
        shown = logs_page(read)
    return materialized(artifact, inputs, shown)


@dg.asset(partitions_def=domains, group_name="experience", kinds={"parquet"}, code_version="4", deps=[e2b_logs])
def e2b_executions(context: dg.AssetExecutionContext, store: Store) -> dg.MaterializeResult:
    """The executions of one domain; one execution can belong to two (a SQL repair is `sql` and `debug`).

    Worry when it is empty: then no code in the logs was assigned to this domain.
    """
    from capibara_assets.executions.schema import Execution
    from capibara_assets.executions.selection import tables_of

    domain = Domain(context.partition_key)
    inputs = Inputs.of(context, store)
    every = inputs.artifact("e2b_logs").frame("executions")
    frames = tables_of(every, domain)
    tables = {name: (Execution, frame) for name, frame in frames.items()}
    artifact = inputs.publish("e2b_executions", domain, tables=tables)
    return materialized(artifact, inputs, executions_page(frames["executions"]))

"""Schema checks: one blocking check per asset that its tables match their record types."""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

import dagster as dg

from capibara_assets.assets.inputs import Inputs
from capibara_assets.checks.results import judged
from capibara_assets.domains import Domain
from capibara_assets.partitions import domains
from capibara_assets.resources import Store

if TYPE_CHECKING:
    from capibara_assets.storage.records import Record

# Asset → table → record type, as module:class; imported when a check runs, so that loading the definitions is fast.
TABLES: dict[str, dict[str, str]] = {
    "ace_playbooks": {
        "bullets": "playbooks.schema:Bullet",
        "runs": "playbooks.schema:AgentRun",
        "quarantine": "playbooks.schema:QuarantinedBullet",
        "files": "playbooks.schema:PlaybookFile",
    },
    "e2b_logs": {
        "executions": "executions.schema:Execution",
        "quarantine": "executions.schema:Quarantined",
        "files": "executions.schema:LogFile",
    },
    "e2b_executions": {"executions": "executions.schema:Execution", "around": "executions.schema:Execution"},
    "consolidated_playbook": {"bullets": "playbooks.schema:Consolidated", "agents": "playbooks.schema:Agent"},
    "e2b_patterns": {
        "executions": "executions.schema:Execution",
        "around": "executions.schema:Execution",
        "patterns": "executions.schema:Pattern",
        "repairs": "executions.schema:RepairPair",
    },
    "example_groups": {"groups": "datasets.schema:Group"},
    "moe_dataset": {
        "examples": "datasets.schema:Example",
        "left_out": "datasets.schema:LeftOut",
        "clusters": "datasets.duplicates.clusters:Cluster",
        "contaminated": "datasets.duplicates.decontamination:Contaminated",
    },
    "routing_dataset": {"routes": "datasets.schema:Route"},
    "evaluation": {
        "losses": "evaluation.schema:ExampleLoss",
        "answers": "evaluation.answering.answer:Answer",
        "grades": "evaluation.grading.grade:Grade",
        "scores": "evaluation.statistics.scores:Score",
    },
}
PARTITIONED = frozenset({"e2b_executions", "consolidated_playbook", "e2b_patterns", "moe_dataset", "evaluation"})


WRITTEN = "its tables were written by another version, or changed since; if they fail again, it is a bug to report"


def record_type(reference: str) -> "type[Record]":
    """The record type of a reference in `TABLES`."""
    module, _, name = reference.partition(":")
    record: type[Record] = getattr(import_module(f"capibara_assets.{module}"), name)
    return record


def schema_check(asset: str, tables: Mapping[str, str]) -> dg.AssetChecksDefinition:
    """A blocking check of the columns, types, required values and unique keys of an asset's tables."""

    @dg.asset_check(
        asset=asset,
        name="schema",
        blocking=True,
        partitions_def=domains if asset in PARTITIONED else None,
        description="The tables have the columns, types, required values and unique keys of their record types.",
    )
    def check(context: dg.AssetCheckExecutionContext, store: Store) -> dg.AssetCheckResult:
        from capibara_assets.storage.records import problems

        partition = Domain(context.partition_key) if asset in PARTITIONED else None
        artifact = Inputs(context.instance, store.open()).artifact(asset, partition)
        frames = {name: (record_type(reference), artifact.frame(name)) for name, reference in tables.items()}
        mismatches = [f"{name}: {p}" for name, (model, frame) in frames.items() for p in problems(model, frame)]
        good = ", ".join(f"{name}: {frame.height:,} rows" for name, (_, frame) in frames.items())
        return judged(mismatches, good, f"materialize {asset} again: {WRITTEN}", tables=sorted(tables))

    return check


SCHEMA_CHECKS = [schema_check(asset, tables) for asset, tables in TABLES.items()]

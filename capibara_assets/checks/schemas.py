"""Every table keeps its schema: one blocking check per asset, made by mapping over the record types."""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

import dagster as dg

from capibara_assets.assets.inputs import Inputs
from capibara_assets.domains import Domain
from capibara_assets.partitions import domains
from capibara_assets.resources import Store

if TYPE_CHECKING:
    from capibara_assets.storage.records import Record

# Asset → table → record type, as module:class; resolved when a check runs, so that loading stays light.
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
    "e2b_executions": {"executions": "executions.schema:Execution"},
    "consolidated_playbook": {"bullets": "playbooks.schema:Consolidated", "agents": "playbooks.schema:Agent"},
    "e2b_patterns": {
        "executions": "executions.schema:Execution",
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


def record_type(reference: str) -> "type[Record]":
    """The record type that a reference of `TABLES` names."""
    module, _, name = reference.partition(":")
    found: type[Record] = getattr(import_module(f"capibara_assets.{module}"), name)
    return found


def schema_check(asset: str, tables: Mapping[str, str]) -> dg.AssetChecksDefinition:
    """The blocking check that an asset's tables have their columns, types, required values and unique keys."""

    @dg.asset_check(
        asset=asset,
        name="schema",
        blocking=True,
        partitions_def=domains if asset in PARTITIONED else None,
        description="Columns, types, required values and unique keys are those of the record types.",
    )
    def check(context: dg.AssetCheckExecutionContext, store: Store) -> dg.AssetCheckResult:
        from capibara_assets.storage.records import problems

        partition = Domain(context.partition_key) if asset in PARTITIONED else None
        artifact = Inputs(context.instance, store.open()).artifact(asset, partition)
        frames = {name: (record_type(reference), artifact.frame(name)) for name, reference in tables.items()}
        found = [f"{name}: {p}" for name, (model, frame) in frames.items() for p in problems(model, frame)]
        return dg.AssetCheckResult(passed=not found, metadata={"problems": found, "tables": sorted(tables)})

    return check


SCHEMA_CHECKS = [schema_check(asset, tables) for asset, tables in TABLES.items()]

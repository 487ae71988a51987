"""Which results failed a blocking check: Dagster stops their dependents within a run, and this in the runs after it."""

from collections.abc import Sequence

import dagster as dg
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph
from dagster._core.event_api import PartitionKeyFilter
from dagster._core.storage.asset_check_execution_record import (
    COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES,
    AssetCheckExecutionRecordStatus,
)


def blocking_checks(graph: BaseAssetGraph) -> dict[str, list[dg.AssetCheckKey]]:
    """Asset → its blocking checks."""
    found: dict[str, list[dg.AssetCheckKey]] = {}
    for key in sorted(graph.asset_check_keys):
        if graph.get(key).blocking:
            found.setdefault(key.asset_key.to_user_string(), []).append(key)
    return found


def failed(instance: dg.DagsterInstance, checks: Sequence[dg.AssetCheckKey], partition: str | None) -> bool:
    """Whether the latest verdict of one of the checks on an asset (partition) is a failure.

    A check that was planned and never came to a verdict leaves the one before it standing.
    """
    for key in checks:
        records = instance.event_log_storage.get_asset_check_execution_history(
            key,
            limit=1,
            status=COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES,
            partition_filter=PartitionKeyFilter(key=str(partition) if partition else None),
        )
        if records and records[0].status == AssetCheckExecutionRecordStatus.FAILED:
            return True
    return False

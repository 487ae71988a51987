"""Results that failed a blocking check: Dagster skips their dependents within a run, this module in later runs."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import dagster as dg
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph
from dagster._core.event_api import PartitionKeyFilter
from dagster._core.storage.asset_check_execution_record import (
    COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES,
    AssetCheckExecutionRecordStatus,
)


def blocking_checks(graph: BaseAssetGraph) -> dict[str, list[dg.AssetCheckKey]]:
    """Asset → its blocking checks."""
    checks: dict[str, list[dg.AssetCheckKey]] = {}
    for key in sorted(graph.asset_check_keys):
        if graph.get(key).blocking:
            checks.setdefault(key.asset_key.to_user_string(), []).append(key)
    return checks


def failed_partitions(
    instance: dg.DagsterInstance, checks: Sequence[dg.AssetCheckKey], partitions: Sequence[str | None]
) -> set[str | None]:
    """The partitions (None: an unpartitioned asset) for which `failed` holds.

    A check that has never failed, as most have not, costs one query instead of one per partition.
    """
    once_failed = [key for key in checks if _latest(instance, key, {AssetCheckExecutionRecordStatus.FAILED})]
    return {partition for partition in partitions if failed(instance, once_failed, partition)}


def failed(instance: dg.DagsterInstance, checks: Sequence[dg.AssetCheckKey], partition: str | None) -> bool:
    """Whether the latest result of one of the checks on an asset (partition) is a failure.

    A check that was planned but did not complete leaves its previous result valid.
    """
    of_it = PartitionKeyFilter(key=str(partition) if partition else None)
    return any(
        _latest(instance, key, COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES, of_it)
        == AssetCheckExecutionRecordStatus.FAILED
        for key in checks
    )


def _latest(
    instance: dg.DagsterInstance,
    key: dg.AssetCheckKey,
    among: AbstractSet[AssetCheckExecutionRecordStatus],
    partition: PartitionKeyFilter | None = None,
) -> AssetCheckExecutionRecordStatus | None:
    """Status of a check's latest record with one of these statuses, of one partition or of all."""
    records = instance.event_log_storage.get_asset_check_execution_history(
        key, limit=1, status=among, partition_filter=partition
    )
    return records[0].status if records else None

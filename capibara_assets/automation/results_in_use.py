"""Results that must stay in the store: the latest, those that runs at work may have looked up, those ever served."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES

from capibara_assets.assets.inputs import DIGEST, INPUTS, values_of
from capibara_assets.domains import WHOLE

if TYPE_CHECKING:
    from capibara_assets.lineage.unneeded import Result
    from capibara_assets.storage.store import ArtifactStore

_PAGE = 1000  # materializations that are fetched at once


def begun(instance: dg.DagsterInstance) -> Iterator[float]:
    """When each run that has not ended was asked for, in Unix time: it may have looked up its inputs since then."""
    for record in instance.get_run_records(dg.RunsFilter(statuses=NOT_FINISHED_STATUSES)):
        yield record.create_timestamp.timestamp()


def in_use(instance: dg.DagsterInstance, artifacts: "ArtifactStore", since: float) -> "Iterator[Result]":
    """The results that were the latest of their asset and partition at any time since then, and those ever served.

    Args:
        since: Unix time.
    """
    for name in artifacts.names():
        for partition in {artifact.partition for artifact in artifacts.list(name)}:
            for metadata in _materialized(instance, name, partition, since):
                yield from _named(name, partition, metadata)
            if digest := artifacts.latest_digest(name, partition):  # published, and not yet known to Dagster
                yield name, partition, digest
    yield from _served(artifacts)


def _materialized(
    instance: dg.DagsterInstance, name: str, partition: str | None, since: float
) -> Iterator[Mapping[str, Any]]:
    """Metadata of what was materialized since then, and of the last materialization before."""
    key, partitions = dg.AssetKey(name), [partition] if partition else None
    earlier = dg.AssetRecordsFilter(key, asset_partitions=partitions, before_timestamp=since)
    later = dg.AssetRecordsFilter(key, asset_partitions=partitions, after_timestamp=since)
    page = instance.fetch_materializations(later, limit=_PAGE)
    records = [*instance.fetch_materializations(earlier, limit=1).records, *page.records]
    while page.has_more:
        page = instance.fetch_materializations(later, limit=_PAGE, cursor=page.cursor)
        records += page.records
    yield from map(values_of, records)


def _named(name: str, partition: str | None, metadata: Mapping[str, Any]) -> "Iterator[Result]":
    """A materialization's result and its inputs: content that came again keeps the manifest of its first inputs."""
    if DIGEST in metadata:
        yield name, partition, str(metadata[DIGEST])
    for source, digest in metadata.get(INPUTS, {}).get("upstream", {}).items():
        asset, _, where = source.partition("|")
        if digest:
            yield asset, None if where == WHOLE else where, digest


def _served(artifacts: "ArtifactStore") -> "Iterator[Result]":
    """What was ever served: a rollback goes back to it. Before there was a history the promoted models say it alone."""
    from capibara_assets.evaluation.serving.promotion import served
    from capibara_assets.evaluation.serving.promotion_log import PromotionLog
    from capibara_assets.evaluation.serving.served import owner_of

    promotions = [artifact.document("promotion") for artifact in artifacts.list("promoted_model")]
    for promotion in (*promotions, *(move.promotion for move in PromotionLog(artifacts).moves())):
        for slot, digest in served(promotion).items():
            if digest is not None:
                yield *owner_of(slot), digest

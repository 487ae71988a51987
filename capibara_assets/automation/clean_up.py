"""The clean-up job and its daily schedule: removes unneeded files and reports the freed space."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import dagster as dg
import pydantic
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES

from capibara_assets.assets.imports import IMPORTED, import_lock
from capibara_assets.assets.inputs import DIGEST
from capibara_assets.automation.sensors import STATUS
from capibara_assets.domains import DOMAINS
from capibara_assets.resources import Recipes, Store

if TYPE_CHECKING:
    from capibara_assets.lineage.unneeded import Result
    from capibara_assets.storage.store import ArtifactStore

DAY = 86_400.0
_PAGE = 1000  # materializations that are fetched at once


class CleanUp(dg.Config):
    """Settings of the clean-up, in addition to the recipe `retention` for checkpoints."""

    journal_days: float = pydantic.Field(
        default=1.0, ge=0, description="Days after an evaluation for which its journals of answers and grades are kept."
    )
    imports: bool = pydantic.Field(default=True, description="Remove versions of imports that nothing in use needs.")
    result_days: float | None = pydantic.Field(
        default=7.0,
        ge=0,
        description="Days for which a result stays that a newer one has replaced; null: for good. What is or was "
        "served stays, and all that it was made from.",
    )


@dg.op(description="Remove what nothing needs any more, and say what that freed.")
def remove_unneeded(context: dg.OpExecutionContext, config: CleanUp, store: Store, recipes: Recipes) -> None:
    """Remove old results and imports, prune checkpoints by the recipe `retention`, sweep journals; a line each."""
    from capibara_assets.assets.evaluation_inputs import JOURNALS
    from capibara_assets.checkpoints.retention import RetentionPolicy
    from capibara_assets.lineage.unneeded import Freed, prune_checkpoints, remove_unused, sweep_journals

    artifacts, instance = store.open(), context.instance
    folders = {domain.value: artifacts.work_dir("evaluation", domain, JOURNALS) for domain in DOMAINS}
    freed: dict[str, Freed] = {}
    if config.result_days is not None:
        since = min(time.time() - config.result_days * DAY, *begun(instance))
        others = [name for name in artifacts.names() if name != IMPORTED]
        roots = [*in_use(instance, artifacts, since)]
        freed["results"] = remove_unused(artifacts, others, roots, before=datetime.fromtimestamp(since, UTC))
    if config.imports:
        with ExitStack() as locks:  # an import that is being published is not known to Dagster yet
            for domain in DOMAINS:
                locks.enter_context(import_lock(artifacts.work_dir(IMPORTED, domain, "imports")))
            freed["imports"] = remove_unused(artifacts, [IMPORTED], [*in_use(instance, artifacts, time.time())])
    freed["checkpoints"] = prune_checkpoints(artifacts, recipes.load("retention", RetentionPolicy))
    freed["journals"] = sweep_journals(folders, evaluated_at(instance), older_than_s=config.journal_days * DAY)
    for what, one in freed.items():
        context.log.info(f"{what}: {one}")
    context.add_output_metadata(
        {
            "bytes_freed": sum(one.bytes for one in freed.values()),
            **{
                what: dg.MetadataValue.json({"removed": one.removed, "bytes": one.bytes}) for what, one in freed.items()
            },
        }
    )
    artifacts.sweep()


@dg.job(description="Remove superseded results, old imports, checkpoints and journals. Runs every night.")
def clean_up() -> None:
    remove_unneeded()


nightly_clean_up = dg.ScheduleDefinition(
    name="nightly_clean_up",
    job=clean_up,
    cron_schedule="30 3 * * *",
    default_status=dg.DefaultScheduleStatus(STATUS.value),
    description="Removes what nothing needs any more; the run's output says how much that freed.",
)
SCHEDULES = [nightly_clean_up]


def evaluated_at(instance: dg.DagsterInstance) -> dict[str, float]:
    """Domain -> Unix time at which its latest evaluation was materialized."""
    times = {}
    for domain in DOMAINS:
        wanted = dg.AssetRecordsFilter(dg.AssetKey("evaluation"), asset_partitions=[domain.value])
        if records := instance.fetch_materializations(wanted, limit=1).records:
            times[domain.value] = records[0].timestamp
    return times


def begun(instance: dg.DagsterInstance) -> Iterator[float]:
    """When each run that has not ended was asked for, in Unix time: it may have looked up its inputs since then."""
    for record in instance.get_run_records(dg.RunsFilter(statuses=NOT_FINISHED_STATUSES)):
        yield record.create_timestamp.timestamp()


def in_use(instance: dg.DagsterInstance, artifacts: "ArtifactStore", since: float) -> "Iterator[Result]":
    """The results that were the latest of their asset and partition at any time since then, and those ever served.

    Args:
        since: Unix time.
    """
    from capibara_assets.evaluation.serving.promotion import served
    from capibara_assets.evaluation.serving.promotion_log import PromotionLog
    from capibara_assets.evaluation.serving.served import owner_of

    for name in artifacts.names():
        for partition in {artifact.partition for artifact in artifacts.list(name)}:
            for digest in _materialized(instance, name, partition, since):
                yield name, partition, digest
            if pointed := artifacts.latest_digest(name, partition):  # published, and not yet known to Dagster
                yield name, partition, pointed
    for move in PromotionLog(artifacts).moves():  # a rollback goes back to any of them
        for slot, moved in served(move.promotion).items():
            if moved is not None:
                yield *owner_of(slot), moved


def _materialized(instance: dg.DagsterInstance, name: str, partition: str | None, since: float) -> Iterator[str]:
    """Digests of what was materialized since then, and of the last materialization before."""
    key, partitions = dg.AssetKey(name), [partition] if partition else None
    earlier = dg.AssetRecordsFilter(key, asset_partitions=partitions, before_timestamp=since)
    later = dg.AssetRecordsFilter(key, asset_partitions=partitions, after_timestamp=since)
    page = instance.fetch_materializations(later, limit=_PAGE)
    records = [*instance.fetch_materializations(earlier, limit=1).records, *page.records]
    while page.has_more:
        page = instance.fetch_materializations(later, limit=_PAGE, cursor=page.cursor)
        records += page.records
    for record in records:
        said = record.asset_materialization
        if said is not None and DIGEST in said.metadata:
            yield str(said.metadata[DIGEST].value)

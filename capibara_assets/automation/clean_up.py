"""The clean-up job and its daily schedule: removes unneeded files and reports the freed space."""

from collections.abc import Iterator
from contextlib import ExitStack

import dagster as dg
import pydantic

from capibara_assets.assets.imports import IMPORTED, import_lock
from capibara_assets.assets.inputs import latest_digest
from capibara_assets.automation.sensors import STATUS
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.resources import Recipes, Store

DAY = 86_400.0


class CleanUp(dg.Config):
    """Settings of the clean-up, in addition to the recipe `retention` for checkpoints."""

    journal_days: float = pydantic.Field(
        default=1.0, ge=0, description="Days after an evaluation for which its journals of answers and grades are kept."
    )
    imports: bool = pydantic.Field(default=True, description="Remove versions of imports that nothing in use needs.")


@dg.op(description="Remove what nothing needs any more, and say what that freed.")
def remove_unneeded(context: dg.OpExecutionContext, config: CleanUp, store: Store, recipes: Recipes) -> None:
    """Prune checkpoints by the recipe `retention`, sweep journals, remove old imports; each is one output line."""
    from capibara_assets.assets.evaluation_inputs import JOURNALS
    from capibara_assets.checkpoints.retention import RetentionPolicy
    from capibara_assets.lineage.unneeded import prune_checkpoints, remove_old_imports, sweep_journals

    artifacts, instance = store.open(), context.instance
    folders = {domain.value: artifacts.work_dir("evaluation", domain, JOURNALS) for domain in DOMAINS}
    freed = {
        "checkpoints": prune_checkpoints(artifacts, recipes.load("retention", RetentionPolicy)),
        "journals": sweep_journals(folders, evaluated_at(instance), older_than_s=config.journal_days * DAY),
    }
    if config.imports:
        with ExitStack() as locks:  # an import that is being published is not known to Dagster yet
            for domain in DOMAINS:
                locks.enter_context(import_lock(artifacts.work_dir(IMPORTED, domain, "imports")))
            freed["imports"] = remove_old_imports(artifacts, IMPORTED, [*in_use(context, store)])
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


@dg.job(description="Prune checkpoints, sweep journals of evaluations, and remove old imports. Runs every night.")
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


def in_use(context: dg.OpExecutionContext, store: Store) -> Iterator[tuple[str, str | None, str]]:
    """The latest result of each asset and partition, and the currently served ones."""
    from capibara_assets.evaluation.serving.promotion import served
    from capibara_assets.evaluation.serving.promotion_log import PromotionLog
    from capibara_assets.evaluation.serving.served import owner_of

    artifacts = store.open()
    for name in artifacts.names():
        for partition in (None, *DOMAINS):
            if digest := latest_digest(context.instance, name, partition and Domain(partition).value):
                yield name, partition, digest
    head = PromotionLog(artifacts).head()
    for slot, digest in served(head.promotion if head else None).items():
        if digest is not None:
            yield *owner_of(slot), digest

"""The clean-up job and its daily schedule: removes unneeded files and reports the freed space."""

import time
from contextlib import ExitStack
from datetime import UTC, datetime
from fcntl import LOCK_EX

import dagster as dg
import pydantic

from capibara_assets.assets.imports import IMPORTED, import_lock
from capibara_assets.assets.inputs import latest_time
from capibara_assets.automation.results_in_use import begun, in_use
from capibara_assets.automation.sensors import STATUS
from capibara_assets.domains import DOMAINS
from capibara_assets.resources import Recipes, Store

DAY = 86_400.0


class CleanUp(dg.Config):
    """Settings of the clean-up, in addition to the recipe `retention` for checkpoints."""

    journal_days: float = pydantic.Field(
        default=1.0, ge=0, description="Days after an evaluation for which its journals of answers and grades are kept."
    )
    imports: bool = pydantic.Field(default=True, description="Remove versions of imports, too.")
    result_days: float | None = pydantic.Field(
        default=7.0,
        ge=0,
        le=36_500,
        description="Days for which a result stays that a newer one has replaced; null: for good. What is or was "
        "served stays, and all that it was made from.",
    )


@dg.op(description="Remove what nothing needs any more, and say what that freed.")
def remove_unneeded(context: dg.OpExecutionContext, config: CleanUp, store: Store, recipes: Recipes) -> None:
    """Remove old results and imports, prune checkpoints by the recipe `retention`, sweep journals; a line each."""
    from capibara_assets.assets.evaluation_inputs import JOURNALS
    from capibara_assets.checkpoints.retention import RetentionPolicy
    from capibara_assets.lineage.unneeded import Freed, discard, prune_checkpoints, sweep_journals, unused
    from capibara_assets.storage.removal import discard_torn

    artifacts, instance = store.open(), context.instance
    folders = {domain.value: artifacts.work_dir("evaluation", domain, JOURNALS) for domain in DOMAINS}
    freed: dict[str, Freed] = {}
    with ExitStack() as locks:
        for domain in DOMAINS:  # an import that is being published is not known to Dagster yet
            locks.enter_context(import_lock(artifacts.work_dir(IMPORTED, domain, "imports")))
        locks.enter_context(artifacts.locked(LOCK_EX))
        since = min([time.time() - (config.result_days or 0.0) * DAY, *begun(instance)])
        roots = in_use(instance, artifacts, since)
        going = unused(artifacts, roots, before=datetime.fromtimestamp(since, UTC))
        if config.result_days is not None:
            freed["results"] = discard(artifacts, (one for one in going if one.name != IMPORTED))
        if config.imports:
            freed["imports"] = discard(artifacts, (one for one in going if one.name == IMPORTED))
        discard_torn(artifacts)
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
    times = {domain.value: latest_time(instance, "evaluation", domain) for domain in DOMAINS}
    return {domain: at for domain, at in times.items() if at is not None}

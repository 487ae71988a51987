"""Schedules besides the nightly clean-up: to compare results over all domains with their inputs, and to evaluate."""

from collections.abc import Iterator

import dagster as dg

from capibara_assets.assets.inputs import latest_digest
from capibara_assets.automation.chosen import chosen_domains
from capibara_assets.automation.jobs import evaluate_job
from capibara_assets.automation.sensors import STATUS
from capibara_assets.checks.currency import CURRENCY_CHECKS
from capibara_assets.errors import InputError

EVERY_MONDAY = "0 4 * * 1"

check_currency_job = dg.define_asset_job(
    "check_currency",
    dg.AssetSelection.checks(*CURRENCY_CHECKS),
    description="Say which results over all domains are older than their inputs. Runs every morning.",
)
every_morning = dg.ScheduleDefinition(
    name="check_currency_every_morning",
    job=check_currency_job,
    cron_schedule="30 5 * * *",
    default_status=dg.DefaultScheduleStatus(STATUS.value),
    description="Says which results over all domains are older than their inputs.",
)


def evaluate_again(cron: str | None) -> dg.ScheduleDefinition:
    """The schedule that evaluates the chosen domains again; without a cron expression it is off, for every Monday.

    Raises:
        InputError: that is no cron expression.
    """
    on = cron is not None and STATUS is dg.DefaultSensorStatus.RUNNING

    def requests(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
        chosen = chosen_domains(context.instance)
        there = [domain for domain in chosen if latest_digest(context.instance, "consensus_checkpoint", domain)]
        if not there:
            yield dg.SkipReason(f"none of {', '.join(chosen)} has a consensus checkpoint yet")
        yield from (dg.RunRequest(partition_key=domain.value) for domain in there)

    try:
        return dg.ScheduleDefinition(
            name="evaluate_again",
            job=evaluate_job,
            cron_schedule=cron or EVERY_MONDAY,
            execution_fn=requests,
            default_status=dg.DefaultScheduleStatus.RUNNING if on else dg.DefaultScheduleStatus.STOPPED,
            description="Evaluates the chosen domains again (automation.evaluate_again of the deployment's file).",
        )
    except dg.DagsterInvalidDefinitionError as error:
        raise InputError(f"automation.evaluate_again is {cron!r}: give a cron expression, such as 0 4 * * 1") from error

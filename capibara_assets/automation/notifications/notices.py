"""Notices for webhooks, derived from Dagster's history since a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from capibara_assets.assets.inputs import DIGEST, values_of
from capibara_assets.automation.retraining.facts import attempts_since
from capibara_assets.automation.retraining.rules import DAY, day_spent, last_spender
from capibara_assets.checks.results import found
from capibara_assets.deployment.environment import Deployment
from capibara_assets.deployment.file import NoticeKind
from capibara_assets.storage.manifest import title_of

_MOST = 50  # of one check or asset that are looked at: who is told more reads the history


@dataclass(frozen=True)
class Notice:
    """One thing to tell.

    Attributes:
        id: the same for the same event, whoever finds it and when.
        at: Unix time of the event.
        lines: plain text; what is foreign in it is not escaped yet.
    """

    id: str
    kind: NoticeKind
    at: float
    title: str
    lines: tuple[str, ...]


def notices(
    instance: dg.DagsterInstance,
    deployment: Deployment,
    checks: Sequence[dg.AssetCheckKey],
    since: float,
    now: float,
) -> list[Notice]:
    """Notices since a time (Unix), the oldest first.

    Args:
        checks: those whose failures are looked for.
    """
    every = (
        *_failed_checks(instance, checks, since),
        *_promotions(instance, since),
        *_rejected_voters(instance, since),
        *_spent_budget(instance, deployment, now),
    )
    return sorted((one for one in every if one.at >= since), key=lambda one: (one.at, one.id))


def _failed_checks(instance: dg.DagsterInstance, checks: Sequence[dg.AssetCheckKey], since: float) -> Iterator[Notice]:
    for key in checks:
        records = instance.event_log_storage.get_asset_check_execution_history(
            key, limit=_MOST, status={AssetCheckExecutionRecordStatus.FAILED}
        )
        for record in records:
            if record.event is None or record.event.timestamp < since:
                continue
            evaluation = record.event.get_dagster_event().asset_check_evaluation_data
            asset = title_of(key.asset_key.to_user_string(), record.partition)
            warns = evaluation.severity is dg.AssetCheckSeverity.WARN
            yield Notice(
                f"check:{record.run_id}:{asset}:{key.name}",
                "failed_checks",
                record.event.timestamp,
                f"Check {key.name} of {asset} {'warns' if warns else 'failed'}",
                (found(evaluation),),
            )


def _promotions(instance: dg.DagsterInstance, since: float) -> Iterator[Notice]:
    for at, _, values in _materialized(instance, "promoted_model", since):
        moved = values.get("moved")
        if moved:
            yield Notice(
                f"promotion:{values['number']}",
                "promotions",
                at,
                f"What is served has changed: {', '.join(moved)}",
                (f"by {values['by']}",),
            )


def _rejected_voters(instance: dg.DagsterInstance, since: float) -> Iterator[Notice]:
    for at, domain, values in _materialized(instance, "consensus_checkpoint", since):
        rejected = [voter for voter in values.get("certificate", {}).get("voters", ()) if not voter["accepted"]]
        if rejected:
            names = ", ".join(voter["name"] for voter in rejected)
            yield Notice(
                f"voters:{domain}:{values[DIGEST]}",
                "rejected_voters",
                at,
                f"Voters of {domain} were rejected: {names}",
                tuple(f"{voter['name']}: {voter['reason']}" for voter in rejected),
            )


def _spent_budget(instance: dg.DagsterInstance, deployment: Deployment, now: float) -> Iterator[Notice]:
    budget = deployment.automation.per_day
    if not budget.model_dump(exclude_none=True):
        return
    attempts = attempts_since(instance, deployment, now - DAY)
    words, last = day_spent(budget, attempts, now), last_spender(budget, attempts, now)
    if words and last:
        title = "The budget of the day for trainings is spent"
        yield Notice(f"budget:{last.run_id}", "budget", last.ended or now, title, (words,))


def _materialized(
    instance: dg.DagsterInstance, name: str, since: float
) -> Iterator[tuple[float, str | None, dict[str, Any]]]:
    """Time, partition and metadata of an asset's materializations since a time."""
    wanted = dg.AssetRecordsFilter(dg.AssetKey(name), after_timestamp=since)
    for record in instance.fetch_materializations(wanted, limit=_MOST).records:
        if record.asset_materialization is not None:
            yield record.timestamp, record.partition_key, values_of(record)

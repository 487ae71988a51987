"""Freshness policies: how old a result may grow before Dagster and `capibara doctor` say so.

Dagster judges an asset by its newest partition; `stale` judges each chosen domain by its own.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import dagster as dg
from dagster._utils.schedules import cron_string_iterator

from capibara_assets.assets.inputs import latest_time
from capibara_assets.automation.chosen import chosen_domains
from capibara_assets.deployment.file import AutomationChoice, Freshness
from capibara_assets.domains import Domain

_DAY_S = 86_400.0
# Dagster wants an age to fail at: this one is beyond all that a file may say, and its seconds are in the 32 bits that
# Dagster's GraphQL has for them (more, and no page of the UI finds the assets)
_NEVER = timedelta(days=20_000)
_START = datetime(2024, 1, 1, tzinfo=UTC)  # any: the same schedule gives the same policy each day
_TURNS = 64  # of a schedule: hours of working days, weekdays and months repeat within them
_LEAST_TURNS_DAYS = 2.0


def ages(automation: AutomationChoice) -> dict[str, Freshness]:
    """Asset -> how old it may grow, of those for which the deployment says it, or its schedule does."""
    freshness, again = automation.freshness, automation.evaluate_again
    found: dict[str, Freshness | None] = {name: getattr(freshness, name) for name in type(freshness).model_fields}
    if again and "evaluation" not in freshness.model_fields_set:
        # One turn may have been missed, since machines are off at times; the second one is not late, it does not come
        found["evaluation"] = Freshness(warn_days=max(2 * longest_interval_days(again), _LEAST_TURNS_DAYS))
    return {name: one for name, one in found.items() if one is not None}


def longest_interval_days(cron: str) -> float:
    """Days between two turns of a schedule at most: three for one of weekdays."""
    turns = islice(cron_string_iterator(_START.timestamp(), cron, "UTC"), _TURNS)
    return max((later - earlier).total_seconds() for earlier, later in pairwise(turns)) / _DAY_S


def freshness_policies(automation: AutomationChoice) -> dict[str, dg.FreshnessPolicy]:
    """Asset -> its policy in Dagster, whose daemon evaluates it; `evaluate_again` has to be a cron expression."""
    return {
        name: dg.FreshnessPolicy.time_window(
            fail_window=timedelta(days=one.fail_days) if one.fail_days else _NEVER,
            warn_window=timedelta(days=one.warn_days) if one.warn_days else None,
        )
        for name, one in ages(automation).items()
    }


@dataclass(frozen=True)
class Stale:
    """A result that is older than it may grow.

    Attributes:
        days: its age.
        failed: it is too old; else that is only a warning.
    """

    asset: str
    domain: Domain | None
    days: float
    failed: bool


def stale(
    instance: dg.DagsterInstance,
    automation: AutomationChoice,
    partitioned: Mapping[str, bool],
    now: float | None = None,
) -> Iterator[Stale]:
    """The results of the chosen domains, and those over all, that are older than the deployment lets them grow."""
    now = time.time() if now is None else now
    for name, age in ages(automation).items():
        for domain in chosen_domains(instance) if partitioned[name] else (None,):
            made = latest_time(instance, name, domain)
            days = 0.0 if made is None else (now - made) / _DAY_S
            failed = age.fail_days is not None and days >= age.fail_days
            if failed or (age.warn_days is not None and days >= age.warn_days):
                yield Stale(name, domain, days, failed)

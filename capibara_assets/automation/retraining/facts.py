"""Facts about the domains' trainings, from Dagster's history and the artifact store."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import dagster as dg

from capibara_assets.assets.inputs import INPUTS, latest_digest, latest_metadata, latest_time, source_name
from capibara_assets.automation.retraining.rules import (
    DAY,
    Facts,
    TrainingAttempt,
    TrainingDecision,
    day_spent,
    decide,
    grant,
)
from capibara_assets.deployment.environment import Deployment
from capibara_assets.domains import DOMAINS, WHOLE, Domain

TRAINED, DATASET = "trained_adapters", "moe_dataset"
_ENDED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)


@dataclass(frozen=True)
class Known:
    """Facts about all domains at one time.

    Attributes:
        alone: the decision about each domain, as if it were the only one that is due.
    """

    at: float
    facts: dict[Domain, Facts]
    attempts: tuple[TrainingAttempt, ...]
    alone: dict[Domain, TrainingDecision]

    def together(self, deployment: Deployment, due: Sequence[Domain]) -> dict[Domain, TrainingDecision]:
        """Decisions about domains that are due at the same time, which share the day's remaining budget."""
        decisions = {domain: self.alone[domain] for domain in due}
        return grant(decisions, self.facts, deployment.automation.per_day, self.attempts, self.at)


@lru_cache(maxsize=1)  # every condition of a tick asks, and a tick has one time
def known(instance: dg.DagsterInstance, deployment_name: str, now: float, tick_seconds: float) -> Known:
    """Collect the facts about all domains now.

    Args:
        deployment_name: nothing but a part of the cache's key: the deployment that the environment names.
    """
    deployment = Deployment.from_environment()
    choice = deployment.automation
    attempts = attempts_since(instance, deployment, now - DAY - choice.longest_cool_down)
    facts = {domain: facts_of(instance, deployment, domain, attempts) for domain in DOMAINS}
    spent = day_spent(choice.per_day, attempts, now)
    alone = {
        domain: decide(one, choice.of(domain), spent, now=now, next_tick=now + tick_seconds)
        for domain, one in facts.items()
    }
    return Known(now, facts, attempts, alone)


def attempts_since(instance: dg.DagsterInstance, deployment: Deployment, since: float) -> tuple[TrainingAttempt, ...]:
    """The trainings that began, or were asked for, after a time (Unix), also those that failed."""
    wanted = dg.EventRecordsFilter(
        dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED, asset_key=dg.AssetKey(TRAINED), after_timestamp=since
    )
    prices = {domain: _price(deployment, domain) for domain in DOMAINS}
    attempts = []
    for record in instance.event_log_storage.get_event_records(wanted):
        domain = Domain(record.partition_key)
        steps = instance.get_run_step_stats(record.run_id, step_keys=[TRAINED])
        run = instance.get_run_record_by_id(record.run_id)
        ended = run is None or run.dagster_run.status in _ENDED
        if steps and steps[0].start_time:
            over = steps[0].end_time or (run.end_time if run is not None and ended else None)
            attempts.append(TrainingAttempt(domain, record.run_id, steps[0].start_time, over, prices[domain]))
        elif not ended:  # queued, or before its training: it will spend
            attempts.append(TrainingAttempt(domain, record.run_id, record.timestamp, None, prices[domain]))
    return tuple(sorted(attempts, key=lambda one: one.began))


def facts_of(
    instance: dg.DagsterInstance, deployment: Deployment, domain: Domain, attempts: Sequence[TrainingAttempt]
) -> Facts:
    """Facts about one domain's training."""
    own = [one for one in attempts if one.domain == domain]
    dataset = latest_digest(instance, DATASET, domain)
    recorded = latest_metadata(instance, TRAINED, domain).get(INPUTS, {}).get("upstream", {})
    before = recorded.get(source_name(DATASET, domain))
    trained, made = latest_time(instance, TRAINED, domain), latest_time(instance, DATASET, domain)
    ends = [one.ended for one in own if one.ended is not None]
    if trained is not None:
        ends.append(trained)
    last = max(own, key=lambda one: one.began, default=None)
    failed = last is not None and last.ended is not None and last.began > max(trained or 0.0, made or 0.0)
    return Facts(
        domain,
        pending=dataset is not None and (not recorded or _changed(instance, recorded)),
        new=None if dataset is None or before == dataset else new_examples(deployment, domain, dataset, before),
        failed_at=last.ended if last is not None and failed else None,
        last_end=max(ends, default=None),
        running=next((one.began for one in own if one.ended is None), None),
    )


def new_examples(deployment: Deployment, domain: Domain, dataset: str, before: str | None) -> int:
    """Train examples of a dataset that an earlier one lacks; all if that one is gone from the store.

    Args:
        dataset, before: digests.
    """
    return _new_examples(deployment.store, deployment.work, domain, dataset, before)


@lru_cache(maxsize=4 * len(DOMAINS))  # artifacts never change
def _new_examples(root: str, work: Path, domain: Domain, dataset: str, before: str | None) -> int:
    import polars as pl

    from capibara_assets.storage.store import ArtifactStore

    store = ArtifactStore(root, work)
    examples = store.open(DATASET, domain, dataset).frame("examples")
    now = set(examples.filter(pl.col("split") == "train")["example_id"])
    if before is None or not store.holds(DATASET, domain, before):
        return len(now)
    return len(now - set(store.open(DATASET, domain, before).frame("examples")["example_id"]))


def _changed(instance: dg.DagsterInstance, recorded: dict[str, str]) -> bool:
    """Whether an input that a training recorded is another one today."""
    for source, digest in recorded.items():
        name, _, where = source.partition("|")
        if (latest_digest(instance, name, None if where == WHOLE else where) or "") != digest:
            return True
    return False


def _price(deployment: Deployment, domain: Domain) -> float | None:
    """The price of the dearest target of a domain (USD an hour); None: one has none."""
    from capibara_assets.planning.options import HardwareOptions

    targets = HardwareOptions.of(deployment.hardware_of.get(domain.value, deployment.hardware)).targets
    prices = [target.price.usd_per_hour for target in targets]
    return None if None in prices else max(price for price in prices if price is not None)


def explained(instance: dg.DagsterInstance, domains: Sequence[Domain], tick_seconds: float) -> list[TrainingDecision]:
    """The decision about each of these domains now, for people."""
    deployment = Deployment.from_environment()
    facts = known(instance, deployment.name, time.time(), tick_seconds)
    return [facts.alone[domain] for domain in domains]

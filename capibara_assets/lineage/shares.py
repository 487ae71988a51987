"""Share of each agent, sandbox, execution and bullet in an adapter's train examples, and where results are served."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from capibara_assets.evaluation.serving.promotion import served
from capibara_assets.evaluation.serving.promotion_log import PromotionLog
from capibara_assets.lineage.adapters import TracedAdapter
from capibara_assets.lineage.columns import columns
from capibara_assets.lineage.records import Results, execution_places, models_made_from
from capibara_assets.lineage.trails import PublishedResult
from capibara_assets.lineage.voters import SEEN, voters_of
from capibara_assets.lineage.voters import dataset as dataset_at
from capibara_assets.storage.removal import Removed, removed

NOBODY = "not named in the log"


@dataclass(frozen=True)
class Share:
    """One contributor, and the train examples that hold something of it; several may share in one example."""

    name: str
    examples: int
    share: float


@dataclass(frozen=True)
class Contributions:
    """Contributors to an adapter's train examples; the largest share first, then by name."""

    examples: int
    agents: tuple[Share, ...]
    sandboxes: tuple[Share, ...]
    executions: tuple[Share, ...]
    bullets: tuple[Share, ...]
    models: tuple[PublishedResult, ...]
    """Results that were made from it."""


def contributions(results: Results, traced: TracedAdapter) -> Contributions:
    """Count the contributors to an adapter's train examples."""
    artifact, seen = traced.artifact, traced.seen
    models = models_made_from(results, [artifact] if artifact is not None else [])
    if seen is None:
        return Contributions(0, (), (), (), (), models)
    executions = [sorted({*names}) for names in seen["execution_ids"].to_list()]
    places = execution_places(results, {name for names in executions for name in names})

    def of(field: str) -> list[set[str]]:
        return [{getattr(places[name], field) or NOBODY for name in names if name in places} for names in executions]

    return Contributions(
        examples=seen.height,
        agents=_shares(of("agent_id")),
        sandboxes=_shares(of("sandbox_id")),
        executions=_shares(executions),
        bullets=_shares(names or () for names in seen["bullet_ids"].to_list()),
        models=models,
    )


def execution_shares(results: Results, execution_id: str) -> tuple[Share, ...]:
    """Each current voter's train examples that hold an execution, of all that it was trained on."""
    shares = []
    for domain, artifact in results.every("trained_adapters").items():
        for voter in voters_of(artifact):
            tables = [dataset_at(results.store, *one) for one in voter.datasets]
            parts = [voter.trained(columns(table, "examples", SEEN)) for table in tables if table is not None]
            every = sum(part.height for part in parts)
            own = sum(part.filter(pl.col("execution_ids").list.contains(execution_id)).height for part in parts)
            if own:
                shares.append(Share(f"{domain}/{voter.name}", own, own / every))
    return tuple(sorted(shares, key=lambda one: (-one.share, one.name)))


def serving_slots(results: Results) -> Mapping[str, str]:
    """Digest of a result -> the slot in which it is served now: a domain, `merged` or `router`."""
    head = PromotionLog(results.store).head()
    return {digest: slot for slot, digest in served(head.promotion if head else None).items() if digest is not None}


def removals(results: Results, domains: Iterable[str]) -> tuple[Removed, ...]:
    """Results of these domains that were removed because a record was forgotten, the latest first."""
    wanted = {*domains}
    return tuple(
        sorted(
            (one for one in removed(results.store) if one.partition in wanted), key=lambda one: one.when, reverse=True
        )
    )


def _shares(examples: Iterable[Iterable[str]]) -> tuple[Share, ...]:
    """Share of the examples that name each contributor."""
    every = [set(names) for names in examples]
    counted = Counter(name for names in every for name in names)
    return tuple(
        Share(name, n, n / len(every)) for name, n in sorted(counted.items(), key=lambda one: (-one[1], one[0]))
    )

"""Which agents' playbooks are trusted: a score, interactions, success rate and expertise against a filter."""

import math
from dataclasses import dataclass
from typing import Any

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.playbooks.history import Advice, advice_of
from capibara_assets.playbooks.read import Playbooks
from capibara_assets.playbooks.schema import INT64_MAX, Agent
from capibara_assets.storage.records import table

Z_95 = 1.959963984540054
EXPERT_SHARE = 0.1


class AgentFilter(BaseModel):
    """What an agent must show to graduate."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_graduation_score: float = Field(default=0.85, ge=0, le=1, description="least graduation score")
    min_interactions: int = Field(default=100, ge=0, description="least number of tasks attempted")
    min_success_rate: float = Field(default=0.85, ge=0, le=1, description="least share of tasks solved")
    domain_expertise: list[Domain] | None = Field(default=None, description="at least one of these; null: any")


@dataclass(frozen=True)
class _Record:
    """What the reports say about one agent."""

    interactions: int
    successes: int | None
    score: float | None
    expertise: tuple[str, ...]


def wilson_lower_bound(successes: int, trials: int, z: float = Z_95) -> float:
    """Lower end of the Wilson score interval of a proportion (Wilson 1927); 0 without trials.

    Small samples score low: 3 of 3 gives 0.44, 300 of 300 gives 0.99.
    """
    if trials == 0:
        return 0.0
    share, z2 = successes / trials, z * z
    centre = share + z2 / (2 * trials)
    spread = z * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials * trials))
    return min(1.0, max(0.0, (centre - spread) / (1 + z2 / trials)))


def graduate(playbooks: Playbooks, criteria: AgentFilter) -> pl.DataFrame:
    """A table of `Agent`: every agent with its figures, whether it graduates, and each criterion it missed.

    Score: the manifest's (the lowest of several), else the lower 95 % bound on helpful/(helpful+harmful) over all its
    lessons. Interactions and successes: the sum over manifests, else over run reports; without either, the interactions
    are at least the most ratings that one lesson got, and the success rate is unknown, which meets no positive minimum.
    """
    lessons: dict[str, list[Advice]] = {}
    for advice in advice_of(playbooks.bullets):
        lessons.setdefault(advice.agent_id, []).append(advice)
    records = _records(playbooks.runs)
    return table(
        Agent,
        [_agent(name, lessons.get(name, []), records.get(name), criteria) for name in sorted({*lessons, *records})],
    )


def _records(runs: pl.DataFrame) -> dict[str, _Record]:
    """Agent -> its record; a manifest speaks before run reports."""
    found: dict[str, _Record] = {}
    known = runs.filter(pl.col("agent_id").is_not_null()).sort("run_id")
    for (agent,), rows in known.group_by("agent_id", maintain_order=True):
        kind = "manifest" if (rows["kind"] == "manifest").any() else "run"
        reports = rows.filter(pl.col("kind") == kind).to_dicts()
        solved: list[int | None] = [report["successes"] for report in reports]
        found[str(agent)] = _Record(
            interactions=sum(report["interactions"] for report in reports),
            successes=None if None in solved else sum(filter(None, solved)),
            score=min((r["graduation_score"] for r in reports if r["graduation_score"] is not None), default=None),
            expertise=tuple(domain for report in reports for domain in report["domain_expertise"]),
        )
    return found


def _agent(name: str, lessons: list[Advice], record: _Record | None, criteria: AgentFilter) -> Agent:
    helpful, harmful = sum(advice.helpful for advice in lessons), sum(advice.harmful for advice in lessons)
    if record is None:
        ratings = (advice.helpful + advice.harmful + advice.neutral for advice in lessons)
        record = _Record(max(ratings, default=0), None, None, ())
    figures: dict[str, Any] = {
        "graduation_score": wilson_lower_bound(helpful, helpful + harmful) if record.score is None else record.score,
        "interactions": min(record.interactions, INT64_MAX),
        "success_rate": (
            record.successes / record.interactions if record.successes is not None and record.interactions else None
        ),
        "domain_expertise": _expertise(lessons, record),
    }
    missed = _missed(criteria, **figures)
    return Agent(agent_id=name, **figures, graduated=not missed, missed=missed, bullets=len(lessons))


def _expertise(lessons: list[Advice], record: _Record) -> list[str]:
    if record.expertise:
        return [domain.value for domain in DOMAINS if domain.value in record.expertise]
    share = {domain: sum(domain in advice.domains for advice in lessons) / max(1, len(lessons)) for domain in DOMAINS}
    return [domain.value for domain in DOMAINS if share[domain] >= EXPERT_SHARE]


def _missed(
    criteria: AgentFilter,
    *,
    graduation_score: float,
    interactions: int,
    success_rate: float | None,
    domain_expertise: list[str],
) -> list[str]:
    missed = []
    if graduation_score < criteria.min_graduation_score:
        missed.append(f"min_graduation_score: {graduation_score:.3f} < {criteria.min_graduation_score:g}")
    if interactions < criteria.min_interactions:
        missed.append(f"min_interactions: {interactions} < {criteria.min_interactions}")
    if success_rate is None and criteria.min_success_rate > 0:
        missed.append(f"min_success_rate: unknown, {criteria.min_success_rate:g} needed")
    elif success_rate is not None and success_rate < criteria.min_success_rate:
        missed.append(f"min_success_rate: {success_rate:.3f} < {criteria.min_success_rate:g}")
    if criteria.domain_expertise is not None and not {*criteria.domain_expertise} & {*domain_expertise}:
        missed.append(f"domain_expertise: {domain_expertise} has none of {[str(d) for d in criteria.domain_expertise]}")
    return missed

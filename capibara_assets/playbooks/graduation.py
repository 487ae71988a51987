"""Decides which agents graduate (have trusted playbooks): score, interactions, success rate and expertise."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.playbooks.history import Advice, advice_of
from capibara_assets.playbooks.read import Playbooks
from capibara_assets.playbooks.schema import INT64_MAX, Agent
from capibara_assets.storage.records import table

Z_95 = 1.959963984540054
EXPERT_SHARE = 0.1
HALF_LIFE_DAYS = 180.0
"""Age at which a rating counts half: what helped last year may not help today."""


class AgentFilter(BaseModel):
    """The criteria that an agent must meet to graduate."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_graduation_score: float = Field(default=0.85, ge=0, le=1, description="least graduation score")
    min_interactions: int = Field(default=100, ge=0, description="least number of tasks attempted")
    min_success_rate: float = Field(default=0.85, ge=0, le=1, description="least share of tasks solved")
    domain_expertise: list[Domain] | None = Field(default=None, description="at least one of these; null: any")


@dataclass(frozen=True)
class _AgentFigures:
    """Figures about one agent from its manifests and run reports."""

    interactions: int | None
    success_rate: float | None
    score: float | None
    expertise: tuple[str, ...]


_UNKNOWN = _AgentFigures(None, None, None, ())


def wilson_lower_bound(successes: float, trials: float, z: float = Z_95) -> float:
    """Lower end of the Wilson score interval of a proportion (Wilson 1927); 0 without trials.

    Small samples score low: 3 of 3 gives 0.44, 300 of 300 gives 0.99. Counts may be weighted, so need not be whole.
    """
    if trials <= 0:
        return 0.0
    share, z2 = successes / trials, z * z
    centre = share + z2 / (2 * trials)
    spread = z * math.sqrt(max(0.0, share * (1 - share)) / trials + z2 / (4 * trials * trials))
    return min(1.0, max(0.0, (centre - spread) / (1 + z2 / trials)))


def graduate(
    playbooks: Playbooks,
    criteria: AgentFilter,
    *,
    as_of: datetime | None = None,
    half_life_days: float = HALF_LIFE_DAYS,
) -> pl.DataFrame:
    """Makes the table of `Agent`: figures of every agent, whether it graduates, and each criterion it missed.

    Score: the manifest's (the lowest of several), else the lower 95 % bound on helpful/(helpful+harmful) over all its
    lessons. Every rating is one interaction, so a lesson weighs by its use; a rating loses half its weight
    every `half_life_days` before `as_of`, so old ratings leave fewer effective trials and a lower bound. A lesson
    without a date is as old as the agent's oldest dated one; where nothing is dated, nothing is discounted.

    Interactions and success rate: of the manifests, else of the run reports (tasks add up). Without either, the
    interactions are at least the most ratings that one lesson got, and the success rate is unknown, which meets no
    positive minimum.

    Args:
        as_of: ages count back from here; None: the newest time of any bullet that is not in the future.
    """
    moment = as_of or newest_time(playbooks.bullets)
    lessons: dict[str, list[Advice]] = {}
    for advice in advice_of(playbooks.bullets):
        lessons.setdefault(advice.agent_id, []).append(advice)
    records = _records(playbooks.runs)
    return table(
        Agent,
        [
            _agent(name, lessons.get(name, []), records.get(name, _UNKNOWN), criteria, moment, half_life_days)
            for name in sorted({*lessons, *records})
        ],
    )


def newest_time(bullets: pl.DataFrame) -> datetime | None:
    """The newest time in a table of `Bullet`, those in the future left out."""
    times = pl.concat([bullets["created_at"], bullets["updated_at"]]).drop_nulls()
    past = times.filter(times <= datetime.now(UTC))
    return cast("datetime | None", past.max())


def _records(runs: pl.DataFrame) -> dict[str, _AgentFigures]:
    """Agent -> its figures: those of manifests, completed by run reports."""
    figures: dict[str, _AgentFigures] = {}
    known = runs.filter(pl.col("agent_id").is_not_null()).sort("run_id")
    for (agent,), rows in known.group_by("agent_id", maintain_order=True):
        reports = rows.to_dicts()
        manifests = [report for report in reports if report["kind"] == "manifest"]
        tasks = [report for report in reports if report["kind"] == "run"]
        interactions, success_rate = _work(manifests)
        if interactions is None or (success_rate is None and tasks):
            done, solved = _work(tasks)
            interactions = done if interactions is None else interactions
            success_rate = solved if success_rate is None else success_rate
        figures[str(agent)] = _AgentFigures(
            interactions=interactions,
            success_rate=success_rate,
            score=min((r["graduation_score"] for r in reports if r["graduation_score"] is not None), default=None),
            expertise=tuple(domain for report in reports for domain in report["domain_expertise"]),
        )
    return figures


def _work(reports: list[dict[str, Any]]) -> tuple[int | None, float | None]:
    """(tasks attempted, share of them solved) over reports; None where one of them lacks the figure."""
    counts = [report["interactions"] for report in reports]
    interactions = sum(counts) if counts and None not in counts else None
    solved = [_solved(report) for report in reports]
    if interactions and None not in solved:
        return interactions, math.fsum(value for value in solved if value is not None) / interactions
    rates = [report["success_rate"] for report in reports if report["success_rate"] is not None]
    # several rates without their numbers of tasks cannot be averaged: the lowest is a safe bound
    return interactions, min(rates) if rates and len(rates) == len(reports) else None


def _solved(report: dict[str, Any]) -> float | None:
    if report["successes"] is not None:
        return float(report["successes"])
    if report["success_rate"] is not None and report["interactions"] is not None:
        return float(report["success_rate"] * report["interactions"])
    return None


def _agent(
    name: str,
    lessons: list[Advice],
    record: _AgentFigures,
    criteria: AgentFilter,
    as_of: datetime | None,
    half_life_days: float,
) -> Agent:
    interactions = record.interactions
    if interactions is None:
        interactions = max((advice.helpful + advice.harmful + advice.neutral for advice in lessons), default=0)
    figures: dict[str, Any] = {
        "graduation_score": _score(lessons, as_of, half_life_days) if record.score is None else record.score,
        "interactions": min(interactions, INT64_MAX),
        "success_rate": record.success_rate,
        "domain_expertise": _expertise(lessons, record),
    }
    missed = _missed(criteria, **figures)
    return Agent(agent_id=name, **figures, graduated=not missed, missed=missed, bullets=len(lessons))


def _score(lessons: list[Advice], as_of: datetime | None, half_life_days: float) -> float:
    """The lower bound on the share of helpful ratings, weighted by age."""
    ages = [_age_days(advice, as_of) for advice in lessons]
    unknown = max((age for age in ages if age is not None), default=0.0)
    weights = [0.5 ** ((unknown if age is None else age) / half_life_days) for age in ages]
    helpful = math.fsum(weight * advice.helpful for weight, advice in zip(weights, lessons, strict=True))
    harmful = math.fsum(weight * advice.harmful for weight, advice in zip(weights, lessons, strict=True))
    return wilson_lower_bound(helpful, helpful + harmful)


def _age_days(advice: Advice, as_of: datetime | None) -> float | None:
    """Days since the lesson was last changed; 0 for a time after `as_of`; None when unknown."""
    written = advice.bullet["updated_at"] or advice.bullet["created_at"]
    if written is None or as_of is None:
        return None
    return float(max(0.0, (as_of - written) / timedelta(days=1)))


def _expertise(lessons: list[Advice], record: _AgentFigures) -> list[str]:
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

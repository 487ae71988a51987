"""Consolidates the playbooks of graduated agents into one per domain: merged, ranked, compressed, with statistics."""

import statistics
from dataclasses import dataclass
from typing import Any

import polars as pl

from capibara_assets.domains import Domain
from capibara_assets.playbooks.coverage import Cover, cover, estimate_tokens
from capibara_assets.playbooks.graduation import wilson_lower_bound
from capibara_assets.playbooks.history import Advice, advice_of, merged
from capibara_assets.playbooks.near import Meaning, distinct, meaning_of, near_pairs, opposed
from capibara_assets.playbooks.schema import GENERAL, INT64_MAX, Agent, Consolidated
from capibara_assets.storage.records import Record, table

TOP_K = {"standard": 5000, "large": 7000}
"""How many bullets a domain keeps, by name."""
COVERAGE = 0.95
"""Share of the weighted coverage that the compressed playbook keeps where the budget allows."""
UNRATED = 0.05
"""Weight of an unrated lesson; without it, playbooks without ratings would have no compressed form."""
GENERAL_SHARE = 0.5
"""Weight of a general lesson beside one of the domain."""
VOLATILE = ("statistics.json", "agents.parquet")
"""Outside the data version: they cover all agents, and must not trigger domains without changes of their own."""


@dataclass(frozen=True)
class Consolidation:
    """A table of `Consolidated`, the table of `Agent` that it was made of, and the figures behind it (JSON)."""

    bullets: pl.DataFrame
    agents: pl.DataFrame
    statistics: dict[str, Any]

    def tables(self) -> dict[str, tuple[type[Record], pl.DataFrame]]:
        """Name -> (row type, table)."""
        return {"bullets": (Consolidated, self.bullets), "agents": (Agent, self.agents)}

    def documents(self) -> dict[str, Any]:
        """Name -> JSON."""
        return {"statistics": self.statistics}


@dataclass(frozen=True)
class _Lesson:
    """The same advice of one or more agents, merged."""

    best: Advice
    parts: tuple[Advice, ...]
    helpful: int
    harmful: int
    score: float


def consolidate(
    bullets: pl.DataFrame,
    agents: pl.DataFrame,
    domain: Domain | str,
    *,
    top_k: int = TOP_K["standard"],
    budget_tokens: int = 512,
    coverage: float = COVERAGE,
) -> Consolidation:
    """Merges the graduated agents' active bullets of a domain (and the general ones).

    Near-duplicates (`near.py`) become one lesson in the best rated wording: counters added, origins kept; every member
    is near that wording itself, so that a chain of small differences does not drift. Lessons are ranked by the lower
    95 % bound on helpful/(helpful+harmful), then by helpful, then by id; the first `top_k` are kept, and of those as
    few as possible keep `coverage` of the weighted words within `budget_tokens` (the domain's own lessons weigh twice a
    general one). Contradictions are reported, not merged away. No graduated agent is an empty, valid result whose
    statistics name the criteria that each agent missed.

    Args:
        bullets: table of `Bullet`; agents: table of `Agent`, from `graduate`.
    """
    fitting = bullets.filter(pl.col("domains").list.contains(str(domain)) | pl.col("domains").list.contains(GENERAL))
    trusted = fitting.join(agents.filter("graduated").select("agent_id"), on="agent_id", how="semi")
    # an agent's newest wording of a lesson decides whether the lesson is active
    advice = advice_of(trusted)
    active = [each for each in advice if each.bullet["status"] == "active"]
    lessons, contradictions = _merge(active)
    kept = lessons[:top_k]
    small = cover(
        [lesson.best.text for lesson in kept],
        [_weight(lesson, str(domain)) for lesson in kept],
        budget=budget_tokens,
        count_tokens=estimate_tokens,
        enough=coverage,
    )
    rows = [_row(lesson, rank, rank - 1 in small.chosen) for rank, lesson in enumerate(kept, start=1)]
    counts = {
        "in_domain": len(fitting),
        "of_graduated_agents": len(trusted),
        "of_rejected_agents": len(fitting) - len(trusted),
        "distinct": len(advice),
        "inactive": len(advice) - len(active),
        "duplicates_merged": len(active) - len(lessons),
        "kept": len(kept),
        "beyond_top_k": len(lessons) - len(kept),
        "compressed": len(small.chosen),
    }
    figures = _statistics(domain, agents, counts, kept, small, contradictions)
    return Consolidation(table(Consolidated, rows), agents, figures)


def _merge(advice: list[Advice]) -> tuple[list[_Lesson], list[dict[str, Any]]]:
    """(lessons, best first; contradictions)."""
    same = _same(advice)
    meanings = [meaning for meaning, _ in same]
    neighbours: list[set[int]] = [set() for _ in same]
    contradictions: list[dict[str, Any]] = []
    for left, right in near_pairs(meanings):
        if opposed(meanings[left], meanings[right]):
            both = sorted(min(advice[p].bullet["bullet_id"] for p in same[group][1]) for group in (left, right))
            contradictions.append({"kind": "negated", "bullets": both})
        elif not distinct(meanings[left], meanings[right]):
            neighbours[left].add(right)
            neighbours[right].add(left)
    best = [min(places, key=lambda place: _rank(advice[place])) for _, places in same]
    order = {group: rank for rank, group in enumerate(sorted(range(len(same)), key=lambda g: _rank(advice[best[g]])))}
    free = set(order)
    lessons: list[_Lesson] = []
    for leader in order:
        if leader not in free:
            continue
        members = [leader]
        for group in sorted(neighbours[leader] & free, key=order.__getitem__):
            # two neighbours may differ in something that the leader does not mention
            if not any(_apart(meanings[group], meanings[member]) for member in members):
                members.append(group)
        free.difference_update(members)
        lessons.append(_lesson([advice[place] for member in members for place in same[member][1]]))
    lessons.sort(key=lambda lesson: (-lesson.score, -lesson.helpful, lesson.best.bullet["bullet_id"]))
    contradictions.sort(key=lambda contradiction: contradiction["bullets"])
    contradictions += [disputed for lesson in lessons if (disputed := _disagreement(lesson))]
    return lessons, contradictions


def _apart(left: Meaning, right: Meaning) -> bool:
    return opposed(left, right) or distinct(left, right)


def _same(advice: list[Advice]) -> list[tuple[Meaning, list[int]]]:
    """Positions in `advice` by meaning: most copies share it and need no search. Texts without words stay apart."""
    groups: dict[tuple[Meaning, str], list[int]] = {}
    for place, each in enumerate(advice):
        meaning = meaning_of(each.text)
        groups.setdefault((meaning, "" if meaning.stems else each.text), []).append(place)
    return [(meaning, places) for (meaning, _), places in groups.items()]


def _rank(advice: Advice) -> tuple[float, int, str]:
    """Sort key: best first."""
    return (-_score(advice), -advice.helpful, advice.bullet["bullet_id"])


def _lesson(parts: list[Advice]) -> _Lesson:
    helpful, harmful = sum(part.helpful for part in parts), sum(part.harmful for part in parts)
    best = min(parts, key=_rank)
    return _Lesson(best, tuple(parts), helpful, harmful, wilson_lower_bound(helpful, helpful + harmful))


def _weight(lesson: _Lesson, domain: str) -> float:
    """The weight of a lesson in the compressed playbook."""
    own = any(domain in part.domains for part in lesson.parts)
    return (lesson.score + UNRATED) * (1.0 if own else GENERAL_SHARE)


def _score(advice: Advice) -> float:
    return wilson_lower_bound(advice.helpful, advice.helpful + advice.harmful)


def _disagreement(lesson: _Lesson) -> dict[str, Any] | None:
    """A contradiction entry where advice helped one agent more than it harmed, and harmed another more; else None."""
    balance = {part.bullet["bullet_id"]: (part.helpful, part.harmful) for part in lesson.parts}
    if any(h > m for h, m in balance.values()) and any(m > h for h, m in balance.values()):
        counters = {bullet: {"helpful": str(h), "harmful": str(m)} for bullet, (h, m) in sorted(balance.items())}
        return {"kind": "helpful_here_harmful_there", "bullets": sorted(balance), "counters": counters}
    return None


def _row(lesson: _Lesson, rank: int, compressed: bool) -> Consolidated:
    return Consolidated(
        bullet_id=lesson.best.bullet["bullet_id"],
        content=lesson.best.text,
        section=lesson.best.bullet["section"],
        domains=list(merged([lesson.best.domains, *(part.domains for part in lesson.parts)])),
        helpful=min(lesson.helpful, INT64_MAX),
        harmful=min(lesson.harmful, INT64_MAX),
        score=lesson.score,
        origins=sorted(origin for part in lesson.parts for origin in part.origins),
        evidence=sorted({reference for part in lesson.parts for reference in part.evidence}),
        agents=sorted({part.agent_id for part in lesson.parts}),
        rank=rank,
        compressed=compressed,
    )


def _statistics(
    domain: Domain | str,
    agents: pl.DataFrame,
    counts: dict[str, int],
    kept: list[_Lesson],
    small: Cover,
    contradictions: list[dict[str, Any]],
) -> dict[str, Any]:
    scores = [lesson.score for lesson in kept]
    rejected = agents.filter(~pl.col("graduated")).sort("agent_id")
    return {
        "domain": str(domain),
        "agents": {
            "total": len(agents),
            "graduated": sorted(agents.filter("graduated")["agent_id"]),
            "rejected": {row["agent_id"]: row["missed"] for row in rejected.iter_rows(named=True)},
        },
        "bullets": counts,
        "quality": {
            "mean": statistics.fmean(scores) if scores else None,
            "median": statistics.median(scores) if scores else None,
        },
        "compressed": {
            "bullets": len(small.chosen),
            "tokens": small.tokens,
            "coverage": small.share if scores else None,
        },
        "contradictions": contradictions,
    }

"""The fleet's plan: which variants of which families run, under whose name, and when. No execution happens here."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from capibara_assets.domains import Domain
from workshop.experience.catalogue import FAMILIES
from workshop.experience.families import Family
from workshop.experience.rendering import Variant
from workshop.experience.vocabulary import THINGS

FIRST_DAY = datetime(2026, 10, 1, tzinfo=UTC)
DAYS = 28

#: Who works in which domain: the fictional agents of `resources/experience/playbooks`.
AGENTS: Mapping[Domain, tuple[str, ...]] = {
    Domain.PYTHON: ("marta-python", "field-notes", "newcomer"),
    Domain.SQL: ("ledger-sql", "query-twins", "newcomer"),
    Domain.JAVASCRIPT: ("pixel-js", "field-notes"),
    Domain.ML: ("loss-lab", "field-notes", "coin-toss"),
    Domain.API: ("gateway", "query-twins"),
}

#: Does most of the repairs.
REPAIRER = "trace-hound"

#: Variants per family: tasks solved at the first attempt, and (for families with bugs) repaired ones.
SOLVED: Mapping[Domain, int] = {
    Domain.PYTHON: 5,
    Domain.SQL: 5,
    Domain.JAVASCRIPT: 6,
    Domain.ML: 4,
    Domain.API: 3,
}
REPAIRED = 1


@dataclass(frozen=True)
class Planned:
    """One sandbox session to run."""

    variant: Variant
    agent_id: str
    sandbox_id: str
    start: datetime

    @property
    def name(self) -> str:
        return self.variant.name


def _number(*parts: object) -> int:
    """A stable pseudo-random number out of words."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:6], "big")


def _variants(family: Family) -> list[Variant]:
    first_thing = _number("thing", family.domain, family.name)
    stride = 7  # coprime to the number of things: variants of a family speak of different ones
    solved = [
        Variant(family, number, None, _number(family.name, number), first_thing + stride * number)
        for number in range(SOLVED[family.domain])
    ]
    bugs = sorted(family.bugs, key=lambda bug: _number(family.name, bug.kind))[:REPAIRED]
    repaired = [
        Variant(family, number, bug, _number(family.name, "bug", number), first_thing + stride * number)
        for number, bug in enumerate(bugs, start=SOLVED[family.domain])
    ]
    return solved + repaired


def _plan(variant: Variant) -> Planned:
    name, domain = variant.name, variant.family.domain
    agents = (REPAIRER, *AGENTS[domain]) if variant.bug else AGENTS[domain]
    # The first agent of a domain does most of the work.
    place = min(_number("agent", name) % (2 * len(agents)), len(agents) - 1)
    start = FIRST_DAY + timedelta(seconds=_number("start", name) % (DAYS * 86_400 - 3_600))
    digits = hashlib.sha256(name.encode()).hexdigest()[:20]
    return Planned(variant, agents[len(agents) - 1 - place], f"i{digits}", start)


def plan(only: Mapping[Domain, int] | None = None) -> list[Planned]:
    """All sessions in order of their start; `only` keeps the first n sessions of each domain it names.

    The sessions of a family keep their ids, words and times whatever else is planned.
    """
    families = sorted(FAMILIES, key=lambda family: (family.domain, family.name))
    assert len(THINGS) % 7, "the stride must be coprime to the number of things"
    planned = [_plan(variant) for family in families for variant in _variants(family)]
    if only is not None:
        spread = sorted(planned, key=lambda session: _number("spread", session.name))
        kept = {domain: [item for item in spread if _domain(item) == domain][:count] for domain, count in only.items()}
        planned = [session for sessions in kept.values() for session in sessions]
    return sorted(planned, key=lambda session: (session.start, session.name))


def _domain(session: Planned) -> Domain:
    """Where a session counts: repairs are `debug`, whatever their language."""
    return Domain.DEBUG if session.variant.bug else session.variant.family.domain

"""Domains by content: first of the sandbox session (most cells of a session import nothing), then of each execution."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from capibara_assets.domains import Domain
from capibara_assets.executions.readers import Recorded
from capibara_assets.executions.signals import CodeFacts, code_facts

_BY_LANGUAGE = {"javascript": Domain.JAVASCRIPT, "typescript": Domain.JAVASCRIPT, "sql": Domain.SQL}
_SPECIAL = (Domain.SQL, Domain.API, Domain.ML)  # what a Python program may be instead of plain Python
_PER_CELL = 8.0  # so that one long cell does not outvote a session
_ENOUGH = 3.0  # evidence of a session below this is plain Python
_STRONG_CELL = 4.0  # evidence of a cell that differs from its session
_SIGNS_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Label:
    """Domains of one execution, the primary first (none for unknown languages and noise), and why."""

    domains: tuple[Domain, ...]
    confidence: float
    evidence: str


def classify_session(session: Sequence[Recorded]) -> list[Label]:
    """Labels of the executions of one sandbox, in the order given."""
    facts = [code_facts(record.language, record.code) for record in session]
    paired = list(zip(session, facts, strict=True))
    python = [fact for record, fact in paired if record.language == "python" and not fact.empty]
    domain, confidence, evidence = session_domain(python)
    return [_label(record, fact, domain, confidence, evidence) for record, fact in paired]


def session_domain(cells: Sequence[CodeFacts]) -> tuple[Domain, float, str]:
    """Domain, confidence and evidence of a session's Python cells."""
    scores = {domain: sum(min(cell.score(domain), _PER_CELL) for cell in cells) for domain in _SPECIAL}
    best = max(_SPECIAL, key=lambda domain: scores[domain])  # ties fall to the earlier one
    total = sum(scores.values())
    if scores[best] < max(_ENOUGH, 0.25 * len(cells)):
        return Domain.PYTHON, round(1 - total / (total + 4 * _ENOUGH), 3), f"session: {_shown(cells) or 'no library'}"
    share = scores[best] / total
    confidence = share * scores[best] / (scores[best] + _ENOUGH)
    return best, round(confidence, 3), f"session: {_shown(cells)}"


def _label(record: Recorded, fact: CodeFacts, session: Domain, confidence: float, evidence: str) -> Label:
    if record.language in _BY_LANGUAGE:
        return Label((_BY_LANGUAGE[record.language],), 1.0, f"language: {record.language}")
    if record.language != "python":
        return Label((), 0.0, f"language: {record.language} has no domain")
    if fact.empty:
        return Label((), 0.0, "noise: no statement")
    own = max(_SPECIAL, key=fact.score)
    if own != session and fact.score(own) >= _STRONG_CELL and fact.score(own) > 2 * fact.score(session):
        seen = f"cell: {_shown([fact])}; {evidence}"
        if session is Domain.PYTHON:
            return Label((own, session), round(fact.score(own) / (fact.score(own) + 2 * _ENOUGH), 3), seen)
        return Label((session, own), confidence, seen)
    return Label((session,), confidence, evidence)


def _shown(cells: Iterable[CodeFacts]) -> str:
    """The strongest signs over all cells, with the number of cells that show them."""
    totals: dict[tuple[Domain, str], list[float]] = defaultdict(list)
    for cell in cells:
        for domain, what, weight in cell.signs:
            totals[domain, what].append(weight)
    ranked = sorted(totals.items(), key=lambda item: (-sum(item[1]), item[0]))[:_SIGNS_SHOWN]
    return ", ".join(f"{what} x{len(seen)} ({domain})" for (domain, what), seen in ranked)

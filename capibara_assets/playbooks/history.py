"""Merges the snapshots of each agent's playbook: every lesson once, in its newest wording, with its counters."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import polars as pl

from capibara_assets.playbooks.similarity import components, jaccard, normalised, words

EDITED = 0.5
"""The same id with at least this word similarity is the same lesson, reworded."""


@dataclass(frozen=True)
class Advice:
    """One lesson of one agent, merged over all snapshots."""

    agent_id: str
    bullet: Mapping[str, Any]
    """Row of the newest wording."""
    helpful: int
    harmful: int
    neutral: int
    origins: tuple[str, ...]
    """Ids of its bullets in all snapshots."""
    domains: tuple[str, ...]
    evidence: tuple[str, ...]
    """References of all of them, `<type>:<ref>`."""

    @property
    def text(self) -> str:
        """Title and content of the newest wording."""
        return full_text(self.bullet)


def full_text(bullet: Mapping[str, Any]) -> str:
    """Title and content of a bullet as one text."""
    return f"{bullet['title']}: {bullet['content']}" if bullet["title"] else str(bullet["content"])


def exact_counters(bullet: Mapping[str, Any]) -> tuple[int, int, int]:
    """(helpful, harmful, neutral) of a `Bullet` row, exact beyond 64 bits too."""
    if exact := bullet["counters_exact"]:
        helpful, harmful, neutral = map(int, exact.split("/"))
        return helpful, harmful, neutral
    return bullet["helpful"], bullet["harmful"], bullet["neutral"]


def advice_of(bullets: pl.DataFrame) -> list[Advice]:
    """The lessons in a table of `Bullet`, by agent.

    Bullets of one agent are the same lesson when their words are the same, when one is what a delta made of the other,
    or when they have the same id in two files and half their words in common. Counters of one file add up; over files,
    which are snapshots of a history or copies in another format, the largest count stands, so nothing is counted twice.
    """
    by_agent: dict[str, list[dict[str, Any]]] = {}
    for bullet in bullets.sort("bullet_id").iter_rows(named=True):
        by_agent.setdefault(bullet["agent_id"], []).append(bullet)
    return [
        _advice(agent, [rows[place] for place in group])
        for agent, rows in sorted(by_agent.items())
        for group in components(len(rows), _same_lesson(rows))
    ]


def _same_lesson(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Index pairs; each bullet is compared with the first of its wording and with those of its id."""
    pairs: list[tuple[int, int]] = []
    first_of: dict[str, int] = {}
    of_id: dict[str, list[int]] = {}
    place_of = {row["bullet_id"]: place for place, row in enumerate(rows)}
    for place, row in enumerate(rows):
        if row["replaces"] in place_of:
            pairs.append((place_of[row["replaces"]], place))
        text = normalised(row["content"])
        if first_of.setdefault(text, place) != place:
            pairs.append((first_of[text], place))
            continue  # its wording has been compared already
        for other in of_id.get(row["local_id"], ()):
            elsewhere = rows[other]["playbook_id"] != row["playbook_id"]
            if elsewhere and jaccard(words(rows[other]["content"]), words(row["content"])) >= EDITED:
                pairs.append((other, place))
        of_id.setdefault(row["local_id"], []).append(place)
    return pairs


def _advice(agent: str, rows: list[dict[str, Any]]) -> Advice:
    replaced = {row["replaces"] for row in rows}
    latest = [row for row in rows if row["bullet_id"] not in replaced]
    # among equals the fuller wording, so that what the files are called does not decide
    newest = max(latest, key=lambda row: (_written(row), sum(exact_counters(row)), *_fullness(row), row["bullet_id"]))
    files: dict[str, tuple[int, int, int]] = {}
    for row in rows:
        files[row["playbook_id"]] = _added(files.get(row["playbook_id"], (0, 0, 0)), exact_counters(row))
    helpful, harmful, neutral = (max(counts) for counts in zip(*files.values(), strict=True))
    return Advice(
        agent_id=agent,
        bullet=newest,
        helpful=helpful,
        harmful=harmful,
        neutral=neutral,
        origins=tuple(row["bullet_id"] for row in rows),
        domains=merged(row["domains"] for row in rows),
        evidence=merged(row["evidence"] for row in rows),
    )


def merged(lists: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """The distinct items of all lists, in order of first appearance."""
    return tuple(dict.fromkeys(item for items in lists for item in items))


def _written(row: Mapping[str, Any]) -> datetime:
    return row["updated_at"] or row["created_at"] or datetime.min.replace(tzinfo=UTC)


def _fullness(row: Mapping[str, Any]) -> tuple[int, str]:
    text = full_text(row)
    return len(text), text


def _added(left: tuple[int, int, int], right: tuple[int, int, int]) -> tuple[int, int, int]:
    return left[0] + right[0], left[1] + right[1], left[2] + right[2]

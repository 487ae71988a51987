"""Writes playbooks: ACE text and ACE JSON, which read back as the same playbook, and a system message for a model."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from capibara_assets.playbooks.history import exact_counters, full_text
from capibara_assets.playbooks.schema import Bullet
from capibara_assets.storage.digests import canonical_json
from capibara_assets.storage.records import table

_NUMBER = re.compile(r"-(\d+)$")
_ACTIVE = "active"
HEADING = "Lessons from earlier work. Use those that fit the task."


def to_ace_text(bullets: pl.DataFrame) -> str:
    """One playbook's bullets as ACE text, sections in order of appearance; further lines are indented by two blanks.

    The form has no titles (they go before the content), times, tags, neutral counter or status: use JSON to keep those.
    Inactive bullets are left out: the form would make them active again.

    Raises:
        ValueError: an id or section that this form cannot hold.
    """
    sections: dict[str, list[str]] = {}
    for row in _in_order(bullets):
        if row["status"] != _ACTIVE:
            continue
        if re.search(r"[\]\n]", row["local_id"]) or "\n" in row["section"] or row["section"].startswith("#"):
            raise ValueError(f"ACE text cannot hold the id {row['local_id']!r} in section {row['section']!r}")
        helpful, harmful, _ = exact_counters(row)
        content = full_text(row).replace("\n", "\n  ")
        sections.setdefault(row["section"], []).append(
            f"[{row['local_id']}] helpful={helpful} harmful={harmful} :: {content}\n"
        )
    # bullets without a section must come first: a header holds until the next one
    ordered = sorted(sections.items(), key=lambda item: item[0] != "")
    return "\n".join((f"## {section}\n" if section else "") + "".join(lines) for section, lines in ordered)


def to_ace_json(bullets: pl.DataFrame) -> bytes:
    """One playbook's bullets as ACE JSON: bullets by id, sections that list the ids, next_id, and the agent."""
    entries: dict[str, Any] = {}
    sections: dict[str, list[str]] = {}
    for row in _in_order(bullets):
        helpful, harmful, neutral = exact_counters(row)
        entry = {
            "id": row["local_id"],
            "section": row["section"],
            "title": row["title"],
            "content": row["content"],
            "helpful": helpful,
            "harmful": harmful,
            "neutral": neutral,
            "tags": row["tags"],
            "evidence": [_named(reference) for reference in row["evidence"]] or None,
            "status": row["status"],
            "created_at": row["created_at"] and row["created_at"].isoformat(),
            "updated_at": row["updated_at"] and row["updated_at"].isoformat(),
        }
        entries[row["local_id"]] = {name: value for name, value in entry.items() if value is not None}
        sections.setdefault(row["section"], []).append(row["local_id"])
    numbers = [int(match[1]) for local_id in entries if (match := _NUMBER.search(local_id))]
    document = {"bullets": entries, "sections": sections, "next_id": max(numbers, default=0)}
    agents = bullets["agent_id"].unique().to_list()
    return canonical_json({**document, "agent_id": agents[0]} if len(agents) == 1 else document)


def _named(reference: str) -> dict[str, str]:
    """`<type>:<ref>` as an object of ACE JSON."""
    kind, _, ref = reference.partition(":")
    return {"type": kind, "ref": ref}


def write_playbook(consolidated: pl.DataFrame, name: str, folder: Path) -> None:
    """Writes a table of `Consolidated` as ACE files for agents to start from: all of it, and the compressed part.

    Writes `playbook.txt`, `playbook.json`, `compressed.txt` and `compressed.json`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for stem, rows in (("playbook", consolidated), ("compressed", consolidated.filter("compressed"))):
        bullets = as_playbook(rows, name)
        (folder / f"{stem}.txt").write_text(to_ace_text(bullets), "utf-8")
        (folder / f"{stem}.json").write_bytes(to_ace_json(bullets))


def render_playbook(consolidated: pl.DataFrame, count_tokens: Callable[[str], int], budget: int) -> str:
    """Renders the compressed bullets as a system message, best first, in at most `budget` tokens; "" when none fits.

    A bullet goes in whole or not at all; one that does not fit makes room for the next.

    Args:
        consolidated: table of `Consolidated`.
        count_tokens: tokens of a text for the model at hand.
    """
    chosen: list[tuple[str, str]] = []
    for row in consolidated.filter("compressed").sort("rank").iter_rows(named=True):
        candidate = [*chosen, (row["section"], row["content"])]
        if count_tokens(_prompt(candidate)) <= budget:
            chosen = candidate
    return _prompt(chosen) if chosen else ""


def _prompt(bullets: list[tuple[str, str]]) -> str:
    """The message: sections in the order of their first bullet."""
    sections: dict[str, list[str]] = {}
    for section, content in bullets:
        sections.setdefault(section, []).append("- " + content.replace("\n", "\n  "))
    parts = [HEADING]
    for section, lines in sections.items():
        parts.append("\n".join([f"## {section}", *lines] if section else lines))
    return "\n\n".join(parts)


def as_playbook(consolidated: pl.DataFrame, name: str) -> pl.DataFrame:
    """A table of `Consolidated` as one playbook's `Bullet`s, ids `<name>-%05d` by rank."""
    return table(
        Bullet,
        (
            Bullet(
                bullet_id=f"{name}/{name}-{row['rank']:05d}",
                playbook_id=name,
                local_id=f"{name}-{row['rank']:05d}",
                agent_id=name,
                section=" ".join(row["section"].lstrip("#").split()),
                title=None,
                content=row["content"],
                helpful=row["helpful"],
                harmful=row["harmful"],
                neutral=0,
                counters_exact=None,
                tags=[],
                evidence=row["evidence"],
                domains=row["domains"],
                status=_ACTIVE,
                replaces=None,
                created_at=None,
                updated_at=None,
                flags=[],
                source_file="",
                source_line=row["rank"],
            )
            for row in consolidated.iter_rows(named=True)
        ),
    )


def _in_order(bullets: pl.DataFrame) -> list[dict[str, Any]]:
    """The rows of one playbook in the order of its file. Raises ValueError for several playbooks."""
    if bullets["playbook_id"].n_unique() > 1:
        raise ValueError("the bullets of one playbook at a time")
    return bullets.sort("source_line", "local_id").to_dicts()

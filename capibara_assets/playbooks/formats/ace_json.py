"""ACE JSON: bullets by id with sections (open ACE, kayba), lists of bullets with evidence, sections of lists."""

import json
from collections.abc import Mapping
from typing import Any

from capibara_assets.playbooks.formats.json_text import object_of
from capibara_assets.playbooks.formats.parsed import (
    ParsedPlaybook,
    RawBullet,
    UnfitEntry,
    counter,
    moment,
    references,
    strings,
    text_of,
    tidy,
    title_of,
    undamaged,
)

_TEXTS = ("content", "text")


def entries_of(document: Mapping[str, Any]) -> tuple[str, Any] | None:
    """(key, bullets) of a playbook document: by id or as a list; None when it holds none.

    `strategies` and `entries` are common words: they count only when their values have the form of bullets.
    """
    for name in ("bullets", "skills"):
        if isinstance(document.get(name), (Mapping, list)):
            return name, document[name]
    for name in ("strategies", "entries"):
        held = document.get(name)
        values = list(held.values()) if isinstance(held, Mapping) else held
        if isinstance(values, list) and any(map(looks_like_bullet, values)):
            return name, held
    sections = document.get("sections")
    if isinstance(sections, Mapping) and any(_holds_bullets(entries) for entries in sections.values()):
        return "sections", sections
    return None


def looks_like_bullet(entry: Any) -> bool:
    """Whether a value is an object with a text and an id or counters."""
    return (
        isinstance(entry, Mapping)
        and any(name in entry for name in _TEXTS)
        and any(name in entry for name in ("id", "helpful", "helpful_count"))
    )


def read_bullets_by_id(document: Mapping[str, Any], entries: Mapping[str, Any], text: str) -> ParsedPlaybook:
    """Family kayba-json: `{"bullets" or "skills": {id: {...}}, "sections": {name: [ids]}, "next_id": n}`.

    Where a bullet's own section and the list of sections differ, the bullet's own wins and is flagged.
    """
    parsed = ParsedPlaybook(agent_id=agent_of(document))
    listed = _listed(document.get("sections"), entries, parsed, text)
    for local_id, entry in entries.items():
        line = line_of(text, local_id)
        shown = json.dumps(entry, ensure_ascii=False)
        try:
            bullet = _bullet_by_id(local_id, entry, listed.get(local_id, []), line)
        except UnfitEntry as unfit:
            parsed.reject(unfit.reason, unfit.detail, shown, line, local_id)
        else:
            parsed.add(bullet, shown)
    return parsed


def read_bullets_with_evidence(document: Any, entries: list[Any], text: str) -> ParsedPlaybook:
    """Lists of `{id, title, content (or text), tags, helpful_count, harmful_count, status, ...}`."""
    parsed = ParsedPlaybook(agent_id=agent_of(document))
    _read_list(entries, text, parsed, "")
    return parsed


def read_sections_of_lists(document: Mapping[str, Any], sections: Mapping[str, Any], text: str) -> ParsedPlaybook:
    """`{"sections": {name: [{id, content, helpful_count, ...}]}}`: the section is the list that holds the bullet."""
    parsed = ParsedPlaybook(agent_id=agent_of(document))
    for name, entries in sections.items():
        if isinstance(entries, list):
            _read_list(entries, text, parsed, name)
        else:
            detail = f"expected a list of bullets, found {type(entries).__name__}"
            parsed.reject("type:section", detail, json.dumps(entries, ensure_ascii=False), line_of(text, name), name)
    return parsed


def _read_list(entries: list[Any], text: str, parsed: ParsedPlaybook, section: str) -> None:
    for position, entry in enumerate(entries):
        shown = json.dumps(entry, ensure_ascii=False)
        locator = entry["id"] if isinstance(entry, Mapping) and isinstance(entry.get("id"), str) else f"[{position}]"
        line = line_of(text, locator)
        try:
            bullet = bullet_with_evidence(entry, line, section)
        except UnfitEntry as unfit:
            parsed.reject(unfit.reason, unfit.detail, shown, line, locator)
        else:
            parsed.add(bullet, shown)


def line_of(text: str, name: str) -> int:
    """Line (from 1) of the first occurrence of a quoted name; 0 when there is none."""
    position = text.find(json.dumps(name, ensure_ascii=False))
    return 0 if position < 0 else text.count("\n", 0, position) + 1


def _bullet_by_id(local_id: str, entry: Any, sections: list[str], line: int) -> RawBullet:
    entry = object_of(entry)
    if not tidy(undamaged(local_id)):
        raise UnfitEntry("empty_id", "the key is blank")
    if entry.get("id", local_id) != local_id:
        raise UnfitEntry("conflicting_bullet_id", f"the key says {local_id!r}, the bullet says {entry['id']!r}")
    flags: list[str] = []
    content = text_of(entry, _text_name(entry))
    section = entry.get("section")
    if section is not None and not isinstance(section, str):
        raise UnfitEntry("type:section", f"expected a string, found {type(section).__name__}")
    if section is None:
        section = sections[0] if sections else ""
    elif any(name != section for name in sections):
        flags.append("section_differs_from_list")
    if len(sections) != len(set(sections)):
        flags.append("listed_twice")
    return RawBullet(
        local_id=tidy(local_id),
        section=tidy(section),
        content=content,
        title=title_of(entry),
        helpful=counter(entry, "helpful", "helpful_count"),
        harmful=counter(entry, "harmful", "harmful_count"),
        neutral=counter(entry, "neutral", "neutral_count"),
        tags=strings(entry.get("tags")),
        evidence=references(entry.get("evidence")),
        status=_status(entry),
        created_at=moment(entry.get("created_at"), flags),
        updated_at=moment(entry.get("updated_at"), flags),
        flags=tuple(flags),
        line=line,
    )


def bullet_with_evidence(entry: Any, line: int, section: str = "") -> RawBullet:
    """One entry of a list; `section` where the entry names none. Raises UnfitEntry."""
    entry = object_of(entry)
    flags: list[str] = []
    local_id, content = text_of(entry, "id"), text_of(entry, _text_name(entry))
    named = entry.get("section")
    return RawBullet(
        local_id=local_id,
        section=tidy(named if isinstance(named, str) else section),
        content=content,
        title=title_of(entry),
        helpful=counter(entry, "helpful_count", "helpful"),
        harmful=counter(entry, "harmful_count", "harmful"),
        neutral=counter(entry, "neutral_count", "neutral"),
        tags=strings(entry.get("tags")),
        evidence=references(entry.get("evidence")),
        status=_status(entry),
        created_at=moment(entry.get("created", entry.get("created_at")), flags),
        updated_at=moment(entry.get("last_updated", entry.get("updated_at")), flags),
        flags=tuple(flags),
        line=line,
    )


def _text_name(entry: Mapping[str, Any]) -> str:
    """`content`, or the other name that some families have for it."""
    return next((name for name in _TEXTS if name in entry), _TEXTS[0])


def _holds_bullets(entries: Any) -> bool:
    return isinstance(entries, list) and any(map(looks_like_bullet, entries))


def _status(entry: Mapping[str, Any]) -> str:
    status = entry.get("status")
    if entry.get("archived") is True:
        return "archived"
    return tidy(status) if isinstance(status, str) and status.strip() else "active"


def agent_of(document: Any) -> str | None:
    """The agent that a document names."""
    agent = document.get("agent_id") if isinstance(document, Mapping) else None
    return tidy(agent) if isinstance(agent, str) and agent.strip() else None


def _listed(sections: Any, entries: Mapping[str, Any], parsed: ParsedPlaybook, text: str) -> dict[str, list[str]]:
    """Bullet id -> the sections that list it; an id that no bullet has is rejected."""
    listed: dict[str, list[str]] = {}
    for name, ids in sections.items() if isinstance(sections, Mapping) else ():
        for local_id in ids if isinstance(ids, list) else ():
            if not isinstance(local_id, str) or local_id not in entries:
                detail = f"section {name!r} lists it, no bullet has this id"
                parsed.reject("dangling_reference", detail, str(local_id), line_of(text, str(local_id)), str(local_id))
            else:
                listed.setdefault(local_id, []).append(name)
    return listed

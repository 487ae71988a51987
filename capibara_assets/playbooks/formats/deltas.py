"""Reads changes to a playbook: evidence deltas, DeltaBatch operations (of curators), and the tags of a reflector.

A delta is not a playbook but a list of changes to one. Semantics of the operations: kayba-ai/agentic-context-engine and
ACE-open (`ADD`, `UPDATE`, `TAG`, `REMOVE`), ace-agent/ace (curator: `ADD`; reflector: `bullet_tags`), and the evidence
playbooks' `new_bullets`, `edits`, `merges`, `deprecations`, `counters`, in this order.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from capibara_assets.playbooks.formats.ace_json import agent_of, bullet_with_evidence, line_of
from capibara_assets.playbooks.formats.json_text import TWICE, doubled_key, object_of
from capibara_assets.playbooks.formats.parsed import (
    MOST_DIGITS,
    RawBullet,
    Rejected,
    UnfitEntry,
    counter,
    is_count,
    moment,
    text_of,
    tidy,
    undamaged,
)

COUNTERS = ("helpful", "harmful", "neutral")
_ID_KEYS = ("bullet_id", "skill_id", "id", "bullet")
_SETTABLE = {
    "content": "content",
    "title": "title",
    "section": "section",
    "status": "status",
    "tags": "tags",
    "helpful_count": "helpful",
    "harmful_count": "harmful",
    "neutral_count": "neutral",
    "helpful": "helpful",
    "harmful": "harmful",
    "neutral": "neutral",
}


@dataclass(frozen=True)
class Change:
    """One step of a delta; which fields count depends on the kind."""

    kind: Literal["add", "set", "count", "retire", "merge"]
    local_id: str
    """The bullet that it changes; empty for an addition whose id the playbook assigns."""
    shown: str
    """The step as JSON text, for the quarantine."""
    line: int = 0
    bullet: RawBullet | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    counts: tuple[int, int, int] = (0, 0, 0)
    others: tuple[str, ...] = ()
    status: str = "active"


@dataclass(frozen=True)
class Delta:
    """The steps of one delta in the order in which they apply."""

    delta_id: str
    at: datetime | None
    changes: tuple[Change, ...]
    agent_id: str | None = None

    @property
    def ids(self) -> frozenset[str]:
        """Every bullet that it names."""
        named = {change.local_id for change in self.changes} | {other for each in self.changes for other in each.others}
        return frozenset(named - {""})


def looks_like_delta(document: Any) -> bool:
    """Whether a JSON value is a delta, a list of deltas, or a reflector's tags."""
    if isinstance(document, list):
        return bool(document) and (
            all(isinstance(entry, Mapping) and _delta_family(entry) for entry in document) or _are_tags(document)
        )
    return isinstance(document, Mapping) and _delta_family(document) is not None


def delta_family(document: Any) -> str:
    """The family of what `looks_like_delta` accepts."""
    if isinstance(document, list):
        return "reflector-tags" if _are_tags(document) else (_delta_family(document[0]) or "")
    return _delta_family(document) or ""


def read_deltas(document: Any, text: str) -> tuple[tuple[Delta, ...], tuple[Rejected, ...]]:
    """Reads the deltas of a file in order; returns them and the steps that are invalid."""
    documents = document if isinstance(document, list) and not _are_tags(document) else [document]
    rejected: list[Rejected] = []
    deltas = []
    for position, each in enumerate(documents):
        if (twice := doubled_key(each, lists=False)) is None:
            deltas.append(_delta(each, text, rejected))
        else:
            shown, named = json.dumps(each, ensure_ascii=False), each.get("delta_id")
            locator = named if isinstance(named, str) else f"[{position}]"
            rejected.append(Rejected(f"duplicate_key:{twice}", TWICE, shown, line_of(text, locator), locator))
    return tuple(deltas), tuple(rejected)


def _delta_family(document: Mapping[str, Any]) -> str | None:
    if "delta_id" in document and any(name in document for name in _EVIDENCE):
        return "evidence-delta"
    if isinstance(document.get("operations"), list):
        return "delta-batch"
    return "reflector-tags" if _are_tags(document.get("bullet_tags")) else None


def _are_tags(entries: Any) -> bool:
    return (
        isinstance(entries, list)
        and bool(entries)
        and all(isinstance(each, Mapping) and "tag" in each and "content" not in each for each in entries)
    )


def _delta(document: Any, text: str, rejected: list[Rejected]) -> Delta:
    """One delta. A step that does not fit is rejected alone, the others stand."""
    steps: list[tuple[Callable[[Any], Change], Any]]
    if isinstance(document, list):
        steps = [(_tag, entry) for entry in document]
        return Delta("", None, tuple(_read(steps, text, rejected)))
    if isinstance(document.get("operations"), list):
        steps = [(_operation, entry) for entry in document["operations"]]
    elif "delta_id" in document:
        steps = [(read, entry) for name, read in _EVIDENCE.items() for entry in _entries(document, name, rejected)]
    else:
        steps = []
    if _are_tags(document.get("bullet_tags")):
        steps += [(_tag, entry) for entry in document["bullet_tags"]]
    at = next((document[name] for name in ("timestamp", "created_at", "at") if name in document), None)
    delta_id = document.get("delta_id")
    return Delta(
        delta_id=delta_id if isinstance(delta_id, str) else "",
        at=moment(at, []),
        changes=tuple(_read(steps, text, rejected)),
        agent_id=agent_of(document),
    )


def _entries(document: Mapping[str, Any], name: str, rejected: list[Rejected]) -> list[Any]:
    entries = document.get(name) or []
    if isinstance(entries, list):
        return entries
    rejected.append(Rejected(f"type:{name}", f"expected a list, found {type(entries).__name__}", json.dumps(entries)))
    return []


def _read(steps: list[tuple[Callable[[Any], Change], Any]], text: str, rejected: list[Rejected]) -> list[Change]:
    changes = []
    for position, (read, entry) in enumerate(steps):
        shown = json.dumps(entry, ensure_ascii=False)
        locator = _named(entry) or f"[{position}]"
        line = line_of(text, locator)
        try:
            undamaged(shown)
            change = read(entry)
        except UnfitEntry as unfit:
            rejected.append(Rejected(unfit.reason, unfit.detail, shown, line, locator))
        else:
            changes.append(_placed(change, shown, line))
    return changes


def _placed(change: Change, shown: str, line: int) -> Change:
    bullet = RawBullet(**{**vars(change.bullet), "line": line}) if change.bullet is not None else None
    return Change(**{**vars(change), "shown": shown, "line": line, "bullet": bullet})


def _named(entry: Any) -> str:
    """The bullet that an entry is about, "" when it names none."""
    if isinstance(entry, str):
        return tidy(entry)
    ids = (entry[key] for key in (*_ID_KEYS, "keep_id") if key in entry) if isinstance(entry, Mapping) else iter(())
    value = next(ids, None)
    return tidy(value) if isinstance(value, str) else ""


def _target(entry: Any) -> str:
    name = _named(object_of(entry))
    if not name:
        raise UnfitEntry("missing:id", "the step names no bullet")
    return name


def _new_bullet(entry: Any) -> Change:
    bullet = bullet_with_evidence(entry, 0)
    return Change("add", bullet.local_id, "", bullet=bullet)


def _edit(entry: Any) -> Change:
    name = _target(entry)
    values = entry.get("set")
    if values is None:
        values = {key: value for key, value in entry.items() if key not in _ID_KEYS}
    return Change("set", name, "", values=_settable(values))


def _settable(values: Any) -> dict[str, Any]:
    """Checked fields of a bullet; fields that are not stored are left out. Raises UnfitEntry."""
    if not isinstance(values, Mapping):
        raise UnfitEntry("type:set", f"expected an object, found {type(values).__name__}")
    checked: dict[str, Any] = {}
    for key, name in _SETTABLE.items():
        if key not in values or values[key] is None:
            continue
        if name in COUNTERS:
            checked[name] = counter(values, key)
        elif name == "tags":
            checked[name] = tuple(tidy(tag) for tag in values[key] if isinstance(tag, str))
        else:
            checked[name] = text_of(values, key)
    return checked


def _merge(entry: Any) -> Change:
    entry = object_of(entry)
    name = _target({"id": entry.get("keep_id")})
    others = entry.get("merge_ids")
    if not isinstance(others, list) or not all(isinstance(other, str) for other in others):
        raise UnfitEntry("type:merge_ids", "expected a list of ids")
    return Change("merge", name, "", others=tuple(tidy(other) for other in others if tidy(other) != name))


def _deprecation(entry: Any) -> Change:
    name = _named(entry) if isinstance(entry, str) else _target(entry)
    return Change("retire", name, "", status="deprecated")


def _counter(entry: Any) -> Change:
    name = _target(entry)
    helpful, harmful, neutral = (_increment(entry, f"{each}_delta") for each in COUNTERS)
    return Change("count", name, "", counts=(helpful, harmful, neutral))


def _increment(entry: Mapping[str, Any], name: str) -> int:
    """The change of a counter; a correction may be negative."""
    value = entry.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int):
        raise UnfitEntry(f"type:{name}", f"expected an integer, found {type(value).__name__}")
    if not is_count(abs(value)):
        raise UnfitEntry("counter", f"{name} is {str(value)[:20]}, expected less than 10**{MOST_DIGITS}")
    return value


def _tag(entry: Any) -> Change:
    name, tag = _target(entry), entry.get("tag")
    if tag not in COUNTERS:
        raise UnfitEntry("tag", f"expected helpful, harmful or neutral, found {str(tag)!r}")
    return Change("count", name, "", counts=_counts({tag: 1}))


def _counts(values: Mapping[str, Any]) -> tuple[int, int, int]:
    helpful, harmful, neutral = (_increment(values, name) for name in COUNTERS)
    return helpful, harmful, neutral


def _operation(entry: Any) -> Change:
    """Reads one operation of a DeltaBatch or a curator. Raises UnfitEntry."""
    entry = object_of(entry)
    kind = str(entry.get("type", "")).upper()
    metadata = entry.get("metadata") or {}
    if not isinstance(metadata, Mapping):
        raise UnfitEntry("type:metadata", f"expected an object, found {type(metadata).__name__}")
    if kind == "ADD":
        section = entry.get("section")
        counters: dict[str, Any] = {name: counter(metadata, name) for name in COUNTERS}
        bullet = RawBullet(
            local_id=_named(entry),
            section=tidy(section) if isinstance(section, str) else "",
            content=text_of(entry, "content"),
            **counters,
        )
        return Change("add", bullet.local_id, "", bullet=bullet)
    if kind == "UPDATE":
        values = {key: entry[key] for key in ("content",) if entry.get(key) is not None}
        return Change("set", _target(entry), "", values=_settable({**values, **metadata}))
    if kind == "TAG":
        return Change("count", _target(entry), "", counts=_counts(metadata))
    if kind in ("REMOVE", "DELETE"):
        return Change("retire", _target(entry), "", status="removed")
    raise UnfitEntry("unknown_operation", f"expected ADD, UPDATE, TAG or REMOVE, found {entry.get('type', '')!r}")


_EVIDENCE: dict[str, Callable[[Any], Change]] = {
    "new_bullets": _new_bullet,
    "edits": _edit,
    "merges": _merge,
    "deprecations": _deprecation,
    "counters": _counter,
}

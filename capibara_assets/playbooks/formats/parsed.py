"""The result of reading one playbook file, and the field checks that all formats share."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from capibara_assets.storage.jsonfiles import well_formed

MOST_DIGITS = 100
"""Counters longer than this are damage, not counts."""
_BEYOND: int = 10**MOST_DIGITS
DAMAGED = "\udfff\udfff"
"""Stands for bytes that are not UTF-8: nothing that decodes holds it, and a text cut in half has one surrogate."""
NOT_UTF8 = "invalid_utf8"


@dataclass(frozen=True)
class RawBullet:
    """A bullet as it stands in a file; counters are exact."""

    local_id: str
    section: str
    content: str
    title: str | None = None
    helpful: int = 0
    harmful: int = 0
    neutral: int = 0
    tags: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    status: str = "active"
    created_at: datetime | None = None
    updated_at: datetime | None = None
    flags: tuple[str, ...] = ()
    line: int = 0

    def with_content(self, content: str) -> "RawBullet":
        """A copy with other content."""
        return replace(self, content=content)


@dataclass(frozen=True)
class Rejected:
    """An entry that should be a bullet and is not valid: goes to the quarantine."""

    reason: str
    detail: str
    text: str
    line: int = 0
    locator: str = ""


@dataclass
class ParsedPlaybook:
    """The bullets and rejected entries of one file."""

    bullets: list[RawBullet] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    duplicates: int = 0
    agent_id: str | None = None
    _by_id: dict[str, RawBullet] = field(default_factory=dict, repr=False)

    def add(self, bullet: RawBullet, text: str) -> None:
        """Adds a bullet with a new id; an exact repeat is counted, another bullet with a known id is rejected.

        So is one whose `text` is damaged: nobody knows what it said.
        """
        if DAMAGED in text:
            self.reject(NOT_UTF8, _UNKNOWN_BYTES, text, bullet.line, bullet.local_id)
            return
        known = self._by_id.setdefault(bullet.local_id, bullet)
        if known is bullet:
            self.bullets.append(bullet)
        elif _essence(known) == _essence(bullet):
            self.duplicates += 1
        else:
            detail = f"id {bullet.local_id} is taken by line {known.line} with other content"
            self.reject("conflicting_bullet_id", detail, text, bullet.line, bullet.local_id)

    def reject(self, reason: str, detail: str, text: str, line: int = 0, locator: str = "") -> None:
        """Adds an entry to those that are rejected."""
        self.rejected.append(Rejected(reason, detail, text, line, locator))


class UnfitEntry(Exception):
    """An entry that cannot be a bullet: reason class and detail."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


_UNKNOWN_BYTES = "it holds bytes that are not UTF-8"


def undamaged(text: str) -> str:
    """The text. Raises UnfitEntry where bytes of it were not UTF-8."""
    if DAMAGED in text:
        raise UnfitEntry(NOT_UTF8, _UNKNOWN_BYTES)
    return text


def counter(entry: Mapping[str, Any], *names: str) -> int:
    """The first of these counters that the entry has, else 0; exact whatever its size."""
    name = next((name for name in names if name in entry), None)
    if name is None:
        return 0
    value = entry[name]
    if isinstance(value, bool) or not isinstance(value, int):
        raise UnfitEntry(f"type:{name}", f"expected an integer, found {type(value).__name__}")
    if not is_count(value):
        raise UnfitEntry("counter", f"{name} is {str(value)[:20]}, expected 0 to 10**{MOST_DIGITS}")
    return value


def is_count(value: int) -> bool:
    """Whether a counter may have this value."""
    return 0 <= value < _BEYOND


def text_of(entry: Mapping[str, Any], name: str) -> str:
    """A required string that is not blank, tidied. Raises UnfitEntry."""
    if name not in entry:
        raise UnfitEntry(f"missing:{name}", f"no {name}")
    value = entry[name]
    if not isinstance(value, str):
        raise UnfitEntry(f"type:{name}", f"expected a string, found {type(value).__name__}")
    value = tidy(value)
    if not value:
        raise UnfitEntry("empty_id" if name == "id" else f"empty_{name}", f"{name} is blank")
    return value


def tidy(text: str) -> str:
    """Text with LF line ends and without blanks at either end; lone surrogates become U+FFFD."""
    return well_formed(text.replace("\r\n", "\n").replace("\r", "\n").strip())


def moment(value: Any, flags: list[str]) -> datetime | None:
    """Converts ISO text or epoch seconds to UTC; flags times without zone (read as UTC) and invalid ones (None)."""
    if value is None:
        return None
    try:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
        read = datetime.fromisoformat(value)
        if read.tzinfo is not None:
            return read.astimezone(UTC)  # of the year 1 this may be a time before all times
    except (TypeError, ValueError, OverflowError, OSError):
        flags.append("unreadable_time")
        return None
    flags.append("time_without_zone")
    return read.replace(tzinfo=UTC)


def title_of(entry: Mapping[str, Any]) -> str | None:
    """The title of an entry; None where the content contains it."""
    title, content = entry.get("title"), entry.get("content")
    if not isinstance(title, str) or not title.strip():
        return None
    return None if isinstance(content, str) and title.strip().lower() in content.lower() else tidy(title)


def strings(value: Any) -> tuple[str, ...]:
    """The strings in a list; none for any other value."""
    return tuple(tidy(item) for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def references(value: Any) -> tuple[str, ...]:
    """The references in a list of evidence (`{"type", "ref", "note"}`, or a bare string) as `<type>:<ref>`."""
    named = []
    for item in value if isinstance(value, list) else ():
        if isinstance(item, str):
            named.append(f":{tidy(item)}" if item.strip() else "")
        elif isinstance(item, Mapping) and isinstance(item.get("ref"), str) and item["ref"].strip():
            kind = item.get("type")
            named.append(f"{tidy(kind) if isinstance(kind, str) else ''}:{tidy(item['ref'])}")
    return tuple(dict.fromkeys(reference for reference in named if reference))


def _essence(bullet: RawBullet) -> tuple[object, ...]:
    return (bullet.section, bullet.title, bullet.content, bullet.helpful, bullet.harmful, bullet.neutral)

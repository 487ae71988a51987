"""Reads Kayba markdown: a skillbook report whose bullets have ids as headings, in brackets, or none."""

import re
from dataclasses import dataclass, field

from capibara_assets.playbooks.formats.parsed import MOST_DIGITS, ParsedPlaybook, RawBullet, UnfitEntry, tidy, undamaged

_HEADING = re.compile(r"###\s+`(?P<id>[^`]+)`\s*$")
_ITEM = re.compile(r"- (?:\[(?P<id>[^\]]+)\]\s*)?(?P<content>.+)$")
_REMARK = re.compile(r"\s*(\*\*(Justification|Evidence):\*\*|(Justification|Evidence):)")
_COUNTERS = re.compile(
    r"[*(]?(?:Tags:\s*)?helpful=(?P<helpful>\d+),?\s*harmful=(?P<harmful>\d+)(?:,?\s*neutral=(?P<neutral>\d+))?[*)]?"
)


@dataclass
class _Entry:
    """The lines of one bullet in the report."""

    line: int
    section: str
    local_id: str | None
    lines: list[str] = field(default_factory=list)


def looks_like_kayba_markdown(text: str) -> bool:
    """Whether there are id headings, or items below a section with their justification or counters."""
    lines = text.splitlines()
    if any(_HEADING.match(line) for line in lines):
        return True
    sections, items = any(line.startswith("## ") for line in lines), any(_ITEM.match(line) for line in lines)
    remarks = any(line.startswith("  Justification:") or "(helpful=" in line for line in lines)
    return sections and items and remarks


def read_kayba_markdown(text: str) -> ParsedPlaybook:
    """Reads a skillbook report; a bullet without an id gets `<section>-%05d` by its place, and a flag."""
    parsed, section = ParsedPlaybook(), ""
    entries: list[_Entry] = []
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        if line.startswith("## "):
            section = tidy(line[3:])
        elif heading := _HEADING.match(line):
            entries.append(_Entry(number, section, heading["id"]))
        elif item := _ITEM.match(line):
            entries.append(_Entry(number, section, item["id"], [item["content"]]))
        elif entries and not line.startswith("#"):
            entries[-1].lines.append(line)
        elif line.strip() and not line.startswith("#"):
            parsed.reject("orphan_continuation", "the line belongs to no bullet", line, number)
    for place, entry in enumerate(entries, start=1):
        local_id = entry.local_id or f"{entry.section or 'bullet'}-{place:05d}"
        shown = "\n".join(entry.lines)
        try:
            parsed.add(_bullet(entry, tidy(undamaged(local_id)), shown), shown)
        except UnfitEntry as unfit:
            parsed.reject(unfit.reason, unfit.detail, shown, entry.line, tidy(local_id))
    return parsed


def _bullet(entry: _Entry, local_id: str, shown: str) -> RawBullet:
    """The bullet of an entry: its content is the text before the remarks; its counters may stand anywhere."""
    counts = _COUNTERS.search(shown)
    if counts and any(len(count or "") > MOST_DIGITS for count in counts.groups()):
        raise UnfitEntry("counter", f"expected counters of at most {MOST_DIGITS} digits")
    helpful, harmful, neutral = (int(count or 0) for count in counts.groups()) if counts else (0, 0, 0)
    advice = [line for line in _COUNTERS.sub("", shown).split("\n") if not _REMARK.match(line)]
    content = tidy("\n".join(advice))
    if not content:
        raise UnfitEntry("empty_content", "no advice under the id")
    flags = () if entry.local_id else ("generated_id",)
    return RawBullet(
        local_id,
        entry.section,
        content,
        helpful=helpful,
        harmful=harmful,
        neutral=neutral,
        flags=flags,
        line=entry.line,
    )

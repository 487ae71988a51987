"""Reads the TOON table that kayba's `as_prompt()` writes: one header with fields and delimiter, one bullet a row.

Only the tabular form (toon-format/spec, arrays of uniform objects), read strictly. The library that writes it
(python-toon) reads a whole table or fails, without line numbers; here one bad row costs one bullet.
"""

import re
from typing import Any

from capibara_assets.playbooks.formats.parsed import MOST_DIGITS, ParsedPlaybook, RawBullet, UnfitEntry, tidy

_HEADER = re.compile(r"(?:bullets|skills)\[#?(?P<count>\d+)(?P<delimiter>[\t|,]?)\](?:\{(?P<fields>[^}]*)\})?:\s*$")
_EMPTY = re.compile(r"\s*(?:(?:bullets|skills): *\[\]|\(empty (?:playbook|skillbook)\))\s*")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}
_WHOLE = re.compile(rf"[0-9]{{1,{MOST_DIGITS}}}")


def looks_like_toon(text: str) -> bool:
    """Whether some line is the header of a table of bullets or skills, or the text says that there are none."""
    return _EMPTY.fullmatch(text) is not None or any(_HEADER.match(line) for line in text.splitlines()[:50])


def read_toon(text: str) -> ParsedPlaybook:
    """Reads the table. Reasons for rejection: format, counter, missing:*, empty_*, row_count, conflicting_bullet_id."""
    parsed = ParsedPlaybook()
    if _EMPTY.fullmatch(text):
        return parsed
    header: re.Match[str] | None = None
    expected = rows = header_line = 0
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        if opening := _HEADER.match(line):
            header, header_line, expected = opening, number, expected + int(opening["count"][:MOST_DIGITS])
        elif header is not None and header["fields"] and line[:1] in (" ", "\t") and line.strip():
            rows += 1
            try:
                parsed.add(_bullet(line, header, number), line)
            except UnfitEntry as unfit:
                parsed.reject(unfit.reason, unfit.detail, line, number)
        elif line.strip():
            header = None  # prose around the table, such as a prompt's
    if rows != expected:
        parsed.reject("row_count", f"the header promises {expected} rows, there are {rows}", text, header_line)
    return parsed


def _bullet(line: str, header: re.Match[str], number: int) -> RawBullet:
    delimiter = header["delimiter"] or ","
    fields = [name.strip() for name in header["fields"].split(delimiter)]
    cells = _cells(line.lstrip(" "), delimiter)
    if len(cells) != len(fields):
        raise UnfitEntry("format", f"expected {len(fields)} cells, found {len(cells)}")
    row = dict(zip(fields, cells, strict=True))
    for name in ("id", "content"):
        if name not in row:
            raise UnfitEntry(f"missing:{name}", f"the header has no field {name}")
        if not tidy(row[name]):
            raise UnfitEntry(f"empty_{name}", f"{name} is blank")
    counters: dict[str, Any] = {}
    for name in ("helpful", "harmful", "neutral"):
        if not _WHOLE.fullmatch(row.get(name, "0").strip()):
            raise UnfitEntry("counter", f"{name} is {row[name]!r}, expected a whole number from 0")
        counters[name] = int(row.get(name, "0"))
    return RawBullet(tidy(row["id"]), tidy(row.get("section", "")), tidy(row["content"]), line=number, **counters)


def _cells(line: str, delimiter: str) -> list[str]:
    """Splits a row at the delimiter outside of quotes. Raises UnfitEntry for an open quote or an unknown escape."""
    cells: list[str] = []
    place = 0
    while True:
        while line[place : place + 1] == " ":
            place += 1
        if line[place : place + 1] == '"':
            cell, place = _quoted(line, place + 1)
        else:
            end = line.find(delimiter, place)
            end = len(line) if end < 0 else end
            cell, place = line[place:end].strip(" "), end
        cells.append(cell)
        rest = line[place:].lstrip(" ")
        if not rest:
            return cells
        if not rest.startswith(delimiter):
            raise UnfitEntry("format", "text after a closing quote")
        place = len(line) - len(rest) + 1


def _quoted(line: str, place: int) -> tuple[str, int]:
    """(the text in quotes from `place` on, the place after the closing quote)."""
    out: list[str] = []
    while place < len(line):
        sign = line[place]
        if sign == '"':
            return "".join(out), place + 1
        if sign == "\\":
            place += 1
            escaped = line[place : place + 1]
            if escaped not in _ESCAPES:
                raise UnfitEntry("format", f"unknown escape \\{escaped}")
            sign = _ESCAPES[escaped]
        out.append(sign)
        place += 1
    raise UnfitEntry("format", "a quote does not close")

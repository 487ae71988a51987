"""Tables and documents in text: CSV, the rows that `pg_dump` copies, YAML, each as the values that JSON would hold.

Traces and messages are exported as tables, and some agents keep a session as a YAML file. Cells stay text; empty ones
and NULL are left out. A table is detected by its first line and the number of cells of the next ones, so that prose
with commas is none.
"""

import csv
import io
import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, ClassVar

import yaml

from capibara_assets.deployment.yaml_text import holds_at_most, load_yaml

NOT_READ = b"not read: "  # begins the last lines of what is made of a damaged file; no JSON
_NAME = re.compile(r"[A-Za-z_][\w .:/()-]{0,60}")
_DELIMITERS = (",", "\t", ";", "|")
_ABOVE_HEAD = re.compile(r"(?:sep=.[ \t]*\r?\n)?(?:#[^\n]*\n|[ \t\r]*\n)*")  # Excel's mark, comments, blank lines
_SHOWN = 5  # rows of which all but one have as many cells as the head has names; of fewer rows all
_LONGEST_CELL = 32 << 20
_DUMP = b"-- PostgreSQL database dump"
_COPY = re.compile(r"^COPY ([\w.\"]{1,200}) \(([^()\n]{1,10000})\) FROM stdin;$", re.MULTILINE)
_COPIED_END = "\n\\.\n"
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_DOCUMENTS = re.compile(r"^---[ \t\r]*(?:#.*)?$", re.MULTILINE)
_DIRECTIVES = re.compile(r"\A(?:%.*\n|#.*\n|[ \t\r]*\n)*(?=---)")
_ITEM = re.compile(r"^- ", re.MULTILINE)  # of a list that is the document
_TRIED = 3  # items before the damage that may be its cause
_YAML_HEAD = re.compile(
    rb"(?:[#%][^\n]*\n|[ \t\r]*\n|---[ \t\r]*(?:#[^\n]*)?\n)*(?:- )?[A-Za-z_][\w-]{0,60}:(?:[ \t][^\n]*)?\n"
)
#: What a session in YAML has of a call: a key for what ran.
_YAML_KEYS = re.compile(rb"^[ \t-]*(?:tool_calls?|tool_args|arguments|command|code|action|input|query):", re.MULTILINE)


class _AsWritten(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Leaves dates as they are written: of a day that there is not, nothing could be made."""

    yaml_implicit_resolvers: ClassVar[Any] = {
        first: [resolver for resolver in resolvers if not resolver[0].endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def is_text_table(head: bytes) -> bool:
    """Whether text that begins like this is a table: CSV with names at its head, or a dump of PostgreSQL."""
    return _DUMP in head[:4096] or _delimiter(head) is not None


def may_be_yaml(data: bytes) -> bool:
    """Whether text begins as YAML and has keys under which calls of tools stand."""
    return _YAML_HEAD.match(data) is not None and _YAML_KEYS.search(data) is not None


def text_rows(data: bytes, problems: list[str]) -> Iterator[dict[str, Any]]:
    """The rows of a table; what is damaged is added to `problems`."""
    text = data.decode("utf-8-sig", "replace")
    return _copied_rows(text, problems) if _DUMP in data[:4096] else _csv_rows(text, _delimiter(data) or ",", problems)


def value_lines(data: bytes) -> bytes:
    """YAML's documents as JSON lines; nothing where it is no YAML, or aliases make it hold more than its text.

    A damaged document is told in a line that is no JSON, behind what stands before the damage.
    """
    values: list[Any] = []
    said = b""
    try:
        text = _DIRECTIVES.sub("", data.decode("utf-8-sig", "replace"))
        for number, part in enumerate(filter(str.strip, _DOCUMENTS.split(text)), 1):
            value, damage = _before_damage(part)
            values += [] if value is None else [value]
            if damage:
                said = NOT_READ + f"document {number}: {damage}\n".encode()
                break
        if said:  # a line each, since what is told behind them is one
            values = [item for value in values for item in (value if isinstance(value, list) else [value])]
        if values and holds_at_most(values, len(data)):
            return b"".join(json.dumps(value, default=str).encode("ascii") + b"\n" for value in values) + said
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):  # no YAML; keys that are no text
        pass
    return b""


def _before_damage(text: str) -> tuple[Any, str]:
    """A document's value and nothing, or the items of a list before what is damaged, and the damage."""
    try:
        return load_yaml(text, _AsWritten), ""
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        damage = f"{error.problem} in line {mark.line + 1 if mark else '?'}"
        items = [item.start() for item in _ITEM.finditer(text)]
        for begin in [place for place in items if mark is not None and place <= mark.index][: -_TRIED - 1 : -1]:
            try:
                return load_yaml(text[:begin], _AsWritten), damage
            except yaml.YAMLError:
                continue
        return None, damage


def _delimiter(head: bytes) -> str | None:
    """What stands between the cells of CSV; None: it is none, or has one column or names twice."""
    first, _, below = _from_head(head.decode("utf-8-sig", "replace")).partition("\n")
    for delimiter in _DELIMITERS if below.strip() else ():
        try:
            names = next(csv.reader([first.rstrip("\r")], delimiter=delimiter, strict=True), [])
            shown = list(islice(csv.reader(io.StringIO(below, newline=""), delimiter=delimiter), _SHOWN + 1))
        except csv.Error:
            continue
        told = names[1:] if names and not names[0] else names  # pandas leaves the name of the index empty
        named = len(told) > 1 and len(set(names)) == len(names) and all(map(_NAME.fullmatch, told))
        whole = shown[:-1] or shown  # the last may be cut off
        if named and whole and sum(len(row) != len(names) for row in whole) <= len(whole) // _SHOWN:
            return delimiter
    return None


def _from_head(text: str) -> str:
    """A table from the line with its names on."""
    above = _ABOVE_HEAD.match(text)
    return text[above.end() :] if above else text


def _csv_rows(text: str, delimiter: str, problems: list[str]) -> Iterator[dict[str, Any]]:
    csv.field_size_limit(_LONGEST_CELL)
    table = _from_head(text)
    rows = csv.reader(io.StringIO(table, newline=""), delimiter=delimiter)
    above = text.count("\n") - table.count("\n")  # lines
    begin = end = 0  # lines before and behind the last row
    try:
        names = [name or "index" for name in next(rows, [])]
        for cells in rows:
            begin, end = end, rows.line_num
            if len(cells) == len(names):
                yield {name: cell for name, cell in zip(names, cells, strict=True) if cell}
            elif cells:
                problems.append(f"line {above + end}: {len(cells)} cells where there are {len(names)} names")
    except csv.Error as error:
        problems.append(f"line {above + rows.line_num}: {error}")
    if end > begin + 1 and "".join(table.splitlines(keepends=True)[begin:]).count('"') % 2:
        problems.append(f"line {above + begin + 1}: a quote is not closed, so that the rest of the file is one cell")


def _copied_rows(text: str, problems: list[str]) -> Iterator[dict[str, Any]]:
    """The rows of each table, as `COPY .. FROM stdin` writes them: a line each, with escapes and tabs between."""
    for copy in _COPY.finditer(text):
        end = text.find(_COPIED_END, copy.end())
        names = [name.strip().strip('"') for name in copy[2].split(",")]
        table = copy[1].rpartition(".")[2].strip('"')
        for line in text[copy.end() + 1 : len(text) if end < 0 else end + 1].splitlines():
            cells = line.split("\t")
            if len(cells) == len(names):
                told = zip(names, cells, strict=True)
                yield {"table": table, **{name: _unescaped(cell) for name, cell in told if cell != "\\N"}}
            elif line:
                problems.append(f"table {table}: a row with {len(cells)} cells where there are {len(names)} names")


def _unescaped(cell: str) -> str:
    return _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), cell) if "\\" in cell else cell

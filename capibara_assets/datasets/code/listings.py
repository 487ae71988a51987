"""Parser of printed tables: aligned by spaces or bars, as tuples, or as one object per row."""

import ast
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

_BAR = re.compile("[|│┃]")
_RULE = re.compile(r"^[\s|│┃+\-=─━═┌┐└┘├┤┬┴┼╞╪╡╘╧╛╒╤╕┏┓┗┛┣┫┳┻╋┡┩╇]+$")
_TUPLES = re.compile(r"\[\s*+\(.{0,20000}?\)\s*+,?\s*+\]", re.DOTALL)
_ADJACENT = re.compile(r"\)\s*,?\s*\(")
_OBJECTS = re.compile(r"\{[^{}]*\}")
_PAIR = re.compile(r"""['"]?\b(\w+)['"]?\s*+:\s*+(?:'([^']*)'|"([^"]*)"|([^,{}\s]+))""")
_NAMED = re.compile(
    r"^[^\w\n]*+(?P<name>[A-Za-z_]\w*)['\"`]?\s*(?:[:=(-]+>?\s*|\s)(?:[\[(]?(?P<listed>[^\[\]()\n]*(?:\([^()\n]*\)[^\[\]()\n]*)*)[\])]|(?P<plain>[^\n\[\]]+))$",
    re.MULTILINE,
)
_COLUMN = re.compile(r"[A-Za-z_]\w*(?:['\"`]?[\s:]+\(?[A-Za-z][\w ]*(?:\(\d[\d, ]*\))?\)?)?")
_TABLE_INFO = ("cid", "name", "type", "notnull", "dflt_value", "pk")  # SQLite
_DESCRIBED = ("field", "type", "null", "key", "default", "extra")  # MySQL's DESCRIBE and SHOW COLUMNS
_KEYS = ("", "PRI", "UNI", "MUL")
_MOST_CHARS = 40_000


class Listing(NamedTuple):
    """One printed table: the words above it, the names of its columns, and its rows as text."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    cut: bool = False  # rows were left out by `...`

    @property
    def whole(self) -> bool:
        """Whether every column is shown."""
        return bool(self.header) and not any("..." in name or "…" in name for name in self.header)


def listings(output: str) -> Iterator[Listing]:
    """Tables in a text that are drawn with bars or aligned with white space (a data frame, sqlite3 -column)."""
    lines = output[:_MOST_CHARS].split("\n")
    barred = [i for i, line in enumerate(lines) if _BAR.search(line) and not _RULE.match(line)]
    if len(barred) > 1:
        yield from _barred(lines, barred)
        return
    for i, line in enumerate(lines):
        if line.strip() and not _RULE.match(line) and (listing := _aligned(lines, i)) is not None:
            yield listing
            return


def _barred(lines: Sequence[str], barred: Sequence[int]) -> Iterator[Listing]:
    """Tables with bars: each run of lines that have the same number of cells; types below the header are no row."""
    run: list[list[str]] = []
    start = barred[0]
    previous = None
    for i in [*barred, None]:
        cells = [] if i is None else [cell.strip() for cell in _cells(lines[i])]
        joined = (
            previous is not None
            and i is not None
            and all(_RULE.match(x) or not x.strip() for x in lines[previous + 1 : i])
        )
        gap = previous is not None and i is not None and any(not x.strip() for x in lines[previous + 1 : i])
        if run and (i is None or not joined or gap or len(cells) != len(run[0])):
            title = next((x.strip() for x in reversed(lines[:start]) if x.strip() and not _RULE.match(x)), "")
            rows = [row for row in run[1:] if not all(cell in ("·", "…", "...") for cell in row)]
            if rows and all(cell in ("varchar", "int64", "int32", "boolean", "double", "str") for cell in rows[0]):
                rows = rows[1:]  # DuckDB's and Polars' line of types
            yield Listing(title, tuple(run[0]), tuple(map(tuple, rows)), len(rows) < len(run) - 2)
            run = []
        if i is not None:
            start = i if not run else start
            run.append(cells)
            previous = i


def _cells(line: str) -> list[str]:
    stripped = line.strip()
    inner = stripped[1:-1] if stripped[:1] in "|│┃" and stripped[-1:] in "|│┃" else stripped
    return re.split(r"[|│┃┆]", inner)


def _aligned(lines: Sequence[str], at: int) -> Listing | None:
    """A table that is set in columns by white space, with its header in line `at`; None where the rows do not fit."""
    header = tuple(lines[at].split())
    body = []
    for line in lines[at + 1 :]:
        if not line.strip():
            break
        if not _RULE.match(line):
            body.append(line)
    if len(header) < 2 or not body:
        return None
    numbered = all(re.match(r"\s*(\d+|\.\.\.?)\s", line) for line in body)  # a data frame's index
    rows = []
    for line in body:
        cells = line.split()
        cells = cells[1:] if numbered and len(cells) > len(header) - 1 else cells
        rows.append(tuple(cells))
    if numbered or all(abs(len(row) - len(header)) <= 2 for row in rows):
        cut = any(row and row[0] in ("...", "..") for row in rows)
        title = next((x.strip() for x in reversed(lines[:at]) if x.strip()), "")
        return Listing(title, header, tuple(row for row in rows if row and row[0] not in ("...", "..")), cut)
    return None


def records(output: str) -> Iterator[Listing]:
    """Rows that are printed as Python tuples (a table's columns), or as one object each (JSON, Node, dict)."""
    text = output[:_MOST_CHARS]
    for match in _TUPLES.finditer(_listed(text)):
        rows = _literal(match.group())
        if (header := _column_header(rows)) is not None:
            title = text[: match.start()].rstrip(" :=>\n-").split("\n")[-1]
            yield Listing(title, header, tuple(tuple(map(_cell, row)) for row in rows))
    objects = [dict(_pairs(match.group())) for match in _OBJECTS.finditer(text)]
    alike = [one for one in objects if one and one.keys() == objects[0].keys()]
    if len(alike) > 1 or (alike and len(objects) == 1):
        yield Listing("", tuple(alike[0]), tuple(tuple(one.values()) for one in alike))


def _listed(text: str) -> str:
    """A text that is tuples and nothing else, as a list of them."""
    whole = text.strip()
    return f"[{_ADJACENT.sub('), (', whole)}]" if whole[:1] == "(" and whole[-1:] == ")" else text


def _column_header(rows: Sequence[Any]) -> tuple[str, ...] | None:
    """What the values in rows are, where each row describes a column of a table; else None."""
    if not rows or any(not isinstance(row, tuple) or len(row) != len(_TABLE_INFO) for row in rows):
        return None
    if [row[0] for row in rows] == list(range(len(rows))):
        return _TABLE_INFO
    described = all(isinstance(row[0], str) and row[2] in ("YES", "NO") and row[3] in _KEYS for row in rows)
    return _DESCRIBED if described else None


def _cell(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)  # a driver gives types as bytes


def mappings(output: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(name, words) of what is printed as `{name: [word, …]}`, `[(name, [word, …])]` or a line `name: word, word`."""
    text = output[:_MOST_CHARS].strip()
    value = _value(text)
    pairs = value.items() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for pair in pairs:
        if isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], str):
            words = pair[1]
            if isinstance(words, list | tuple) and words and all(isinstance(word, str) for word in words):
                yield pair[0], tuple(words)
    if value is None:
        for match in _NAMED.finditer(text):
            words = tuple(part.strip(" '\"`") for part in (match["plain"] or match["listed"] or "").split(","))
            if all(_COLUMN.fullmatch(word) for word in words):
                yield match["name"], words


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    try:
        loaded = json.loads(text)
    except ValueError:
        loaded = None
    if isinstance(loaded, dict):
        yield from ((str(key), str(value)) for key, value in loaded.items())
        return
    for key, single, double, bare in _PAIR.findall(text):
        yield key, single or double or bare


def _literal(text: str) -> list[Any]:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return []
    return value if isinstance(value, list) else []

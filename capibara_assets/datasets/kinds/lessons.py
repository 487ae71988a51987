"""Playbook bullets, linked to executions and patterns by ids and names."""

import re
from collections import defaultdict
from dataclasses import dataclass

from capibara_assets.datasets.code.sessions import Row

_PHRASES = frozenset({"comprehension", "sql_clause", "training_loop"})  # kinds whose names are words of the field
_OWN_NAMES = frozenset({"function", "class", "async"})  # the author's own names: only distinctive ones count
_WORDS = re.compile(r"[a-z]+(?: [a-z]+)+")
_CODE = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class Lessons:
    """The bullets of a consolidated playbook (rows of Consolidated, best first), indexed by id and by evidence."""

    rows: tuple[Row, ...]
    by_id: dict[str, tuple[int, ...]]  # bullet id, origin, or id inside its playbook -> positions
    by_evidence: dict[str, tuple[int, ...]]  # id that a bullet names as evidence -> positions

    @classmethod
    def of(cls, rows: "list[Row]") -> "Lessons":
        """Index bullets (rows of Consolidated, best first)."""
        by_id: dict[str, set[int]] = defaultdict(set)
        by_evidence: dict[str, set[int]] = defaultdict(set)
        for position, row in enumerate(rows):
            for name in (row["bullet_id"], *row["origins"]):
                by_id[name].add(position)
                by_id[name.rpartition("/")[2]].add(position)
            if row["helpful"] <= row["harmful"]:
                continue
            for reference in row["evidence"]:
                kind, _, name = reference.partition(":")
                if "fail" not in kind.lower() and "error" not in kind.lower():
                    by_evidence[name].add(position)
        return cls(
            tuple(rows),
            {name: tuple(sorted(positions)) for name, positions in by_id.items()},
            {name: tuple(sorted(positions)) for name, positions in by_evidence.items()},
        )

    def that_helped(self, execution: Row) -> list[Row]:
        """Bullets that a successful execution was recorded with, or that name it (or its sandbox) as evidence.

        An id that several bullets share means those of the execution's own agent; if these are several, it is ignored.
        """
        helpful: set[int] = set()
        for name in execution.get("bullet_ids") or ():
            places = self.by_id.get(name, ())
            if len(places) > 1:
                places = tuple(p for p in places if execution["agent_id"] in self.rows[p]["agents"])
            if len(places) == 1:
                helpful.add(places[0])
        for name in (execution["execution_id"], execution["sandbox_id"]):
            helpful |= set(self.by_evidence.get(name, ()))
        return [self.rows[position] for position in sorted(helpful)]

    def about(self, pattern: Row) -> list[Row]:
        """Bullets that name a pattern's call, table, class of error or idiom."""
        names = _names(pattern)
        return [row for row in self.rows if any(_names_it(row["content"], kind, name) for kind, name in names)]


def _names(pattern: Row) -> list[tuple[str, str]]:
    """(kind, name) by which a bullet may refer to a pattern."""
    kind, name = pattern["kind"], pattern["name"].strip().removesuffix("()").lstrip(".")
    if kind == "sql_query":
        return [("table", table) for table in re.split(r",\s*", name.partition(" ")[2]) if table]
    if kind == "api_call" and " " in name:
        return [("route", name)]
    if kind in ("loop", "async") and not re.fullmatch(r"[\w.]+", name):
        return []
    return [(kind, name)] if len(name) >= 3 else []


def _names_it(text: str, kind: str, name: str) -> bool:
    if kind == "route":  # a method and a path
        return name in text
    if kind in _PHRASES and _WORDS.fullmatch(name):
        return re.search(rf"(?<!\w){re.escape(name)}s?(?!\w)", text, re.IGNORECASE) is not None
    if kind in _OWN_NAMES and not re.search(r"_|[a-z][A-Z]", name):
        return False
    if kind == "sql_clause":
        return re.search(rf"(?<!\w){re.escape(name.upper())}(?!\w)", text) is not None
    as_code = rf"(?<![\w]){re.escape(name)}(?!\w)"
    telling = bool(re.search(r"_|\.|[a-z][A-Z]", name))
    if any(re.search(as_code, quoted) for quoted in _CODE.findall(text)):
        return True
    return re.search(as_code if telling else rf"{as_code}(?=\()", text) is not None

"""Patterns: idioms of executed code, one per canonical form, with how often they occurred and how often they worked."""

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from capibara_assets.domains import Domain
from capibara_assets.executions.idioms import Idiom
from capibara_assets.executions.idioms_javascript import javascript_idioms
from capibara_assets.executions.idioms_python import python_idioms
from capibara_assets.executions.idioms_sql import sql_idioms
from capibara_assets.executions.recipe import ExperienceRecipe
from capibara_assets.executions.schema import Pattern
from capibara_assets.storage.records import conform, polars_schema

_FINDERS: dict[str, Callable[[str], tuple[Idiom, ...]]] = {
    "python": python_idioms,
    "javascript": javascript_idioms,
    "typescript": javascript_idioms,
    "sql": sql_idioms,
}
_RECURRING = {"loop", "comprehension", "dataframe"}  # too small to teach something by one occurrence
_GENERAL = {"function", "class", "loop", "comprehension", "async", "error_handling"}
_KINDS: dict[Domain, set[str]] = {
    Domain.PYTHON: _GENERAL,
    Domain.JAVASCRIPT: _GENERAL | {"api_call"},
    Domain.SQL: {"sql_query", "function", "class", "error_handling"},
    Domain.API: _GENERAL | {"api_call"},
    Domain.ML: _GENERAL | {"dataframe", "training_loop"},
    Domain.DEBUG: _GENERAL | {"api_call", "dataframe", "training_loop", "sql_query"},
}
_SHOWN = 160


@dataclass
class _Seen:
    """Where one canonical form occurred, in time order."""

    idiom: Idiom
    language: str
    works: bool
    executions: list[dict[str, Any]] = field(default_factory=list)


def extract_patterns(executions: pl.DataFrame, domain: Domain | str, recipe: ExperienceRecipe) -> pl.DataFrame:
    """Patterns of a domain's executions that worked in at least `recipe.min_success_rate` of the executions with them.

    Loops, comprehensions and data frame operations must occur in two executions at least. Independent of the order of
    rows: the code shown is that of the first execution by time that worked.
    """
    kinds = _KINDS[Domain(domain)]
    columns = [
        "execution_id",
        "sandbox_id",
        "timestamp",
        "language",
        "code",
        "task",
        "outcome",
        "result_text",
        "stdout",
        "error_name",
    ]
    seen: dict[tuple[str, str], _Seen] = {}
    for row in executions.select(columns).sort("timestamp", "execution_id").iter_rows(named=True):
        finder = _FINDERS.get(row["language"])
        if finder is None:
            continue
        counted: set[tuple[str, str]] = set()
        for idiom in finder(row["code"]):
            key = (idiom.kind, idiom.canonical)
            if idiom.kind not in kinds or key in counted:
                continue
            counted.add(key)
            works = row["outcome"] == "ok"
            entry = seen.get(key)
            if entry is None:
                language = "sql" if idiom.kind == "sql_query" else row["language"]
                entry = seen[key] = _Seen(idiom, language, works)
            elif works and not entry.works:
                entry.idiom, entry.works = idiom, True
            entry.executions.append(row)
    rows = [_row(entry) for entry in seen.values()]
    kept = [
        row
        for row in rows
        if row["success_rate"] >= recipe.min_success_rate and (row["kind"] not in _RECURRING or row["frequency"] > 1)
    ]
    return conform(Pattern, pl.DataFrame(kept, schema=polars_schema(Pattern)))


def _row(seen: _Seen) -> dict[str, Any]:
    idiom, executions = seen.idiom, seen.executions
    successes = sum(row["outcome"] == "ok" for row in executions)
    identity = hashlib.sha256(f"{idiom.kind}\n{seen.language}\n{idiom.canonical}".encode())
    return {
        "pattern_id": identity.hexdigest()[:32],
        "kind": idiom.kind,
        "name": idiom.name,
        "language": seen.language,
        "code": idiom.code,
        "canonical": idiom.canonical,
        "frequency": len(executions),
        "successes": successes,
        "success_rate": successes / len(executions),
        "execution_ids": sorted(row["execution_id"] for row in executions),
        "sandbox_ids": sorted({row["sandbox_id"] for row in executions}),
        "context": _context(seen, successes),
        "explanation": idiom.explanation,
    }


def _context(seen: _Seen, successes: int) -> str:
    """One paragraph of what is known: how often, for what task, with which inputs, results and errors."""
    executions = seen.executions
    sandboxes = len({row["sandbox_id"] for row in executions})
    where = f"{_count(len(executions), 'execution')} of {_count(sandboxes, 'sandbox')}"
    parts = [f"Seen in {where}; {successes} ended without error."]
    if task := next((row["task"] for row in executions if row["task"]), None):
        parts.append(f"Task: {_short(task)}")
    if seen.idiom.inputs:
        parts.append(f"Inputs seen: {'; '.join(seen.idiom.inputs)}.")
    worked = next((row for row in executions if row["outcome"] == "ok" and (row["result_text"] or row["stdout"])), None)
    if worked is not None:
        parts.append(f"Output of an execution with it: {_short(worked['result_text'] or worked['stdout'])}")
    errors = Counter(row["error_name"] or row["outcome"] for row in executions if row["outcome"] != "ok")
    if errors:
        listed = ", ".join(f"{name} ({n})" for name, n in sorted(errors.items(), key=lambda item: (-item[1], item[0])))
        parts.append(f"Errors of executions with it: {listed}.")
    return " ".join(parts)


def _count(n: int, noun: str) -> str:
    plural = "es" if noun.endswith("x") else "s"
    return f"{n} {noun}{'' if n == 1 else plural}"


def _short(text: str) -> str:
    joined = " ".join(text.split())
    return joined if len(joined) <= _SHOWN else joined[: _SHOWN - 1] + "…"

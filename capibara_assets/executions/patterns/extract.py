"""Extracts patterns from executions: one per canonical form of an idiom, with its frequency and success rate."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from capibara_assets.domains import Domain
from capibara_assets.executions.parsing import rare_collections
from capibara_assets.executions.patterns.idioms import Idiom
from capibara_assets.executions.patterns.idioms_javascript import javascript_idioms
from capibara_assets.executions.patterns.idioms_python import python_idioms
from capibara_assets.executions.patterns.idioms_sql import sql_idioms
from capibara_assets.executions.patterns.repairs import find_mended, find_repairs
from capibara_assets.executions.recipe import ExperienceRecipe
from capibara_assets.executions.schema import Execution, Pattern, RepairPair
from capibara_assets.executions.selection import evidence, in_time, in_window
from capibara_assets.storage.kept import keeping, of_text
from capibara_assets.storage.records import Record, conform, polars_schema

_FINDERS: dict[str, Callable[[str], tuple[Idiom, ...]]] = {
    "python": python_idioms,
    "javascript": javascript_idioms,
    "typescript": javascript_idioms,
    "sql": sql_idioms,
}
_RECURRING = {"loop", "comprehension", "dataframe", "training", "sql_clause"}  # too small to teach by one occurrence
_GENERAL = {"function", "class", "loop", "comprehension", "async", "error_handling"}
_KINDS: dict[Domain, set[str]] = {
    Domain.PYTHON: _GENERAL,
    Domain.JAVASCRIPT: _GENERAL | {"api_call"},
    Domain.SQL: {"sql_query", "sql_clause", "function", "class", "error_handling"},
    Domain.API: _GENERAL | {"api_call"},
    Domain.ML: _GENERAL | {"dataframe", "training", "training_loop"},
    Domain.DEBUG: _GENERAL | {"api_call", "dataframe", "training", "training_loop", "sql_query", "sql_clause"},
}
_SHOWN = 160  # characters of a task or an output
_COLUMNS = [
    "timestamp",
    "execution_id",
    "sandbox_id",
    "language",
    "outcome",
    "error_name",
    "task",
    "result_text",
    "stdout",
    "code",
]

Key = tuple[str, str]  # kind and canonical form


class _Occurrence(NamedTuple):
    """The fields of one execution with an idiom that patterns report; ordered by time."""

    timestamp: datetime
    execution_id: str
    sandbox_id: str
    language: str
    outcome: str
    error_name: str | None
    task: str | None
    said: str

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"


@dataclass(slots=True)
class CanonicalForm:
    """The occurrences of one canonical form, and the one shown: the first that succeeded."""

    idiom: Idiom
    shown: _Occurrence
    occurrences: list[_Occurrence] = field(default_factory=list)

    def add(self, idiom: Idiom, occurrence: _Occurrence) -> None:
        """Adds an occurrence, and shows it if it is earlier or the first that succeeded."""
        self.occurrences.append(occurrence)
        self.prefer(idiom, occurrence)

    def prefer(self, idiom: Idiom, occurrence: _Occurrence) -> None:
        """Shows this occurrence if it precedes the one shown: successes first, then by time."""
        if (not occurrence.ok, *occurrence[:2]) < (not self.shown.ok, *self.shown[:2]):
            self.idiom, self.shown = idiom, occurrence


@dataclass(frozen=True)
class ExtractedKnowledge:
    """Tables of `Pattern` and `RepairPair`, and of the `Execution`s that later stages use.

    Attributes:
        around: the other executions of their sandboxes, which belong to other domains alone.
        mended: repair pairs of commands that passed unchanged after files had been edited.
        commands: commands and edits, of whatever domain, of the sandboxes of these.
        read: number of executions in the recipe's window.
    """

    executions: pl.DataFrame
    around: pl.DataFrame
    patterns: pl.DataFrame
    repairs: pl.DataFrame
    mended: pl.DataFrame
    commands: pl.DataFrame
    read: int

    def tables(self) -> dict[str, tuple[type[Record], pl.DataFrame]]:
        """Name -> (row type, table)."""
        return {
            "executions": (Execution, self.executions),
            "around": (Execution, self.around),
            "patterns": (Pattern, self.patterns),
            "repairs": (RepairPair, self.repairs),
            "mended": (RepairPair, self.mended),
            "commands": (Execution, self.commands),
        }


def extract_knowledge(
    executions: pl.DataFrame,
    around: pl.DataFrame,
    commands: pl.DataFrame,
    domain: Domain,
    recipe: ExperienceRecipe,
    texts: Path,
) -> ExtractedKnowledge:
    """Extracts patterns and repair pairs from one domain's executions.

    Args:
        executions: all of the domain (table of `Execution`); the recipe selects among them.
        around: the other executions of their sandboxes, which later stages may quote.
        commands: commands and edits of their sandboxes in which files were edited, of whatever domain.
        texts: folder that caches the idioms of each text for the next run; the result does not depend on it.
    """
    inside = in_window(executions, recipe)
    with keeping(texts):
        patterns = extract_patterns(inside, domain, recipe)
    outside = in_window(around, recipe)
    repairs = find_repairs(pl.concat([inside, outside]), domain)
    quoted = evidence(outside, repairs, recipe)
    recent = in_time(commands, recipe)
    mended = find_mended(recent, domain)
    edited = recent.filter(pl.col("sandbox_id").is_in(mended["sandbox_id"].unique().implode()))
    own = evidence(inside, repairs, recipe)
    return ExtractedKnowledge(own, quoted, patterns, repairs, mended, edited, inside.height)


def extract_patterns(executions: pl.DataFrame, domain: Domain | str, recipe: ExperienceRecipe) -> pl.DataFrame:
    """Table of a domain's patterns that succeeded in at least `recipe.min_success_rate` of the executions with them.

    Loops, comprehensions, clauses, data frame and training statements must occur in two executions at least.
    Independent of the order of rows: the code shown is that of the earliest successful execution.
    """
    return pattern_table(find_patterns(executions, domain), recipe)


@rare_collections()
def find_patterns(executions: pl.DataFrame, domain: Domain | str) -> dict[Key, CanonicalForm]:
    """Finds the idioms of a domain's kinds in executions, each with its occurrences."""
    kinds = _KINDS.get(Domain(domain), _GENERAL)
    forms: dict[Key, CanonicalForm] = {}
    for row in executions.select(_COLUMNS).iter_rows():
        when, execution_id, sandbox_id, language, outcome, error_name, task, result_text, stdout, code = row
        idioms = {(idiom.kind, idiom.canonical): idiom for idiom in reversed(idioms_of(language, code))}
        told = [(key, idiom) for key, idiom in idioms.items() if idiom.kind in kinds]
        if not told:
            continue
        said = _short((result_text or stdout)[: 20 * _SHOWN])
        occurrence = _Occurrence(when, execution_id, sandbox_id, language, outcome, error_name, task, said)
        for key, idiom in told:
            if (form := forms.get(key)) is None:
                forms[key] = CanonicalForm(idiom, occurrence, [occurrence])
            else:
                form.add(idiom, occurrence)
    return forms


def idioms_of(language: str, code: str) -> tuple[Idiom, ...]:
    """The idioms of one program; none in unsupported languages. Equal code is analysed once."""
    return _idioms(code, language) if language in _FINDERS else ()


def _decoded(stated: Sequence[Sequence[Any]]) -> tuple[Idiom, ...]:
    return tuple(Idiom._make((*texts, tuple(inputs))) for *texts, inputs in stated)


@of_text("idioms", list, _decoded)
def _idioms(code: str, language: str) -> tuple[Idiom, ...]:
    return _FINDERS[language](code)


def pattern_table(forms: dict[Key, CanonicalForm], recipe: ExperienceRecipe) -> pl.DataFrame:
    """The forms that succeeded often enough, as a table of Pattern."""
    rows = []
    for form in forms.values():
        rate = sum(occurrence.ok for occurrence in form.occurrences) / len(form.occurrences)
        if rate >= recipe.min_success_rate and (form.idiom.kind not in _RECURRING or len(form.occurrences) > 1):
            rows.append(_row(form))
    schema = polars_schema(Pattern)
    values = zip(*rows, strict=True) if rows else [()] * len(schema)
    columns = {
        name: _nested(column, kind) if isinstance(kind, pl.List) else column
        for (name, kind), column in zip(schema.items(), values, strict=True)
    }
    return conform(Pattern, pl.DataFrame(columns, schema=schema))


def _nested(lists: Sequence[Sequence[Any]], kind: pl.List) -> pl.Series:
    """Builds a column of non-empty lists, ten times faster than Polars does from Python's lists."""
    rows = [row for row, values in enumerate(lists) for _ in values]
    flat = pl.Series("value", [value for values in lists for value in values], dtype=kind.inner)  # type: ignore[arg-type]
    return pl.DataFrame({"row": rows, "value": flat}).group_by("row", maintain_order=True).agg("value")["value"]


def success_by_language(patterns: pl.DataFrame) -> pl.DataFrame:
    """Number of patterns and their mean success rate, by kind and language."""
    each = patterns.explode("languages", "language_success_rates")
    return (
        each.group_by("kind", pl.col("languages").alias("language"))
        .agg(pl.len().alias("patterns"), pl.col("language_success_rates").mean().round(3).alias("success_rate"))
        .sort("kind", "language")
    )


def _row(form: CanonicalForm) -> tuple[Any, ...]:
    """The values of one Pattern, in the order of its columns."""
    idiom, occurrences = form.idiom, sorted(form.occurrences)
    language = "sql" if idiom.kind in ("sql_query", "sql_clause") else form.shown.language
    outcomes: dict[str, list[bool]] = defaultdict(list)
    for occurrence in occurrences:
        outcomes[occurrence.language].append(occurrence.ok)
    languages = sorted(outcomes)
    successes = sum(occurrence.ok for occurrence in occurrences)
    identity = hashlib.sha256(f"{idiom.kind}\n{language}\n{idiom.canonical}".encode())
    return (
        identity.hexdigest()[:32],
        idiom.kind,
        idiom.name,
        language,
        idiom.code,
        idiom.canonical,
        len(occurrences),
        successes,
        successes / len(occurrences),
        languages,
        [sum(outcomes[name]) / len(outcomes[name]) for name in languages],
        sorted(occurrence.execution_id for occurrence in occurrences),
        sorted({occurrence.sandbox_id for occurrence in occurrences}),
        _context(idiom, occurrences, successes),
        idiom.explanation,
    )


def _context(idiom: Idiom, occurrences: list[_Occurrence], successes: int) -> str:
    """A paragraph for the pattern's `context`: how often it occurred, its task, inputs, results and errors."""
    sandboxes = len({occurrence.sandbox_id for occurrence in occurrences})
    where = f"{_count(len(occurrences), 'execution')} of {_count(sandboxes, 'sandbox')}"
    parts = [f"Seen in {where}; {successes} ended without error."]
    if task := next((occurrence.task for occurrence in occurrences if occurrence.task), None):
        parts.append(f"Task: {_short(task)}")
    if idiom.inputs:
        parts.append(f"Inputs seen: {'; '.join(idiom.inputs)}.")
    if said := next((occurrence.said for occurrence in occurrences if occurrence.ok and occurrence.said), None):
        parts.append(f"Output of an execution with it: {said}")
    errors = Counter(o.error_name or o.outcome for o in occurrences if not o.ok)
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

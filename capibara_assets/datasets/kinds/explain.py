"""*explain* examples: code, and calls or requests to show it for -> what it does with them, as seen when it ran again.

An answer holds facts of executions: what calls return, raise and change, the values and tests on the way, what answers
a request, the size and columns of data. What the code's text says by itself is no explanation: such code has none. A
playbook bullet that names the same call, table, class of error or idiom is quoted below it.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from capibara_assets.datasets.anatomy.dissect import dissect
from capibara_assets.datasets.code.decisions import decisions
from capibara_assets.datasets.code.sessions import Piece, Row, cell_names
from capibara_assets.datasets.code.structure import structural_key, without_comments
from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.kinds.behaviour import (
    call_facts,
    call_text,
    is_new,
    listed,
    request_sentence,
    request_text,
    table_sentences,
)
from capibara_assets.datasets.kinds.difficulty import difficulty
from capibara_assets.datasets.kinds.evidence import Evidence, ExampleCandidate, has_substance, mean_quality, quotable
from capibara_assets.datasets.kinds.explain_sql import query_explanation
from capibara_assets.datasets.kinds.lessons import Lessons
from capibara_assets.datasets.recipe import DatasetRecipe

_MOST_SHOWN, _MOST_VARIABLES, _MOST_BULLETS = 3, 4, 2
_FIGURE = re.compile(r"\b(?:plt|fig|axes?|sns)\.\w+\(")


@dataclass
class _Uses:
    """What later cells, and its own, did with the functions that a cell defines."""

    calls: list[dict[str, Any]] = field(default_factory=list)
    requests: list[tuple[dict[str, Any], list[dict[str, Any]]]] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)  # the cells that did


@dataclass(frozen=True)
class _Explanation:
    asked: str  # what it is to be shown for
    sentences: list[str]
    rows: Sequence[Row] = ()  # further executions that it is made of


def candidates(evidence: Evidence, recipe: DatasetRecipe) -> Iterator[ExampleCandidate]:
    """One candidate per successful execution with something to tell that its text does not."""
    bullets = _bullets(evidence)
    for session in evidence.sessions:
        uses = _uses(session, evidence)
        for row in session:
            if row["outcome"] != "ok" or not has_substance(row["code"]):
                continue
            code = dissect(row["code"], row["language"]).body or row["code"].strip("\n")
            pieces = _context(row, code, evidence, recipe)
            if pieces is None:
                continue
            made = _explanation(row, code, uses.get(row["execution_id"]), evidence)
            if made is None:
                continue
            earlier = [piece.text for piece in pieces]
            prompt = prompts.explain(row["language"], code, made.asked, earlier)
            # a query is shown with its result, whose values its text does not say
            if not is_new(" ".join(made.sentences), code if row["language"] == "sql" else prompt):
                continue
            advice = bullets.get(row["execution_id"], [])[:_MOST_BULLETS]
            rows = [row, *made.rows, *(piece.row for piece in pieces)]
            yield ExampleCandidate(
                kind="explain",
                language=row["language"],
                prompt=prompt,
                answer="\n".join([" ".join(made.sentences), *(f"The playbook says: {b['content']}" for b in advice)]),
                execution_ids=tuple(dict.fromkeys(each["execution_id"] for each in rows)),
                duplicate_key=structural_key(code, row["language"]),
                difficulty=difficulty(code, row["language"], 0, [], recipe.difficulty),
                quality=mean_quality([row]),
                bullet_ids=tuple(bullet["bullet_id"] for bullet in advice),
            )


def _context(row: Row, code: str, evidence: Evidence, recipe: DatasetRecipe) -> list[Piece] | None:
    """The earlier code that `code` needs; None where it is not known, or too long to be quoted."""
    names = cell_names(code, row["language"])
    if row["language"] == "sql" or (names is not None and names.exact and not names.needed):
        return []
    context = evidence.context(row["execution_id"])
    pieces = quotable(context, recipe.context_chars)
    return pieces if context.complete and len(pieces) == len(context.pieces) else None


def _bullets(evidence: Evidence) -> dict[str, list[Row]]:
    """Execution id -> the bullets about its patterns, best first."""
    lessons, found = Lessons.of(evidence.lessons), defaultdict[str, list[Row]](list)
    for pattern in evidence.patterns.sort("pattern_id").iter_rows(named=True) if lessons.rows else ():
        for bullet in lessons.about(pattern):
            for unit in pattern["execution_ids"]:
                if bullet not in found[unit]:
                    found[unit].append(bullet)
    return found


def _uses(session: Sequence[Row], evidence: Evidence) -> dict[str, _Uses]:
    """Execution id -> what was done with the functions that its cell defines, by cells that ended well."""
    found, definer = defaultdict[str, _Uses](_Uses), dict[str, str]()
    handlers: str | None = None  # the cell whose functions answered the last request
    for row in session:
        trace = evidence.traces.get(row["execution_id"])
        if (names := cell_names(row["code"], row["language"])) is not None:
            definer.update({name: str(row["execution_id"]) for name in names.bound})
        if trace is None or row["outcome"] != "ok":
            continue
        inside = {i for request in trace.get("requests", ()) for i in range(*request["calls"])}
        for request in trace.get("requests", ()):
            calls = trace["calls"][slice(*request["calls"])]
            owners = {definer[top] for call in calls if (top := call["function"].split(".")[0]) in definer}
            handlers = min(owners) if len(owners) == 1 else handlers
            if handlers is not None:
                found[handlers].requests.append((request, calls))
                found[handlers].rows.append(row)
        for i, call in enumerate(trace["calls"]):
            owner = definer.get(call["function"].split(".")[0])
            if owner is not None and i not in inside and not (call["raised"] and trace.get("errors")):
                found[owner].calls.append(call)
                found[owner].rows.append(row)
    return found


def _explanation(row: Row, code: str, uses: _Uses | None, evidence: Evidence) -> _Explanation | None:
    if row["language"] == "sql":
        made = query_explanation(row)
        return None if made is None else _Explanation(*made)
    plain = " ".join(without_comments(code, row["language"]).split())
    if uses is not None and uses.requests:
        return _of_requests(uses, plain)
    if uses is not None and (made_of := _of_calls(row, uses, plain)) is not None:
        return made_of
    trace = evidence.traces.get(row["execution_id"])
    if trace is None or "variables" not in trace or (uses is not None and uses.calls):
        return None
    told = list(table_sentences(trace, plain))[-_MOST_VARIABLES:]
    if not told or (_FIGURE.search(plain) and len(told) < 2):
        return None
    names = [f"`{name}`" for name, _ in told]
    return _Explanation(f"Say how it changes {listed(names)}.", [sentence for _, sentence in told])


def _of_calls(row: Row, uses: _Uses, plain: str) -> _Explanation | None:
    """What the code did with the calls that differ most, in the order in which they ran."""
    places = decisions(row["code"], row["language"])
    chosen: dict[str, list[str]] = {}
    seen: set[tuple[Any, ...]] = set()
    told: list[tuple[bool, int, str, list[str]]] = []
    for call in _without_checks(uses.calls):
        text, parts = call_text(call), call_facts(call, places, plain)
        if text is None or not parts or not _defined(call["function"], plain):
            continue
        tests = sorted((at, yes > 0, no > 0) for at, (yes, no) in call["tests"].items())
        way = (call["function"], bool(call["raised"]), *tests)
        told.append((way in seen, len(told), text, parts))
        seen.add(way)
    for _, _, text, parts in sorted(sorted(told)[:_MOST_SHOWN], key=lambda each: each[1]):
        chosen.setdefault(text, parts)
    if not any(len(parts) > 1 for parts in chosen.values()):
        return None  # arguments and results alone say what, not how
    said: set[str] = set()
    sentences = []
    for first, *details in chosen.values():
        new = [detail for detail in details if detail not in said]
        said |= set(new)
        sentences.append(f"{first}: {listed(new)}." if new else f"{first}.")
    return _Explanation(f"Show it for {listed([f'`{text}`' for text in chosen])}.", sentences, uses.rows)


def _without_checks(calls: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The calls less those of functions that only ever get what another call has just returned: they judge it."""
    judged: dict[str, bool] = {}
    for i, call in enumerate(calls):
        results = {c["result"] for c in calls[:i] if c["function"] != call["function"] and c["result"] is not None}
        given = any(text in results for _, text in call["arguments"])
        judged[call["function"]] = judged.get(call["function"], True) and given
    return [call for call in calls if not judged[call["function"]]]


def _defined(function: str, plain: str) -> bool:
    name = re.escape(function.split(".")[-1])
    return re.search(rf"\b(?:def|function)\s+{name}\b|\b{name}\s*[=(]", plain) is not None


def _of_requests(uses: _Uses, plain: str) -> _Explanation | None:
    chosen: dict[str, str] = {}
    for request, calls in uses.requests:
        if (said := request_sentence(request, calls)) is not None and len(chosen) < _MOST_SHOWN:
            chosen.setdefault(request_text(request), said)
    return _Explanation(f"Show it for {listed(list(chosen))}.", list(chosen.values()), uses.rows) if chosen else None

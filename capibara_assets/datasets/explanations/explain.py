"""*explain* examples: code, and a call or requests of it -> what happens in them, step by step, as it was seen.

The question names the call, the requests or the database, and the answer follows it from the first step to the result:
which branch is taken and why, what variables become, which function answers. What cannot be told whole, or what a
reader could not tell from the prompt, gives no example.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from capibara_assets.datasets.anatomy.dissect import dissect
from capibara_assets.datasets.code.sessions import Piece, Row, cell_names
from capibara_assets.datasets.code.steps import steps
from capibara_assets.datasets.code.structure import JAVASCRIPT, structural_key, without_comments
from capibara_assets.datasets.explanations.behaviour import call_text, is_new, listed, request_sentence, request_text
from capibara_assets.datasets.explanations.walk import walk
from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.kinds.difficulty import difficulty
from capibara_assets.datasets.kinds.evidence import Evidence, ExampleCandidate, has_substance, mean_quality, quotable
from capibara_assets.datasets.kinds.predict import is_derivable
from capibara_assets.datasets.recipe import DatasetRecipe

_WIDE = re.compile(r"[ \t]*\n([ \t]*\n)+")
_MOST_SHOWN = 3
_LONGEST_WALK = 1800  # characters
_ENOUGH_VALUES = 8


@dataclass
class _Uses:
    """What later cells, and its own, did with the functions that a cell defines."""

    calls: list[tuple[dict[str, Any], Row]] = field(default_factory=list)
    requests: list[tuple[dict[str, Any], list[dict[str, Any]]]] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)  # the cells that sent requests
    failed: bool = False  # a cell that used them failed


@dataclass(frozen=True)
class _Explanation:
    asked: str
    answer: str
    rows: Sequence[Row] = ()  # further executions that it is made of
    lesson: str | None = None  # by which near-duplicates are found; None: prompt and answer


def candidates(evidence: Evidence, recipe: DatasetRecipe) -> Iterator[ExampleCandidate]:
    """One candidate per successful execution of which a call or requests can be told whole."""
    for session in evidence.sessions:
        uses = _uses(session, evidence)
        for row in session:
            own = uses.get(row["execution_id"])
            if own is None or own.failed or row["outcome"] != "ok" or not has_substance(row["code"]):
                continue
            code = dissect(row["code"], row["language"]).body or row["code"]
            code = _WIDE.sub("\n\n", without_comments(code, row["language"])).strip()  # they may tell of a result
            pieces = _context(row, code, evidence, recipe)
            made = None if pieces is None else _explanation(row, code, own)
            if pieces is None or made is None:
                continue
            earlier = [piece.text for piece in pieces]
            prompt = prompts.explain(code, made.asked, earlier)
            plain = [*(without_comments(part, row["language"]) for part in earlier), code]
            if not is_new(made.answer, prompt) or not is_derivable(plain, made.answer):
                continue
            rows = [row, *made.rows, *(piece.row for piece in pieces)]
            yield ExampleCandidate(
                kind="explain",
                language=row["language"],
                prompt=prompt,
                answer=made.answer,
                execution_ids=tuple(dict.fromkeys(each["execution_id"] for each in rows)),
                duplicate_key=structural_key(code, row["language"]),
                difficulty=difficulty(code, row["language"], 0, [], recipe.difficulty),
                quality=mean_quality([row]),
                lesson=made.lesson,
            )


def _context(row: Row, code: str, evidence: Evidence, recipe: DatasetRecipe) -> list[Piece] | None:
    """The earlier code that `code` needs; None where it is not known, or too long to be quoted."""
    names = cell_names(code, row["language"])
    if names is not None and names.exact and not names.needed:
        return []
    context = evidence.context(row["execution_id"])
    pieces = quotable(context, recipe.context_chars)
    return pieces if context.complete and len(pieces) == len(context.pieces) else None


def _uses(session: Sequence[Row], evidence: Evidence) -> dict[str, _Uses]:
    """Execution id -> what was done with the functions that its cell defines, by cells that ended well."""
    found, definer = defaultdict[str, _Uses](_Uses), dict[str, str]()
    handlers: str | None = None  # the cell whose functions answered the last request
    for row in session:
        trace = evidence.traces.get(row["execution_id"])
        if (names := cell_names(row["code"], row["language"])) is not None:
            definer.update({name: str(row["execution_id"]) for name in names.bound})
            if row["outcome"] != "ok" or (row["language"] in JAVASCRIPT and row["stderr"].strip()):
                for name in names.needed & set(definer):
                    found[definer[name]].failed = True
        # it ended well when it was recorded: what fails here needs a package, and the calls stand for themselves
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
            if owner is not None and i not in inside:
                found[owner].calls.append((call, row))
    return found


def _explanation(row: Row, code: str, uses: _Uses) -> _Explanation | None:
    if uses.requests:
        return _of_requests(uses)
    known = steps(row["code"], row["language"])
    shown = " ".join(code.split())
    best: tuple[tuple[int, int, int], _Explanation] | None = None
    for call, where in uses.calls:
        text = call_text(call)
        if text is None or call["result"] is None or not _stands(call, known, shown):
            continue
        lines = walk(call, known, row["code"])
        if lines is None:
            continue
        answer = "\n".join([*lines, f"So `{text}` returns `{call['result']}`."])
        if len(answer) <= _LONGEST_WALK:
            ways = {
                (kind, at, str(details[-1])) if kind == "tested" else (kind, at)
                for kind, at, *details in call["events"]
            }
            values = {str(each) for event in call["events"] for each in event[-1:] if event[0] in ("ran", "turned")}
            # the one that shows most of the code, then some variety of values, then the shortest
            rank = (len(ways), min(len(values), _ENOUGH_VALUES), -len(answer))
            if best is None or rank > best[0]:
                best = rank, _Explanation(prompts.walk_through(text), answer, [where])
    return None if best is None else best[1]


def _stands(call: Mapping[str, Any], known: Mapping[str, Any], shown: str) -> bool:
    """Whether each step of a call stands in the code that the reader sees."""
    places = {event[1] for event in call["events"] if event[0] not in ("called", "ended")}
    return all(at in known and (known[at].sort == "catch" or _squeezed(known[at], shown)) for at in places)


def _squeezed(step: Any, shown: str) -> bool:
    return all(part in shown for part in ([step.text] if step.sort != "for" else step.text.split(" in ")))


def _of_requests(uses: _Uses) -> _Explanation | None:
    chosen: dict[str, str] = {}
    for request, calls in uses.requests:
        if (said := request_sentence(request, calls)) is not None and len(chosen) < _MOST_SHOWN:
            chosen.setdefault(request_text(request), said)
    given = any(argument for _, calls in uses.requests for call in calls for argument in call["arguments"])
    if not chosen or not given:  # what takes nothing gives the same to everyone
        return None
    answer = "\n".join(f"- {said}" for said in chosen.values())
    # spellings of one application teach the same: the answer tells them apart, not the code
    return _Explanation(prompts.requests(listed(list(chosen))), answer, uses.rows, answer)

"""*explain* examples: code and a call or requests -> what happens step by step, as observed.

The question names the call, the requests or the database, and the answer follows it from the first step to the result:
each branch and why, what variables become, which function answers. What cannot be told completely, or what a
reader could not tell from the prompt, gives no example; nor does what comes out otherwise when the shown code runs by
itself, since a state that earlier calls left is not in the prompt.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from capibara_assets.datasets.anatomy.dissect import dissect
from capibara_assets.datasets.code.sessions import Piece, Row, SessionContext, cell_names, needed
from capibara_assets.datasets.code.steps import steps
from capibara_assets.datasets.code.structure import structural_key, without_comments, without_gaps
from capibara_assets.datasets.explanations import alone
from capibara_assets.datasets.explanations.behaviour import call_text, is_new, request_sentence, request_text
from capibara_assets.datasets.explanations.walk import walk
from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.kinds.difficulty import difficulty
from capibara_assets.datasets.kinds.evidence import Evidence, ExampleCandidate, has_substance, mean_quality, quotable
from capibara_assets.datasets.kinds.predict import is_derivable
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.executions.parsing import JAVASCRIPT
from capibara_assets.executions.replay.traces import Trace
from capibara_assets.executions.replay.workers import Session

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
    call: str | None = None  # its text; None: of requests
    requests: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class _Shown:
    """The code of a prompt, the earlier code that it needs, and where requests are sent to: the application's name."""

    code: str
    earlier: tuple[Piece, ...]
    app: str = ""


@dataclass(frozen=True)
class _Proposal:
    """A candidate, and what has to come out of its prompt's code by itself."""

    candidate: ExampleCandidate
    made: _Explanation
    code: str
    session: Session

    def stands(self, traces: Sequence[Trace | None] | None) -> bool:
        """Whether running the prompt's content alone gives the result in the answer."""
        if self.made.call is not None:
            call = alone.only_call(traces, self.made.call)
            return call is not None and _answer(call, self.code, self.candidate.language) == self.made.answer
        trace = alone.used(traces)
        requests = [] if trace is None else trace["requests"]
        return trace is not None and self.made.answer == _told(
            [(each, trace["calls"][slice(*each["calls"])]) for each in requests]
        )


def sessions_alone(evidence: Evidence, recipe: DatasetRecipe) -> Iterator[Session]:
    """Sessions to run before `candidates` can check its answers."""
    for proposal in _proposals(evidence, recipe):
        yield proposal.session


def candidates(evidence: Evidence, recipe: DatasetRecipe) -> Iterator[ExampleCandidate]:
    """One candidate per successful execution with a fully explained call or requests."""
    for proposal in _proposals(evidence, recipe):
        if proposal.stands(evidence.alone.get(proposal.session)):
            yield proposal.candidate


def _proposals(evidence: Evidence, recipe: DatasetRecipe) -> Iterator[_Proposal]:
    for session in evidence.sessions:
        uses = _uses(session, evidence)
        for row in session:
            own = uses.get(row["execution_id"])
            if own is None or own.failed or row["outcome"] != "ok" or not has_substance(row["code"]):
                continue
            made = _explanation(row, own)
            shown = None if made is None else _shown(row, own, made.call, evidence, recipe)
            if made is not None and shown is not None:
                proposal = _proposal(row, shown, made, recipe)
                if proposal is not None:
                    yield proposal


def _proposal(row: Row, shown: _Shown, made: _Explanation, recipe: DatasetRecipe) -> _Proposal | None:
    """The candidate of an explanation; None where its prompt tells it already."""
    language, code, earlier = row["language"], shown.code, [piece.text for piece in shown.earlier]
    prompt = prompts.explain(code, made.asked, earlier)
    plain = [*(without_comments(part, language) for part in earlier), code]
    if not is_new(made.answer, prompt) or not is_derivable(plain, made.answer):
        return None
    done = alone.requests(made.requests, shown.app) if made.call is None else alone.call(made.call, code)
    rows = [row, *made.rows, *(piece.row for piece in shown.earlier)]
    candidate = ExampleCandidate(
        kind="explain",
        language=language,
        prompt=prompt,
        answer=made.answer,
        execution_ids=tuple(dict.fromkeys(each["execution_id"] for each in rows)),
        duplicate_key=structural_key(code, language),
        difficulty=difficulty(code, language, 0, [], recipe.difficulty),
        quality=mean_quality([row]),
        lesson=made.lesson,
    )
    return _Proposal(candidate, made, code, alone.session([*earlier, code], done, language))


def _shown(row: Row, uses: _Uses, call: str | None, evidence: Evidence, recipe: DatasetRecipe) -> _Shown | None:
    """The code of a prompt; None where it is not known, or too long to be quoted."""
    language, app = row["language"], ""
    if uses.requests:
        session, place = evidence.places[row["execution_id"]]
        names = cell_names(row["code"], language)
        answered = {call["function"].split(".")[0] for _, calls in uses.requests for call in calls}
        application = alone.application(session, place, answered & names.bound if names is not None else ())
        if application is None or not application[1].pieces:
            return None
        app, context = application
        code = _uncommented(context.pieces[-1].text, language)
        context = SessionContext(context.pieces[:-1], context.complete)
    else:
        code = _uncommented(_called(dissect(row["code"], language).body or row["code"], call, row), language)
        names = cell_names(code, language)
        whole_names = cell_names(row["code"], language)
        if names is not None and whole_names is not None and names.needed & whole_names.bound:
            return None  # of what else stands in the cell, a part is needed that is not shown
        given = names is not None and names.exact and not names.needed
        context = SessionContext((), True) if given else evidence.context(row["execution_id"])
    pieces = quotable(context, recipe.context_chars)
    whole = context.complete and len(pieces) == len(context.pieces)
    return _Shown(code, tuple(pieces), app) if whole else None


def _called(code: str, call: str | None, row: Row) -> str:
    """The statements that a call needs, without what else its cell keeps beside them, such as data on its author.

    What is missed stands in earlier cells; the call is executed again below what is shown.
    """
    pieces = needed([{**row, "code": code}, {**row, "code": call}], 1).pieces if call is not None else ()
    return pieces[0].text if len(pieces) == 1 else code


def _uncommented(code: str, language: str) -> str:
    """Code without its comments, which may tell of a result, and without the lines that held nothing else."""
    lines, bare = code.split("\n"), without_comments(code, language).split("\n")
    if len(lines) == len(bare):
        bare = [new for old, new in zip(lines, bare, strict=True) if new.strip() or not old.strip()]
    return without_gaps("\n".join(bare))


def _uses(session: Sequence[Row], evidence: Evidence) -> dict[str, _Uses]:
    """Execution id -> what was done with the functions that its cell defines, by cells that ended well."""
    uses, definer = defaultdict[str, _Uses](_Uses), dict[str, str]()
    handlers: str | None = None  # the cell whose functions answered the last request
    for row in session:
        trace = evidence.traces.get(row["execution_id"])
        if (names := cell_names(row["code"], row["language"])) is not None:
            definer.update({name: str(row["execution_id"]) for name in names.bound})
            if row["outcome"] != "ok" or (row["language"] in JAVASCRIPT and row["stderr"].strip()):
                for name in names.needed & set(definer):
                    uses[definer[name]].failed = True
        # it ended well when it was recorded: what fails here needs a package, and the calls stand for themselves
        if trace is None or row["outcome"] != "ok":
            continue
        inside = {i for request in trace.get("requests", ()) for i in range(*request["calls"])}
        for request in trace.get("requests", ()):
            calls = trace["calls"][slice(*request["calls"])]
            owners = {definer[top] for call in calls if (top := call["function"].split(".")[0]) in definer}
            handlers = min(owners) if len(owners) == 1 else handlers
            if handlers is not None:
                uses[handlers].requests.append((request, calls))
                uses[handlers].rows.append(row)
        for i, call in enumerate(trace["calls"]):
            owner = definer.get(call["function"].split(".")[0])
            if owner is not None and i not in inside:
                uses[owner].calls.append((call, row))
    return uses


def _explanation(row: Row, uses: _Uses) -> _Explanation | None:
    if uses.requests:
        return _of_requests(uses, row["code"])
    best: tuple[tuple[int, int, int], _Explanation] | None = None
    for call, where in uses.calls:
        text = call_text(call)
        if text is None or call["result"] is None:
            continue
        answer = _answer(call, row["code"], row["language"])
        if answer is not None and len(answer) <= _LONGEST_WALK:
            ways = {
                (kind, at, str(details[-1])) if kind == "tested" else (kind, at)
                for kind, at, *details in call["events"]
            }
            values = {str(each) for event in call["events"] for each in event[-1:] if event[0] in ("ran", "turned")}
            # the one that shows most of the code, then some variety of values, then the shortest
            rank = (len(ways), min(len(values), _ENOUGH_VALUES), -len(answer))
            if best is None or rank > best[0]:
                best = rank, _Explanation(prompts.walk_through(text), answer, [where], call=text)
    return None if best is None else best[1]


def _answer(call: Mapping[str, Any], code: str, language: str) -> str | None:
    """The walk through a call of a cell's function, to its result; None where it cannot be told."""
    lines = walk(call, steps(code, language), code)
    return None if lines is None else "\n".join([*lines, f"So `{call_text(call)}` returns `{call['result']}`."])


def _is_redirected(request: Mapping[str, Any], code: str) -> bool:
    """Whether code has the route only with, or without, a slash at its end: a redirect comes first, unrecorded."""
    path = re.split(r"[? ]", request["request"].partition(" ")[2])[0]
    other = path[:-1] if path.endswith("/") else f"{path}/"
    return len(path) > 1 and f'{path}"' not in code.replace("'", '"') and f'"{other}"' in code.replace("'", '"')


def _of_requests(uses: _Uses, code: str) -> _Explanation | None:
    chosen: dict[str, tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]] = {}
    for request, calls in uses.requests:
        known = request_sentence(request, calls) is not None and not _is_redirected(request, code)
        if known and len(chosen) < _MOST_SHOWN:
            chosen.setdefault(request_text(request), (request, calls))
    given = any(argument for _, calls in uses.requests for call in calls for argument in call["arguments"])
    answer = _told(list(chosen.values()))
    if not answer or not given:  # what takes nothing gives the same to everyone
        return None
    requests = [request for request, _ in chosen.values()]
    # spellings of one application teach the same: the answer tells them apart, not the code
    return _Explanation(prompts.requests(list(chosen)), answer, uses.rows, answer, requests=requests)


def _told(requests: Sequence[tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]]) -> str:
    """What answers requests, a line each; those that cannot be told are missing."""
    return "\n".join(f"- {said}" for each in requests if (said := request_sentence(*each)) is not None)

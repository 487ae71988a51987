"""Executes the answers of candidates: with their tests, or again as recorded."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from capibara_assets.datasets.agreement.mutants import UNPINNED, unpinned
from capibara_assets.datasets.agreement.needless import NEEDLESS, needless
from capibara_assets.datasets.anatomy.stated import documented_test
from capibara_assets.datasets.code.queries import holds_sql
from capibara_assets.datasets.code.sessions import definitions
from capibara_assets.datasets.derived.trials import Execute, Trial, below_session, shown_cells
from capibara_assets.datasets.kinds.evidence import Evidence, ExampleCandidate
from capibara_assets.datasets.kinds.predict import without_assertions
from capibara_assets.datasets.kinds.prompts import CODE, SESSION, TESTS, section, stated
from capibara_assets.datasets.placing import Placed
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.datasets.schema import CODE_KINDS, Kind, Verified
from capibara_assets.datasets.verification import Judgement, Judgements
from capibara_assets.executions.parsing import JAVASCRIPT
from capibara_assets.executions.replay.replay import ReplayBatch, ReplayVerdict
from capibara_assets.executions.schema import PATCH

NOT_AS_SHOWN = "without its assertions its code shows something else"
FAILS_AS_SHOWN = "its answer does not pass the test of its prompt with the session that its prompt shows"
NOT_AGAIN = "its output was not executed again"
ONLY_TESTED = "its test cannot run here: nothing has judged its answer"
UNJUDGED = "no test judges it, and it was not executed again"
DIFFERED = "executed again it gave another result"
NOT_PASSED = "its answer does not pass its test"
DATED = "it calculates with dates of which nothing tells the form, and could not be executed here"
NEVER_RUN = "it only defines, shows nothing, and no test here runs it"
_DATES = re.compile(
    r"'now'|\b(?:strftime|julianday|current_date|current_timestamp)\b|\bdate(?:time)?\s*\(", re.IGNORECASE
)
#: Errors that tell that a prompt shows too little, or that its test fails, whatever is installed here.
_OF_THE_PROMPT = frozenset({"NameError", "UnboundLocalError", "ReferenceError", "AssertionError", "SyntaxError"})

Reexecute = Callable[[Evidence, Sequence[str]], ReplayBatch]
Judge = Callable[[Evidence, Sequence[ExampleCandidate]], Judgements]


@dataclass(frozen=True)
class Again:
    """Result of re-executing answers."""

    kept: list[Placed]
    reasons: dict[str, str]  # example id -> why it was dropped
    notes: dict[Kind, str]
    summary: dict[str, Any]


def judged_by_tests(placed: Sequence[Placed], evidence: Evidence, recipe: DatasetRecipe, judge: Judge | None) -> Again:
    """Run answers with their tests; drop failing answers, and tests that accept broken answers."""
    chosen: list[Placed] = []
    for kind in sorted(CODE_KINDS):
        if judge is not None and kind in recipe.verification.kinds:
            chosen += _chosen((p for p in placed if p.candidate.test and not p.candidate.derived), kind, recipe)[0]
    batch = judge(evidence, [p.candidate for p in chosen]) if judge is not None and chosen else Judgements([], {})
    said = {p.example_id: judgement for p, judgement in zip(chosen, batch.found, strict=True)}
    kept, reasons = [], {}
    for item in placed:
        judgement = said.get(item.example_id)
        if judgement is not None and judgement.fails:
            reasons[item.example_id] = f"{NOT_PASSED}: {judgement.reason}"
            continue
        if judgement is not None and judgement.verified == "recorded" and _is_python(item.candidate):
            reasons[item.example_id] = f"{ONLY_TESTED}: {judgement.reason}"
            continue
        if judgement is not None:
            test = item.candidate.test if judgement.tells else None
            item = replace(item, verdict=judgement, candidate=replace(item.candidate, test=test))
        if judge is not None and _never_ran(item.candidate):
            reasons[item.example_id] = NEVER_RUN
            continue
        kept.append(item)
    return Again(kept, reasons, {}, batch.summary)


def _never_ran(one: ExampleCandidate) -> bool:
    """Whether nothing that was recorded ran what an answer defines, as far as its output and its test tell."""
    return one.kind == "solve" and not one.test and not one.proof and bool(definitions(one.answer, one.language))


def _is_python(candidate: ExampleCandidate) -> bool:
    """Whether an answer is one in Python to a task: of those that no test could judge here hardly one was right."""
    return candidate.kind == "solve" and candidate.language == "python"


def executed_again(
    placed: Sequence[Placed], evidence: Evidence, recipe: DatasetRecipe, reexecute: Reexecute | None
) -> Again:
    """Re-execute the code of *predict* examples; drop those whose output differs.

    A verdict on an execution holds for every example whose answer it is and that no test judged.
    """
    chosen: list[Placed] = []
    notes: dict[Kind, str] = {}
    recorded = [p for p in placed if p.candidate.derived is None]
    for kind in recipe.verification.replayed if reexecute is not None else ():
        of_kind, note = _chosen(recorded, kind, recipe)
        chosen += [p for p in of_kind if p.verdict is None]
        if note is not None:
            notes[kind] = note
    subjects = list(dict.fromkeys(p.subject for p in chosen))
    batch = reexecute(evidence, subjects) if reexecute is not None and subjects else ReplayBatch([], {})
    verdicts = {verdict.execution_id: verdict for verdict in batch.verdicts}
    kept, reasons = [], {}
    for item in placed:
        if item.candidate.derived is not None:  # only what came out of two runs was derived
            kept.append(replace(item, verdict=ReplayVerdict(item.subject, "reexecuted", None, None)))
            continue
        kind, verdict = item.candidate.kind, item.verdict or verdicts.get(item.subject)
        if kind == "predict" and (verdict is None or verdict.verified != "reexecuted"):
            reasons[item.example_id] = NOT_AGAIN if verdict is None else f"{NOT_AGAIN}: {verdict.reason}"
            continue
        if reexecute is not None and (why := _unverified(item.candidate, verdict)) is not None:
            reasons[item.example_id] = why
            continue
        kept.append(item if kind == "explain" else replace(item, verdict=verdict))
    if any(p.candidate.kind == "predict" for p in placed):
        if reexecute is None or "predict" not in recipe.verification.replayed:
            notes["predict"] = "nothing was executed again, and only outputs that came out again are asked for"
        elif not any(p.candidate.kind == "predict" for p in kept):
            notes["predict"] = "no recorded output came out again when its code was executed"
    summary = {"executions": len(subjects), "of_examples": len(placed), **batch.summary}
    return Again(kept, reasons, notes, summary)


def _unverified(one: ExampleCandidate, verdict: ReplayVerdict | Judgement | None) -> str | None:
    """Why an answer is not known to be right after all that could be executed here; None where it may be."""
    if one.kind not in CODE_KINDS or (verdict is not None and verdict.verified == "reexecuted"):
        return None
    if verdict is not None and verdict.verified == "unverified":
        return f"{DIFFERED}: {verdict.reason}"
    queries = one.language == "sql" or holds_sql(one.answer, one.language)
    if queries and one.kind == "solve" and _DATES.search(one.answer):
        return DATED
    excused = one.test or one.kind != "solve" or one.language == PATCH or queries
    return None if excused else UNJUDGED


def passing_as_shown(placed: Sequence[Placed], execute: Execute | None) -> tuple[list[Placed], dict[str, str]]:
    """(examples, example id -> why it was dropped): answers run with what their prompt shows of session and test.

    A prompt may show a part of a test that stands in a function, and of a session what names tell that it needs. Of an
    answer that did not run again as a whole, only that a name is missing or a test fails tells something: its files or
    the versions of its packages may not be here.
    """
    judged = [(item, _judging(item.candidate)) for item in placed if _is_run(item.candidate)]
    shown = [(item, tests) for item, tests in judged if tests or not _came_out_again(item)]
    trials = [_as_shown(item.candidate, tests) for item, tests in shown]
    ends = execute(trials, purpose="standing") if execute and shown else []
    failing = {
        item.example_id: f"{FAILS_AS_SHOWN}: {end[0].error_name}"
        for (item, _), end in zip(shown, ends, strict=False)
        if end and end[0] is not None and not end[0].ok
        if _came_out_again(item) or end[0].error_name in _OF_THE_PROMPT
    }
    return [item for item in placed if item.example_id not in failing], failing


def told_by_prompts(placed: Sequence[Placed], execute: Execute | None) -> tuple[list[Placed], dict[str, str]]:
    """(examples, example id -> why it was dropped): broken answers fail their test, and repairs change what was asked.

    Both are seen by running the answer with a part of it changed.
    """
    if execute is None:
        return list(placed), {}
    answers = [item.candidate for item in placed]
    verdicts = zip(placed, unpinned(answers, execute), needless(answers, execute), strict=True)
    dropped = {item.example_id: UNPINNED if loose else NEEDLESS for item, loose, more in verdicts if loose or more}
    return [item for item in placed if item.example_id not in dropped], dropped


def _is_run(one: ExampleCandidate) -> bool:
    return one.kind in CODE_KINDS and one.language in ("python", *JAVASCRIPT)


def _came_out_again(item: Placed) -> bool:
    return item.verdict is not None and item.verdict.verified == "reexecuted"


def _judging(one: ExampleCandidate) -> list[str]:
    """The test of a prompt, the hidden one of what was derived, and the examples of a task's docstring."""
    told = documented_test(stated(one.prompt)) if one.language == "python" else ""
    return list(filter(None, [section(one.prompt, TESTS), one.test if one.derived else None, told]))


def _as_shown(one: ExampleCandidate, tests: Sequence[str]) -> Trial:
    return Trial(one.language, (shown_cells(one.language, section(one.prompt, SESSION), one.answer, *tests),))


def _chosen(placed: Iterable[Placed], kind: Kind, recipe: DatasetRecipe) -> tuple[list[Placed], str | None]:
    """(what of a kind is executed, lowest digests first; how many are not)."""
    of_kind = sorted((p for p in placed if p.candidate.kind == kind), key=lambda p: p.example_id)
    most = recipe.verification.per_kind
    rest = len(of_kind) - most
    note = f"{rest} more were not executed again: the recipe executes {most}" if rest > 0 else None
    return of_kind[:most], note


def verified_as(verdict: ReplayVerdict | Judgement | None, language: str) -> tuple[Verified, str | None]:
    """How an answer was verified, and why its result was not reproduced, if it was not."""
    if verdict is None and language == PATCH:
        return "recorded", "an edit: its project is not here"
    if verdict is None:
        return "recorded", "not chosen: the recipe executes other kinds, or fewer of this one"
    return verdict.verified, verdict.reason


def as_shown(
    candidates: Iterable[ExampleCandidate], evidence: Evidence, execute: Execute | None
) -> Iterator[ExampleCandidate]:
    """Recorded predictions; `lacking` if the shown code, without its assertions, does not give the output.

    An assertion may call what changes a value that is shown later.
    """
    listed = list(candidates)
    doubtful = [one for one in listed if _lost_assertions(one, evidence)]
    parts = [(one.language, section(one.prompt, SESSION), section(one.prompt, CODE)) for one in doubtful]
    trials = [below_session(language, session, [code]) for language, session, code in parts]
    ends = [] if execute is None else execute(trials, purpose="as_shown")
    shown = {id(one): end[0] for one, end in zip(doubtful, ends, strict=False)}
    for one in listed:
        end = shown.get(id(one))
        if end is not None and end.error_name == "ModuleNotFoundError":
            end = None
        other = end is not None and " ".join(end.shown.split()) != " ".join(one.answer.split())
        yield replace(one, lacking=one.lacking or NOT_AS_SHOWN) if other else one


def _lost_assertions(one: ExampleCandidate, evidence: Evidence) -> bool:
    row = evidence.rows.get(one.execution_ids[0])
    return row is not None and without_assertions(row["code"], one.language) != row["code"]

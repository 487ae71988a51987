"""*explain* examples of the debug domain: failing code and error -> the cause, traced back to one line.

The failing and the mended code ran again with the same call. Their steps are compared: the first one that comes out
otherwise has to be the one that the mend changed, and is told with the values of both runs. A name that nothing binds
is told from the code. Where more than one place was changed, or the runs part elsewhere, there is no example.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from capibara_assets.datasets.agreement.special_cases import Mended, why_fitted
from capibara_assets.datasets.code.cases import cases
from capibara_assets.datasets.code.edits import edits
from capibara_assets.datasets.code.sessions import Row
from capibara_assets.datasets.code.structure import structural_key
from capibara_assets.datasets.explanations import alone
from capibara_assets.datasets.explanations.behaviour import call_text, is_new
from capibara_assets.datasets.explanations.diagnose_names import name_cause
from capibara_assets.datasets.explanations.diagnose_sql import query_cause
from capibara_assets.datasets.explanations.divergence import Divergence, first_divergence, outcome_at, raised_at
from capibara_assets.datasets.explanations.substitution import is_readable
from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.kinds.difficulty import difficulty
from capibara_assets.datasets.kinds.evidence import Evidence, ExampleCandidate
from capibara_assets.datasets.kinds.predict import is_derivable
from capibara_assets.datasets.kinds.repair import (
    executions_of,
    lesson,
    pair_quality,
    rewritten,
    sides,
    whole_request,
)
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.executions.patterns.similarity import unified_diff
from capibara_assets.executions.replay.traces import Trace
from capibara_assets.executions.replay.workers import Session
from capibara_assets.executions.tracebacks import error_text


class Case(NamedTuple):
    """Other content of the prompt, and the sentences of the answer."""

    shown: str
    said: list[str]


class Outcome(NamedTuple):
    """The first call with another outcome in the fixed code: its text, and its trace in both."""

    text: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]


def candidates(evidence: Evidence, recipe: DatasetRecipe) -> Iterator[ExampleCandidate]:
    """One candidate per repair pair with one changed place and a known cause."""
    for pair in rewritten(evidence).iter_rows(named=True):
        language = pair["language"]
        statement, failing, fixed, _ = sides(pair)
        statement = whole_request(evidence, pair, statement, recipe.context_chars)
        changes = edits(failing, fixed, language)
        told = cases(f"{statement}\n{pair['failing_code']}\n{pair['fixed_code']}")
        if why_fitted(Mended(failing, fixed, language, statement, told)) is not None:
            continue
        if not changes or (len(changes) > 1 and language != "sql"):
            continue
        if not statement and language != "sql" and pair["error_name"] != "NameError":
            continue  # nothing says what the code is for, so that any change is as good
        if language == "sql":
            case = Case("", said) if (said := query_cause(pair, changes)) is not None else None
        else:
            case = _case(pair, failing, fixed, evidence)
        if case is None:
            continue
        answer = " ".join(case.said)
        error = error_text(pair["error_name"], pair["error_value"], pair["traceback"], language, pair["failing_code"])
        prompt = prompts.diagnose(language, statement, failing, error, case.shown)
        # of a name that nothing binds, a line without a value of its own would teach the same every time
        if not is_derivable([failing], answer) or (pair["error_name"] == "NameError" and not is_new(answer, prompt)):
            continue
        yield ExampleCandidate(
            kind="explain",
            language=language,
            prompt=prompt,
            answer=answer,
            execution_ids=executions_of(evidence, pair),
            subjects=2,
            duplicate_key=f"{structural_key(failing, language)}:{structural_key(fixed, language)}",
            difficulty=difficulty(failing, language, 1, [pair["error_name"] or ""], recipe.difficulty),
            quality=pair_quality(evidence, pair),
            diff=unified_diff(failing, fixed),
            lesson=f"{error}\n{lesson(failing, fixed)}",
        )


def sessions_alone(evidence: Evidence) -> Iterator[Session]:
    """Sessions to run before `candidates` can check its answers: both codes, with the differing call."""
    for pair in rewritten(evidence).iter_rows(named=True):
        _, *codes, _ = sides(pair)
        if pair["language"] != "sql" and (outcome := _outcome(pair, evidence)) is not None:
            for code in codes:
                yield alone.session([code], alone.call(outcome.text, code), pair["language"])


def _outcome(pair: Row, evidence: Evidence) -> Outcome | None:
    """The first call that comes out otherwise in the mended code, where its result can be told."""
    failing, fixed = (evidence.traces.get(pair[f"{side}_execution_id"]) for side in ("failing", "fixed"))
    differing = None if failing is None or fixed is None else _differing(failing, fixed)
    return differing if differing is not None and is_readable(differing.after["result"]) else None


def _case(pair: Row, failing: str, fixed: str, evidence: Evidence) -> Case | None:
    """The cause of a failure of Python or JavaScript."""
    change = _outcome(pair, evidence)
    if change is None:
        return None
    for code, call in ((failing, change.before), (fixed, change.after)):
        own = alone.session([code], alone.call(change.text, code), pair["language"])
        if not alone.alike(call, evidence.alone.get(own)):
            return None  # it followed a state that the prompt does not show
    right = f"With that, `{change.text}` returns `{change.after['result']}`."
    if (named := name_cause(pair, failing, fixed)) is not None:
        outcome = outcome_at(pair, change.after, named.mended)
        said = [*named.sentences, f"Then `{named.mended}` {outcome}.", right]
        return None if outcome is None else Case(f"It is called as `{change.text}`.", said)
    if pair["error_name"] in ("NameError", "ReferenceError"):
        return None
    before = change.before
    if not before["raised"] and (before["result"] is None or not is_readable(before["result"])):
        return None
    parted = first_divergence(pair, before, change.after)
    if parted is None or not _in(parted, failing, fixed):
        return None
    ends = raised_at(before) if before["raised"] else f"returns `{before['result']}`"
    said = [f"`{change.text}` {ends}, where `{change.after['result']}` is expected.", *parted.sentences, right]
    return Case(f"`{change.text}` should return `{change.after['result']}`.", said)


def _in(parted: Divergence, failing: str, fixed: str) -> bool:
    """Whether the steps stand in the code that the prompt shows, and in the code that mends it."""
    squeezed = [re.sub(r"\s+", "", code) for code in (failing, fixed)]
    return all(
        re.sub(r"\s+", "", text) in code for text, code in zip((parted.before, parted.after), squeezed, strict=True)
    )


def _differing(failing: Trace, fixed: Trace) -> Outcome | None:
    """The first call that returns or raises something else in the mended code, where it returns.

    None where an earlier one may come out otherwise, too, and cannot be told: the error of the prompt may be its own.
    """
    later = {text: call for call in fixed["calls"] if (text := call_text(call)) is not None}
    for place, before in enumerate(failing["calls"]):
        text = call_text(before)
        if text is None:
            same = fixed["calls"][place : place + 1]
            if not same or before["result"] is None or before["result"] != same[0]["result"]:
                return None
            continue
        after = later.get(text)
        if after is None or after["raised"] or after["result"] is None:
            continue
        if (before["result"], before["raised"]) != (after["result"], None):
            return Outcome(text, before, after)
    return None

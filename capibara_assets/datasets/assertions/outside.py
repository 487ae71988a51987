"""Judges a run of an answer with its test outside its process, by the values that it reports."""

from collections.abc import Collection, Sequence

from capibara_assets.datasets.assertions import assertions_javascript, assertions_python
from capibara_assets.datasets.assertions.assertions import (
    Assertion,
    Observed,
    Reports,
    Term,
    asks_for_truth,
    first_failing,
    reports_in,
    unreported,
)
from capibara_assets.datasets.assertions.assertions_javascript import NOTHING_THROWN
from capibara_assets.datasets.assertions.plain_values import NotPlain
from capibara_assets.executions.replay.verdicts import ReplayFinding, expected_output, judge, stream_text
from capibara_assets.executions.replay.workers import Ran

_REPORTED, _UNREPORTED = ReplayFinding("reported"), ReplayFinding("unreported")
_HELD = Term("value", True)
_NOTHING_RECORDED = expected_output("", None, "ok", None)


def observed(tests: str, language: str, given: Sequence[str], whole: Collection[int] = ()) -> Observed:
    """Replace the assertions of tests by reports.

    Args:
        given: the answer that is asked for and the cells before it.
        whole: as `assertions_python.observed`.
    """
    if language == "python":
        names, classes = (
            set().union(*map(find, given)) for find in (assertions_python.names_given, assertions_python.classes_given)
        )
        return assertions_python.observed(tests, names, whole, classes)
    names = set().union(*map(assertions_javascript.names_given, given))
    return assertions_javascript.observed(tests, names, given)


def judged_outside(
    test: Observed, language: str, cells: Sequence[str], runs: Sequence[Ran], apart: Sequence[Ran]
) -> ReplayFinding | None:
    """The finding from a run of an answer with `test.code`, and from two of `test.apart`; None: all assertions hold.

    `unreported`: those hold that can be judged; of others the process of the answer says whether they do.
    """
    finding, _ = judge(language, cells, _NOTHING_RECORDED, runs)
    if finding is not None and finding.kind != "output":
        return finding
    try:
        known = [_reports(ran) for ran in apart if ran.ended == "done" and ran.answer["error"] is None]
    except NotPlain:
        return _UNREPORTED
    if len(known) != len(apart) or known[1:] != known[:-1]:
        return _UNREPORTED  # what the test compares with comes out otherwise each time
    try:
        given = _reports(runs[0])
    except NotPlain:
        return _REPORTED
    # only its own run says what an answer throws
    throws = (i for i, one in enumerate(test.assertions) if NOTHING_THROWN in one.term.parts)
    thrown = {f"{i}k1": given[f"{i}g0"] for i in throws if f"{i}g0" in given}
    compared = thrown | dict(known[0] if known else {})
    whole = unreported(given) | unreported(compared)
    asked = [Assertion(one.source, _HELD) if i in whole else one for i, one in enumerate(test.assertions)]
    if first_failing(asked, given, compared) is not None:
        return _REPORTED
    return _UNREPORTED if whole or any(asks_for_truth(one.term) for one in asked) else None


def _reports(ran: Ran) -> Reports:
    return reports_in(stream_text(ran.answer.get("stdout", "")))[0]

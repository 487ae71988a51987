"""Recorded predictions that do not follow from what their prompts show: it is run."""

from collections.abc import Iterable
from dataclasses import replace

from capibara_assets.datasets.derived.sql_orders import is_ordered, turned, windows_turned
from capibara_assets.datasets.derived.trials import Execute, below_session
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.datasets.kinds.prompts import CODE, SESSION, section
from capibara_assets.executions.tracebacks import error_text

ANY_ORDER = "its query leaves the order of tied rows open"
NOT_RAISED = "the code of its prompt ends otherwise here than was recorded"


def settled(candidates: Iterable[ExampleCandidate], execute: Execute | None) -> list[ExampleCandidate]:
    """The candidates; outputs of queries whose ORDER BY leaves the order of rows open are `lacking`."""
    listed = list(candidates)
    broken = {i: codes for i, one in enumerate(listed) if one.language == "sql" and (codes := _with_ties_broken(one))}
    trials = [below_session("sql", section(listed[i].prompt, SESSION), codes) for i, codes in broken.items()]
    ends = execute(trials, purpose="settled") if execute is not None else []
    for i, (whole, *others) in zip(broken, ends, strict=False):
        if whole is not None and any(end is not None and end.ok and end.shown != whole.shown for end in others):
            listed[i] = replace(listed[i], lacking=listed[i].lacking or ANY_ORDER)
    return listed


def raised(candidates: Iterable[ExampleCandidate], execute: Execute | None) -> list[ExampleCandidate]:
    """The candidates; errors whose code ends well, or fails another assertion, with what is shown are `lacking`."""
    listed = list(candidates)
    shown = [(section(one.prompt, SESSION), section(one.prompt, CODE)) for one in listed]
    trials = [below_session(one.language, session, [code]) for one, (session, code) in zip(listed, shown, strict=True)]
    ends = execute(trials, purpose="raised") if execute is not None else []
    for i, (one, end) in enumerate(zip(listed, (each[0] if each else None for each in ends), strict=False)):
        if end is None or (not end.ok and end.error_name != "AssertionError"):
            continue  # a library's words may be others here
        last = one.answer.split("\n")[-1]
        if end.ok or error_text(end.error_name, end.error_value, None) != last:
            listed[i] = replace(one, lacking=one.lacking or NOT_RAISED)
    return listed


def _with_ties_broken(one: ExampleCandidate) -> list[str] | None:
    """The query of a prompt, and with ties broken in both ways; None where nothing orders, or it has another form."""
    code = section(one.prompt, CODE)
    ways = [turned(code, descending=down) for down in (False, True)] if is_ordered(code) else []
    ways = ways if all(ways) else []
    ways += [windows_turned(code, descending=down) for down in (False, True)]
    return [code, *filter(None, ways)] if any(ways) else None

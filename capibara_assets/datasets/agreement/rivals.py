"""Answers to one task that give something else on the same input: one of them is wrong, or the task leaves it open.

`fitted.py` compares solutions that passed the same cases in their own cell; here are those of one statement, whatever
tests they passed, under whatever name and in whatever cells.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from capibara_assets.datasets.agreement.common import Arguments
from capibara_assets.datasets.agreement.drawn import drawn, edges
from capibara_assets.datasets.agreement.fitted import Asked
from capibara_assets.datasets.agreement.inputs import arguments_of, changed
from capibara_assets.datasets.agreement.probes import probe, told
from capibara_assets.datasets.agreement.votes import Ballot, contradicted
from capibara_assets.datasets.code.cases import Case, calls, cases
from capibara_assets.datasets.code.sessions import definitions
from capibara_assets.datasets.code.structure import normal_text
from capibara_assets.datasets.derived.trials import Execute, Trial, shown_cells
from capibara_assets.datasets.kinds.evidence import Evidence, ExampleCandidate
from capibara_assets.datasets.kinds.prompts import SESSION, section, stated
from capibara_assets.executions.parsing import JAVASCRIPT

RIVALLED = "another recorded answer to its task gives something else on some input"

_NEAR, _DRAWN, _EDGES = 24, 24, 12
_FEWEST_WORDS = 5  # of a task that two answers may share by chance
_MOST = 8  # answers to one task that are compared
_CALLS = 8  # of their tests that are run


@dataclass(frozen=True)
class _Rival:
    at: int  # its candidate's place
    name: str  # of the function that is asked for
    asked: tuple[Arguments, ...]  # what its test calls it with
    cases: frozenset[Case]


def without_rivals(
    candidates: Sequence[ExampleCandidate], evidence: Evidence, execute: Execute
) -> list[ExampleCandidate]:
    """The candidates; answers to one task, of several sessions, that give something else on some input are `lacking`.

    Args:
        execute: runs trials.
    """
    made = list(candidates)
    groups = _of_one_task(made, evidence)
    asked = [_inputs(group) for group in groups]
    trials = [_trial(made[one.at], one, given) for group, given in zip(groups, asked, strict=True) for one in group]
    ends = iter(execute(trials, purpose="rivals"))
    for group, given in zip(groups, asked, strict=True):
        ballots: dict[int, Ballot] = {}
        for one in group:
            end = next(ends, None)
            if end and end[0] is not None and end[0].ok and (answers := told(end[0].shown)) is not None:
                ballots[one.at] = given.ballot(made[one.at].language, answers.given)
        for at, own in ballots.items():
            if contradicted(own, [other for i, other in ballots.items() if i != at]) is not None:
                made[at] = replace(made[at], lacking=made[at].lacking or RIVALLED)
    return made


def _of_one_task(candidates: Sequence[ExampleCandidate], evidence: Evidence) -> list[list[_Rival]]:
    """The answers in functions, by task: of each session the last that it shows to be sound."""
    groups: dict[str, dict[str, _Rival]] = defaultdict(dict)
    wrong = evidence.mended_later | evidence.unsolved | evidence.refuted
    for at, one in enumerate(candidates):
        task = normal_text(stated(one.prompt))
        row = evidence.rows.get(one.execution_ids[0])
        if row is None or one.execution_ids[0] in wrong or len(task.split()) < _FEWEST_WORDS:
            continue
        if one.kind == "solve" and (rival := _rival(at, one)) is not None:
            groups[task][row["sandbox_id"]] = rival
    listed = [list(group.values())[:_MOST] for group in groups.values()]
    return [group for group in listed if len(group) > 1 and any(one.asked for one in group) and not _compared(group)]


def _compared(group: Sequence[_Rival]) -> bool:
    """Whether all passed the same cases, by which they are compared already."""
    return len({one.cases for one in group}) == 1 and bool(group[0].cases)


def _rival(at: int, one: ExampleCandidate) -> _Rival | None:
    """The function of an answer that its test calls most, and with what; None if there is none."""
    if one.language != "python" and one.language not in JAVASCRIPT:
        return None
    test, names = one.test or "", definitions(one.answer, one.language)
    count = {name: len(re.findall(rf"(?<![\w.$]){re.escape(name)}\(", test)) for name in names}
    name = max(count, key=lambda each: count[each], default=None)
    if name is None or not count[name]:
        return None
    read = (arguments_of(Case(form, "null")) for form in calls(test, name))
    return _Rival(at, name, tuple(filter(None, read)), cases(test))


def _inputs(group: Sequence[_Rival]) -> Asked:
    """What their tests call them with, inputs near that, drawn anew, and at edges; of one number of arguments."""
    called = {repr(arguments): arguments for one in group for arguments in one.asked}
    width = Counter(map(len, called.values())).most_common(1)[0][0]
    known = [arguments for arguments in called.values() if len(arguments) == width][:_CALLS]
    seed = repr(known)
    near = [*known, *changed(known, seed, _NEAR)]
    return Asked([], [], (near, drawn(known, seed, _DRAWN), edges(known, _EDGES)))


def _trial(one: ExampleCandidate, rival: _Rival, given: Asked) -> Trial:
    cell = probe(one.language, rival.name, [], [], [arguments for kind in given.others for arguments in kind])
    session = section(one.prompt, SESSION)
    return Trial(one.language, (shown_cells(one.language, session, one.answer, cell),))

"""Detection of answers fitted to their tests: runs solutions of one problem on other inputs and compares them.

Solutions are of one problem when their recorded cases are (arguments and expected values, in whatever language). Those
that pass their cases are run on inputs near the recorded ones, on inputs drawn anew and at edges; one that gives
something else than most others, on more than a corner of any kind, passes its test and is wrong in general.
Structurally equal solutions have one vote.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from capibara_assets.datasets.agreement.common import Arguments
from capibara_assets.datasets.agreement.drawn import drawn, edges
from capibara_assets.datasets.agreement.hardcoded import is_constant, is_hardcoded, is_spelled_out
from capibara_assets.datasets.agreement.inputs import arguments_of, changed, value_of
from capibara_assets.datasets.agreement.probes import Told, probe, told
from capibara_assets.datasets.agreement.told_apart import tells_apart
from capibara_assets.datasets.agreement.votes import (
    HARDCODED,
    UNSURE,
    Ballot,
    Doubt,
    confirmed,
    contradicted,
    disputed,
    outvoted,
    unsettled,
    weaker_languages,
)
from capibara_assets.datasets.anatomy.dissect import dissect
from capibara_assets.datasets.code import javascript_source
from capibara_assets.datasets.code.cases import Case, cases
from capibara_assets.datasets.code.returned import returned
from capibara_assets.datasets.code.sessions import Row
from capibara_assets.datasets.code.structure import structural_key
from capibara_assets.datasets.derived.trials import Ends, Execute, Trial
from capibara_assets.datasets.duplicates.near import first_of
from capibara_assets.datasets.kinds.evidence import Evidence
from capibara_assets.executions.parsing import JAVASCRIPT, python_tree
from capibara_assets.executions.schema import UNSOLVED

_NEAR, _DRAWN, _EDGES = 36, 36, 12  # other inputs of a problem, by kind
_FEWEST_SHARED = 2  # cases that make two texts one problem
_MOST_HOLDERS = 40  # texts with one case: more tell nothing

_ORDERED = re.compile(
    r"\b(sorted|ascending|descending|increasing|decreasing|rotated|binary search|distinct|unique|only once|ordered|"
    r"permutation|consecutive|range|median)\b",
    re.IGNORECASE,
)  # words of a statement that may bind how its lists are made


@dataclass(frozen=True)
class Solution:
    """A recorded function, with the test cases that it passed."""

    execution_id: str
    language: str
    before: tuple[str, ...]
    code: str  # definitions alone
    name: str
    key: str  # equal for solutions that are one program
    cases: frozenset[Case]
    statement: str


@dataclass(frozen=True)
class Asked:
    """Recorded inputs of a problem, what they should give, and other inputs: near, drawn anew, at edges."""

    recorded: list[Arguments]
    expected: list[Any]
    others: tuple[list[Arguments], list[Arguments], list[Arguments]]

    def probe(self, one: Solution) -> Trial:
        """The trial that runs a solution on all inputs."""
        asked = [each for kind in self.others for each in kind]
        cell = probe(one.language, one.name, self.recorded, self.expected, asked)
        return Trial(one.language, ((*one.before, one.code, cell),))

    def ballot(self, language: str, given: Sequence[str | None]) -> Ballot:
        """The ballot of a solution, from its results on all other inputs."""
        rest = iter(given)
        return Ballot(language, *(tuple(islice(rest, len(kind))) for kind in self.others))


def solutions(evidence: Evidence) -> Iterator[Solution]:
    """The functions of the evidence, and of what was recorded elsewhere, that passed cases in their own cell."""
    for session in evidence.sessions:
        for row in session:
            if _is_solution(row):
                yield from _solution(row, tuple(piece.text for piece in evidence.context(row["execution_id"]).pieces))
    if evidence.elsewhere is not None:
        for row in evidence.elsewhere.iter_rows(named=True):
            if _is_solution(row) and row["execution_id"] not in evidence.rows:
                yield from _solution(row, ())


def _is_solution(row: Row) -> bool:
    return row["outcome"] == "ok" and not row["secrets"] and UNSOLVED not in row["flags"]


def _solution(row: Row, before: tuple[str, ...]) -> Iterator[Solution]:
    language = "javascript" if row["language"] in JAVASCRIPT else row["language"]
    if language not in ("python", "javascript"):
        return
    passed = cases(row["code"])
    if not passed:
        return
    anatomy = dissect(row["code"], row["language"])
    code, stated = anatomy.definitions, row["task"] or anatomy.statement or ""
    name = _entry(code, language, row["code"])
    if name is not None:
        key = structural_key(code, language)
        yield Solution(row["execution_id"], language, before, code, name, key, passed, stated)


def _entry(code: str, language: str, cell: str) -> str | None:
    """The function that a cell's tests call: the one that the cell mentions most outside its definitions."""
    if language == "python":
        tree = python_tree(code)
        names = [n.name for n in (tree.body if tree else ()) if type(n).__name__ == "FunctionDef"]  # type: ignore[attr-defined]
    else:
        names = list(dict.fromkeys(javascript_source.declared(javascript_source.parse(code))))
    outside = cell.replace(code, "")
    count = {name: len(re.findall(rf"(?<![\w.$]){re.escape(name)}\b", outside)) for name in names}
    called = [name for name in names if count[name]]
    return max(called, key=lambda name: (count[name], names.index(name))) if called else None


def problems(listed: Sequence[Solution]) -> list[list[Solution]]:
    """Group the solutions by problem: those that share most of their cases."""
    holders: dict[Case, list[int]] = defaultdict(list)
    for at, one in enumerate(listed):
        for case in one.cases:
            holders[case].append(at)
    shared: Counter[tuple[int, int]] = Counter()
    for members in holders.values():
        if len(members) <= _MOST_HOLDERS:
            shared.update((left, right) for i, left in enumerate(members) for right in members[i + 1 :])

    def is_same(left: int, right: int) -> bool:
        fewer = min(len(listed[left].cases), len(listed[right].cases))
        return shared[left, right] >= max(_FEWEST_SHARED, fewer / 2)

    groups: dict[int, list[Solution]] = defaultdict(list)
    for one, first in zip(listed, first_of([pair for pair in shared if is_same(*pair)], len(listed)), strict=True):
        groups[first].append(one)
    return list(groups.values())


def fitted(evidence: Evidence, execute: Execute) -> tuple[dict[str, Doubt], dict[str, int]]:
    """Execution id -> why its answer is fitted to its test, of the evidence's own; and what was compared.

    Args:
        execute: runs trials.
    """
    groups = [group for group in problems(list(solutions(evidence))) if any(_own(one, evidence) for one in group)]
    asked = [(group, given) for group in groups if (given := _asked(group)) is not None]
    probes = [given.probe(one) for group, given in asked for one in group]
    ends = iter(execute(probes, purpose="agreement"))
    polled = [(group, _ballots(group, [_told(next(ends)) for _ in group], given)) for group, given in asked]
    first = {
        (at, key): outvoted(one, _others(ballots, key))
        for at, (_, ballots) in enumerate(polled)
        for key, one in ballots.items()
    }
    weaker = weaker_languages((polled[at][1][key].language, doubt is not None) for (at, key), doubt in first.items())
    doubts: dict[str, Doubt] = {}
    for at, (group, ballots) in enumerate(polled):
        for one in (one for one in group if _own(one, evidence)):
            doubt, own = first.get((at, one.key)), ballots.get(one.key)
            others = _others(ballots, one.key)
            if own is not None and doubt is None:
                rest = {key: ballot for key, ballot in ballots.items() if key != one.key}
                sound = [ballot for key, ballot in rest.items() if first[at, key] is None]
                lost = [ballot for key, ballot in rest.items() if first[at, key] is not None]
                doubt = unsettled(own, others) or disputed(own, others, weaker) or contradicted(own, sound, lost)
            said, gives = one.statement.split(f"{one.name}(")[0], returned(one.code, one.language)
            holds = is_hardcoded(one.code, one.name, one.statement, one.cases)
            holds = holds or is_constant(gives, one.statement, one.cases)
            holds = holds or tells_apart(one.code, one.language, said, one.cases)
            excused = own is not None and confirmed(own, others)
            if is_spelled_out(one.code, gives, said, one.cases) or (holds and not excused):
                doubt = Doubt(HARDCODED, 1.0)
            if doubt is not None:
                doubts[one.execution_id] = doubt
    compared = sum(len(ballots) > 1 for _, ballots in polled)
    unsure = sum(doubt.reason in UNSURE for doubt in doubts.values())
    figures = {"problems": len(groups), "run": len(probes), "compared": compared}
    return doubts, figures | {"fitted": len(doubts) - unsure, "unsure": unsure}


def _ballots(group: Sequence[Solution], answers: Sequence[Told | None], asked: Asked) -> dict[str, Ballot]:
    """The ballots of the solutions that gave what was recorded for most cases, as one may be read wrong."""
    passing = [
        (one, answer)
        for one, answer in zip(group, answers, strict=True)
        if answer is not None and sum(answer.passed) * 3 >= 2 * len(answer.passed)
    ]
    return {one.key: asked.ballot(one.language, answer.given) for one, answer in passing}


def _others(ballots: dict[str, Ballot], key: str) -> list[Ballot]:
    return [ballot for other, ballot in ballots.items() if other != key]


def _own(one: Solution, evidence: Evidence) -> bool:
    return one.execution_id in evidence.rows


def _asked(group: Sequence[Solution]) -> Asked | None:
    """What is asked of the solutions of a problem; None where no case can be told in values."""
    recorded: dict[str, tuple[Arguments, Any]] = {}
    held = Counter(case for one in group for case in one.cases)
    for case in sorted(held, key=lambda case: (-held[case], case)):
        arguments = arguments_of(case)
        try:
            expected = value_of(case.expected)
        except ValueError:
            continue
        if arguments:
            recorded.setdefault(case.arguments, (arguments, expected))
    if not recorded:
        return None
    width = Counter(len(arguments) for arguments, _ in recorded.values()).most_common(1)[0][0]
    kept = [(arguments, expected) for arguments, expected in recorded.values() if len(arguments) == width][:8]
    inputs, seed = [arguments for arguments, _ in kept], sorted(recorded)[0]
    strict = any(_ORDERED.search(one.statement) for one in group)
    near = changed(inputs, seed, _NEAR, strict=strict)
    far = drawn(inputs, seed, _DRAWN, strict=strict)
    return Asked(inputs, [expected for _, expected in kept], (near, far, edges(inputs, _EDGES)))


def _told(ends: Ends) -> Told | None:
    end = ends[0] if ends else None
    return told(end.shown) if end is not None and end.ok else None

"""What repairs change beyond what their error needs: it is taken back, and the rest is run.

Where no test says what is wanted, only that the error ends is asked for. A statement that was added, and without which
the code runs as well, is cut, and a change without which it shows the same is taken back; where it cannot run here, a
statement that nothing below needs. A change without which it shows something else is one that nobody could tell from
the prompt. The failing code of any repair has to raise its error with what the prompt shows of session and test.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise

from capibara_assets.datasets.code.sessions import cell_names
from capibara_assets.datasets.derived.trials import End, Execute, Trial, below_session
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.datasets.kinds.prompts import ERROR, ONLY_ERROR, SESSION, TESTS, section
from capibara_assets.datasets.kinds.repair import with_answer
from capibara_assets.executions.parsing import JAVASCRIPT
from capibara_assets.executions.patterns.similarity import similarity
from capibara_assets.executions.patterns.statements import CellStatement, top_level

OTHER_ERROR = "its failing code raises another error, or none, with the session and the test that its prompt shows"
BELOW = "its repair leaves what failed as it was, and only shows something below it"
UNRUN = "it cannot run here, and its repair changes more than one place"
NEEDLESS = "its repair changes what its code shows, and its error does not ask for that"

_PIECE = re.compile(r"\w+|\s+|[^\w\s]")
_ONE_PLACE = 5  # pieces between changes of one place
_Change = tuple[int, int, int, int]  # from and to in one list of pieces, and in the other
_TRAILS = (".", "[")  # begin what is called on a value, or taken of it
_MISSING = re.compile(
    r"(?:ModuleNotFound|Import|FileNotFound|Permission|Connection|Timeout|Memory)Error|gaierror|"
    r"Cannot find module|ENOENT"
)
_MOST = 8  # changes of one repair that are tried
_MOST_TAKEN_BACK = 3  # changes of one repair that are taken back
_MOST_ADDED = 6  # statements of one repair that are tried


def without_needless(candidates: Sequence[ExampleCandidate], execute: Execute) -> list[ExampleCandidate]:
    """The candidates; repairs of an error without what it does not need.

    Recorded repairs are `lacking` whose failing code raises another error here or none, that cannot run here and change
    more than one place, or that only show something below what failed.

    Args:
        execute: runs trials.
    """
    cut = list(candidates)
    recorded = [i for i, one in enumerate(cut) if _is_recorded(one)]
    asked = [i for i in recorded if _is_of_an_error(cut[i])]
    ends = execute([_failing(cut[i]) for i in recorded], purpose="errors")
    failed = {i: end[0] if end else None for i, end in zip(recorded, ends, strict=True)}
    _cut_statements(cut, asked, execute)
    _take_back(cut, asked, execute)
    for i, end in failed.items():
        why = None
        if _only_shows(cut[i]):
            why = BELOW
        elif _is_missing(end):
            why = UNRUN if _places(cut[i].failing or "", cut[i].answer) > 1 else None
        elif end is not None and _is_another(end, section(cut[i].prompt, ERROR), exact=i in asked):
            why = OTHER_ERROR
        cut[i] = replace(cut[i], lacking=cut[i].lacking or why)
    return cut


def _cut_statements(cut: list[ExampleCandidate], asked: Sequence[int], execute: Execute) -> None:
    """Replace these repairs by ones without the added statements that are not needed."""
    left = {i: _added(cut[i]) for i in asked}
    for turn in range(_MOST_ADDED):
        tried = {i: _without(cut[i].answer, cut[i].language, listed.pop()) for i, listed in left.items() if listed}
        trials = [_trial(cut[i], [cut[i].answer, less]) for i, less in tried.items()]
        for (i, less), end in zip(tried.items(), execute(trials, purpose=f"added-{turn}"), strict=True):
            whole, rest = (*end, None, None)[:2]
            if whole is None or not whole.ok:
                left[i], less = [], _as_read(cut[i])
            elif rest is None or not rest.ok:
                continue
            cut[i] = with_answer(cut[i], less) if less != cut[i].answer else cut[i]


def _take_back(cut: list[ExampleCandidate], asked: Sequence[int], execute: Execute) -> None:
    """Replace these repairs by ones without the changes that change nothing of what is shown."""
    left = list(asked)
    for turn in range(_MOST_TAKEN_BACK):  # a purpose of its own: the cache keeps the last trials of each
        listed = {i: [*islice(_reverted(cut[i].failing or "", cut[i].answer), _MOST)] for i in left}
        tried = {i: codes for i, codes in listed.items() if len(codes) > 1}  # a single change is the repair
        trials = [_trial(cut[i], [cut[i].answer, *codes]) for i, codes in tried.items()]
        left = []
        for (i, codes), ends in zip(tried.items(), execute(trials, purpose=f"taken-back-{turn}"), strict=True):
            whole, *others = (*ends, None)
            same = (code for code, end in zip(codes, others, strict=False) if whole is not None and end == whole)
            if whole is not None and whole.ok and (less := next(same, None)) is not None:
                cut[i] = with_answer(cut[i], less)
                left.append(i)


def needless(candidates: Sequence[ExampleCandidate], execute: Execute) -> list[bool]:
    """Whether each candidate is a repair that changes more than its error needs.

    Args:
        execute: runs trials. What does not run as it is tells nothing.
    """
    codes = [
        [one.answer, *islice(_reverted(one.failing or "", one.answer), _MOST)] if _is_of_an_error(one) else []
        for one in candidates
    ]  # a single change is the repair
    trials = [_trial(one, listed) for one, listed in zip(candidates, codes, strict=True) if len(listed) > 2]
    ends = iter(execute(trials, purpose="needless"))
    found = []
    for listed in codes:
        whole, *others = next(ends) if len(listed) > 2 else (None,)
        passing = [end for end in others if end is not None and end.ok]
        found.append(whole is not None and whole.ok and any(end.shown != whole.shown for end in passing))
    return found


def _is_recorded(one: ExampleCandidate) -> bool:
    runs = one.language == "python" or one.language in JAVASCRIPT
    return runs and one.derived is None and one.failing is not None


def _is_of_an_error(one: ExampleCandidate) -> bool:
    return _is_recorded(one) and one.prompt.startswith(ONLY_ERROR)


def _failing(one: ExampleCandidate) -> Trial:
    """The failing code with the test that its prompt shows."""
    return _trial(one, ["\n\n".join(filter(None, [one.failing, section(one.prompt, TESTS)]))])


def _trial(one: ExampleCandidate, codes: Sequence[str]) -> Trial:
    return below_session(one.language, section(one.prompt, SESSION), codes)


def _added(one: ExampleCandidate) -> list[CellStatement]:
    """The statements of a repair but for those that stand for one of the failing code each, in their order."""
    former, left = top_level(one.language, one.failing or ""), list(top_level(one.language, one.answer))
    if not former:
        return []
    changed = []
    for each in former:
        same = next((other for other in left if other.tokens == each.tokens), None)
        changed += [each] if same is None else []
        left = [other for other in left if other is not same]
    pairs = [
        (similarity(each.tokens, other.tokens), i, j) for i, each in enumerate(changed) for j, other in enumerate(left)
    ]
    stands: dict[int, int] = {}  # place in `left` -> in `changed`: the likest first
    for _, i, j in sorted(pairs, key=lambda pair: (-pair[0], pair[1:])):
        if j not in stands and i not in stands.values():
            stands[j] = i
    return [other for j, other in enumerate(left) if j not in stands]


def _only_shows(one: ExampleCandidate) -> bool:
    """Whether an answer is the failing code, and below it what binds nothing."""
    failing, answer = (code.strip() for code in (one.failing or "", one.answer))
    below = cell_names(answer.removeprefix(failing), one.language) if answer.startswith(f"{failing}\n") else None
    return below is not None and not below.bound


def _is_missing(end: End | None) -> bool:
    """Whether code ended for what is missing here."""
    return end is not None and not end.ok and _MISSING.search(f"{end.error_name}: {end.error_value}") is not None


def _is_another(end: End, told: str, *, exact: bool) -> bool:
    """Whether code ended well, or (`exact`) with another error than is told."""
    name = (end.error_name or "").rpartition(".")[2]
    return end.ok or (exact and re.search(rf"\b{re.escape(name)}\b", told) is None)


def _as_read(one: ExampleCandidate) -> str:
    """An answer without the added statements at its end, and those that only bind what nothing below them reads."""
    code = one.answer
    for statement in reversed(_added(one)):
        listed, lines = top_level(one.language, code), code.split("\n")
        last = statement.tokens == listed[-1].tokens
        own, below = (
            cell_names("\n".join(part), one.language)
            for part in (lines[statement.lines.start - 1 : statement.lines.stop - 1], lines[statement.lines.stop - 1 :])
        )
        only_binds = own is not None and bool(own.bound) and not own.changed
        if last or (only_binds and below is not None and own is not None and not own.bound & below.needed):
            code = _without(code, one.language, statement)
    return code


def _without(code: str, language: str, statement: CellStatement) -> str:
    """Code without the last of its statements that reads as the given one."""
    listed, lines = top_level(language, code), code.split("\n")
    same = [each for each in listed if each.tokens == statement.tokens]
    less = "\n".join([*lines[: same[-1].lines.start - 1], *lines[same[-1].lines.stop - 1 :]]).strip("\n")
    return less if len(top_level(language, less)) == len(listed) - 1 else code  # else others stand on its lines


def _changes(failing: str, fixed: str) -> tuple[list[str], list[str], list[_Change]]:
    """The pieces of both codes, and where they differ by more than blanks."""
    before, after = _PIECE.findall(failing), _PIECE.findall(fixed)
    opcodes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    differ = [(i, j, k, m) for change, i, j, k, m in opcodes if change != "equal"]
    return before, after, [c for c in differ if _text(before, c[0], c[1]) != _text(after, c[2], c[3])]


def _text(pieces: Sequence[str], start: int, end: int) -> str:
    return "".join(pieces[start:end]).strip()


def _places(failing: str, fixed: str) -> int:
    """In how many places two codes differ; changes a few pieces apart are one."""
    _, _, changes = _changes(failing, fixed)
    apart = sum(later[2] - earlier[3] > _ONE_PLACE for earlier, later in pairwise(changes))
    return min(1, len(changes)) + apart


def _reverted(failing: str, fixed: str) -> Iterator[str]:
    """The fixed code with one change taken back, for each change of words or signs, and for calls that end one."""
    before, after, changes = _changes(failing, fixed)
    for i, j, k, m in changes:
        yield "".join([*after[:k], *before[i:j], *after[m:]])
        yield from ("".join([*after[:at], *after[m:]]) for at in range(k + 1, m) if after[at] in _TRAILS)

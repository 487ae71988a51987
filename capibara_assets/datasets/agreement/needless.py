"""Detection of repairs that change more than their failure needs: each change is taken back, and the rest is run.

Where neither a task nor a test says what is wanted, the error alone does. A change without which the code runs as well,
and shows something else, is one that nobody could tell from the prompt.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from itertools import islice

from capibara_assets.datasets.derived.trials import Execute, Trial
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.datasets.kinds.prompts import SESSION, TESTS, section, states_task
from capibara_assets.executions.parsing import JAVASCRIPT

NEEDLESS = "its repair changes what its code shows, and neither error, task nor test asks for that"

_PIECE = re.compile(r"\w+|\s+|[^\w\s]")
_TRAILS = (".", "[")  # begin what is called on a value, or taken of it
_MOST = 8  # changes of one repair that are tried


def needless(candidates: Sequence[ExampleCandidate], execute: Execute) -> list[bool]:
    """Whether each candidate is such a repair.

    Args:
        execute: runs trials. What does not run as it is tells nothing.
    """
    trials = [_trial(one) for one in candidates]
    ends = iter(execute([trial for trial in trials if trial is not None], purpose="needless"))
    found = []
    for trial in trials:
        whole, *others = next(ends) if trial is not None else (None,)
        passing = [end for end in others if end is not None and end.ok]
        found.append(whole is not None and whole.ok and any(end.shown != whole.shown for end in passing))
    return found


def _trial(one: ExampleCandidate) -> Trial | None:
    if one.kind != "repair" or one.derived is not None or one.failing is None:
        return None
    if one.test or section(one.prompt, TESTS) or states_task(one.prompt):
        return None
    python = one.language == "python"
    codes = [one.answer, *islice(_reverted(one.failing, one.answer), _MOST)]
    if len(codes) <= 2 or not (python or one.language in JAVASCRIPT):
        return None  # a single change is the repair
    session = section(one.prompt, SESSION)
    cells = [(f"{session}\n\n{code}",) if python else (session, code) for code in codes]
    return Trial(one.language, tuple(cells))


def _reverted(failing: str, fixed: str) -> Iterator[str]:
    """The fixed code with one change taken back, for each change of words or signs, and for calls that end one."""
    before, after = _PIECE.findall(failing), _PIECE.findall(fixed)
    for change, i, j, k, m in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if change != "equal" and "".join(before[i:j]).strip() != "".join(after[k:m]).strip():
            yield "".join([*after[:k], *before[i:j], *after[m:]])
            yield from ("".join([*after[:at], *after[m:]]) for at in range(k + 1, m) if after[at] in _TRAILS)

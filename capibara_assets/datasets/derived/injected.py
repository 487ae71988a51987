"""Injected bugs: a bug in a solved cell that makes it fail becomes a pair for *repair*.

The pairs have the fields of recorded ones, so that `kinds/repair.py` words their prompts alike.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from capibara_assets.datasets.code import python_source
from capibara_assets.datasets.code.effort import is_call
from capibara_assets.datasets.code.python_source import BUILTINS
from capibara_assets.datasets.code.sessions import Row, definitions
from capibara_assets.datasets.code.structure import structural_key
from capibara_assets.datasets.derived import javascript_bugs, python_bugs
from capibara_assets.datasets.derived.edits import RepairEdit, drawn
from capibara_assets.datasets.derived.solved import Solved
from capibara_assets.datasets.derived.trials import Cells, End, Ends, Trial
from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.kinds.difficulty import difficulty
from capibara_assets.datasets.kinds.evidence import ExampleCandidate, mean_quality
from capibara_assets.datasets.kinds.predict import is_derivable, of_library
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.executions.schema import WRONG_OUTPUT
from capibara_assets.executions.tracebacks import error_text

_MOST_SHOWN, _SHORT = 400, 2
_CONDITIONS = frozenset(("missing_where", "missing_having", "missing_condition"))
_OF_VALUES = frozenset(("constant", "missing_argument"))
_WORD = re.compile(r"\d+(?:\.\d+)?|\w+")
_VALUE = re.compile(r"\b(\d[\d.]*)|'([^'\n]*)'|\"([^\"\n]*)\"")
_EXPECTED = re.compile(r"\bexpected:? (\S+)", re.IGNORECASE)
_SCALAR = re.compile(r"\bnp\.(?:\w+\(([^()]*)\)|(True|False)_)")
_ALL_FALSE = re.compile(r"(?:\W*\b(?:np\.)?(?:False_?|false)\b\W*){2,}")
_FAILED = re.compile(r"\bFAIL|\bnot ok\b|\b(?:missing|unexpected)\b")
_ARROW = re.compile(r"^-+> (\d+) ", re.MULTILINE)  # at a line of the cell in a traceback
#: A number behind it decides by chance: none can be told from another.
_CHANCE = re.compile(r"seed\b|\brandom|\brand[in]|random_state")
_SETS_TEXT = re.compile(r"(?:this\.|self\.)?\w+ = (?:'[^'\n]*'|\"[^\"\n]*\");?")
_SETS_VALUE = re.compile(r"(?:(?:const|let|var) )?[\w$.\[\]'\"]+ = (?:-?[\w.]+|'[^'\n]*'|\"[^\"\n]*\");?\s*$")
_DEFINES = re.compile(r"\b(?:def|class|lambda|function)\b|=>")
_NO_METHOD = re.compile(r"'([\w.]+)' object has no attribute")
#: Classes of errors that say that something is missing here, and would be no consequence of a bug.
_OF_THE_PLACE = frozenset({"ModuleNotFoundError", "PermissionError", "ConnectionError", "gaierror", "TimeoutError"})


class Observable(Protocol):
    """Parts of a solved cell that reveal whether a bug in it has an effect."""

    @property
    def row(self) -> Row: ...
    @property
    def before(self) -> Cells: ...
    @property
    def after(self) -> Cells: ...
    @property
    def rows(self) -> tuple[Row, ...]: ...


@dataclass(frozen=True)
class Injected:
    """A bug whose failure was observed.

    Attributes:
        pair: as a row of the repair pairs; the failing execution is the solved one's. `judged_by`: later cells, the
            last of which raised the error.
        observed: the failure in words, for the proof.
    """

    solved: Observable
    edit: RepairEdit
    pair: dict[str, Any]
    observed: str


def trial_of(solved: Solved, weights: dict[str, float], most: int) -> tuple[Trial, list[RepairEdit]]:
    """Build a trial of the solved cell and at most `most` bugs in it; also the edits, in the order of its variants."""
    python = solved.row["language"] == "python"
    if is_call(solved.code):  # what changes in it is what it is given
        every: Iterable[RepairEdit] = ()
    else:
        every = (python_bugs if python else javascript_bugs).bugs(solved.code, solved.spans)
    edits = drawn(every, weights, solved.row["execution_id"], most)
    cells = (solved.cells(solved.code), *(solved.cells(edit.applied(solved.code)) for edit in edits))
    return Trial(solved.row["language"] if python else "javascript", cells), edits


def observed(solved: Observable, edits: Sequence[RepairEdit], ends: Ends, most: int) -> Iterator[Injected]:
    """Select at most `most` bugs with an observed failure: different kinds first, each at its own place."""
    if ends[0] is None or not ends[0].ok:
        return
    failing = [
        (edit, end)
        for edit, end in zip(edits, ends[1:], strict=True)
        if end is not None and _fails(solved, end, ends[0])
        if not (_is_foreign(edit, end) or _fails_above(solved, edit, end))
    ]
    taken: list[RepairEdit] = []
    for fresh in (True, False):
        for edit, end in failing:
            lines = _line(solved.row["code"], edit)
            same_kind = any(other.kind == edit.kind for other in taken)
            if len(taken) >= most or same_kind is fresh or any(_line(solved.row["code"], o) == lines for o in taken):
                continue
            taken.append(edit)
            yield _injected(solved, edit, end, ends[0])


def _fails(solved: Observable, end: End, passed: End) -> bool:
    if end.error_name in _OF_THE_PLACE or end.cell < len(solved.before):
        return False
    if not end.ok:
        return True
    if _values(end.shown) == _values(passed.shown) or _shows_its_failure(passed.shown):
        return False
    if not all(0 < len(shown) <= _MOST_SHOWN for shown in (end.shown, passed.shown)):
        return False
    return is_derivable((*solved.before, solved.row["code"], *solved.after), f"{end.shown}\n{passed.shown}")


def _fails_above(solved: Observable, edit: RepairEdit, end: End) -> bool:
    """Whether a cell failed above the statement that was changed: by what an earlier run left, such as a file."""
    lines = [int(number) for number in _ARROW.findall(end.traceback)]
    tree = python_source.parse(solved.row["code"]) if solved.row["language"] == "python" else None
    if tree is None or not lines or end.cell != len(solved.before):
        return False
    at = _line(solved.row["code"], edit) + 1
    return max(lines) < next((n.lineno for n in tree.body if n.lineno <= at <= (n.end_lineno or at)), 0)


def _shows_its_failure(shown: str) -> bool:
    """Whether what sound code should show says that it is wrong: all is false, or a check of its own failed."""
    return _ALL_FALSE.fullmatch(shown.strip()) is not None or _FAILED.search(shown) is not None


def _values(shown: str) -> str:
    """What is shown, with numpy's scalars as Python's."""
    return " ".join(_SCALAR.sub(r"\1\2", shown).split())


def _is_foreign(edit: RepairEdit, end: End) -> bool:
    """Whether a method was taken for that of a type of the language, and is of another class: nobody writes that."""
    owner = _NO_METHOD.match(end.error_value) if edit.kind == "wrong_method" else None
    return owner is not None and owner[1] not in BUILTINS


def _line(code: str, edit: RepairEdit) -> int:
    return code.count("\n", 0, edit.start)


def _injected(solved: Observable, edit: RepairEdit, end: End, passed: End) -> Injected:
    row = solved.row
    failing = edit.applied(row["code"])
    name, value = end.error_name, end.error_value
    if end.ok:
        call = solved.after[-1].strip("\n") if solved.after else ""
        shown = f"{call}\n" if 0 < len(call) <= _MOST_SHOWN else ""
        name, value = WRONG_OUTPUT, f"{shown}Output:\n{end.shown}\n\nExpected:\n{passed.shown}"
    pair = {
        "language": row["language"],
        "failing_execution_id": row["execution_id"],
        "fixed_execution_id": row["execution_id"],
        "failing_code": failing,
        "fixed_code": row["code"],
        "task": row["task"],
        "error_name": name,
        "error_value": value,
        "traceback": end.traceback,
        "judged_by": () if end.ok or row["language"] == "sql" else solved.after[: end.cell - len(solved.before)],
    }
    return Injected(solved, edit, pair, f"{name}: {value}" if value else str(name))


def is_mendable(one: Injected, prompt: str) -> bool:
    """Whether what is gone can be known: its values occur in the prompt, and a task tells a condition of a query.

    A changed number can be inferred, unless a program that defines nothing starts from it and the task does not name
    it. Where no test and no expected output judges, any value will do that ends the error: the one that is gone has to
    be told in words.
    """
    gone = one.pair["fixed_code"][one.edit.start : one.edit.end]
    values = Counter(_VALUE.findall(gone)) - Counter(_VALUE.findall(one.edit.text))
    numbers = [number for number, _, _ in values if number]
    texts = {a or b for _, a, b in values} - {""}
    worded = set(_WORD.findall(prompts.stated(prompt)))
    if one.edit.kind in _OF_VALUES and _is_unjudged(one.pair, prompt):
        error = prompts.section(prompt, prompts.ERROR)
        if one.edit.kind == "constant":  # the wrong number is named as well
            error = " ".join(_EXPECTED.findall(error))
        if not all(worded.union(_WORD.findall(error)).issuperset(_WORD.findall(value)) for value in (*numbers, *texts)):
            return False
    if one.edit.kind == "missing_statement" and _SETS_TEXT.fullmatch(gone.strip()):
        return False  # another value in its place would do
    if _is_only_used(one.pair, prompt):
        return False
    if one.edit.kind in ("constant", "status") or (one.edit.kind == "off_by_one" and _is_given(one.pair)):
        code = one.pair["fixed_code"]
        line = code.split("\n")[_line(code, one.edit)]
        given = _is_given(one.pair) or (one.pair["error_name"] == WRONG_OUTPUT and _SETS_VALUE.match(line))
        return _CHANCE.search(line) is None and (not given or worded.issuperset(map(str, numbers)))
    if one.edit.kind in _CONDITIONS and not prompts.states_task(prompt):
        return False
    listed = len(numbers) > 1 and "[" in gone
    return all(_is_told(text, prompt) for text in texts) and all(
        number in prompt for number in numbers if listed or number not in ("0", "1", "2")
    )


def _is_unjudged(pair: dict[str, Any], prompt: str) -> bool:
    """Whether a prompt shows an error of Python or JavaScript, and no test or output that tells what is right."""
    judged = pair["error_name"] == WRONG_OUTPUT or "Assert" in (pair["error_name"] or "")
    return pair["language"] != "sql" and not judged and not prompts.section(prompt, prompts.TESTS)


def _is_given(pair: dict[str, Any]) -> bool:
    """Whether code that defines nothing gives something else: which of its data are right only their author knows."""
    gives = pair["error_name"] == WRONG_OUTPUT or "Assert" in (pair["error_name"] or "")
    return gives and pair["language"] != "sql" and not _DEFINES.search(pair["fixed_code"])


def _is_only_used(pair: dict[str, Any], prompt: str) -> bool:
    """Whether the task asks for what session or test define, and code defines nothing of it: its bugs are a test's."""
    language, code = pair["language"], pair["fixed_code"]
    others = "\n\n".join(prompts.section(prompt, title) for title in (prompts.SESSION, prompts.TESTS))
    told, own = set(_WORD.findall(prompts.stated(prompt))), definitions(code, language).keys()
    return not own & told and bool((definitions(others, language).keys() - own) & told)


def _is_told(text: str, prompt: str) -> bool:
    """Whether a text stands in a prompt: a short one in quotes, since any word may hold it."""
    return text in prompt if len(text) > _SHORT else any(f"{q}{text}{q}" in prompt for q in "'\"`")


def changed_lines(injected: Injected) -> str:
    """The lines that the bug changed, and where: the lesson that tells it from other bugs of the same code."""
    before, after = (injected.pair[side].split("\n") for side in ("failing_code", "fixed_code"))
    gone = [line.strip() for line in before if line not in after]
    new = [line.strip() for line in after if line not in before]
    name = structural_key(injected.pair["fixed_code"], injected.pair["language"])
    return "\n".join([injected.edit.kind, *gone, "->", *new, name])


def raised(one: Injected, recipe: DatasetRecipe) -> ExampleCandidate | None:
    """*predict* candidate for a bug that raises: failing code with its test -> the error."""
    pair, solved = one.pair, one.solved
    language, earlier = pair["language"], [*solved.before]
    code = "\n\n".join(cell.strip("\n") for cell in (pair["failing_code"], *solved.after))
    answer = error_text(pair["error_name"], pair["error_value"], pair["traceback"], language)
    if pair["error_name"] == WRONG_OUTPUT or len("\n".join(earlier)) > recipe.context_chars:
        return None
    shown = [*earlier, code]
    if len(answer) > recipe.max_output_chars or not is_derivable(shown, answer):
        return None
    if of_library(pair["error_name"], "\n".join(shown), language):
        return None
    return ExampleCandidate(
        kind="predict",
        language=language,
        prompt=prompts.predict_error(language, code, earlier),
        answer=answer,
        execution_ids=tuple(dict.fromkeys(row["execution_id"] for row in solved.rows)),
        duplicate_key=structural_key("\n".join([*earlier, code]), language),
        difficulty=difficulty(code, language, 0, [pair["error_name"]], recipe.difficulty),
        quality=mean_quality([solved.row]),
        proof=answer,
        derived=f"bug:{one.edit.kind}",
        lesson=f"{answer}\n{changed_lines(one)}",
    )

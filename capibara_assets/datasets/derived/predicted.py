"""Changed inputs: programs with known output, or calls from tests, run on other inputs, become *predict*.

What is asked is always a whole program: the code, all that it needs, and the call.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from capibara_assets.datasets.anatomy.dissect import dissect
from capibara_assets.datasets.code import javascript_source
from capibara_assets.datasets.code.cases import cases
from capibara_assets.datasets.code.sessions import Row
from capibara_assets.datasets.code.structure import comments, structural_key, without_comments, without_trailing_spaces
from capibara_assets.datasets.derived.edits import RepairEdit, drawn
from capibara_assets.datasets.derived.literals import changes, recorded_calls
from capibara_assets.datasets.derived.solved import Solved, Span
from capibara_assets.datasets.derived.trials import Cells, End, Ends, Trial
from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.kinds.difficulty import difficulty
from capibara_assets.datasets.kinds.evidence import ExampleCandidate, mean_quality
from capibara_assets.datasets.kinds.predict import bare, is_derivable, may_be_unquoted, tells, without_assertions
from capibara_assets.datasets.kinds.proof import recorded_output
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.executions.parsing import JAVASCRIPT, parse_python

_KINDS = {"value": 1.0, "order": 1.0, "length": 0.5}
_NO_NUMBER = re.compile(r"(?<![\w'\"])-?(?:nan|inf|NaN|Infinity)\b")
_MOST_CALLS = 3  # of one solution's tests
_UNTOUCHED = "call"  # a call of the tests as it stands there


@dataclass(frozen=True)
class Program:
    """A program whose output can be predicted: the earlier code, its code, and the position of its input."""

    row: Row
    rows: tuple[Row, ...]  # executions that it comes from, its own first
    before: Cells
    code: str
    inputs: Span
    recorded: bool  # it stands in the log as it is, and so is no example of its own here


def programs(solved: Solved) -> list[Program]:
    """The programs of a solved cell: its own, where it showed something, else one for each recorded call."""
    row, language = solved.row, solved.row["language"]
    if recorded_output(row):
        code = bare(without_assertions(row["code"], language), language)  # a comment may tell of the recorded input
        recorded = not may_be_unquoted(row)
        if not recorded and language in JAVASCRIPT:
            code = _printed(code)
        return [Program(row, solved.rows, solved.before, code, _inputs(code, language), recorded)]
    solution = without_trailing_spaces(
        dissect(row["code"], language).definitions, language
    )  # without its docstring, which may tell what comes out
    if "assert" in solution:
        return []
    functions = _functions(solution, language)
    tests = [row["code"], *solved.after]
    calls = list(dict.fromkeys(call for test in tests for call in recorded_calls(test, language, functions)))
    made = []
    for call in calls[:_MOST_CALLS]:
        shown = f"print({call})" if language == "python" else _logged(call, tests)
        code = f"{solution}\n\n{shown}"
        made.append(Program(row, solved.rows, solved.before, code, (len(solution), len(code)), False))
    return made


def _breaks(end: End, recorded: End | None) -> bool:
    """Whether a changed input takes a calculation where it makes no number, as the recorded one does not."""
    before = recorded.shown if recorded is not None else ""
    return _NO_NUMBER.search(end.shown) is not None and _NO_NUMBER.search(before) is None


def _passes_through(code: str, edit: RepairEdit, recorded: str, shown: str) -> bool:
    """Whether a changed value is only shown where the recorded one was: nothing else is to be worked out."""
    before, after = (text.strip("'\"`") for text in (code[edit.start : edit.end], edit.text))
    return before in recorded and recorded.replace(before, after) == shown


def _printed(code: str) -> str:
    """JavaScript whose last value is printed: a text shows without quotes, as it was recorded."""
    last = next(iter(javascript_source.parse(code).named_children[::-1]), None)
    if last is None or last.type != "expression_statement":
        return code
    shown = javascript_source.text(last).rstrip(";")
    head = code.encode("utf-8", "replace")[: last.start_byte].decode(errors="replace")
    return f"{head}console.log({shown});"


def _logged(call: str, tests: Sequence[str]) -> str:
    """A call that is printed, as JSON where its tests expect a list or an object: Node's layout of these is its own."""
    expected = [case.expected for test in tests for case in cases(test)]
    structured = any(one.startswith(("[", "{")) for one in expected)
    return f"console.log(JSON.stringify({call}));" if structured else f"console.log({call});"


def _inputs(code: str, language: str) -> Span:
    """Where the inputs of a cell stand: after its last definition, or anywhere where it has none."""
    last = 0
    if language == "python":
        lines = code.split("\n")
        if (tree := parse_python(code)) is not None:
            for node in tree.body:
                if type(node).__name__ in ("FunctionDef", "AsyncFunctionDef", "ClassDef"):
                    last = sum(len(line) + 1 for line in lines[: node.end_lineno])
    else:
        at = javascript_source.positions(code)
        for child in javascript_source.parse(code).named_children:
            if (
                child.type in ("function_declaration", "class_declaration")
                or "=>" in javascript_source.text(child)[:80]
            ):
                last = at(child.end_byte)
    return min(last, len(code)), len(code)


def _functions(code: str, language: str) -> set[str]:
    if language == "python":
        tree = parse_python(code)
        return {n.name for n in (tree.body if tree else ()) if type(n).__name__ == "FunctionDef"}  # type: ignore[attr-defined]
    return set(javascript_source.declared(javascript_source.parse(code)))


def trial_of(program: Program, most: int) -> tuple[Trial, list[RepairEdit]]:
    """Build a trial of the program and at most `most` changed inputs; also the edits, in the order of its variants."""
    language = "javascript" if program.row["language"] in JAVASCRIPT else "python"
    edits = drawn(changes(program.code, language, program.inputs), _KINDS, program.row["execution_id"], most)
    cells = [(*program.before, code) for code in (program.code, *(edit.applied(program.code) for edit in edits))]
    return Trial(language, tuple(cells)), edits


def candidates(
    program: Program, edits: Sequence[RepairEdit], ends: Ends, recipe: DatasetRecipe, most: int
) -> Iterator[ExampleCandidate]:
    """At most `most` candidates with different outputs: the unchanged call first, then changed inputs."""
    listed = [RepairEdit(_UNTOUCHED, 0, 0, ""), *edits]
    language, seen = program.row["language"], set[str]()
    if program.recorded and ends[0] is not None:
        seen.add(ends[0].shown)
    if len("\n".join(program.before)) > recipe.context_chars:
        return
    for edit, end in zip(listed, ends, strict=True):
        if len(seen) - program.recorded >= most:
            return
        if end is None or not end.ok or end.shown in seen or not 0 < len(end.shown) <= recipe.max_output_chars:
            continue
        before, code = list(program.before), edit.applied(program.code)
        if tells(comments("\n".join([*before, code]), language), end.shown):
            before, code = [bare(one, language) for one in before], bare(code, language)
        whole = "\n".join([*before, code])
        if not is_derivable([without_comments(whole, language)], end.shown, language) or _breaks(end, ends[0]):
            continue
        if program.recorded and ends[0] is not None and _passes_through(program.code, edit, ends[0].shown, end.shown):
            continue
        seen.add(end.shown)
        yield ExampleCandidate(
            kind="predict",
            language=language,
            prompt=prompts.predict(language, code, before),
            answer=end.shown,
            execution_ids=tuple(dict.fromkeys(row["execution_id"] for row in program.rows)),
            duplicate_key=f"{structural_key(whole, language)}:{end.shown}",
            difficulty=difficulty(whole, language, 0, [], recipe.difficulty),
            quality=mean_quality([program.row]),
            proof=end.shown,
            derived=f"input:{edit.kind}",
            # programs of one solution share nearly all of their text; they differ by what goes in and out
            lesson="\n".join([structural_key(program.code, language), code[program.inputs[0] :], end.shown]),
        )

"""*repair* examples: failing code and its error -> the fixed code; and diagnoses, which explain the difference.

The answer is the whole fixed code, which ran; the diff from the code of the prompt to the answer is a field of its own
(`Example.diff`), so that answers stay executable.
"""

import difflib
import re
from collections.abc import Iterator

import polars as pl

from capibara_assets.datasets.code.anatomy import dissect
from capibara_assets.datasets.code.sessions import Row
from capibara_assets.datasets.code.structure import structural_key, tokens, without_comments
from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.kinds.difficulty import difficulty
from capibara_assets.datasets.kinds.evidence import Evidence, ExampleCandidate, mean_quality, quotable
from capibara_assets.datasets.kinds.proof import proof_of
from capibara_assets.datasets.recipe import DatasetRecipe

_MESSAGE_CHARS = 300
_ARROW = re.compile(r"-+> ?\d+ ?(?P<code>[^\n]*)")
_MOST_CHANGES, _LONGEST_CHANGE = 3, 160
_UNKNOWN_QUALITY = 0.5  # of an execution that is not among the evidence (it failed, and its quality was too low)


def candidates(evidence: Evidence, recipe: DatasetRecipe) -> Iterator[ExampleCandidate]:
    """One candidate per repair pair."""
    for pair in _rewritten(evidence).iter_rows(named=True):
        language = pair["language"]
        statement, failing, fixed, test = _sides(pair)
        error = error_text(pair["error_name"], pair["error_value"], pair["traceback"])
        context = quotable(evidence.context(pair["fixed_execution_id"]), recipe.context_chars)
        context = [piece for piece in context if piece.row["execution_id"] != pair["failing_execution_id"]]
        errors = evidence.failures.get(pair["fixed_execution_id"], [pair["error_name"] or ""])
        yield ExampleCandidate(
            kind="repair",
            language=language,
            prompt=prompts.repair(language, statement, failing, error, [piece.text for piece in context]),
            answer=fixed,
            execution_ids=(
                pair["fixed_execution_id"],
                pair["failing_execution_id"],
                *(piece.row["execution_id"] for piece in context),
            ),
            subjects=2,
            duplicate_key=f"{structural_key(failing, language)}:{structural_key(fixed, language)}",
            difficulty=difficulty(fixed, language, len(errors), errors, recipe.difficulty),
            quality=_quality(evidence, pair),
            proof=_proof(evidence, pair["fixed_execution_id"]),
            diff=unified_diff(failing, fixed),
            test=test or None,
            # mutants of one function share nearly all of its text; they differ by the mistake
            lesson=f"{error}\n{_lesson(failing, fixed)}",
        )


def diagnoses(evidence: Evidence, recipe: DatasetRecipe) -> Iterator[ExampleCandidate]:
    """*explain* candidates of the debug domain: the error, and the lines whose change fixed it."""
    for pair in _rewritten(evidence).iter_rows(named=True):
        language = pair["language"]
        _, failing, fixed, _ = _sides(pair)
        changes = _changes(failing, fixed, language)
        error = error_text(pair["error_name"], pair["error_value"], pair["traceback"])
        if not changes:
            continue
        yield ExampleCandidate(
            kind="explain",
            language=language,
            prompt=prompts.diagnose(language, failing, error),
            answer="\n".join([f"It raises {pair['error_name'] or 'an error'}.", *changes]),
            execution_ids=(pair["fixed_execution_id"], pair["failing_execution_id"]),
            subjects=2,
            duplicate_key=f"{structural_key(failing, language)}:{structural_key(fixed, language)}",
            difficulty=difficulty(failing, language, 1, [pair["error_name"] or ""], recipe.difficulty),
            quality=_quality(evidence, pair),
            diff=unified_diff(failing, fixed),
            lesson=f"{error}\n{_lesson(failing, fixed)}",
        )


def _rewritten(evidence: Evidence) -> pl.DataFrame:
    """Pairs whose code changed: a command that was only run again was mended by what stands between."""
    return evidence.repairs.filter(pl.col("failing_code") != pl.col("fixed_code")).sort("pair_id")


def unified_diff(failing: str, fixed: str) -> str:
    """Unified diff from the failing to the fixed code, three lines of context."""
    lines = difflib.unified_diff(failing.split("\n"), fixed.split("\n"), "failing", "fixed", lineterm="")
    return "\n".join(lines)


def _lesson(failing: str, fixed: str) -> str:
    """The changed lines with their context, without line numbers."""
    lines = unified_diff(failing, fixed).split("\n")[2:]
    return "\n".join(line for line in lines if not line.startswith("@@"))


def _proof(evidence: Evidence, execution_id: str) -> str | None:
    row = evidence.rows.get(execution_id)
    return None if row is None else proof_of(row, dissect(row["code"], row["language"]).tests)


def error_text(name: str | None, value: str | None, traceback: str | None) -> str:
    """Summary of an error: the failing line, where the traceback shows one, then class and message.

    A long message keeps its end, which has the cause (a database error quotes the whole query first).
    """
    message = " ".join((value or "").split())
    if len(message) > _MESSAGE_CHARS:
        message = "... " + message[-_MESSAGE_CHARS:]
    last = f"{name or 'Error'}: {message}" if message else name or "Error"
    lines = [match["code"].strip() for match in _ARROW.finditer(traceback or "")]
    return f"{lines[-1]}\n{last}" if lines and lines[-1] else last


def _sides(pair: Row) -> tuple[str, str, str, str]:
    """(statement or "", failing code, fixed code, test): code without statement and test, unless they alone changed."""
    failing, fixed = (dissect(pair[side], pair["language"]) for side in ("failing_code", "fixed_code"))
    same = structural_key(failing.body, pair["language"]) == structural_key(fixed.body, pair["language"])
    if same or not failing.body or not fixed.body:
        return pair["task"] or "", pair["failing_code"].strip("\n"), pair["fixed_code"].strip("\n"), ""
    statement = (pair["task"] or fixed.statement or failing.statement or "").strip()
    return statement, failing.body, fixed.body, fixed.test


def _changes(failing: str, fixed: str, language: str) -> list[str]:
    """Up to three changed lines, in words; none when more changed, or only spacing and comments."""
    before, after = _significant_lines(failing, language), _significant_lines(fixed, language)
    gone = [line for key, line in before.items() if key not in after]
    new = [line for key, line in after.items() if key not in before]
    if not (gone or new) or max(len(gone), len(new)) > _MOST_CHANGES or max(map(len, gone + new)) > _LONGEST_CHANGE:
        return []
    if not gone:
        return [f"Missing: `{line}`" for line in new]
    if not new:
        return [f"Too much: `{line}`" for line in gone]
    return [f"Wrong: `{line}`" for line in gone] + [f"Right: `{line}`" for line in new]


def _significant_lines(code: str, language: str) -> dict[tuple[str, ...], str]:
    """Tokens of each line (without semicolons) -> the line; comments and blank lines are dropped."""
    lines = (line.strip() for line in without_comments(code, language).split("\n"))
    return {key: line for line in lines if (key := tuple(t for t in tokens(line, language) if t != ";"))}


def _quality(evidence: Evidence, pair: Row) -> float:
    row = evidence.rows.get(pair["fixed_execution_id"])
    return mean_quality([row]) if row is not None else _UNKNOWN_QUALITY

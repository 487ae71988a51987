"""*repair* examples: failing code and its error -> the fixed code.

The answer is the whole fixed code, which ran; the diff from the code of the prompt to the answer is a field of its own
(`Example.diff`), so that answers stay executable.
"""

import difflib
import re
from collections.abc import Iterable, Iterator

import polars as pl

from capibara_assets.datasets.code.anatomy import dissect
from capibara_assets.datasets.code.sessions import Row
from capibara_assets.datasets.code.structure import structural_key
from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.kinds.difficulty import difficulty
from capibara_assets.datasets.kinds.evidence import Evidence, ExampleCandidate, mean_quality, quotable
from capibara_assets.datasets.kinds.proof import proof_of
from capibara_assets.datasets.recipe import DatasetRecipe

WRONG_OUTPUT = "WrongOutput"  # error name of code that ends well and shows something else than it should
_MESSAGE_CHARS = 300
_ARROW = re.compile(r"-+> ?\d+ ?(?P<code>[^\n]*)")
_UNKNOWN_QUALITY = 0.5  # of an execution that is not among the evidence (it failed, and its quality was too low)


def candidates(evidence: Evidence, recipe: DatasetRecipe) -> Iterator[ExampleCandidate]:
    """One candidate per repair pair."""
    return of_pairs(evidence, rewritten(evidence).iter_rows(named=True), recipe)


def of_pairs(evidence: Evidence, pairs: Iterable[Row], recipe: DatasetRecipe) -> Iterator[ExampleCandidate]:
    """One candidate per pair, given as rows with the fields of repair pairs."""
    for pair in pairs:
        language = pair["language"]
        statement, failing, fixed, test = sides(pair)
        error = error_text(pair["error_name"], pair["error_value"], pair["traceback"])
        context = quotable(evidence.context(pair["fixed_execution_id"]), recipe.context_chars)
        context = [piece for piece in context if piece.row["execution_id"] != pair["failing_execution_id"]]
        errors = evidence.failures.get(pair["fixed_execution_id"], [pair["error_name"] or ""])
        yield ExampleCandidate(
            kind="repair",
            language=language,
            prompt=prompts.repair(
                language, statement, failing, error, [*pair.get("before", ()), *(piece.text for piece in context)]
            ),
            answer=fixed,
            execution_ids=(
                pair["fixed_execution_id"],
                pair["failing_execution_id"],
                *(piece.row["execution_id"] for piece in context),
            ),
            subjects=2,
            duplicate_key=f"{structural_key(failing, language)}:{structural_key(fixed, language)}",
            difficulty=difficulty(fixed, language, len(errors), errors, recipe.difficulty),
            quality=pair_quality(evidence, pair),
            proof=_proof(evidence, pair["fixed_execution_id"]),
            diff=unified_diff(failing, fixed),
            test=test or None,
            # mutants of one function share nearly all of its text; they differ by the mistake
            lesson=f"{error}\n{lesson(failing, fixed)}",
        )


def rewritten(evidence: Evidence) -> pl.DataFrame:
    """Pairs whose code changed: a command that was only run again was mended by what stands between."""
    return evidence.repairs.filter(pl.col("failing_code") != pl.col("fixed_code")).sort("pair_id")


def unified_diff(failing: str, fixed: str) -> str:
    """Unified diff from the failing to the fixed code, three lines of context."""
    lines = difflib.unified_diff(failing.split("\n"), fixed.split("\n"), "failing", "fixed", lineterm="")
    return "\n".join(lines)


def lesson(failing: str, fixed: str) -> str:
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
    if name == WRONG_OUTPUT:
        return value or ""
    message = " ".join((value or "").split())
    if len(message) > _MESSAGE_CHARS:
        message = "... " + message[-_MESSAGE_CHARS:]
    last = f"{name or 'Error'}: {message}" if message else name or "Error"
    lines = [match["code"].strip() for match in _ARROW.finditer(traceback or "")]
    return f"{lines[-1]}\n{last}" if lines and lines[-1] else last


def sides(pair: Row) -> tuple[str, str, str, str]:
    """(statement or "", failing code, fixed code, test): code without statement and test, unless they alone changed."""
    failing, fixed = (dissect(pair[side], pair["language"]) for side in ("failing_code", "fixed_code"))
    same = structural_key(failing.body, pair["language"]) == structural_key(fixed.body, pair["language"])
    if same or not failing.body or not fixed.body:
        return pair["task"] or "", pair["failing_code"].strip("\n"), pair["fixed_code"].strip("\n"), ""
    statement = (pair["task"] or fixed.statement or failing.statement or "").strip()
    return statement, failing.body, fixed.body, fixed.test


def pair_quality(evidence: Evidence, pair: Row) -> float:
    row = evidence.rows.get(pair["fixed_execution_id"])
    return mean_quality([row]) if row is not None else _UNKNOWN_QUALITY

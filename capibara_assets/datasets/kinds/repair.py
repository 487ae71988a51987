"""*repair* examples: failing code and its error -> the fixed code; and diagnoses, which explain the difference.

The answer is the whole fixed code, which ran; the diff from the code of the prompt to the answer is a field of its own
(`Example.diff`), so that answers stay executable.
"""

import difflib
import re
from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from capibara_assets.datasets.code.anatomy import dissect
from capibara_assets.datasets.code.sessions import Row
from capibara_assets.datasets.code.structure import structural_key, tokens, without_comments
from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.kinds.difficulty import difficulty
from capibara_assets.datasets.kinds.evidence import Evidence, ExampleCandidate, mean_quality
from capibara_assets.datasets.kinds.failing_test import FailingTest, failing_test
from capibara_assets.datasets.kinds.proof import proof_of
from capibara_assets.datasets.kinds.surroundings import surroundings
from capibara_assets.datasets.kinds.tracebacks import error_text, own_frames, summary
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.executions.formats.notebook_tasks import FROM_MARKDOWN

NO_TEST = "an assertion failed, and the test that holds it cannot be shown"
NO_TASK = "nothing says what the code is for, nor does its error"

_UNTELLING = re.compile(r"^$|Assert|^Error$|^Exception$|Timeout|KeyboardInterrupt|SystemExit|^Unknown")
_BARE = re.compile(r"|assertion failed:?\.?|(true|false) [!=]+ (true|false)|console\.assert", re.IGNORECASE)
_CHECKS = re.compile(r"\bassert|\bexpect\(|deepEqual|assertEqual")
_MOST_CHANGES, _LONGEST_CHANGE = 3, 160
_UNKNOWN_QUALITY = 0.5  # of an execution that is not among the evidence (it failed, and its quality was too low)


def candidates(evidence: Evidence, recipe: DatasetRecipe) -> Iterator[ExampleCandidate]:
    """One candidate per repair pair."""
    for pair in _rewritten(evidence).iter_rows(named=True):
        language = pair["language"]
        statement, failing, fixed = _sides(pair)
        statement = statement or _session_statement(evidence, pair)
        test = failing_test(pair["failing_code"], failing, language, own_frames(pair["traceback"], language))
        error = summary(pair["error_name"], pair["error_value"], test.frames)
        around = surroundings(
            evidence,
            pair["fixed_execution_id"],
            [(fixed, language), (failing, language)],
            "\n".join([statement, failing, test.text]),
            recipe,
            without=(pair["failing_execution_id"],),
        )
        shown = replace(around.shown, test=test.text)
        errors = evidence.failures.get(pair["fixed_execution_id"], [pair["error_name"] or ""])
        yield ExampleCandidate(
            kind="repair",
            language=language,
            prompt=prompts.repair(language, statement, failing, error, list(around.session), shown),
            answer=fixed,
            execution_ids=(pair["fixed_execution_id"], pair["failing_execution_id"], *around.execution_ids),
            subjects=2,
            duplicate_key=f"{structural_key(failing, language)}:{structural_key(fixed, language)}",
            difficulty=difficulty(fixed, language, len(errors), errors, recipe.difficulty),
            quality=_quality(evidence, pair),
            lacking=around.lacking or _unclear(pair, statement, failing, test),
            proof=_proof(evidence, pair["fixed_execution_id"]),
            diff=unified_diff(failing, fixed),
            # mutants of one function share nearly all of its text; they differ by the mistake
            lesson=f"{error}\n{_lesson(failing, fixed)}",
        )


def _unclear(pair: Row, statement: str, failing: str, test: FailingTest) -> str | None:
    """Why the prompt does not tell what is wanted; None where task, test and error do."""
    name, value = pair["error_name"] or "", " ".join((pair["error_value"] or "").split())
    if test.text or (_CHECKS.search(failing) and not test.raised_by_test):
        return None
    if test.raised_by_test or (_UNTELLING.search(name) and _BARE.fullmatch(value)):
        return NO_TEST
    return None if statement or not _UNTELLING.search(name) else NO_TASK


def _session_statement(evidence: Evidence, pair: Row) -> str:
    """What the session says that the code is for: the words of an earlier attempt at the same, or its only task."""
    session, position = evidence.places.get(pair["fixed_execution_id"], ([], 0))
    before = session[:position]
    asked = dissect(pair["fixed_code"], pair["language"]).signature
    for row in before:
        if asked and row["language"] == pair["language"] and row["execution_id"] != pair["failing_execution_id"]:
            attempt = dissect(row["code"], row["language"])
            if attempt.signature == asked and (row["task"] or attempt.statement):
                return (row["task"] or attempt.statement or "").strip()
    tasks = {row["task"].strip() for row in before if row["task"] and FROM_MARKDOWN not in row["flags"]}
    return tasks.pop() if len(tasks) == 1 else ""


def diagnoses(evidence: Evidence, recipe: DatasetRecipe) -> Iterator[ExampleCandidate]:
    """*explain* candidates of the debug domain: the error, and the lines whose change fixed it."""
    for pair in _rewritten(evidence).iter_rows(named=True):
        language = pair["language"]
        _, failing, fixed = _sides(pair)
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


def _sides(pair: Row) -> tuple[str, str, str]:
    """(statement or "", failing code, fixed code): without statement and tests, unless the change is in these."""
    failing, fixed = (dissect(pair[side], pair["language"]) for side in ("failing_code", "fixed_code"))
    same = structural_key(failing.body, pair["language"]) == structural_key(fixed.body, pair["language"])
    if same or not failing.body or not fixed.body:
        return pair["task"] or "", pair["failing_code"].strip("\n"), pair["fixed_code"].strip("\n")
    return (pair["task"] or fixed.statement or failing.statement or "").strip(), failing.body, fixed.body


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

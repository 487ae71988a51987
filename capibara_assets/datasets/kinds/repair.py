"""*repair* examples: failing code and its error -> the fixed code.

The answer is the whole fixed code, which ran; the diff from the code of the prompt to the answer is a field of its own
(`Example.diff`), so that answers stay executable.
"""

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace

import polars as pl

from capibara_assets.datasets.anatomy.dissect import dissect, first_words
from capibara_assets.datasets.anatomy.stated import with_stated
from capibara_assets.datasets.code.comments import asks_for, without_note
from capibara_assets.datasets.code.python_source import BUILTINS
from capibara_assets.datasets.code.schemas import balanced
from capibara_assets.datasets.code.sessions import Row, carried, cell_names, defined_name, definitions, statements
from capibara_assets.datasets.code.structure import structural_key, without_trailing_spaces
from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.kinds.difficulty import difficulty
from capibara_assets.datasets.kinds.evidence import Evidence, ExampleCandidate, mean_quality
from capibara_assets.datasets.kinds.failing_test import FailingTest, failing_test
from capibara_assets.datasets.kinds.proof import proof_of
from capibara_assets.datasets.kinds.referents import leans_on_dialogue, with_earlier
from capibara_assets.datasets.kinds.surroundings import surroundings
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.executions.formats.notebook_tasks import FROM_MARKDOWN
from capibara_assets.executions.parsing import JAVASCRIPT
from capibara_assets.executions.patterns.redone import in_place_of
from capibara_assets.executions.patterns.retests import BELOW
from capibara_assets.executions.patterns.similarity import tokens, unified_diff
from capibara_assets.executions.patterns.statements import CellStatement, top_level
from capibara_assets.executions.schema import WRONG_OUTPUT
from capibara_assets.executions.tracebacks import Frame, own_frames, summary

NO_TEST = "an assertion failed, and the test that holds it cannot be shown"
DROPPED = "its answer leaves out the call that failed, and keeps others"
NO_TASK = "nothing says what the code is for, nor does its error"

_SIDES = ("failing_code", "fixed_code")
_UNTELLING = re.compile(r"^$|Assert|^Error$|^Exception$|Timeout|KeyboardInterrupt|SystemExit|^Unknown")
_BARE = re.compile(
    r"|assertion failed:?\.?|(true|false) [!=]+ (true|false)|console\.assert|"
    r"(test cases? (did not|do not|didn't) pass|failed (\d+/\d+ )?test cases?)[.!]?( please try again[.!]?)?",
    re.IGNORECASE,
)
_CHECKS = re.compile(r"\bassert(?:\b|_\w+\()|\.assert[A-Z]\w*\(|\bexpect\(|deepEqual")
_PRINTS = re.compile(r"(?:print|display|console\.\w+)\(")
_CALLED = re.compile(r"(?:await )?([A-Za-z_]\w*)\(|(?:for|while|if|with|try|async|assert|raise|throw|return|del)\b")
_MOST_TEST = 800  # characters of assertions that are shown besides the one that failed
_UNKNOWN_QUALITY = 0.5  # of an execution that is not among the evidence (it failed, and its quality was too low)


def candidates(evidence: Evidence, recipe: DatasetRecipe) -> Iterator[ExampleCandidate]:
    """One candidate per repair pair."""
    return of_pairs(evidence, rewritten(evidence).iter_rows(named=True), recipe)


def of_pairs(evidence: Evidence, pairs: Iterable[Row], recipe: DatasetRecipe) -> Iterator[ExampleCandidate]:
    """One candidate per pair, given as rows with the fields of repair pairs."""
    for recorded in pairs:
        pair = _apart(evidence, recorded)
        language = pair["language"]
        statement, failing, fixed, judge = sides(pair)
        asked = "\n".join([statement, judge, recorded["failing_code"]])
        fixed = _with_carried(evidence, pair, _without_looks(fixed, failing, language, asked))
        failing, fixed = (without_trailing_spaces(without_note(c, language), language) for c in (failing, fixed))
        told = whole_request(evidence, pair, statement, recipe.context_chars)
        statement = told if statement and not told else _session_statement(evidence, pair, told)
        later = _judging(pair)
        judging = later or (pair.get("judged_by", ()) if pair is not recorded else ())
        test = failing_test(
            later[-1] if later else pair["failing_code"],
            failing,
            language,
            own_frames(pair["traceback"], language, recorded["failing_code"]),
            earlier=later[:-1],
        )
        error = _error(pair, test)
        dropped = _drops_failed(failing, fixed, language, test.frames)
        before = pair.get("before", ())
        around = surroundings(
            evidence,
            pair["fixed_execution_id"],
            [(fixed, language), (failing, language)],
            "\n".join([statement, failing, test.text, *before]),
            recipe,
            failing=pair["failing_execution_id"],
        )
        shown = replace(around.shown, test=_whole_test(test.text, later[-1] if later else pair["fixed_code"], language))
        errors = evidence.failures.get(pair["fixed_execution_id"], [pair["error_name"] or ""])
        hidden = "\n\n".join(filter(None, [judge, *judging, _tests_of_later_attempts(evidence, pair)]))
        whole_test = with_stated(hidden, fixed, language, f"{statement}\n{error}", test.text)
        only_error = not (whole_test or test.text or _CHECKS.search(failing)) and _tells(pair["error_name"] or "")
        context = [*before, *around.session]
        yield ExampleCandidate(
            kind="repair",
            language=language,
            prompt=prompts.repair(language, statement, failing, error, context, shown, only_error),
            answer=fixed,
            execution_ids=(*executions_of(evidence, recorded), *around.execution_ids),
            subjects=2,
            duplicate_key=_duplicate_key(failing, fixed, language),
            difficulty=difficulty(fixed, language, len(errors), errors, recipe.difficulty),
            quality=pair_quality(evidence, pair),
            lacking=around.lacking or _unclear(pair, statement, failing, test) or (DROPPED if dropped else None),
            proof=_proof(evidence, pair["fixed_execution_id"]),
            diff=unified_diff(failing, fixed),
            failing=failing,
            test=whole_test or None,
            # mutants of one function share nearly all of its text; they differ by the mistake
            lesson=f"{error}\n{lesson(failing, fixed)}",
        )


def _apart(evidence: Evidence, pair: Row) -> Row:
    """A pair without the later test that stands below its codes, which judges them; unchanged if there is none."""
    row = evidence.known.get(pair["failing_execution_id"])
    if row is None or not pair["failing_code"].endswith(f"{BELOW}{row['code']}"):
        return pair
    failing, fixed = (pair[side].rstrip() for side in _SIDES)
    session, _ = evidence.place(pair["failing_execution_id"])
    passed = (one["code"].strip() for one in session if fixed.endswith(f"{BELOW}{one['code'].strip()}"))
    test = row["code"].strip()
    codes = (failing.removesuffix(test).rstrip(), fixed.removesuffix(next(passed, test)).rstrip())
    return {**pair, **dict(zip(_SIDES, codes, strict=True)), "judged_by": (row["code"],)}


def executions_of(evidence: Evidence, pair: Row) -> tuple[str, ...]:
    """The executions of a pair: the fixed one, the failing one, what that tested, and the run of it that passed."""
    ends = (pair["fixed_execution_id"], pair["failing_execution_id"])
    session, position = evidence.place(pair["failing_execution_id"])
    codes = {row["execution_id"]: row["code"] for row in session}
    mended, tested = (codes.get(name) for name in ends)
    parts = pair["failing_code"].removesuffix(f"{BELOW}{tested}").split(BELOW)
    made = [row["execution_id"] for row in reversed(session[:position]) if all(part in row["code"] for part in parts)]
    passed = (name for name, code in codes.items() if pair["fixed_code"] == f"{mended}{BELOW}{code}")
    return tuple(dict.fromkeys([*ends, *(made[:1] if pair["failing_code"] != tested else ()), *passed]))


def _judging(pair: Row) -> Sequence[str]:
    """The later cells whose test failed, where it was not the failing code's own."""
    cells: Sequence[str] = pair.get("judged_by", ())
    return cells if cells and _CHECKS.search(cells[-1]) else ()


def _with_carried(evidence: Evidence, pair: Row, fixed: str) -> str:
    """The fixed code below what it needs of the failing cell: a session keeps what a cell bound before it failed."""
    failed = evidence.known.get(pair["failing_execution_id"])
    if failed is None or failed["code"] != pair["failing_code"] or failed["language"] == "sql":
        return fixed
    own, mended = (cell_names(code, pair["language"]) for code in (pair["fixed_code"], fixed))
    if own is None or mended is None:
        return fixed
    needed = carried(failed, mended.needed - own.bound)
    brought = cell_names(needed, pair["language"])
    if brought is None or brought.bound & own.bound:
        return fixed  # an older version of what was mended, which only a test of the attempt needs
    needed = _not_done_again(needed, fixed, pair["language"])
    return f"{needed}\n\n{fixed}" if needed else fixed


def _not_done_again(needed: str, fixed: str, language: str) -> str:
    """The statements of a failed cell that a repair needs, without those in whose place its own stand."""
    own, lines = top_level(language, fixed), needed.split("\n")
    assigned = (one for one in top_level(language, needed) if one.places)
    gone = (one for one in assigned if (other := in_place_of(one, own)) and other.places == one.places)
    over = {line for one in gone for line in one.lines}
    return "\n".join(line for number, line in enumerate(lines, 1) if number not in over).strip("\n")


def _without_looks(fixed: str, failing: str, language: str, asked: str) -> str:
    """Code without looks at values at its end (`df.head()`), and values made for them, that nothing asked for.

    Of code that failed and ended with a look the repair keeps its last one.

    Args:
        asked: the rest of what the prompt shows: its values may be needed there.
    """
    listed, former, last = top_level(language, fixed), top_level(language, failing), True
    looked = bool(former) and not former[-1].places and in_place_of(former[-1], listed[:-1], same=True) is None
    lines = fixed.split("\n")
    known = {*tokens(asked), *(token for one in former for token in one.tokens)}
    while len(listed) > 1 and former and not _stands(listed[-1], former, known):
        text = lines[listed[-1].lines.start - 1]
        called = _CALLED.match(text)
        look = _PRINTS.match(text) or (last and (called is None or called[1] in BUILTINS))
        if not (listed[-1].places or (look and not looked)):
            break
        listed, last = listed[:-1], False
    return "\n".join(lines[: listed[-1].lines.stop - 1]) if listed else fixed


def _stands(one: CellStatement, former: Sequence[CellStatement], known: Set[str]) -> bool:
    """Whether a statement stands in the place of one of the failing code, or makes what is spoken of."""
    return one.defines or not known.isdisjoint(one.targets) or in_place_of(one, former, same=True) is not None


def _drops_failed(failing: str, fixed: str, language: str, frames: Sequence[Frame]) -> bool:
    """Whether an answer leaves out the very call that failed, and keeps others of the same function."""
    if not frames or frames[0].text not in failing:
        return False  # a test's, which stands apart
    done = [_spaceless(one.text) for one in statements(fixed, language) if not defined_name(one.text)]
    for name in definitions(failing, language):
        if (call := _call_of(name, frames[0].text)) is not None and any(_call_of(name, text) for text in done):
            return not any(_spaceless(call) in text for text in done)
    return False


def _call_of(name: str, text: str) -> str | None:
    """The first call of a function in a line; None if there is none."""
    found = re.search(rf"(?<![\w.$]){re.escape(name)}\(", text)
    return None if found is None else text[found.start() : balanced(text, found.start())]


def _spaceless(text: str) -> str:
    return "".join(text.split())


def _tests_of_later_attempts(evidence: Evidence, pair: Row) -> str:
    """The tests of later versions for the same task: who went on after a mend may have found more to mend."""
    session, position = evidence.place(pair["fixed_execution_id"])
    if not session or not session[position]["task"]:
        return ""
    own = dissect(pair["fixed_code"], pair["language"])
    later = [
        dissect(row["code"], row["language"])
        for row in session[position + 1 :]
        if row["task"] == session[position]["task"] and row["outcome"] == "ok" and row["language"] == pair["language"]
    ]
    versions = [one for one in later if own.signature == one.signature != "" and one.definitions != own.definitions]
    return "\n\n".join(one.test for one in versions if _CHECKS.search(one.test))


def _whole_test(shown: str, fixed_code: str, language: str) -> str:
    """The failing test with the other assertions that the fixed code has to pass, where they stand for themselves."""
    tests = dissect(fixed_code, language).tests
    whole = "\n".join(tests)
    return whole if shown in tests and len(whole) <= _MOST_TEST else shown


def _unclear(pair: Row, statement: str, failing: str, test: FailingTest) -> str | None:
    """Why the prompt does not tell what is wanted; None where task, test and error do."""
    name, value = pair["error_name"] or "", " ".join((pair["error_value"] or "").split())
    if test.text or (_CHECKS.search(failing) and not test.raised_by_test):
        return None
    if test.raised_by_test or (_UNTELLING.search(name) and _BARE.fullmatch(value)):
        return NO_TEST
    return None if statement or not _UNTELLING.search(name) else NO_TASK


def _tells(error_name: str) -> bool:
    """Whether an error by itself says what is to be mended."""
    return error_name != WRONG_OUTPUT and _UNTELLING.search(error_name) is None


def whole_request(evidence: Evidence, pair: Row, statement: str, most: int) -> str:
    """The task of a pair with the earlier ones it refers to; "" if the log does not hold them.

    Then code, error and test have to tell what is wanted. `this` and `it` may be the code that the prompt shows.
    """
    row = evidence.known.get(pair["fixed_execution_id"])
    if row is None or not row["task"] or row["task"].strip() != statement:
        return statement
    told = with_earlier(evidence.places[row["execution_id"]][0], row, most)
    return statement if told is None and not leans_on_dialogue(statement) else told or ""


def _session_statement(evidence: Evidence, pair: Row, statement: str) -> str:
    """What the session says that the code is for: words of an earlier attempt at the same, or its only task.

    A comment above a later attempt in JavaScript may only note what was wrong before; a docstring goes with its code.
    """
    if statement and (pair["task"] or pair["language"] not in JAVASCRIPT):
        return statement
    session, position = evidence.place(pair["fixed_execution_id"])
    before = session[:position]
    others = (row for row in before if row["execution_id"] != pair["failing_execution_id"])
    if first := first_words(others, pair["fixed_code"], pair["language"]):
        return first
    tasks = {row["task"].strip() for row in before if row["task"] and FROM_MARKDOWN not in row["flags"]}
    only = tasks.pop() if len(tasks) == 1 else ""
    return statement or ("" if leans_on_dialogue(only) else only)


def rewritten(evidence: Evidence) -> pl.DataFrame:
    """Pairs with changed code; a command that was repeated unchanged was fixed by the code in between."""
    return evidence.repairs.filter(pl.col("failing_code") != pl.col("fixed_code")).sort("pair_id")


def with_answer(one: ExampleCandidate, fixed: str) -> ExampleCandidate:
    """A repair with another answer, of which nothing was recorded."""
    failing = one.failing or ""
    return replace(
        one,
        answer=fixed,
        duplicate_key=_duplicate_key(failing, fixed, one.language),
        proof=None,
        diff=unified_diff(failing, fixed),
        lesson=f"{prompts.section(one.prompt, prompts.ERROR)}\n{lesson(failing, fixed)}",
    )


def _duplicate_key(failing: str, fixed: str, language: str) -> str:
    return f"{structural_key(failing, language)}:{structural_key(fixed, language)}"


def lesson(failing: str, fixed: str) -> str:
    """The changed lines with their context, without line numbers."""
    lines = unified_diff(failing, fixed).removesuffix("\n").split("\n")[2:]
    return "\n".join(line for line in lines if not line.startswith("@@"))


def _proof(evidence: Evidence, execution_id: str) -> str | None:
    row = evidence.rows.get(execution_id)
    return None if row is None else proof_of(row, dissect(row["code"], row["language"]).tests)


def _error(pair: Row, test: FailingTest) -> str:
    """What the prompt says of the failure."""
    if pair["error_name"] == WRONG_OUTPUT:
        return pair["error_value"] or ""
    return summary(pair["error_name"], pair["error_value"], test.frames)


def sides(pair: Row) -> tuple[str, str, str, str]:
    """(statement or "", failing code, fixed code, test): code without statement and test, unless they alone changed."""
    failing, fixed = (dissect(pair[side], pair["language"]) for side in ("failing_code", "fixed_code"))
    same = structural_key(failing.body, pair["language"]) == structural_key(fixed.body, pair["language"])
    if same or not failing.body or not fixed.body:
        return pair["task"] or "", pair["failing_code"].strip("\n"), pair["fixed_code"].strip("\n"), ""
    # above a later attempt in JavaScript a comment may only note what was wrong
    told = next(
        (
            one
            for one in ((failing, fixed) if pair["language"] in JAVASCRIPT else (fixed, failing))
            if one.statement and (one.documented or asks_for(one.statement, one.body, pair["language"]))
        ),
        None,
    )
    statement = (pair["task"] or (told.statement if told is not None else None) or "").strip()
    return statement, failing.body, fixed.body, fixed.test


def pair_quality(evidence: Evidence, pair: Row) -> float:
    row = evidence.rows.get(pair["fixed_execution_id"])
    return mean_quality([row]) if row is not None else _UNKNOWN_QUALITY

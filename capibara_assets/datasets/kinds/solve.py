"""*solve* examples: a recorded task statement -> code that ran.

The statement is, in this order: the recorded task, the docstring, the leading comment, the notebook's heading (or
introduction) right above the cell, the signature with the assertions that the code passed (in its own cell, or in later
cells of its session that needed it). Code without any of these has no statement and gives no *solve* example.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from capibara_assets.datasets.anatomy.dissect import Anatomy, attempts_at, dissect, first_words
from capibara_assets.datasets.anatomy.dissect_python import with_calls
from capibara_assets.datasets.anatomy.stated import with_stated
from capibara_assets.datasets.code import python_source
from capibara_assets.datasets.code.cases import cases
from capibara_assets.datasets.code.comments import asks_for, is_statement, is_task, without_history, without_note
from capibara_assets.datasets.code.effort import steps
from capibara_assets.datasets.code.queries import holds_sql
from capibara_assets.datasets.code.sessions import Piece, Row, cell_names, defined_name, definitions, needed, statements
from capibara_assets.datasets.code.structure import normal_text, structural_key, without_trailing_spaces
from capibara_assets.datasets.code.superseded import asked
from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.kinds.asked import has_untold_form, only_tested, shown_test, with_imports, without_unasked
from capibara_assets.datasets.kinds.difficulty import difficulty
from capibara_assets.datasets.kinds.evidence import Evidence, ExampleCandidate, has_substance, mean_quality
from capibara_assets.datasets.kinds.files_needed import UNWRITTEN, unwritten_files
from capibara_assets.datasets.kinds.libraries import unnamed_libraries
from capibara_assets.datasets.kinds.proof import proof_of, recorded_output
from capibara_assets.datasets.kinds.referents import (
    REFERS_BACK,
    asks_to_mend,
    holds_code,
    names_as_code,
    refers_back,
    speaks_of_errors,
    with_earlier,
)
from capibara_assets.datasets.kinds.scope import (
    why_beyond,
    why_beyond_by_names,
    why_chosen,
    why_inside,
    why_limits,
    why_members,
    within_task,
)
from capibara_assets.datasets.kinds.surroundings import Surroundings, surroundings
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.executions.formats.notebook_tasks import FROM_MARKDOWN
from capibara_assets.executions.parsing import JAVASCRIPT
from capibara_assets.executions.schema import SOLVED
from capibara_assets.storage.digests import sha256_bytes

# quality factor of statements not written as a task (comments, headings, assertions), and of inferred tables
_WEAKER = 0.9
_TEST_CELL_CHARS, _HIDDEN_TEST_CHARS = 600, 6000
_JUDGED_LATER = frozenset(("python", *JAVASCRIPT))
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
_EXPECTS_ERROR = re.compile(r"\b(?:pytest\.)?raises\(|\.assertRaises\w*\(|\.(?:throws|rejects|toThrow\w*)\(")
_MEMBER = re.compile(r"\b(?:self|this)\.(\w+)[ \t]*(?::[^=\n]+)?=(?!=)")
_READS_MEMBER = re.compile(r"\.(\w+)")
_KEY = re.compile(r"[{,]\s*(\w+)\s*:(?!:)")
_SAYS = re.compile(r"^[ \t]*[^\s%!#]", re.MULTILINE)  # a line that is no magic of a notebook
_ON_TESTS = re.compile(r"\b(?:unit)?tests?\b|\btest(?:ed|ing)\b", re.IGNORECASE)
_DEFINES_TESTS = re.compile(r"^(?:async )?(?:def|class|function) +([\w$]+)(.*)$", re.MULTILINE)
_DOES = re.compile(r"^(?!\s*(?:#|//|import\b|from\b|$))", re.MULTILINE)
_JUDGES = re.compile(r"\b(assert|raise)\b")
_Needs = Callable[[int], Sequence[Piece]]
"""What the cell at a place of a session needs of the cells before it."""
NO_TASK = "what stands above its code is a remark or heading, not a task"


BRIEF = "its task is a title of a few words, and no test can be shown beside it"
_FEWEST_WORDS = 8
_SENTENCE = re.compile(r"[.?!]\s*\Z")
UNSEEN = "its task asks to mend code that its prompt does not show"
PART = "its answer is a part: another attempt at its task defines what the task names"
UNMADE = "its answer does not define all that its task names and its test calls"
_CALL = re.compile(r"([A-Za-z_$][\w$]*)\(")
PARTS = "its task is answered in parts: other cells of it show something else"
_WORK = 5  # steps of a cell that computes something; a look at the head of a table has fewer
TEST_TELLS = "texts that only its test tells, which is too long to be shown"


@dataclass(frozen=True)
class _Asked:
    prompt: str
    answer: str
    lacking: str | None = None


@dataclass(frozen=True)
class _Statement:
    answer: str
    text: str
    signature: str
    tests: tuple[str, ...]
    later: tuple[Row, ...]  # cells of the tests, with what these need of the cells between
    factor: float
    documented: bool = False  # by a docstring
    told: bool = False  # by a comment or heading that was not written as a task
    lacking: str | None = None  # why its text alone does not say what is asked
    judges: tuple[tuple[str, Row], ...] = ()  # later cells that judge it, of an answer that its text asks for


def candidates(evidence: Evidence, recipe: DatasetRecipe) -> Iterator[ExampleCandidate]:
    """One candidate per execution with a statement, in order of sandbox and time."""
    for session in evidence.sessions:
        answers = _answers_of_tasks(session)
        questions = {one.answer["execution_id"]: one.question for one in asked(session) if one.answer is not None}
        needs = cache(partial(_pieces_needed, session))  # each test is asked for by all the cells before it
        for position, row in enumerate(session):
            if row["outcome"] != "ok":
                continue
            anatomy = dissect(row["code"], row["language"])
            if not has_substance(anatomy.body):
                continue
            question, last = questions.get(row["execution_id"]), row["execution_id"] in answers
            statement = (
                _of_comment(question, anatomy, "sql")
                if question is not None
                else _statement(session, position, anatomy, last, evidence, recipe, needs)
            )
            if statement is not None:
                if not statement.later and row["language"] in _JUDGED_LATER:
                    found = _later_tests(session, position, recipe.tests_shown, _HIDDEN_TEST_CHARS, needs)
                    python = row["language"] == "python"
                    judges = ((with_calls(text) if python else text, cell) for text, cell in found)
                    statement = replace(statement, judges=tuple(judges))
                yield _candidate(evidence, row, anatomy, statement, recipe)


def _candidate(
    evidence: Evidence, row: Row, anatomy: Anatomy, statement: _Statement, recipe: DatasetRecipe
) -> ExampleCandidate:
    rest = anatomy.remainder if statement.answer == anatomy.definitions else anatomy.test
    bare = without_history(without_note(statement.answer, row["language"]), row["language"])
    statement = replace(statement, answer=bare)
    told = "\n".join([statement.text, statement.signature, *statement.tests])
    codes = [(statement.answer, row["language"])]
    around = surroundings(evidence, row["execution_id"], codes, told, recipe)
    task = sha256_bytes(
        "\n".join([normal_text(statement.text), statement.signature, *statement.tests]).encode("utf-8", "replace")
    )
    errors = evidence.failures.get(row["execution_id"], [])
    tests = statement.tests if statement.later else anatomy.tests
    later_ids = dict.fromkeys(
        cell["execution_id"] for cell in (*statement.later, *(cell for _, cell in statement.judges))
    )
    own = _joined([rest, *(statement.tests if statement.later else ())])
    test = _joined([own, *(text for text, _ in statement.judges)])
    asked = _asked(row["language"], statement, test, around.session, around.shown, recipe.tests_shown)
    if shown := _reading_more(asked, row["language"]):  # what only a failed attempt bound, such as its data
        codes.append((f"{statement.answer}\n\n{shown}", row["language"]))
        around = surroundings(evidence, row["execution_id"], codes, told, recipe)
        asked = _asked(row["language"], statement, test, around.session, around.shown, recipe.tests_shown)
    unseen = UNSEEN if asks_to_mend(statement.text) and not (around.changes or holds_code(statement.text)) else None
    lacking = (
        statement.lacking
        or around.lacking
        or unseen
        or (PART if around.part and statement.factor == 1.0 else None)
        or (PARTS if _answered_in_parts(evidence, row, anatomy, around) else None)
        or (UNMADE if _lacks_asked(statement.text, [*around.session, asked.answer], test, row["language"]) else None)
        or _unsaid(statement, asked, own, row["language"], recipe.fewest_steps)
        or (why_inside(statement.text, asked.answer, statement.signature) if statement.documented else None)
        or (why_members(asked.answer, asked.prompt) if row["language"] == "python" else None)
        or (why_limits(asked.answer, f"{asked.prompt}\n{test}") if row["language"] == "python" else None)
        or (UNWRITTEN if unwritten_files(statement.text, asked.answer) else None)
        or _brief(statement.text, asked.prompt, row["language"])
    )
    return ExampleCandidate(
        kind="solve",
        language=row["language"],
        prompt=asked.prompt,
        answer=asked.answer,
        execution_ids=(row["execution_id"], *later_ids, *around.execution_ids),
        duplicate_key=f"{task}:{structural_key(asked.answer, row['language'])}",
        difficulty=difficulty(asked.answer, row["language"], len(errors), errors, recipe.difficulty),
        quality=round(mean_quality([row]) * statement.factor * (_WEAKER if around.inferred else 1.0), 6),
        lacking=lacking or asked.lacking,
        task_key=task,
        proof=proof_of(row, tests),
        test=with_stated(test, asked.answer, row["language"], statement.text) or None,
    )


def _answered_in_parts(evidence: Evidence, row: Row, anatomy: Anatomy, around: Surroundings) -> bool:
    """Whether other cells of a task compute and show something, and its answer, which defines nothing, needs none."""
    if not _task(row) or anatomy.signature or row["language"] not in _JUDGED_LATER:
        return False
    session, _ = evidence.place(row["execution_id"])
    others = (
        cell
        for cell in session
        if cell["task"] == row["task"] and cell["outcome"] == "ok" and cell["language"] == row["language"]
        if cell["execution_id"] not in (row["execution_id"], *around.execution_ids)
    )
    return any(recorded_output(cell) and steps(cell["code"], cell["language"]) >= _WORK for cell in others)


def _lacks_asked(text: str, made: Sequence[str], test: str, language: str) -> bool:
    """Whether a test calls what its task names as a call, and neither session, answer nor test defines."""
    names = cell_names("\n".join([*made, test]), language) if language in _JUDGED_LATER else None
    return names is not None and not names.needed.isdisjoint(_CALL.findall(text))


def _brief(text: str, prompt: str, language: str) -> str | None:
    """Why a text alone, such as a title, does not tell what code is to do; None where it or a test beside it does."""
    if prompts.section(prompt, prompts.TESTS):
        return None
    if not text:
        return NO_TASK
    title = len(text.split()) < _FEWEST_WORDS and not (is_task(text) or _SENTENCE.search(text) or cases(text))
    return BRIEF if title and language in _JUDGED_LATER else None


def _reading_more(asked: _Asked, language: str) -> str:
    """The tests that a prompt shows if they read what neither its session nor its answer binds; "" otherwise."""
    tests, session = (prompts.section(asked.prompt, title) for title in (prompts.TESTS, prompts.SESSION))
    known, reads = (cell_names(code, language) for code in (f"{session}\n{asked.answer}", tests))
    more = reads is not None and known is not None and reads.needed - known.bound - python_source.BUILTINS
    return tests if more else ""


def _joined(tests: Sequence[str]) -> str:
    """The tests one after the other; "" where they are imports and comments alone."""
    joined = "\n\n".join(dict.fromkeys(part for part in tests if part.strip()))
    return joined if _DOES.search(joined) else ""


def _unsaid(statement: _Statement, asked: _Asked, test: str, language: str, fewest_steps: int) -> str | None:
    """Why a text that was not written as a task does not say what is to be done; None where it does."""
    if statement.told and not asks_for(statement.text, asked.answer, language):
        return NO_TASK
    if statement.told and refers_back(statement.text):
        return REFERS_BACK
    if statement.told and (language == "sql" or language in JAVASCRIPT):
        return why_beyond_by_names(statement.text, asked.answer, language)
    if language != "python" or _JUDGES.search(test) or holds_sql(asked.answer, language):
        return None  # a test judges it, or it is a query, whose text is the work itself (worth.py)
    if statement.told:
        return why_beyond(statement.text, asked.answer, asked.prompt, fewest_steps)
    return why_chosen(asked.answer, asked.prompt) if statement.documented else None


def _asked(
    language: str, statement: _Statement, test: str, context: Sequence[str], shown: prompts.Shown, most: int
) -> _Asked:
    """Prompt and answer: without what nobody asked for, and with the test where only that tells what is expected."""

    def prompt(tests: Sequence[str], libraries: Sequence[str] = ()) -> str:
        said = [test for test in tests if _SAYS.search(test)]
        return prompts.solve(language, statement.text, statement.signature, said, context, shown, libraries)

    whole, told = without_trailing_spaces(statement.answer, language), prompt(statement.tests)
    answer = without_unasked(whole, told, test, language)
    judged, lacking = shown_test(test, language), None
    tests = statement.tests or _examples(statement, answer, test, language, context, most)
    by_test = judged and (
        only_tested(answer, told, judged, language)
        or _named_by_test(answer, told, test, language)
        or (language == "python" and has_untold_form(answer, told, judged))
    )
    if by_test:
        tests, lacking = (judged,), TEST_TELLS if len(judged) > _TEST_CELL_CHARS else None
    return _Asked(prompt(tests, unnamed_libraries(answer, prompt(tests), language)), answer, lacking)


def _examples(
    statement: _Statement, answer: str, test: str, language: str, context: Sequence[str], most: int
) -> tuple[str, ...]:
    """The first assertions on what a text describes without an example: what it leaves open they may tell."""
    if language not in _JUDGED_LATER or cases(statement.text):
        return ()
    listed = dissect(f"{answer}\n\n{test}", language).tests[:most]
    shown = with_imports(listed, test, language) if listed else ()
    reads, binds = cell_names("\n".join(shown), language), cell_names("\n".join([*context, answer]), language)
    known = reads is not None and binds is not None and reads.needed <= binds.bound
    return shown if known and sum(map(len, shown)) <= _TEST_CELL_CHARS else ()


def _named_by_test(answer: str, prompt: str, test: str, language: str) -> bool:
    """Whether a test reads a name or member of the answer, or expects an error, that nothing in the prompt says."""
    if language == "sql":
        return False
    if _EXPECTS_ERROR.search(test) and not speaks_of_errors(prompt):
        return True
    members = set(_MEMBER.findall(answer)) & set(_READS_MEMBER.findall(test))
    members |= set(_READS_MEMBER.findall(answer)) & set(_KEY.findall(test))  # of objects that the test hands over
    if members - _words_of(prompt):
        return True
    gives, takes = cell_names(answer, language), cell_names(test, language)
    if gives is None or takes is None:
        return False
    return not (gives.bound - gives.imported) & takes.needed <= _words_of(prompt)


def _answers_of_tasks(session: Sequence[Row]) -> set[str]:
    """The answering cell of each recorded task: the last that ran and defines something, else the last that ran.

    One that a recorded verdict says to solve it comes before any other.
    """
    last: dict[str, tuple[tuple[bool, bool], str]] = {}
    for row in session:
        if _task(row) and row["outcome"] == "ok":
            anatomy = dissect(row["code"], row["language"])
            rank = SOLVED in row["flags"], bool(anatomy.signature) and not _tests_alone(row)
            if has_substance(anatomy.body) and (row["task"] not in last or rank >= last[row["task"]][0]):
                last[row["task"]] = (rank, row["execution_id"])
    return {execution_id for _, execution_id in last.values()}


def _runs_earlier_tests(session: Sequence[Row], position: int, anatomy: Anatomy) -> bool:
    """Whether a cell runs, besides what it defines, functions of a failed attempt at its task: the tests of that."""
    row = session[position]
    whole, alone = (cell_names(code, row["language"]) for code in (anatomy.body, anatomy.definitions))
    if whole is None or alone is None or not anatomy.signature:
        return False
    tried = [cell for cell in session[:position] if cell["task"] == row["task"] and cell["outcome"] != "ok"]
    listed = [one for cell in tried for one in statements(cell["code"], cell["language"])]
    return bool((whole.needed - alone.needed) & {defined_name(one.text) for one in listed})


def _tests_alone(row: Row) -> bool:
    """Whether a cell defines nothing but tests (of what an earlier cell defined), and was not asked for any."""
    if _ON_TESTS.search(row["task"] or ""):
        return False
    names = _DEFINES_TESTS.findall(row["code"])
    return bool(names) and all(name.lower().startswith("test") or "TestCase" in bases for name, bases in names)


def _task(row: Row) -> str | None:
    """The task recorded with an execution; None for a notebook's heading, which is weaker (see `_statement`)."""
    return None if FROM_MARKDOWN in row["flags"] else row["task"]


def _statement(
    session: Sequence[Row],
    position: int,
    anatomy: Anatomy,
    answers_task: bool,
    evidence: Evidence,
    recipe: DatasetRecipe,
    needs: _Needs,
) -> _Statement | None:
    row = session[position]
    if task := _task(row):
        if not answers_task:
            return None
        # a task that names what is to be defined asks for no more than that
        named = bool(anatomy.signature) and _names_it(names_as_code(task), anatomy.signature, anatomy.tests)
        shows = not named and not _runs_earlier_tests(session, position, anatomy)
        answer, signature = anatomy.body if shows else anatomy.definitions, "" if named else anatomy.signature
        asked = with_earlier(evidence.places[row["execution_id"]][0], row, recipe.context_chars)
        lacking = REFERS_BACK if asked is None else None
        return _Statement(answer, asked or task.strip(), signature, (), (), 1.0, lacking=lacking)
    words = first_words(session[:position], row["code"], row["language"])
    if words is not None and (anatomy.statement is None or row["language"] in JAVASCRIPT):
        # the last attempt has none, or a comment that may only note what was wrong before it
        return _Statement(anatomy.definitions, words, anatomy.signature, (), (), 1.0, documented=True)
    if anatomy.statement is not None and not _notes_on_attempt(session[:position], anatomy, row["language"]):
        if anatomy.documented:
            return _Statement(anatomy.definitions, anatomy.statement, anatomy.signature, (), (), 1.0, documented=True)
        return _of_comment(anatomy.statement, anatomy, row["language"])
    if row["task"] and is_statement(row["task"]):  # the heading above the cell
        return _Statement(anatomy.body, row["task"].strip(), anatomy.signature, (), (), _WEAKER, told=True)
    if anatomy.signature and anatomy.tests:  # which alone say what is asked: more of them are shown
        shown = with_imports(anatomy.tests[: 2 * recipe.tests_shown], anatomy.test, row["language"])
        return _Statement(anatomy.definitions, "", anatomy.signature, shown, (), _WEAKER)
    if anatomy.signature:
        later = _later_tests(session, position, recipe.tests_shown, _TEST_CELL_CHARS, needs)
        if later:
            tests = tuple(dict.fromkeys(text for text, _ in later))
            return _Statement(anatomy.body, "", "", tests, tuple(cell for _, cell in later), _WEAKER)
    return None


def _notes_on_attempt(before: Sequence[Row], anatomy: Anatomy, language: str) -> bool:
    """Whether a comment in JavaScript, which asks for nothing, stands above another attempt at what failed before."""
    if language not in JAVASCRIPT or is_task(anatomy.statement or ""):
        return False
    return any(row["outcome"] != "ok" for row, _ in attempts_at(anatomy, before, language))


def _of_comment(text: str, anatomy: Anatomy, language: str) -> _Statement:
    scoped = language in ("python", "sql", *JAVASCRIPT)
    answer = within_task(text, anatomy.body, language) if scoped else anatomy.body
    named = anatomy.signature and _names_it(names_as_code(text), anatomy.signature, anatomy.tests)
    if named or (anatomy.signature and anatomy.tests and answer == anatomy.body):
        answer = anatomy.definitions  # what is called below it only shows what it gives
    return _Statement(answer, text, anatomy.signature, (), (), _WEAKER, told=True)


def _words_of(text: str) -> set[str]:
    return set(_WORD.findall(text))


def _names_it(words: set[str], signature: str, tests: Sequence[str]) -> bool:
    """Whether a task of these words names what its tests call of the signature; without tests, any part of it."""
    names = {word.partition("(")[0].rstrip(":") for line in signature.split("\n") for word in line.split()[1:3]}
    called = names & {word for test in tests for word in _WORD.findall(test)}
    return called <= words if called else bool(names & words)


def _pieces_needed(session: Sequence[Row], position: int) -> Sequence[Piece]:
    return needed(session, position).pieces


def _later_tests(
    session: Sequence[Row], position: int, most: int, longest: int, needs: _Needs
) -> list[tuple[str, Row]]:
    """Later cells that ran, hold assertions, and need this cell: the tests that it passed, each with its row.

    What such a cell needs of the cells in between (a client of the application that is asked for) stands before it.
    """
    told: list[tuple[str, Row]] = []
    asked = session[position]
    cells, own = 0, definitions(dissect(asked["code"], asked["language"]).definitions, asked["language"])
    places = {row["execution_id"]: place for place, row in enumerate(session)}
    for later in range(position + 1, len(session)):
        row = session[later]
        if row["outcome"] != "ok" or "assert" not in row["code"] or len(row["code"]) > longest:
            continue
        if own.keys() & definitions(row["code"], row["language"]).keys():
            continue  # it tests its own
        pieces = needs(later)
        if any(piece.row is session[position] and _DOES.search(piece.text) for piece in pieces):
            between = [piece for piece in pieces if places[piece.row["execution_id"]] > position]
            told += [(piece.text, piece.row) for piece in between]
            told.append((row["code"].strip("\n"), row))
            cells += 1
            if cells == most:
                break
    return told

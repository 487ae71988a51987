"""Finds repair pairs: a failing execution and the later execution of the same session that fixed it.

The rules for a pair, within (sandbox, code context), in time order:

1. Failing and later code are about the same thing: they say so themselves (same leading comment or docstring), or
   define the same names, or were recorded for the same task and are similar, or are nearly the same text.
2. Of several failures before one success the last is paired: the earlier ones led to the next attempt.
3. Of several successes the first is paired, or a later one with the same output and other code before the session
   moves on: the final form.
4. The code changed, and the change can be the reason: where a name or table was missing, a cell in between that made it
   is the repair, not the later run of nearly the same code (the cascade of an earlier failure).
5. A shell command that failed and later, unchanged, does not was mended by what stands between: the pair's code is
   equal, and its diff is the edits and commands in between. Each failure has such a pair. Where a pipe hides the exit
   code (`pytest | tail`), the command failed if its output says so.
6. A test or call in a cell of its own that failed, and passes unchanged after a cell defined anew what it calls, was
   mended by that cell, the last before the run that passed. Both codes of such a pair hold the definition and, below
   it, what tested it, as if they had been one cell.
7. Where a verdict was recorded on attempts at a session's one task, each failure has the next that solves it.

An execution whose outcome is not known is neither a failure nor a repair, but in rule 5. False pairs are worse than
missed ones.
"""

import ast
import difflib
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import polars as pl

from capibara_assets.domains import Domain
from capibara_assets.executions.formats.agents.failures import any_shows_failure
from capibara_assets.executions.parsing import parse_javascript, parse_python
from capibara_assets.executions.schema import FAILED, HIDDEN_EXIT, PATCH, SHELL, SOLVED, RepairPair
from capibara_assets.storage.records import conform, polars_schema

# least similarity, by what else ties the two together; a recorded task may hold for a whole session
_SAME_STATEMENT, _SAME_NAMES, _SAME_TASK, _SAME_TEXT = 0.2, 0.3, 0.5, 0.75
BELOW = "\n\n"  # between a definition and what tested it
_HORIZON = 50  # later executions that are considered
_MIN_TOKENS = 4  # of code without a task or names: `f(3)` and `f(4)` are no repair
_MAX_TOKENS = 6_000
_TOKEN = re.compile(r"\w+|[^\w\s]")
_MISSING_NAME = re.compile(
    r"name '(\w+)' is not defined|(?:^|\s)(\w+) is not defined|no such (?:table|column): ([\w.]+)"
)
_FOLDER = re.compile(r"^\s*cd\s+(\"[^\"\n]*\"|'[^'\n]*'|\S+)\s*(?:&&|;)\s*")
_BEHIND_COMMAND = re.compile(r"(?<!\s)\s*(?:2>&1\s*)?\|\s*(?:head|tail)(?:\s+-\w*)*(?:\s+\d+)?\s*$|(?<!\s)\s*2>&1\s*$")
_LEADING_COMMENT = re.compile(r"\s*((?:(?:#|--|//)[^\n]*\n\s*)+|/\*.*?\*/)", re.DOTALL)


def find_repairs(executions: pl.DataFrame) -> pl.DataFrame:
    """Repair pairs among executions, whatever the order of the rows.

    Args:
        executions: Execution table (its `domains` may or may not carry `debug` yet).

    Returns:
        RepairPair table; each failing execution is in at most one pair, as is each fixing one by rules 1 to 4.
    """
    return _table(_row(*pair) for session in _sessions(executions) for pair in _pairs(session))


def find_mended(commands: pl.DataFrame, domain: Domain | str) -> pl.DataFrame:
    """Repair pairs of a domain's commands that passed unchanged after files had been edited (rule 5).

    Args:
        commands: commands and edits of whole sessions (Execution), of whatever domain.
    """
    pairs = (pair for session in _sessions(commands) for pair in _mended(session))
    return _table(_row(*pair) for pair in pairs if all(str(domain) in side.row["domains"] for side in pair[:2]))


def _sessions(executions: pl.DataFrame) -> Iterable[Sequence["_Attempt"]]:
    """The sessions in which something may have failed, each in order of time."""
    frame = executions.sort("sandbox_id", "timestamp", "execution_id")
    may_fail = pl.col("outcome").is_in(FAILED) | pl.col("flags").list.contains(HIDDEN_EXIT)
    found: dict[tuple[str, str | None], list[_Attempt]] = {}
    for row in frame.filter(may_fail.any().over("sandbox_id")).iter_rows(named=True):
        found.setdefault((row["sandbox_id"], row["context_id"]), []).append(_Attempt(row))
    return found.values()


def _table(rows: Iterable[dict[str, Any]]) -> pl.DataFrame:
    return conform(RepairPair, pl.DataFrame(list(rows), schema=polars_schema(RepairPair)))


@dataclass
class _Attempt:
    """One execution of a session; properties that pairs are judged by are computed on demand."""

    row: dict[str, Any]

    @property
    def ok(self) -> bool:
        return bool(self.row["outcome"] == "ok")

    @cached_property
    def failed(self) -> bool:
        if self.row["outcome"] in FAILED or HIDDEN_EXIT not in self.row["flags"]:
            return self.row["outcome"] in FAILED
        return any_shows_failure((self.row["stdout"], self.row["stderr"]), self.code)

    @cached_property
    def command(self) -> str | None:
        return bare_command(self.code) if self.row["language"] == SHELL else None

    @property
    def code(self) -> str:
        return str(self.row["code"])

    @cached_property
    def tokens(self) -> list[str]:
        return tokens(self.code)

    @cached_property
    def names(self) -> frozenset[str]:
        return _defined_names(self.row["language"], self.code)

    @cached_property
    def statement(self) -> str | None:
        return _leading_text(self.row["language"], self.code)

    @property
    def said(self) -> tuple[str, str | None]:
        return self.row["stdout"], self.row["result_text"]


_Pair = tuple[_Attempt, _Attempt, Sequence[_Attempt]]  # failure, repair, and what stands between where that mended it


def _pairs(session: Sequence[_Attempt]) -> Iterator[_Pair]:
    used: set[int] = set()  # fixing executions
    solving = _solving(session)
    for i in _failures(session):
        if (fix := _told_fix(session, i, solving)) is not None:
            yield session[i], session[fix], () if fix in solving else session[i + 1 : fix]
        elif not solving and (fix := _fix_of(session, i)) is not None and fix not in used:
            used.add(fix)
            yield session[i], session[fix], ()
        elif not solving and fix is None and (tested := _retested(session, i)) is not None and tested[1] not in used:
            used.add(tested[1])
            before, mended, after = (session[j] for j in tested)
            yield _below(before, session[i]), _below(mended, after, of=mended), ()


def _mended(session: Sequence[_Attempt]) -> Iterator[_Pair]:
    """The pairs of one command, unchanged, between whose runs files were edited."""
    solving = _solving(session)
    for i in _failures(session):
        fix = _told_fix(session, i, solving)
        if fix is None or session[i].command is None or session[fix].command != session[i].command:
            continue
        if any(attempt.row["language"] == PATCH for attempt in session[i + 1 : fix]):
            yield session[i], session[fix], () if fix in solving else session[i + 1 : fix]


def _failures(session: Sequence[_Attempt]) -> list[int]:
    """Indexes of the failures: the last one before a success comes first."""
    return [i for i, attempt in enumerate(session) if attempt.failed][::-1]


def _solving(session: Sequence[_Attempt]) -> list[int]:
    return [i for i, attempt in enumerate(session) if SOLVED in attempt.row["flags"]]


def _told_fix(session: Sequence[_Attempt], i: int, solving: Sequence[int]) -> int | None:
    """Index of what a verdict, or else a rerun, tells to be the fix."""
    solved = next((j for j in solving if j > i), None)
    return _rerun_of(session, i) if solved is None else solved


def _rerun_of(session: Sequence[_Attempt], i: int) -> int | None:
    """Index of the same command's next run that does not fail; None: there is none."""
    command = session[i].command
    if not command:
        return None
    return next(
        (j for j in range(i + 1, len(session)) if session[j].command == command and not session[j].failed), None
    )


def _fix_of(session: Sequence[_Attempt], i: int) -> int | None:
    """Index of the success that ends the chain of attempts in which `i` is the last failure."""
    failing, first = session[i], None
    for j in range(i + 1, min(len(session), i + 1 + _HORIZON)):
        later = session[j]
        if not _related(failing, later):
            if first is not None:
                break  # the session moved on
            continue
        if not later.ok:
            if not later.failed:
                continue
            if first is None and _mends(session, i, j):
                return None  # changed and failed again: that failure is the one to pair
            if first is None:
                continue
            break
        if first is None:
            if not _mends(session, i, j):
                continue
            first = j
        elif later.said == session[first].said and later.tokens != failing.tokens:
            first = j if later.tokens != session[first].tokens else first
        else:
            break
    return first


def _retested(session: Sequence[_Attempt], i: int) -> tuple[int, int, int] | None:
    """Indexes of what a failed test tested, of what is defined in its place, and of the same test's run that passed."""
    test, end = session[i], min(len(session), i + 1 + _HORIZON)
    again = next((j for j in range(i + 1, end) if session[j].ok and session[j].tokens == test.tokens), None)
    if again is None or test.row["language"] == SHELL:
        return None
    called = set(test.tokens)
    before = next((j for j in range(i - 1, -1, -1) if session[j].ok and session[j].names & called), None)
    if before is None:
        return None
    names = session[before].names
    fix = next((j for j in range(again - 1, i, -1) if session[j].ok and session[j].names & names), None)
    if fix is None or not names <= session[fix].names or session[fix].tokens == session[before].tokens:
        return None
    return before, fix, again


def _below(defining: _Attempt, tested: _Attempt, of: _Attempt | None = None) -> _Attempt:
    """An attempt whose code is what one cell defined and another tested; its row is that of `of`, or of the test."""
    row = (of or tested).row
    return _Attempt(row | {"code": f"{defining.code}{BELOW}{tested.code}", "task": row["task"] or defining.row["task"]})


def _related(a: _Attempt, b: _Attempt) -> bool:
    if a.row["language"] != b.row["language"]:
        return False
    alike = similarity(a.tokens, b.tokens)
    compatible = a.names == b.names or not a.names or not b.names
    if compatible and a.statement is not None and a.statement == b.statement:
        return alike >= _SAME_STATEMENT
    if a.names and a.names == b.names:
        return alike >= _SAME_NAMES
    if min(len(a.tokens), len(b.tokens)) < _MIN_TOKENS or bool(a.names) != bool(b.names):
        return False
    same_task = compatible and a.row["task"] is not None and a.row["task"] == b.row["task"]
    return alike >= (_SAME_TASK if same_task else _SAME_TEXT)


def _mends(session: Sequence[_Attempt], i: int, j: int) -> bool:
    """Whether the change from `i` to `j` can be the repair, and not a cell in between."""
    failing, later = session[i], session[j]
    if failing.tokens == later.tokens:
        return False
    match = _MISSING_NAME.search(failing.row["error_value"] or "")
    if match is None:
        return True
    name = next(group for group in match.groups() if group)
    if later.tokens.count(name) != failing.tokens.count(name) or _binds(later, name):
        return True
    return not any(between.ok and _binds(between, name) for between in session[i + 1 : j])


def _binds(attempt: _Attempt, name: str) -> bool:
    word = re.escape(name.split(".")[-1])
    keyword = rf"\b(?:import|def|class|as|for|let|const|var|function|table|view|exists)\s+[\"'`]?{word}\b"
    return re.search(rf"{keyword}|\b{word}\s*=(?!=)", attempt.code, re.IGNORECASE) is not None


def bare_command(code: str) -> str:
    """A shell command without what does not change what it does: the folder it begins in, `2>&1`, `| tail -20`."""
    return _BEHIND_COMMAND.sub("", _FOLDER.sub("", code)).strip()


def folder_of(code: str) -> str:
    """The folder that a shell command says it begins in; "" where it says none."""
    begins = _FOLDER.match(code)
    return begins[1].strip("\"'/") if begins else ""


def tokens(code: str) -> list[str]:
    """Words and signs of a program, at most as many as a comparison can handle."""
    return _TOKEN.findall(code)[:_MAX_TOKENS]


def distance(a: Sequence[str], b: Sequence[str]) -> int:
    """Levenshtein distance of two token lists; equal heads and tails cost nothing.

    Bit-parallel (Myers 1999, "A fast bit-vector algorithm for approximate string matching", in Hyyro's form): one step
    per token of `b` over integers of len(a) bits.
    """
    head, shorter = 0, min(len(a), len(b))
    while head < shorter and a[head] == b[head]:
        head += 1
    tail = 0
    while tail < shorter - head and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    a, b = a[head : len(a) - tail], b[head : len(b) - tail]
    if not a or not b:
        return len(a) + len(b)
    where: dict[str, int] = {}
    for i, token in enumerate(a):
        where[token] = where.get(token, 0) | 1 << i
    mask, last = (1 << len(a)) - 1, 1 << (len(a) - 1)
    up, down, score = mask, 0, len(a)
    for token in b:
        equal = where.get(token, 0)
        diagonal = (((equal & up) + up) ^ up) | equal | down
        right, left = down | ~(diagonal | up) & mask, diagonal & up
        score += bool(right & last) - bool(left & last)
        right = (right << 1 | 1) & mask
        left = left << 1 & mask
        up, down = left | ~(diagonal | right) & mask, diagonal & right
    return score


def similarity(a: Sequence[str], b: Sequence[str]) -> float:
    """1 - distance / length of the longer list, rounded; 0 when one is empty."""
    longer = max(len(a), len(b))
    if not min(len(a), len(b)):
        return 0.0
    return round(1 - distance(a, b) / longer, 4)


def _row(failing: _Attempt, fixed: _Attempt, between: Sequence[_Attempt]) -> dict[str, Any]:
    ids = (failing.row["execution_id"], fixed.row["execution_id"])
    own = [domain for domain in fixed.row["domains"] if domain != Domain.DEBUG]
    return {
        "pair_id": hashlib.sha256("\n".join(ids).encode()).hexdigest()[:32],
        "domains": [*own[:1], str(Domain.DEBUG)],
        "language": fixed.row["language"],
        "sandbox_id": fixed.row["sandbox_id"],
        "failing_execution_id": ids[0],
        "fixed_execution_id": ids[1],
        "failing_code": failing.code,
        "fixed_code": fixed.code,
        "task": fixed.row["task"] or failing.row["task"],
        "error_name": failing.row["error_name"],
        "error_value": failing.row["error_value"],
        "traceback": failing.row["traceback"],
        "diff": "\n".join(one.code for one in between) if between else unified_diff(failing.code, fixed.code),
        "distance": max(1, distance(failing.tokens, fixed.tokens)),
        "similarity": similarity(failing.tokens, fixed.tokens),
    }


def unified_diff(failing: str, fixed: str) -> str:
    """Unified diff with three lines of context; its file headers bear no times."""
    lines = difflib.unified_diff(failing.splitlines(), fixed.splitlines(), "failing", "fixed", lineterm="")
    return "\n".join(lines) + "\n"


@lru_cache(maxsize=4096)
def _defined_names(language: str, code: str) -> frozenset[str]:
    """Functions and classes that a program defines at its top level."""
    if language == "python":
        tree = parse_python(code)
        if tree is None:
            return frozenset(re.findall(r"^(?:async\s+)?(?:def|class)\s+(\w+)", code, re.MULTILINE))
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        return frozenset(node.name for node in tree.body if isinstance(node, kinds))
    if language in ("javascript", "typescript"):
        return frozenset(_javascript_names(code))
    return frozenset()


def _javascript_names(code: str) -> Iterator[str]:
    for node in parse_javascript(code).root_node.children:
        if node.type in ("function_declaration", "generator_function_declaration", "class_declaration"):
            if (name := node.child_by_field_name("name")) and name.text:
                yield name.text.decode()
        elif node.type in ("lexical_declaration", "variable_declaration"):
            for declarator in node.named_children:
                value = declarator.child_by_field_name("value")
                name = declarator.child_by_field_name("name")
                if (
                    value is not None
                    and name is not None
                    and name.text
                    and value.type in ("arrow_function", "function_expression")
                ):
                    yield name.text.decode()


@lru_cache(maxsize=4096)
def _leading_text(language: str, code: str) -> str | None:
    """The code's own description: its leading comment, or else the docstring of its first definition."""
    if match := _LEADING_COMMENT.match(code):
        text = " ".join(re.sub(r"^[ \t]*(?:#+|--+|//+|/\*+|\*+/?)", "", match.group(1), flags=re.MULTILINE).split())
        if len(text) >= 12:
            return text.removesuffix("*/").strip()
    if language != "python" or (tree := parse_python(code)) is None:
        return None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            text = " ".join((ast.get_docstring(node) or "").split())
            return text if len(text) >= 12 else None
    return None

"""The test that failing code did not pass, located by the traceback and shown with its dependencies."""

import ast
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace

from capibara_assets.datasets.code import javascript_source, python_source
from capibara_assets.datasets.code.names import Statement
from capibara_assets.datasets.code.sessions import cell_names, statements
from capibara_assets.datasets.code.structure import without_comments
from capibara_assets.executions.parsing import JAVASCRIPT, walk
from capibara_assets.executions.tracebacks import Frame, in_failing_cell

_ASSERTS = re.compile(r"\bassert|\bexpect\(|\bthrow\b|\braise\b|[dD]eepEqual|assertEqual|\.should\b")
MOST_CHARS = 1200


@dataclass(frozen=True)
class _Placed:
    statement: Statement
    first: int  # lines of the cell, from 1
    last: int


@dataclass(frozen=True)
class FailingTest:
    """The failing test as text ("" if unknown or too long), and other places in the traceback."""

    text: str
    frames: tuple[Frame, ...]  # those outside the tests
    raised_by_test: bool = False  # the error was raised in the test's own code, by a false assertion or its message


def failing_test(
    code: str, asked: str, language: str, frames: tuple[Frame, ...], earlier: Sequence[str] = ()
) -> FailingTest:
    """Extract the failed test from a cell, with the assignments it needs.

    Args:
        code: the cell.
        asked: what is to be repaired; other statements of the cell are its tests.
        frames: of the user's code, outermost first.
        earlier: cells above it that its tests may need.
    """
    above = [_Placed(one, 0, -1) for cell in earlier for one in statements(cell, language)]
    listed = [*above, *_placed(code, language)]
    own = {_key(statement.text, language) for statement in statements(asked, language)}
    tests = [one for one in listed if _key(one.statement.text, language) not in own]
    skipped = _skipped(code, frames)
    frames = tuple(replace(f, line=f.line + skipped if f.line else None) for f in frames) if skipped else frames
    inside = {line for one in tests for line in range(one.first, one.last + 1)}
    lines = code.split("\n")
    here = {frame for frame in (in_failing_cell(frames) if frames else ()) if _stands_at(frame, lines)}
    outside = tuple(f for f in frames if f not in here or f.line not in inside)
    raised = bool(frames) and frames[-1] in here and frames[-1].line in inside
    names = cell_names(asked, language)
    defined = names.bound if names is not None else frozenset[str]()
    for frame in reversed([f for f in frames if f in here and f.line in inside]):
        text = _shown(tests, frame, defined, language)
        if text and (not defined or _mentions(text, defined)):
            return FailingTest(text if len(text) <= MOST_CHARS else "", outside, raised)
    checks = [one for one in tests if _ASSERTS.search(one.statement.text)]
    whole = "\n".join(one.statement.text for one in tests).strip("\n")
    known = bool(checks) and (not defined or _mentions(whole, defined)) and len(whole) <= MOST_CHARS
    return FailingTest(whole if known else "", outside, raised)


def _stands_at(frame: Frame, lines: Sequence[str]) -> bool:
    """Whether a frame may be of this cell: one that names no cell, but its line, has to show what stands there."""
    if frame.place or not frame.line:
        return True
    return frame.line <= len(lines) and lines[frame.line - 1].strip() == frame.text


def _skipped(code: str, frames: Sequence[Frame]) -> int:
    """Blank lines at the top of a cell that its traceback does not count, as IPython drops them."""
    blank = len(code) - len(code.lstrip("\n"))
    lines = code.split("\n")
    for frame in frames[:1]:
        if blank and frame.line and frame.text and frame.line + blank <= len(lines):
            return blank if lines[frame.line + blank - 1].strip() == frame.text.strip() else 0
    return 0


def _key(text: str, language: str) -> str:
    """A statement without comments and spacing; `statements` has cut its docstring."""
    if language == "python" and (tree := python_source.parse(text)) is not None:
        return ast.dump(tree)
    return "".join(without_comments(text, language).split())


def _placed(code: str, language: str) -> list[_Placed]:
    """The top-level statements of a cell with their lines."""
    if language in JAVASCRIPT:
        nodes = javascript_source.statement_nodes(code)
        spans = [(node.start_point[0] + 1, node.end_point[0] + 1) for node in nodes]
    else:
        tree = python_source.parse(code)
        spans = [(first, last) for first, last, _ in python_source.spans(tree)] if tree is not None else []
    listed = statements(code, language)
    if len(listed) != len(spans):
        return []
    return [_Placed(one, *span) for one, span in zip(listed, spans, strict=True)]


def _shown(tests: Sequence[_Placed], frame: Frame, defined: frozenset[str], language: str) -> str:
    """The test statement at a frame's line, after the assignments of the tests that it needs."""
    at = next((i for i, one in enumerate(tests) if one.first <= (frame.line or 0) <= one.last), None)
    if at is None:
        return ""
    before = [one.statement for one in tests[:at]]
    text = tests[at].statement.text
    if language == "python" and (inner := _in_function(tests[at], frame.line or 0)) is not None:
        function, listed, position = inner
        text = "\n".join([*_needed(listed[:position], listed[position].names.needed, defined), listed[position].text])
        for parameter, argument in _arguments(function, [one.statement.text for one in tests]).items():
            text = re.sub(rf"\b{re.escape(parameter)}\b", argument, text)
        names = cell_names(text, language)
        return "\n".join([*_needed(before, names.needed if names else frozenset(), defined), text])
    return "\n".join([*_needed(before, tests[at].statement.names.needed, defined), text, *_judged(tests, at)])


def _judged(tests: Sequence[_Placed], at: int) -> list[str]:
    """What uses the statement at `at`: the call of a test that it defines, or the assertion on what it binds."""
    here = tests[at].statement
    if not here.names.bound:
        return []
    behind = (one.statement for one in tests[at + 1 :])
    using = next((one for one in behind if one.names.needed & here.names.bound), None)
    if using is None or (_ASSERTS.search(here.text) and using.names.bound):
        return []
    return [using.text] if _ASSERTS.search(here.text) or _ASSERTS.search(using.text) else []


def _needed(before: Sequence[Statement], names: frozenset[str], defined: frozenset[str]) -> list[str]:
    """The earlier statements that bind these names, transitively; not those of what is asked for."""
    wanted = set(names - defined)
    chosen: list[str] = []
    for one in reversed(before):
        if not one.names.bound and _ASSERTS.match(one.text):
            continue  # an assertion changes nothing that another needs
        if wanted & (one.names.bound | (one.names.changed - one.names.imported)):
            chosen.append(one.text)
            wanted = (wanted - one.names.bound) | (one.names.needed - defined)
    return chosen[::-1]


def _in_function(test: _Placed, line: int) -> tuple[python_source.Function, tuple[Statement, ...], int] | None:
    """(function, its body's statements, the position of the one at `line`) where a test is a Python function."""
    offset = test.first - 1
    for node in python_source.nodes(test.statement.text):
        if isinstance(node, python_source.Function):
            # the statement's text has no docstring: its lines below it are shifted, so the body is searched by text
            body = node.body
            shift = (test.last - test.first + 1) - len(test.statement.text.split("\n"))
            for position, part in enumerate(body):
                if part.lineno <= line - offset - shift <= (part.end_lineno or part.lineno):
                    if any(isinstance(inner, python_source.Function) for inner in walk(part)):
                        continue
                    lines = test.statement.text.split("\n")[node.body[0].lineno - 1 : node.body[-1].end_lineno]
                    listed = statements(textwrap.dedent("\n".join(lines)), "python")
                    if len(listed) == len(body):
                        return node, listed, position
    return None


def _arguments(function: python_source.Function, tests: Sequence[str]) -> dict[str, str]:
    """Parameter -> the name that a test's call of the function gives it."""
    parameters = [argument.arg for argument in function.args.args]
    for text in tests:
        for node in python_source.nodes(text):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function.name:
                pairs = zip(parameters, node.args, strict=False)
                return {name: given.id for name, given in pairs if isinstance(given, ast.Name)}
    return {}


def _mentions(text: str, names: frozenset[str]) -> bool:
    return any(re.search(rf"(?<![\w.]){re.escape(name)}\b", text) for name in names)

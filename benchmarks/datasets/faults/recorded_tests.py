"""Tests of an answer in the session that it was recorded in: what its execution ran besides it, or a later one."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.datasets.faults import javascript_code
from benchmarks.datasets.faults.no_ops import canonical
from benchmarks.datasets.faults.python_code import callee, definitions, loads, parse, stores
from benchmarks.datasets.faults.python_names import free_names

_LODASH = re.compile(r"require\(['\"]lodash['\"]\)")
# What lodash does: of what a Set holds, lists are compared without regard to order, at any depth.
_IS_EQUAL = """({ isEqual: (() => {
  const same = require("util").isDeepStrictEqual
  const loose = (a, b) => Array.isArray(a) && Array.isArray(b)
    ? a.length === b.length && a.every((x) => b.some((y) => loose(x, y))) : same(a, b)
  return (a, b) => a instanceof Set && b instanceof Set ? loose([...a], [...b]) : same(a, b)
})() })"""
_ASSERTS = re.compile(r"^(?:assert\w*|expect|should|raises|fail)$", re.I)


@dataclass(frozen=True)
class Cell:
    """A recorded execution of a session, in its order."""

    execution_id: str
    language: str
    code: str
    succeeded: bool


@dataclass(frozen=True)
class Trial:
    """What runs to judge an answer: cells before it, the answer, and the test after it."""

    language: str
    context: tuple[str, ...]
    answer: str
    test: str


def trial(answer: str, language: str, test: str | None, session: Sequence[Cell], own: str) -> Trial | str:
    """The trial of an answer, or why there is none.

    Args:
        test: the hidden test, where the dataset has one; else it is looked for in the session.
        session: executions of the answer's sandbox, in their order.
        own: execution id of the answer.
    """
    if language not in ("python", "javascript", "sql"):
        return f"{language} does not run in the sandbox"
    at = next((number for number, cell in enumerate(session) if cell.execution_id == own), None)
    if at is None:
        return "its execution is not in the table"
    if test is None:
        later = [cell.code for cell in session[at + 1 :] if cell.succeeded and cell.language == language]
        test = _rest(session[at].code, answer, language) or _later(later, answer, language)
    if test is None:
        return "no test was recorded"
    test = _LODASH.sub(_IS_EQUAL, test) if _compares_only(test) else test
    before = [cell.code for cell in session[:at] if cell.succeeded and cell.language == language]
    # an earlier attempt would pass the test without the answer; what it imported, the session has
    context = [_imports(code, language) if _is_attempt(code, answer, test, language) else code for code in before]
    return Trial(language, tuple(filter(None, context)), answer, test)


def bound_names(code: str, language: str) -> set[str]:
    """Names that code binds at its top level."""
    if language == "python":
        tree = parse(code)
        if tree is None:
            return set()
        assigned = {name for s in tree.body if not hasattr(s, "body") for name in stores(s)}
        return assigned | set(definitions(tree.body))
    if language == "javascript":
        root = javascript_code.parse(code)
        declared = {
            name
            for statement in root.named_children
            for one in (statement.named_children if statement.type.endswith("declaration") else ())
            if one.type == "variable_declarator" and (left := one.child_by_field_name("name")) is not None
            for name in javascript_code.bound_by(left)
        }
        return declared | set(javascript_code.definitions(root))
    return set(
        re.findall(r"\bCREATE\s+(?:TEMP\w*\s+)?(?:TABLE|VIEW)\s+(?:IF\s+NOT\s+EXISTS\s+)?[\"`]?(\w+)", code, re.I)
    )


def _is_attempt(code: str, answer: str, test: str, language: str) -> bool:
    """Whether an earlier cell makes what the test asks of the answer, and nothing that the answer builds on."""
    made, bound = bound_names(answer, language), bound_names(code, language)
    if language == "python":
        tree = parse(answer)
        needed = set() if tree is None else free_names(tree)
    else:
        needed = set(re.findall(r"[\w$]+", answer)) - made
    return bool(made & bound & set(re.findall(r"\w+", test))) and not needed & bound


def _imports(code: str, language: str) -> str:
    """The imports at the top level of a Python cell."""
    tree = parse(code) if language == "python" else None
    return "\n".join(
        ast.unparse(one) for one in (tree.body if tree else []) if isinstance(one, ast.Import | ast.ImportFrom)
    )


def _rest(code: str, answer: str, language: str) -> str | None:
    """What an execution ran besides the answer, where that asserts something."""
    if language == "python":
        tree, own = parse(code), parse(answer)
        if tree is None or own is None:
            return None
        known = {_form(statement) for statement in own.body}
        defined = set(definitions(own.body))
        rest = [s for s in tree.body if _form(s) not in known and not (set(definitions([s])) & defined)]
        body = "\n".join(ast.get_source_segment(code, s) or ast.unparse(s) for s in rest)
        return body if rest and len(rest) < len(tree.body) and any(map(_asserts_python, rest)) else None
    if language == "javascript":
        known = {_tokens(javascript_code.text(n)) for n in javascript_code.parse(answer).named_children}
        defined = set(javascript_code.definitions(javascript_code.parse(answer)))
        statements = [n for n in javascript_code.parse(code).named_children if n.type != "comment"]
        left = [
            n
            for n in statements
            if _tokens(said := javascript_code.text(n)) not in known and not bound_names(said, language) & defined
        ]
        body = "\n".join(javascript_code.text(n) for n in left)
        return body if left and len(left) < len(statements) and _asserts_javascript(body) else None
    return None


def _later(cells: Sequence[str], answer: str, language: str) -> str | None:
    """Later cells up to the first that asserts something about what the answer binds, or what was made with it.

    A cell that binds the answer's names anew ends the search: what follows judges another answer.
    """
    made = bound_names(answer, language)
    reached = set(made)
    passed: list[str] = []
    for code in cells:
        if made & bound_names(code, language):
            return None
        passed.append(code)
        for read, bound, asserts in _steps(code, language):
            if read & reached:
                if asserts:
                    return "\n".join(passed)
                reached |= bound
    return None


def _steps(code: str, language: str) -> Iterator[tuple[set[str], set[str], bool]]:
    """Of every statement of the top level: names that it reads, names that it binds, and whether it asserts."""
    if language == "python" and (tree := parse(code)) is not None:
        for statement in tree.body:
            yield loads(statement), stores(statement), _asserts_python(statement)
    elif language == "javascript":
        for node in javascript_code.parse(code).named_children:
            said = javascript_code.text(node)
            yield javascript_code.names(node), bound_names(said, language), _asserts_javascript(said)


def _compares_only(test: str) -> bool:
    """Whether a test takes nothing but deep equality from lodash, which the sandbox lacks."""
    return bool(_LODASH.search(test)) and set(re.findall(r"(?<![\w$.])_\.(\w+)", test)) <= {"isEqual"}


def _asserts_python(statement: ast.stmt) -> bool:
    return any(
        isinstance(n, ast.Assert) or (isinstance(n, ast.Call) and _ASSERTS.match(callee(n)) is not None)
        for n in ast.walk(statement)
    )


def _asserts_javascript(code: str) -> bool:
    return bool(re.search(r"\bassert\b|\bexpect\(|\bthrow\b|\.should\b", code))


def _form(statement: ast.stmt) -> str:
    return canonical(ast.unparse(statement), "python") or ""


def _tokens(code: str) -> str:
    return canonical(code, "javascript") or ""

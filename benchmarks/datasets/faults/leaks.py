"""`leaked_expectation`: answers that teach the test, and questions for an output that already tell it.

An answer of *solve*, *repair* or *apply* leaks when it holds an expectation on the result of what was asked: an
assertion, a unit test, a comparison with an expected value that raises, exits, prints or gathers a verdict, a table of
cases that is compared, another name given to the solution for a harness, an empty harness, a comparison inlined for a
test alone, a library of tests that only these need, a doctest or a comment with the expected result. In SQL it is a
verdict or difference against expected values, in shell a test or diff of a program's output. What a solution demands
of its parameters is no leak, nor is a result that is printed. Where the task asks for tests, tests are the answer.

A *predict* prompt leaks when the output stands in a comment, in an assertion, or below a heading that names it.
"""

import ast
import itertools
import re

from benchmarks.datasets.faults import javascript_code, leaks_javascript, leaks_python
from benchmarks.datasets.faults.cases import CODE_KINDS, Case
from benchmarks.datasets.faults.leaks_text import shell_leak, sql_leak
from benchmarks.datasets.faults.python_code import parse

SHELLS = frozenset(("bash", "sh", "shell", "zsh"))
_ASKS_FOR_TESTS = re.compile(
    r"\b(?:write|add|create|generate|provide|extend|include)\b[^.\n]{0,60}?(?<!that )\b"
    r"(?:unit[- ]?tests?|tests|test (?:suite|cases?|file|functions?|class)|assertions?)\b"
    r"(?! (?:whether|if|that|for an?)\b)",
    re.I,
)
_ANNOUNCED = re.compile(
    r"^[\s*]*(?:-+>|=+>|→|⇒|=|"
    r"(?:expected|output|prints?|logs?|returns?|result|gives|should (?:be|print|log|return))\b(?: \w+)?\s*[:=]?)\s*",
    re.I,
)
_ANNOUNCING = re.compile(r"^[\s*]*(?:expected|prints?|logs?|returns?|gives|should (?:be|print|log|return))\b\s*", re.I)
_WORDS = {"true": "True", "false": "False", "null": "None"}
_RESULT = re.compile(r"^(?:expected )?(?:output|result|prints|stdout|answer)$", re.I)


def leaked_expectation(case: Case) -> str | None:
    """Why an example gives the expected result away; None when it does not."""
    if case.kind == "predict":
        return _told(case)
    if case.kind not in CODE_KINDS or _ASKS_FOR_TESTS.search(case.prompt.split("\n\nCode:")[0]):
        return None
    if case.language == "python":
        return leaks_python.leak(case.code, case.prompt)
    if case.language in ("javascript", "typescript"):
        return leaks_javascript.leak(case.code, case.prompt)
    if case.language == "sql":
        return sql_leak(case.code, case.prompt)
    return shell_leak(case.code, case.prompt) if case.language in SHELLS else None


def _told(case: Case) -> str | None:
    """Where the prompt of a *predict* example tells the output."""
    wanted = _plain(case.answer)
    if not wanted:
        return None
    for section in case.sections:
        if _RESULT.match(section.title) and _plain(section.text) == wanted:
            return f"the output stands below {section.title!r}"
    lines = {line for line in map(_plain, case.answer.splitlines()) if line}
    for line, following in itertools.pairwise([*case.prompt.splitlines(), ""]):
        for mark in ("#", "//", "--"):
            code, found, comment = line.partition(mark)
            said = {one for one in _unmarked(comment) if code.strip() or one != comment.strip()}
            if found and not {_plain(one) for one in said}.isdisjoint(lines | {wanted}):
                return f"the output stands in a comment: {line.strip()[:100]}"
        if line.strip().startswith(">>> ") and _plain(following) == wanted:
            return f"the output stands in a doctest: {line.strip()[:100]}"
    told = {_plain(one): one for section in case.sections for one in _expectations(section.text)}
    parts = _parts(case.answer)
    if wanted in told or (parts and parts <= told.keys()):
        return f"the output stands in an assertion: {told.get(wanted, next(iter(told.values())))[:100]}"
    return None


def _parts(output: str) -> set[str]:
    """What an output is made of: its lines, or the values of a tuple."""
    try:
        value = ast.literal_eval(output)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {line for line in map(_plain, output.splitlines()) if line}
    return {_plain(repr(one)) for one in value} if isinstance(value, tuple) else {_plain(repr(value))}


def _unmarked(comment: str) -> set[str]:
    """A comment without the arrow or the words that announce a result; with one word more or less of these."""
    bare = comment.strip().removesuffix("*/")
    return {mark.sub("", bare).strip() for mark in (_ANNOUNCED, _ANNOUNCING)}


def _expectations(code: str) -> list[str]:
    """What assertions of a text compare with."""
    tree = parse(code)
    if tree is not None:
        return [
            ast.unparse(side)
            for node in ast.walk(tree)
            if isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare)
            for side in (node.test.left, *node.test.comparators)
        ]
    found = re.findall(r"^assert .*?==\s*(.+)$", code, re.M)
    for call in (node for node in javascript_code.walk(javascript_code.parse(code)) if node.type == "call_expression"):
        function = javascript_code.text(call.child_by_field_name("function"))
        given = call.child_by_field_name("arguments")
        if given is not None and re.search(r"(?i)assert|\bexpect\b|\bto(?:Be|\w*Equal)$", function):
            inside = [n for one in given.named_children for n in (one, *one.named_children)]
            found += [javascript_code.text(node) for node in inside]
    return found


def _plain(value: str) -> str:
    """A value without quotes and spaces, in one language's words."""
    bare = re.sub(r"[\s'\"`;]", "", value)
    return re.sub(r"\b(?:true|false|null)\b", lambda found: _WORDS[found.group()], bare)

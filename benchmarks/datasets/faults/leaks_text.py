"""Expectations in answers of SQL and shell."""

import re

from sqlglot import exp

from benchmarks.datasets.faults.queries.sql_code import statements

_GOOD = re.compile(r"^(?:pass(?:ed)?|ok|correct|match(?:es|ed)?|success|true|valid|✓)\b", re.I)
_BAD = re.compile(r"^(?:fail(?:ed|ure)?|not ok|wrong|incorrect|mismatch|error|false|invalid|✗)", re.I)
_SAID = re.compile(
    r"(?:--|/\*)\s*(?:expected\b|expects?\b|should (?:be|return|give)|=>|->|output:|result:|returns:?\s)[^\n]*", re.I
)
_EXPECTED_TABLE = re.compile(r"^(?:expected|wanted|golden|reference_result|answer_key)", re.I)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.Is, exp.NullSafeEQ)


def sql_leak(code: str, prompt: str) -> str | None:
    """A verdict by comparison with an expected value, a difference to expected rows, an expectation in words.

    A condition of the query itself (`WHERE state = 'paid'`) compares columns, never the outcome of a whole query.
    """
    for found in _SAID.findall(code):
        if found not in prompt:
            return f"an expected result in a comment: {found[:100]}"
    if found := re.search(r"^\s*(?:ASSERT\b|RAISE\s+EXCEPTION\b|SELECT\s+RAISE\s*\()[^\n]*", code, re.I | re.M):
        return f"asserts: {found.group().strip()[:100]}"
    for tree in statements(code):
        if reason := _tree(tree, prompt):
            return reason
    return None


def _tree(tree: exp.Expr, prompt: str) -> str | None:
    for node in tree.find_all(exp.Except, exp.Intersect):
        sides = [node.this, node.expression]
        for side in sides:
            literal = isinstance(side, exp.Values) or (
                isinstance(side, exp.Select)
                and (source := side.args.get("from_") or side.args.get("from")) is not None
                and isinstance(source.this, exp.Values)
            )
            bare = isinstance(side, exp.Select) and not side.find(exp.Column, exp.Table, exp.Star)
            if literal or bare:
                return f"a difference to expected rows: {node.sql()[:100]}"
    for table in tree.find_all(exp.Table):
        if _EXPECTED_TABLE.match(table.name) and table.name not in prompt:
            return f"a table of expected rows: {table.name}"
    for case in tree.find_all(exp.Case, exp.If):
        said = [leaf.name for leaf in case.find_all(exp.Literal) if leaf.is_string]
        verdict = any(map(_GOOD.match, said)) and any(map(_BAD.match, said))
        if verdict and any(_compares_result(node) for node in case.find_all(*_COMPARISONS, exp.Exists)):
            return f"a verdict: {case.sql()[:100]}"
    select = tree.find(exp.Select)
    for projection in select.expressions if select is not None else ():
        inner = projection.unalias()
        if isinstance(inner, exp.Paren):
            inner = inner.this
        if isinstance(inner, _COMPARISONS) and _compares_result(inner):
            return f"compares with what is expected: {inner.sql()[:100]}"
    return None


def _compares_result(node: exp.Expr) -> bool:
    """Whether the outcome of a query or of an aggregate is compared with a literal."""
    if isinstance(node, exp.Exists):
        return node.find(exp.Except, exp.Values) is not None
    sides = [side.unnest() if isinstance(side, exp.Paren) else side for side in (node.this, node.expression)]
    literal = any(isinstance(side, exp.Literal | exp.Neg | exp.Boolean) for side in sides)
    return literal and any(
        isinstance(side, exp.Subquery | exp.Select | exp.Count) or side.find(exp.Subquery) for side in sides
    )


# --- shell ------------------------------------------------------------------------------------------------------------

_TEST = re.compile(
    r"(?:^|[;&|({!]|\b(?:if|elif|while|until|then|do|else|and)\b)\s*(?:\[\[?|test)\s+(.+?)(?:\s+\]\]?|\s*(?:;|&&|\|\||$))",
    re.M,
)
_OPERATOR = re.compile(r"(?:^|\s)(==?|!=|-eq|-ne|=~)\s")
_CAPTURED = re.compile(r"^\s*(?:local\s+|export\s+|readonly\s+)?(\w+)=[\"']?(?:\$\(|`)", re.M)
_LITERAL = re.compile(r"""^(?:"[^"$`]*"|'[^']*'|\$'[^']*'|-?[\w.,:/|-]+)$""")
_DIFF = re.compile(r"(?:^|[;&|({!]|\b(?:if|then|do)\b)\s*(?:diff|cmp|comm)\b([^\n;&|]*)", re.M)
_GREP_VERDICT = re.compile(
    r"\|\s*grep\s+-\w*q\w*\s[^\n]*(?:\|\||&&)\s*[({]?\s*"
    r"(?:exit|return|echo\s+[\"']?(?:pass|fail|ok|wrong|not ok|error))",
    re.I,
)
_NOT_PROGRAMS = re.compile(
    r"\b(?:uname|id|whoami|date|pwd|hostname|nproc|basename|dirname|realpath|which|command -v|tty|\$\{?#)\b"
)


def shell_leak(code: str, prompt: str) -> str | None:
    """A test of a program's output against a literal, a diff with expected output, a `grep -q` that gives a verdict.

    Tests of files, of arguments, of the exit code and of the environment are preconditions.
    """
    if re.search(r"^\s*@test\s|^\s*(?:assert_\w+|assertEquals|run_test)\s", code, re.M):
        return "is a test of bats or shunit"
    captured = {name for name in _CAPTURED.findall(code) if not _NOT_PROGRAMS.search(_assigned(code, name))}
    for found in _TEST.finditer(code):
        inside = found.group(1)
        operator = _OPERATOR.search(inside)
        if operator is None:
            continue
        sides = inside[: operator.start()].strip(), inside[operator.end() :].strip()
        computed = [s for s in sides if _from_program(s, captured)]
        if computed and any(_LITERAL.match(side) for side in sides if side not in computed) and _decides(code, found):
            return f"tests an output: {found.group().strip()[:100]}"
    for found in _DIFF.finditer(code):
        operands = found.group(1)
        of_output = "<(" in operands or re.search(r"\s-(?:\s|$)|expected|golden|wanted", operands)
        if of_output and operands.strip() not in prompt:
            return f"compares outputs: {found.group().strip()[:100]}"
    if verdict := _GREP_VERDICT.search(code):
        return f"judges an output: {verdict.group().strip()[:100]}"
    return None


def _assigned(code: str, name: str) -> str:
    found = re.search(rf"^\s*(?:local\s+|export\s+|readonly\s+)?{name}=(.*)$", code, re.M)
    return found.group(1) if found else ""


def _from_program(side: str, captured: set[str]) -> bool:
    if _NOT_PROGRAMS.search(side):
        return False
    names = re.findall(r"\$\{?(\w+)", side)
    return "$(" in side or "`" in side or any(name in captured for name in names)


def _decides(code: str, found: re.Match[str]) -> bool:
    """Whether the test ends the script or says a verdict: what follows exits, returns, or prints one."""
    rest = code[found.end() : found.end() + 300]
    return bool(re.search(r"\bexit\b|\breturn\b|\becho\b|\bprintf\b|\bfalse\b|\bfail\w*\b", rest))

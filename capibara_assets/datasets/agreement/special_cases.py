"""Detection of repairs that only satisfy the shown test: by a special case, a literal, silence, or another test.

Judged by what the edit adds. A table, a choice among several literals, and what prose or the failing code hold already
are the program's own: an edit may go on with them.
"""

import ast
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from tree_sitter import Node

from capibara_assets.datasets.agreement.hardcoded import branches_by_case, is_constant, is_told, stands_in
from capibara_assets.datasets.anatomy.dissect import dissect
from capibara_assets.datasets.anatomy.stated import callees, stated_assertions
from capibara_assets.datasets.code import javascript_source, python_source
from capibara_assets.datasets.code.cases import Case, cases
from capibara_assets.datasets.code.returned import is_javascript_literal, is_literal, returned
from capibara_assets.datasets.code.sessions import cell_names
from capibara_assets.datasets.code.structure import tokens, without_comments
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.datasets.kinds.prompts import ERROR, SESSION, TESTS, section, stated
from capibara_assets.datasets.kinds.referents import speaks_of_errors
from capibara_assets.executions.parsing import JAVASCRIPT

BRANCHES = "its repair tells the case of the shown test apart instead of computing it"
HOLDS = "its repair returns what the shown test expects instead of computing it"
SILENT = "its repair silences every error instead of mending one"
SHOWS = "its repair changes nothing but what is shown"
OTHER_TEST = "its repair changes or drops the assertion that failed"
ELSEWHERE = "what its error misses stands in the session that its prompt shows: something else mended it"
UNDEFINED = "its error is of a function that neither prompt nor answer defines"

_UNBOUND = re.compile(r"NameError: name '(\w+)' is not defined|ReferenceError: ([\w$]+) is not defined")
_BROAD = frozenset({"Exception", "BaseException"})
_SHOWN = re.compile(r"\s*(?:print|console\.\w+)\(.*\);?\s*$")
_CALLED = re.compile(r"\s*([\w$]+)\(.*\);?$")
_NUMBER = re.compile(r"-?[\d.]+")
_LITERAL = re.compile(r"[rbfuRBFU]{0,2}['\"`]|\d")
_TABLE = 2  # results that make a choice among literals the program's own


@dataclass(frozen=True)
class Mended:
    """Failing and fixed code of a repair, with the other content of its prompt."""

    failing: str
    fixed: str
    language: str
    said: str  # the task
    cases: Collection[Case]  # that the prompt shows, or that judge the answer


def unmended(candidate: ExampleCandidate) -> str | None:
    """Why a recorded repair fixes nothing; None for other examples, since injected bugs were reverted exactly."""
    if candidate.failing is None or candidate.derived is not None:
        return None
    said = stated(candidate.prompt)
    shown = [said, section(candidate.prompt, TESTS), section(candidate.prompt, ERROR), candidate.test or ""]
    unbound = _UNBOUND.search(shown[2])
    before = cell_names(section(candidate.prompt, SESSION), candidate.language) if unbound else None
    if unbound and before is not None and (unbound[1] or unbound[2]) in before.bound:
        return ELSEWHERE
    asked = [callees(each) for each in stated_assertions(shown[2])]
    code = f"{candidate.prompt}\n{candidate.answer}"
    if any(not re.search(rf"\b(?:def|class)\s+{name}\b|\b{name}\s*=[^=]", code) for names in asked for name in names):
        return UNDEFINED
    told = cases("\n".join(shown))
    return why_fitted(Mended(candidate.failing, candidate.answer, candidate.language, said, told))


def why_fitted(one: Mended) -> str | None:
    """Why a repair of Python or JavaScript fixes nothing; None if it does, or cannot be parsed."""
    if one.language != "python" and one.language not in JAVASCRIPT:
        return None
    if _asserted(one.failing, one.language) - _asserted(one.fixed, one.language):
        return OTHER_TEST
    if not _is_slip(one):
        before, after = (without_comments(code, one.language) for code in (one.failing, one.fixed))
        if branches_by_case(after, one.said, one.cases, before=before):
            return BRANCHES
        if _holds(one):
            return HOLDS
    if not speaks_of_errors(one.said) and _silent(one.fixed, one.language) > _silent(one.failing, one.language):
        return SILENT
    return SHOWS if _only_shows(one) else None


def _asserted(code: str, language: str) -> frozenset[Case]:
    return cases("\n".join(dissect(code, language).tests)) if "assert" in code else frozenset()


def _is_slip(one: Mended) -> bool:
    """Whether the two sides differ in literals alone: one was mistaken."""
    before, after = (
        ["0" if _LITERAL.match(token) else token for token in tokens(code, one.language)]
        for code in (one.failing, one.fixed)
    )
    return before == after


def _holds(one: Mended) -> bool:
    """Whether the edit returns a literal that a case expects where the failing code computed or chose."""
    before, after = (returned(code, one.language) for code in (one.failing, one.fixed))
    old, new = ([form for form in forms if form is not None] for forms in (before, after))
    computes = not before or None in before
    expected = {case.expected for case in one.cases if case.arguments}
    if computes and None not in after and expected & set(new):
        numbers = all(_NUMBER.fullmatch(form) for form in new) and not any(stands_in(form, one.said) for form in new)
        if numbers or is_constant(after, one.said, one.cases):
            return True
    if len(set(new)) == 1 < len(set(old)):
        return None not in after and new[0] in expected
    choice = [form for form in old if not is_told(form, "")]
    added = {form for form in Counter(new) - Counter(old) if form[:1] not in ("'", '"') and not is_told(form, one.said)}
    return computes and len(choice) < _TABLE and bool(added & expected)


def _silent(code: str, language: str) -> int:
    """Handlers of any error that do nothing about it."""
    if language != "python":
        nodes = javascript_source.walk(javascript_source.parse(code))
        bodies = [node.child_by_field_name("body") for node in nodes if node.type == "catch_clause"]
        return sum(body is not None and all(map(_is_idle_javascript, body.named_children)) for body in bodies)
    caught = [node for node in python_source.nodes(code) if isinstance(node, ast.ExceptHandler)]
    return sum(_is_broad(one.type) and all(map(_is_idle, one.body)) for one in caught)


def _is_broad(caught: ast.expr | None) -> bool:
    return caught is None or not _BROAD.isdisjoint(python_source.names_in(caught))


def _is_idle(node: ast.stmt) -> bool:
    """Whether a statement is the same whatever went wrong."""
    if isinstance(node, ast.Return | ast.Assign):
        return node.value is None or is_literal(node.value)
    shown = isinstance(node, ast.Expr) and _SHOWN.match(ast.unparse(node)) is not None
    return shown or isinstance(node, ast.Pass | ast.Continue | ast.Break)


def _is_idle_javascript(node: Node) -> bool:
    if node.type == "return_statement":
        return all(map(is_javascript_literal, node.named_children))
    shown = _SHOWN.match(javascript_source.text(node)) is not None
    return shown or node.type in ("comment", "continue_statement", "break_statement")


def _only_shows(one: Mended) -> bool:
    """Whether all that the edit does is add outputs and calls of the code's own functions."""
    before, after = (
        [line.rstrip() for line in without_comments(code, one.language).split("\n") if line.strip()]
        for code in (one.failing, one.fixed)
    )
    own = set(re.findall(r"\b(?:def|function)\s+(\w+)", one.fixed))
    rest = before[::-1]
    for line in after:
        if rest and line == rest[-1]:
            rest.pop()
        elif not _SHOWN.match(line) and not ((called := _CALLED.match(line)) and called[1] in own):
            return False
    return not rest

"""Detection of functions that answer case by case: a branch or table entry per case with its expected result.

Unlike `hardcoded.py` this reads the branches themselves, so that small numbers count: `if (n == 1) return 2;` and two
more such lines answer three cases, `return n * (n + 1)` none.
"""

import ast
from collections.abc import Collection, Iterator

from tree_sitter import Node

from capibara_assets.datasets.agreement.hardcoded import stands_in
from capibara_assets.datasets.code import javascript_source, python_source
from capibara_assets.datasets.code.cases import Case, cases
from capibara_assets.executions.parsing import walk

_FEWEST = 2
_LOOPS = frozenset(("for_statement", "for_in_statement", "while_statement", "do_statement"))
_SIGNS = frozenset(("==", "==="))

Answer = tuple[frozenset[str], str]  # the literals that arguments are compared with, and the literal given for them


def tells_apart(code: str, language: str, said: str, asked: Collection[Case]) -> bool:
    """Whether two cases or more (for straight-line code: all, or two thirds) have their own answer.

    A recursion's first values and a guard are such answers, too, of few of its cases.

    Args:
        said: the task; an answer that its prose names (`at Midwinter soup`) is none.
    """
    given = [case for case in asked if case.arguments]
    answers, computes = _of_python(code) if language == "python" else _of_javascript(code)
    answers = [one for one in answers if not all(stands_in(form, said) for form in (*one[0], one[1]))]
    answered = [case for case in given if any(_fits(case, answer) for answer in answers)]
    distinct = {case.expected for case in answered}
    if len(answered) < _FEWEST or len(distinct) < _FEWEST:
        return False
    return len(answered) == len(given) or (not computes and 3 * len(answered) >= 2 * len(given))


def _fits(case: Case, answer: Answer) -> bool:
    compared, form = answer
    arguments = f",{case.arguments},"
    return form == case.expected and bool(compared) and all(f",{one}," in arguments for one in compared)


def _case_form(literal: str) -> tuple[str, str] | None:
    """(as an argument, as an expected value) the forms that a case gives a literal."""
    return next(((case.arguments, case.expected) for case in cases(f"f({literal}) == {literal}")), None)


# --- JavaScript -------------------------------------------------------------------------------------------------------


def _of_javascript(code: str) -> tuple[list[Answer], bool]:
    root = javascript_source.parse(code)
    nodes = list(javascript_source.walk(root))
    own = set(javascript_source.declared(root))
    called = [node.child_by_field_name("function") for node in nodes if node.type == "call_expression"]
    recurs = any(one is not None and javascript_source.text(one) in own for one in called)
    computes = recurs or any(node.type in _LOOPS for node in nodes)
    return [answer for node in nodes for answer in _answers_of(node)], computes


def _answers_of(node: Node) -> Iterator[Answer]:
    if node.type in ("if_statement", "ternary_expression"):
        condition, then = node.child_by_field_name("condition"), node.child_by_field_name("consequence")
        form = _given(then) if then is not None else None
        for compared in _alternatives(condition) if condition is not None and form is not None else ():
            yield compared, str(form)
    elif node.type == "switch_case":
        value, body = node.child_by_field_name("value"), node.named_children[1:]
        key, form = _form(value, 0), _given(body[0]) if body else None
        if key is not None and form is not None:
            yield frozenset([key]), form
    elif node.type == "subscript_expression":
        table = node.child_by_field_name("object")
        yield from _entries(table) if table is not None else ()


def _entries(table: Node) -> Iterator[Answer]:
    """The entries of an object that is looked up where it is written."""
    while table.type == "parenthesized_expression" and table.named_children:
        table = table.named_children[0]
    for pair in table.named_children if table.type == "object" else ():
        key, value = pair.child_by_field_name("key"), pair.child_by_field_name("value")
        name = javascript_source.text(key) if key is not None else ""
        quoted = name if name[:1] in "'\"" or name[:1].isdigit() else f"'{name}'"
        compared, form = _case_form(quoted), _form(value, 1)
        if compared is not None and form is not None:
            yield frozenset([compared[0]]), form


def _alternatives(condition: Node) -> Iterator[frozenset[str]]:
    """What the arguments are compared with, by each side of an `||`; none where something else is asked as well."""
    while condition.type == "parenthesized_expression" and condition.named_children:
        condition = condition.named_children[0]
    if condition.type != "binary_expression":
        return
    sign = condition.child_by_field_name("operator")
    sides = [condition.child_by_field_name(name) for name in ("left", "right")]
    text = javascript_source.text(sign) if sign is not None else ""
    left, right = (side for side in sides if side is not None)
    if text == "||":
        yield from _alternatives(left)
        yield from _alternatives(right)
    elif text == "&&":
        for one in _alternatives(left):
            yield from (one | other for other in _alternatives(right))
    elif text in _SIGNS:
        literals = [form for side in (left, right) if (form := _form(side, 0)) is not None]
        if len(literals) == 1:
            yield frozenset(literals)


def _given(then: Node) -> str | None:
    """The literal that a branch gives, alone."""
    if then.type == "statement_block":
        return _given(then.named_children[0]) if len(then.named_children) == 1 else None
    if then.type == "return_statement":
        return _form(then.named_children[0], 1) if then.named_children else None
    return _form(then, 1)


def _form(node: Node | None, side: int) -> str | None:
    """A literal in the form of a case's arguments (0) or expected value (1)."""
    if node is None or node.type not in ("number", "string", "true", "false", "null", "array", "unary_expression"):
        return None
    case_form = _case_form(javascript_source.text(node))
    return case_form[side] if case_form is not None else None


# --- Python -----------------------------------------------------------------------------------------------------------


def _of_python(code: str) -> tuple[list[Answer], bool]:
    tree = python_source.parse(code)
    if tree is None:
        return [], True
    nodes = list(walk(tree))
    own = {node.name for node in nodes if isinstance(node, python_source.Function)}
    calls = [node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    loops = any(isinstance(node, ast.For | ast.While | ast.comprehension) for node in nodes)
    return [answer for node in nodes for answer in _python_answers(node)], loops or bool(own & set(calls))


def _python_answers(node: ast.AST) -> Iterator[Answer]:
    match node:
        case ast.If(test=test, body=[ast.Return(value=ast.expr() as value)]) | ast.IfExp(test=test, body=value):
            form = _python_form(value, 1)
            yield from ((compared, form) for compared in _python_alternatives(test) if form is not None)
        case ast.Subscript(value=ast.Dict(keys=keys, values=values)):
            for key, value in zip(keys, values, strict=True):
                compared, form = _python_form(key, 0), _python_form(value, 1)
                if compared is not None and form is not None:
                    yield frozenset([compared]), form


def _python_alternatives(test: ast.expr) -> Iterator[frozenset[str]]:
    match test:
        case ast.BoolOp(op=ast.Or(), values=values):
            for value in values:
                yield from _python_alternatives(value)
        case ast.BoolOp(op=ast.And(), values=values):
            listed = [list(_python_alternatives(value)) for value in values]
            if all(len(one) == 1 for one in listed):
                yield frozenset().union(*(one[0] for one in listed))
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            literals = [form for side in (left, right) if (form := _python_form(side, 0)) is not None]
            if len(literals) == 1:
                yield frozenset(literals)


def _python_form(node: ast.expr | None, side: int) -> str | None:
    if node is None or not isinstance(node, ast.Constant | ast.UnaryOp | ast.List | ast.Tuple):
        return None
    case_form = _case_form(ast.unparse(node))
    return case_form[side] if case_form is not None else None

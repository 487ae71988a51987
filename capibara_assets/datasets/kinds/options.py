"""Cut options of web frameworks that an answer sets and its test does not show, where the test alone states the task.

A request and its answer say nothing of an application's title, of bounds that no request passes, or of an alias that
none uses. What remains is judged by the test, as every answer is.
"""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from capibara_assets.datasets.code import python_source
from capibara_assets.datasets.code.python_source import Function, Places, called_name
from capibara_assets.executions.parsing import walk

_DECLARING = frozenset(("FastAPI", "APIRouter", "Flask", "Blueprint", "Query", "Path", "Body", "Header", "Cookie"))
_DECLARING |= {"Form", "File", "Field", "Depends"}
_ROUTES = frozenset(("get", "post", "put", "patch", "delete", "head", "options", "route"))  # where they decorate
_CONFIG = frozenset(("model_config", "Config"))
_NAMING = frozenset(("generate_unique_id_function",))  # functions that no response shows; others run with requests
_HOOKS = frozenset(("exception_handler", "middleware"))
_LEAST_STATUS = 100  # of HTTP: a smaller number in a hook is a count or a place


def without_options(answer: str, told: str) -> str:
    """Python without keyword arguments, settings of models and hooks whose texts or numbers nothing tells.

    Args:
        told: prompt and test.
    """
    tree = python_source.parse(answer)
    if tree is None:
        return answer
    places, spans = Places(answer), list[tuple[int, int]]()
    own = {name for node in tree.body if isinstance(node, ast.Assign) for name in _constants(node, told)}
    for node in walk(tree):
        if isinstance(node, ast.Call) and called_name(node) in _DECLARING:
            spans += _spans(node, own, told, places)
        elif isinstance(node, Function) and _is_unasked_hook(node, told):
            spans.append((places.at(node.decorator_list[0].lineno, 0), places.at((node.end_lineno or 0) + 1, 0)))
        elif isinstance(node, Function) and (routes := _routes(node)):
            spans += [span for route in routes for span in _spans(route, own, told, places)]
            spans += _unasked_parameters(node, told, places)
        elif isinstance(node, ast.ClassDef) and len(node.body) > 1:
            spans += [
                (places.at(part.lineno, 0), places.at(following.lineno, 0))
                for part, following in pairwise(node.body)
                if _is_config(part) and _untold(part, set(), told)
            ]
    last = len(answer)
    for start, end in sorted(spans, key=lambda span: (-span[1], span[0])):
        if end <= last:  # else it is part of what went
            answer, last = answer[:start] + answer[end:], start
    return answer


def _routes(function: Function) -> list[ast.Call]:
    """The decorators that register a function for requests; none if others decorate it, too."""
    listed = [one for one in function.decorator_list if isinstance(one, ast.Call) and called_name(one) in _ROUTES]
    return listed if len(listed) == len(function.decorator_list) else []


def _is_unasked_hook(function: Function, told: str) -> bool:
    """Whether a function that runs beside requests, such as a handler of errors, holds nothing that they show.

    One that makes a response of its own shows in its form.
    """
    hooks = [one for one in function.decorator_list if isinstance(one, ast.Call) and called_name(one) in _HOOKS]
    if not hooks or len(hooks) < len(function.decorator_list):
        return False
    parts = [part for statement in function.body for part in walk(statement)]
    if any(isinstance(part, ast.Name) and part.id.endswith("Response") for part in parts):
        return False
    held = [part.value for part in parts if isinstance(part, ast.Constant)]
    shown: list[str | int] = [one for one in held if isinstance(one, str) and one.strip()]
    shown += [one for one in held if type(one) is int and one >= _LEAST_STATUS]
    return not any(_is_told(one, told) for one in shown)


def _unasked_parameters(route: Function, told: str, places: Places) -> list[tuple[int, int]]:
    """Where the parameters of a route stand that no request passes, and the blocks for the case that one did."""
    given = route.args.args
    without_default = len(given) - len(route.args.defaults)
    if route.args.kwonlyargs:
        return []
    last: list[ast.arg | ast.expr] = [*given[:without_default], *route.args.defaults]
    ends = [places.at(end.end_lineno or end.lineno, end.end_col_offset or 0) for end in last]
    spans: list[tuple[int, int]] = []
    for n, (one, default) in enumerate(zip(given[without_default:], route.args.defaults, strict=True), without_default):
        aliases = [part.value for part in (*walk(one), *walk(default)) if isinstance(part, ast.Constant)]
        passed = any(isinstance(alias, str) and alias in told for alias in aliases)
        if not _is_none(default) or n == 0 or passed or re.search(rf"\b{one.arg}\b", told):
            continue
        blocks = [each for each in route.body if isinstance(each, ast.If) and _is_named(each.test, one.arg)]
        kept = [each for each in route.body if each not in blocks]
        if kept and not any(_is_named(part, one.arg) for each in kept for part in walk(each)):
            spans.append((ends[n - 1], ends[n]))
            spans += [(places.at(each.lineno, 0), places.at((each.end_lineno or 0) + 1, 0)) for each in blocks]
    return spans


def _is_none(node: ast.expr) -> bool:
    """Whether a default is None, or that of a query."""
    if isinstance(node, ast.Call) and called_name(node) == "Query":
        given = [*node.args[:1], *(each.value for each in node.keywords if each.arg == "default")]
        return bool(given) and _is_none(given[0])
    return isinstance(node, ast.Constant) and node.value is None


def _is_named(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _constants(node: ast.Assign, told: str) -> Iterator[str]:
    """Names that get a text or number which nothing tells."""
    if isinstance(node.value, ast.Constant) and _untold(node.value, set(), told):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _is_config(node: ast.stmt) -> bool:
    if isinstance(node, ast.ClassDef):
        return node.name in _CONFIG
    return isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id in _CONFIG for t in node.targets)


def _spans(call: ast.Call, own: set[str], told: str, places: Places) -> list[tuple[int, int]]:
    """Where the untold keyword arguments stand, each with the comma that goes with it."""
    parts: list[ast.expr | ast.keyword] = sorted(
        [*call.args, *call.keywords], key=lambda one: (one.lineno, one.col_offset)
    )
    kept = [one for one in parts if not (isinstance(one, ast.keyword) and _is_unasked(one, own, told))]
    if len(kept) == len(parts):
        return []
    ends = [places.at(one.end_lineno or one.lineno, one.end_col_offset or 0) for one in (call.func, *parts)]
    starts = [places.at(one.lineno, one.col_offset) for one in parts]
    if not kept:
        return [(ends[0] + 1, places.at(call.end_lineno or call.lineno, call.end_col_offset or 0) - 1)]
    first = parts.index(kept[0])
    gone = [(ends[n], ends[n + 1]) for n, one in enumerate(parts) if one not in kept and n > first]
    return [(starts[0], starts[first]), *gone] if first else gone


def _is_unasked(option: ast.keyword, own: set[str], told: str) -> bool:
    if isinstance(option.value, ast.Name):
        name = option.value.id
        if option.arg in _NAMING or (option.arg == "response_class" and name.endswith("JSONResponse")):
            return name not in told
    return option.arg is not None and _untold(option.value, own, told)


def _untold(value: ast.AST, own: set[str], told: str) -> bool:
    """Whether a value holds a text, a number or a name of `own`, and one of them is not told."""
    constants = [node.value for node in walk(value) if isinstance(node, ast.Constant)]
    texts = [one for one in constants if isinstance(one, str)]
    texts += [node.id for node in walk(value) if isinstance(node, ast.Name) and node.id in own]
    numbers = [one for one in constants if isinstance(one, int | float) and not isinstance(one, bool)]
    return not all(_is_told(one, told) for one in (*texts, *numbers))


def _is_told(constant: str | float, told: str) -> bool:
    if isinstance(constant, str):
        return constant in told
    return re.search(rf"(?<![\w.]){re.escape(str(constant))}(?![\w.])", told) is not None

"""Extracts evidence of domains from one piece of code, and facts for scoring; equal code is analysed once."""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from capibara_assets.domains import Domain
from capibara_assets.executions.labels.hosted_models import MODEL_ENDPOINTS, hosted_model_text, is_model_call
from capibara_assets.executions.labels.javascript_signals import javascript_signs
from capibara_assets.executions.labels.libraries import (
    ATTRIBUTES,
    GENERAL,
    HTTP_METHODS,
    KEYWORDS,
    METHODS,
    SQL_MAGICS,
    VARIABLES,
    Signal,
    distribution_signal,
    module_signal,
)
from capibara_assets.executions.parsing import (
    embedded_sql,
    is_statementless,
    magics,
    parse_javascript,
    parse_python,
    parse_sql,
    python_nodes,
)

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PER_SIGN = 3.0  # one sign, repeated in a cell, counts at most this much
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import|import[ \t]+([\w.]+))", re.MULTILINE)
_SQL = re.compile(
    r"\s*(?:--[^\n]*\n\s*)*(?:select\b.+?\bfrom\b|with\b.+?\bas\s*\(|insert\s+(?:or\s+\w+\s+)?into\b|update\s+\S+\s+set\b|delete\s+from\b"
    r"|create\s+(?:or\s+replace\s+|temp(?:orary)?\s+|unique\s+|virtual\s+)*(?:table|view|index|trigger)\b|alter\s+table\b|drop\s+table\b"
    r"|pragma\s+\w+)",
    re.IGNORECASE | re.DOTALL,
)
_URL = re.compile(r"(?:https?|wss?)://")
_ROUTE = re.compile(r"/[\w{}<>:./?=&%-]*$")
_INSTALL = re.compile(r"^[^\S\n]*[%!]\s*(?:uv\s+)?(?:pip3?|conda|mamba|python3? -m pip)\s+install\s+(.*)", re.MULTILINE)
_DISTRIBUTION = re.compile(r"^['\"]?([A-Za-z][\w.-]*)")


class Sign(NamedTuple):
    """One observation in a piece of code, and its weight as evidence for a domain."""

    domain: Domain
    what: str
    weight: float
    helper: bool = False  # of a library that turns up in sessions about anything


@dataclass(frozen=True, slots=True)
class CodeFacts:
    """Facts about a piece of code from static analysis."""

    parses: bool
    empty: bool  # only comments, magics, shell lines: noise
    checks: bool  # asserts something, so that silence is a result
    signs: tuple[Sign, ...]  # strongest first

    def score(self, domain: Domain) -> float:
        """Total weight of the evidence for a domain."""
        return sum(sign.weight for sign in self.signs if sign.domain == domain)

    def strongest(self, domains: Sequence[Domain]) -> tuple[Domain, float]:
        """The domain with most evidence, and its weight; the first of equals."""
        if not self.signs:
            return domains[0], 0.0
        own = max(domains, key=self.score)
        return own, self.score(own)


@lru_cache(maxsize=16_384)
def code_facts(language: str, code: str) -> CodeFacts:
    """Facts about `code`; languages without a parser count as parsed when they are not blank."""
    blank = not code.strip()
    match language:
        case "python":
            return _python_facts(code)
        case "javascript" | "typescript":
            # TypeScript is read by JavaScript's grammar: good enough to tell code from rubbish
            root = parse_javascript(code).root_node
            parses = not blank and (language == "typescript" or not root.has_error)
            signs = ranked(Sign(*sign) for sign in javascript_signs(root, code))
            return CodeFacts(parses, blank, "assert" in code or "throw " in code, signs)
        case "sql":
            statements = None if blank else parse_sql(code)
            return CodeFacts(statements is not None, blank, False, ())
    return CodeFacts(not blank, blank, False, ())


def _python_facts(code: str) -> CodeFacts:
    magic = list(_magic_signs(code))
    tree = parse_python(code)
    if tree is None:
        if is_sql(code):  # sent under the wrong language
            return CodeFacts(False, False, False, (Sign(Domain.SQL, "a SQL statement", 4.0),))
        # broken code is still told by its imports
        modules = [a or b for a, b in _IMPORT.findall(code)]
        return CodeFacts(False, not code.strip(), False, ranked([*magic, *_import_signs(modules)]))
    signs: list[Sign] = magic
    nodes = python_nodes(code)
    # the most frequent kinds of nodes are single words
    signs += [_known(VARIABLES[node.id], node.id) for node in nodes.get(ast.Name, ()) if node.id in VARIABLES]
    signs += [
        _known(ATTRIBUTES[node.attr], f".{node.attr}")
        for node in nodes.get(ast.Attribute, ())
        if node.attr in ATTRIBUTES
    ]
    for kind, read in _READERS.items():
        for node in nodes.get(kind, ()):
            signs.extend(read(node))
    own = {f".{node.name}()" for kind in _FUNCTIONS for node in nodes.get(kind, ())}
    signs = [sign for sign in signs if sign.what not in own]  # a method that the code defines is no library's
    queries = any(sign.what == "a SQL magic" for sign in magic)
    return CodeFacts(True, not queries and is_statementless(tree), ast.Assert in nodes, ranked(signs))


def ranked(signs: Iterable[Sign]) -> tuple[Sign, ...]:
    """Adds up repeated signs, to a cap, and sorts them strongest first."""
    totals: dict[tuple[Domain, str, bool], float] = defaultdict(float)
    for domain, what, weight, helper in signs:
        key = domain, what, helper
        totals[key] = min(totals[key] + weight, max(_PER_SIGN, weight))
    ordered = sorted(totals.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Sign(domain, what, weight, helper) for (domain, what, helper), weight in ordered)


# --- imports and magics ---------------------------------------------------------------------------------------------


def _import_signs(modules: Iterable[str]) -> Iterator[Sign]:
    for module in modules:
        if (known := module_signal(module)) and known[0] not in GENERAL:
            name, signal = known
            yield Sign(signal.domain, f"import {name}", signal.weight, signal.helper)


def _magic_signs(code: str) -> Iterator[Sign]:
    for name, rest in magics(code):
        if name.lower() in SQL_MAGICS:
            yield Sign(Domain.SQL, "a SQL magic", 4.0)
        elif name == "load_ext" and rest.split(".")[0] in SQL_MAGICS:
            yield Sign(Domain.SQL, "a SQL extension", 3.0)
    for installed in _INSTALL.findall(code) if "install" in code else ():
        for word in installed.split():
            named = _DISTRIBUTION.match(word)
            if named and (known := distribution_signal(named.group(1))):
                module, signal = known
                yield Sign(signal.domain, f"install {module}", signal.weight / 2, signal.helper)


# --- Python, by kind of node ----------------------------------------------------------------------------------------


def _import(node: ast.Import) -> Iterable[Sign]:
    return _import_signs([alias.name for alias in node.names])


def _import_from(node: ast.ImportFrom) -> Iterable[Sign]:
    if node.module is None or node.level:
        return ()
    return _import_signs([f"{node.module}.{node.names[0].name}"])


def _call(call: ast.Call) -> Iterator[Sign]:
    for keyword in call.keywords:
        if keyword.arg in KEYWORDS:
            yield _known(KEYWORDS[keyword.arg], f"{keyword.arg}=")
    function = call.func
    called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if is_model_call(called):
        yield Sign(Domain.API, "a call of a language model", 1.5)
    if not isinstance(function, ast.Attribute):
        return
    first = call.args[0] if call.args else None
    owner = function.value.id if isinstance(function.value, ast.Name) else ""
    if called in METHODS and owner not in sys.stdlib_module_names:
        yield _known(METHODS[called], f".{called}()")
    text = leading_text(first)
    if text is not None:
        if called in HTTP_METHODS and (_URL.match(text) or _ROUTE.match(text)):
            # a whole address may be a mere download; a path belongs to a client of some service
            yield Sign(Domain.API, f".{called}(path)", 2.5, helper=_URL.match(text) is not None)
        elif _URL.match(text):
            yield Sign(Domain.API, "a URL argument", 0.5, helper=True)
    if called == "execute" and (first is None or text is None or is_sql(text)):
        yield Sign(Domain.SQL, ".execute()", 1.5)
    if _dotted(function).endswith(MODEL_ENDPOINTS):
        yield Sign(Domain.API, "a call of a model client", 3.0)


def _function(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Sign]:
    for decorator in function.decorator_list:
        match decorator:
            case ast.Call(func=ast.Attribute(attr=name), args=[first, *_]) if name in HTTP_METHODS:
                if leading_text(first) is not None:
                    yield Sign(Domain.API, f"@.{name}(path)", 3.0)
            case ast.Call(func=ast.Attribute(attr="middleware" | "exception_handler" | "on_event")):
                yield Sign(Domain.API, "@ of a web application", 2.0)
            case ast.Attribute(attr="before_request" | "after_request" | "errorhandler" | "teardown_request"):
                yield Sign(Domain.API, "@ of a web application", 2.0)


def _dict(node: ast.Dict) -> Iterable[Sign]:
    keys = {key.value for key in node.keys if type(key) is ast.Constant}
    return (Sign(Domain.API, "a chat message", 1.5),) if {"role", "content"} <= keys else ()


def _constant(node: ast.Constant) -> Iterable[Sign]:
    text = node.value
    return _text_signs(text) if type(text) is str and len(text) >= 4 else ()


@lru_cache(maxsize=16_384)
def _text_signs(text: str) -> tuple[Sign, ...]:
    if len(text) >= 12 and is_sql(text):
        return (Sign(Domain.SQL, "a SQL string", 2.0),)
    what = hosted_model_text(text)
    return () if what is None else (Sign(Domain.API, what, 1.5),)


def _formatted(node: ast.JoinedStr) -> Iterator[Sign]:
    """An f-string is SQL when it reads as SQL with a name in place of each value."""
    parts = [part.value if isinstance(part, ast.Constant) else "x1" for part in node.values]
    text = "".join(part for part in parts if isinstance(part, str))
    if len(parts) > 1 and len(text) >= 12 and is_sql(text):
        yield Sign(Domain.SQL, "a SQL string", 2.0)


_READERS: dict[type[ast.AST], Callable[[Any], Iterable[Sign]]] = {
    ast.Import: _import,
    ast.ImportFrom: _import_from,
    ast.Call: _call,
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.Dict: _dict,
    ast.Constant: _constant,
    ast.JoinedStr: _formatted,
}


def _known(signal: Signal, what: str) -> Sign:
    return Sign(signal.domain, what, signal.weight, signal.helper)


def leading_text(node: ast.expr | None) -> str | None:
    """The text that a string or f-string begins with; None for other expressions."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
            return text
    return None


def _dotted(node: ast.expr) -> str:
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join(reversed(names))


@lru_cache(maxsize=4096)
def is_sql(text: str) -> bool:
    """Whether a string is a SQL statement (that some common dialect can read)."""
    match = _SQL.match(text)
    return match is not None and parse_sql(embedded_sql(text)) is not None

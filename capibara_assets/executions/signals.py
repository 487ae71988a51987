"""What one piece of code says about its domain, and a few facts that scoring needs; equal code is read once."""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from capibara_assets.domains import Domain
from capibara_assets.executions.libraries import (
    ALIASES,
    ATTRIBUTES,
    HTTP_METHODS,
    KEYWORDS,
    METHODS,
    MODULES,
    VARIABLES,
    module_signal,
)
from capibara_assets.executions.parsing import is_statementless, parse_javascript, parse_python, parse_sql

_PER_SIGN = 3.0  # one sign, repeated in a cell, counts at most this much
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import|import[ \t]+([\w.]+))", re.MULTILINE)
_SQL = re.compile(
    r"\s*(?:--[^\n]*\n\s*)*(?:select\b.+?\bfrom\b|with\b.+?\bas\s*\(|insert\s+(?:or\s+\w+\s+)?into\b|update\s+\S+\s+set\b|delete\s+from\b"
    r"|create\s+(?:or\s+replace\s+|temp(?:orary)?\s+|unique\s+|virtual\s+)*(?:table|view|index|trigger)\b|alter\s+table\b|drop\s+table\b"
    r"|pragma\s+\w+)",
    re.IGNORECASE | re.DOTALL,
)
_URL = re.compile(r"https?://")
_MODEL_CALL = frozenset({"llm", "completion", "completions", "chat"})  # words of a function's name
_MODEL_ENDPOINTS = ("messages.create", "completions.create", "responses.create", "embeddings.create")
_ROUTE = re.compile(r"/[\w{}./?=&%-]*$")


@dataclass(frozen=True, slots=True)
class CodeFacts:
    """What is known of a piece of code without running it."""

    parses: bool
    empty: bool  # only comments, magics, shell lines: noise
    checks: bool  # asserts something, so that silence is a result
    signs: tuple[tuple[Domain, str, float], ...]  # (domain, what was seen, weight), strongest first

    def score(self, domain: Domain) -> float:
        return sum(weight for of, _, weight in self.signs if of == domain)


@lru_cache(maxsize=16_384)
def code_facts(language: str, code: str) -> CodeFacts:
    """Facts about `code`; languages without a parser count as parsed when they are not blank."""
    blank = not code.strip()
    match language:
        case "python":
            return _python_facts(code)
        case "javascript" | "typescript":
            # TypeScript is read by JavaScript's grammar: good enough to tell code from rubbish
            parses = not blank and (language == "typescript" or not parse_javascript(code).root_node.has_error)
            return CodeFacts(parses, blank, "assert" in code or "throw " in code, ())
        case "sql":
            statements = None if blank else parse_sql(code)
            return CodeFacts(statements is not None, blank, False, ())
    return CodeFacts(not blank, blank, False, ())


def _python_facts(code: str) -> CodeFacts:
    tree = parse_python(code)
    if tree is None:
        # broken code is still told by its imports
        modules = [a or b for a, b in _IMPORT.findall(code)]
        return CodeFacts(False, not code.strip(), False, _ranked(_import_signs(modules)))
    nodes = list(ast.walk(tree))
    checks = any(isinstance(node, ast.Assert) for node in nodes)
    return CodeFacts(True, is_statementless(tree), checks, _ranked(_signs(nodes)))


def _ranked(signs: Iterator[tuple[Domain, str, float]]) -> tuple[tuple[Domain, str, float], ...]:
    """Repetitions added up to a cap, strongest first."""
    totals: dict[tuple[Domain, str], float] = defaultdict(float)
    for domain, what, weight in signs:
        totals[domain, what] = min(totals[domain, what] + weight, max(_PER_SIGN, weight))
    return tuple((d, w, t) for (d, w), t in sorted(totals.items(), key=lambda item: (-item[1], item[0])))


def _import_signs(modules: list[str]) -> Iterator[tuple[Domain, str, float]]:
    for module in modules:
        if signal := module_signal(module):
            yield signal[1], f"import {signal[0]}", signal[2]


def _signs(nodes: Iterable[ast.AST]) -> Iterator[tuple[Domain, str, float]]:
    for node in nodes:
        match node:
            case ast.Import():
                yield from _import_signs([alias.name for alias in node.names])
            case ast.ImportFrom(module=str(module)):
                yield from _import_signs([f"{module}.{alias.name}" for alias in node.names][:1])
            case ast.Call():
                yield from _call_signs(node)
            case ast.Attribute(attr=str(name), value=value):
                if name in ATTRIBUTES:
                    yield ATTRIBUTES[name][0], f".{name}", ATTRIBUTES[name][1]
                if isinstance(value, ast.Name) and value.id in ALIASES:
                    domain = MODULES[ALIASES[value.id]][0]
                    # pandas is also how SQL is run from Python
                    yield (Domain.SQL if name.startswith("read_sql") else domain), f"{value.id}.", 0.8
            case ast.Name(id=name) if name in VARIABLES:
                yield VARIABLES[name][0], name, VARIABLES[name][1]
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _decorator_signs(node)
            case ast.Dict(keys=keys) if {"role", "content"} <= {k.value for k in keys if isinstance(k, ast.Constant)}:
                yield Domain.API, "a chat message", 1.5
            case ast.Constant(value=str(text)) if len(text) >= 12 and is_sql(text):
                yield Domain.SQL, "a SQL string", 2.0


def _call_signs(call: ast.Call) -> Iterator[tuple[Domain, str, float]]:
    for keyword in call.keywords:
        if keyword.arg in KEYWORDS:
            domain, weight = KEYWORDS[keyword.arg]
            yield domain, f"{keyword.arg}=", weight
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if not _MODEL_CALL.isdisjoint(called.lower().split("_")):
        yield Domain.API, "a call of a language model", 1.5
    if not isinstance(call.func, ast.Attribute):
        return
    name, first = call.func.attr, call.args[0] if call.args else None
    owner = call.func.value.id if isinstance(call.func.value, ast.Name) else ""
    if name in METHODS and owner not in sys.stdlib_module_names:
        yield METHODS[name][0], f".{name}()", METHODS[name][1]
    text = leading_text(first)
    if name in HTTP_METHODS and text is not None and (_URL.match(text) or _ROUTE.match(text)):
        yield Domain.API, f".{name}(path)", 2.5
    elif text is not None and _URL.match(text):
        yield Domain.API, "a URL argument", 0.5
    if name == "execute" and (first is None or text is None or is_sql(text)):
        yield Domain.SQL, ".execute()", 1.5
    if name == "create" and _dotted(call.func).endswith(_MODEL_ENDPOINTS):
        yield Domain.API, ".create() of a model client", 3.0


def _decorator_signs(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[Domain, str, float]]:
    for decorator in function.decorator_list:
        match decorator:
            case ast.Call(func=ast.Attribute(attr=name), args=[first, *_]) if name in HTTP_METHODS:
                if leading_text(first) is not None:
                    yield Domain.API, f"@.{name}(path)", 3.0
            case ast.Call(func=ast.Attribute(attr="middleware" | "exception_handler" | "on_event")):
                yield Domain.API, "@ of a web application", 2.0


def leading_text(node: ast.expr | None) -> str | None:
    """The text a string or f-string begins with."""
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
    return match is not None and parse_sql(text) is not None

"""Signals of further domains in a JavaScript program: it calls services, queries a database, or imports libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from capibara_assets.domains import Domain
from capibara_assets.executions.labels.libraries import HTTP_METHODS, JAVASCRIPT_MODULES

if TYPE_CHECKING:
    from tree_sitter import Node

_WORDS = ("fetch(", "XMLHttpRequest", "WebSocket", "EventSource", "'/", '"/', "`/", "http")
# most programs hold nothing of this kind: they need no walk
_CALLS = re.compile(
    r"\bfetch\(|XMLHttpRequest|WebSocket|EventSource|\.(?:get|post|put|delete|patch)\(\s*['\"`](?:/|http)"
)
_IMPORTS = re.compile(r"\b(?:require\(\s*+|import\b[^;'\"`]{0,2000})['\"`](?:node:)?([^'\"`]+)['\"`]")
_VERBS = ("select", "insert into", "update", "delete from", "create table")
_QUERIES = re.compile(rf"['\"`]\s*(?:{'|'.join(_VERBS)})\s", re.IGNORECASE)
_SQL = re.compile(
    r"\s*(?:select\b.+\bfrom\b|insert\s+into\b|update\s+\S+\s+set\b|delete\s+from\b|create\s+table\b)",
    re.IGNORECASE | re.DOTALL,
)
_CONSTRUCTED = {"XMLHttpRequest", "WebSocket", "EventSource"}


def javascript_signs(root: Node, code: str) -> Iterator[tuple[Domain, str, float, bool]]:
    """(domain, what was seen, weight, helper) for each call or import that speaks for a further domain."""
    if not _is_telling(code):
        return
    stack = [root]
    while stack:
        node = stack.pop()
        stack.extend(node.named_children)
        kind = node.type
        if kind == "import_statement":
            yield from _imported(node.child_by_field_name("source"))
        elif kind == "new_expression":
            if (name := _text(node.child_by_field_name("constructor"))) in _CONSTRUCTED:
                yield Domain.API, f"new {name}", 3.0, False
        elif kind == "call_expression":
            yield from _called(node)


def _is_telling(code: str) -> bool:
    imported = ("require(" in code or "import" in code) and not JAVASCRIPT_MODULES.keys().isdisjoint(
        _IMPORTS.findall(code)
    )
    if imported or (any(word in code for word in _WORDS) and _CALLS.search(code) is not None):
        return True
    lowered = code.lower()
    return any(verb in lowered for verb in _VERBS) and _QUERIES.search(code) is not None


def _called(node: Node) -> Iterator[tuple[Domain, str, float, bool]]:
    function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    if function is None or arguments is None:
        return
    first = arguments.named_children[0] if arguments.named_children else None
    name = _text(function)
    if name == "fetch":
        yield Domain.API, "fetch()", 4.0, False
    elif name in ("require", "import"):
        yield from _imported(first)
    elif function.type == "member_expression" and first is not None:
        method, text = _text(function.child_by_field_name("property")), _text(first).strip("'\"`")
        if method in HTTP_METHODS and text.startswith(("/", "http://", "https://")):
            yield Domain.API, f".{method}(path)", 2.5, False
        elif first.type in ("string", "template_string") and _SQL.match(text):
            yield Domain.SQL, "a SQL string", 2.0, False


def _imported(source: Node | None) -> Iterator[tuple[Domain, str, float, bool]]:
    name = _text(source).strip("'\"`").removeprefix("node:")
    if (domain := JAVASCRIPT_MODULES.get(name)) is not None:
        yield domain, f"import {name}", 4.0, False


def _text(node: Node | None) -> str:
    return "" if node is None or node.text is None else node.text.decode("utf-8", "replace")

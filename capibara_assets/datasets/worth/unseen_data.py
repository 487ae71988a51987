"""Repairs that need to have seen the data of a file, of which the prompt shows nothing."""

import ast
import re
from collections.abc import Iterator

from capibara_assets.datasets.code import python_source
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.executions.parsing import walk

UNSEEN_DATA = "its repair names a part of a file's data that its prompt does not show"
WRITES = "its repair changes a file whose text its prompt does not show"

_READS = re.compile(r"\bread_(?:csv|excel|json|parquet|table)\(|\bopen\(")
_WRITES = re.compile(r"writeFileSync|write_text\(|\.write\(|\bopen\([^)\n]*,\s*['\"][wa]")
_OF_TEXTS = frozenset(
    (
        *("replace", "strip", "lstrip", "rstrip", "removeprefix", "removesuffix"),
        *("extract", "split", "contains", "match", "fullmatch"),
    )
)


def needs_unseen_data(candidate: ExampleCandidate) -> str | None:
    """Why a recorded repair cannot be told without the data of a file; None where it can."""
    if candidate.kind != "repair" or candidate.derived is not None:
        return None
    if _WRITES.search(candidate.answer) and not _WRITES.search(candidate.prompt):
        return WRITES
    tree = python_source.parse(candidate.answer) if candidate.language == "python" else None
    if tree is None or not _READS.search(candidate.prompt) or "StringIO" in candidate.prompt:
        return None
    made = {text for node in walk(tree) for text in _names_made(node)}
    named = {text for node in walk(tree) for text in _names_of_data(node) if len(text) > 1} - made
    shown = candidate.prompt
    return UNSEEN_DATA if any(text not in shown and repr(text)[1:-1] not in shown for text in named) else None


def _names_made(node: ast.AST) -> Iterator[str]:
    """Columns that code makes itself."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        yield from _texts(node.slice)
    elif isinstance(node, ast.keyword) and node.arg is not None:
        yield node.arg


def _names_of_data(node: ast.AST) -> Iterator[str]:
    """Columns that code reads, and pieces of texts that it looks for."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        yield from _texts(node.slice)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _OF_TEXTS:
        for argument in node.args[:1]:
            yield from _texts(argument)


def _texts(node: ast.AST) -> Iterator[str]:
    for one in node.elts if isinstance(node, ast.List) else [node]:
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value

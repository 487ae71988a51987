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
    return UNSEEN_DATA if any(not _stands_in(text, candidate.prompt) for text in named) else None


def _stands_in(text: str, prompt: str) -> bool:
    """Whether a text stands in a prompt by itself, and not as a part of a longer word."""
    return any(re.search(rf"(?<!\w){re.escape(form)}(?!\w)", prompt) for form in (text, repr(text)[1:-1]))


def _names_made(node: ast.AST) -> Iterator[str]:
    """Columns that code makes itself, and not out of themselves; all that is given as names at once."""
    if isinstance(node, ast.Assign):
        read = {text for part in walk(node.value) for text in _names_of_data(part)}
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                yield from (text for text in _texts(target.slice) if text not in read)
            elif isinstance(target, ast.Attribute):  # `table.columns = [..]`
                yield from _texts(node.value)
    elif isinstance(node, ast.keyword) and node.arg is not None:
        yield node.arg


def _names_of_data(node: ast.AST) -> Iterator[str]:
    """Columns that code reads, lists or slices, and pieces of texts that it looks for."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        yield from _texts(node.slice)
    elif isinstance(node, ast.List):
        yield from _texts(node)
    elif isinstance(node, ast.Slice):
        yield from (text for end in (node.lower, node.upper) if end is not None for text in _texts(end))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _OF_TEXTS:
        for argument in node.args[:1]:
            yield from _texts(argument)


def _texts(node: ast.AST) -> Iterator[str]:
    for one in node.elts if isinstance(node, ast.List) else [node]:
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value

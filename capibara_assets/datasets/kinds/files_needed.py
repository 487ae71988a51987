"""Files that an answer reads and its prompt does not name, and those that a task asks for and no answer writes."""

import ast
import re
from collections.abc import Iterator

from capibara_assets.datasets.code import javascript_source, python_source
from capibara_assets.executions.parsing import JAVASCRIPT

UNWRITTEN = "its task asks for a file that its answer does not write"
_FILE = re.compile(r"(?!\w+://)[\w./~\\ -]*[\w-]\.[A-Za-z]\w{0,7}\Z")
_READS = frozenset(
    re.findall(
        r"\w+", "load loadtxt genfromtxt fromfile imread load_workbook read_text read_bytes open ExcelFile memmap"
    )
)
_WRITES = frozenset(
    re.findall(r"\w+", "save savez savez_compressed savetxt savefig imwrite write_text write_bytes tofile")
)
_JAVASCRIPT = re.compile(r"(?:(read|createRead)|(?:write|append|createWrite))(?:File|Stream)(?:Sync)?\Z")
_ASKED = re.compile(
    r"\b(?:sav|writ|stor|export|output|record|put|dump)\w*\b[^.;\n]{0,80}?\b(?:to|in|into|as|named|called)\b[^.;\n]{0,40}?"
    r"(?P<file>[\w-]{1,60}\.(?:csv|tsv|json|jsonl|txt|parquet|xlsx?|npy|npz|png|jpe?g|pdf|svg|db|sqlite|html?|md|pkl))\b",
    re.IGNORECASE,
)
_PREFIX = 4  # signs of a name that a program puts together


def unnamed_files(language: str, prompt: str, answer: str) -> list[str]:
    """The files that an answer reads, does not write itself, and whose names its prompt does not hold."""
    opened = (
        _opened_python(answer) if language == "python" else _opened_javascript(answer) if language in JAVASCRIPT else ()
    )
    read, written = set[str](), set[str]()
    for name, reads in opened:
        (read if reads else written).add(name)
    return sorted(name for name in read - written if name not in prompt and re.split(r"[/\\]", name)[-1] not in prompt)


def unwritten_files(task: str, answer: str) -> list[str]:
    """The files that a task asks for by name and of which its answer holds no part of the name."""
    asked = dict.fromkeys(match["file"] for match in _ASKED.finditer(task))
    return [name for name in asked if name[:_PREFIX] not in answer and name.rsplit(".", 1)[0] not in answer]


def _opened_python(code: str) -> Iterator[tuple[str, bool]]:
    """Each file that Python opens by a literal name, and whether to read it."""
    nodes = list(python_source.nodes(code))
    named: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and (text := _text(node.value, {})) is not None:
            named |= {target.id: text for target in node.targets if isinstance(target, ast.Name)}
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        called = python_source.called_name(node)
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        of_path = isinstance(owner, ast.Call) and python_source.called_name(owner) == "Path"
        first = owner.args[:1] if of_path and isinstance(owner, ast.Call) else node.args[:1]
        name = _text(first[0], named) if first else None
        if name is None or not _FILE.match(name):
            continue
        if called == "open":
            modes = [
                *node.args[0 if of_path else 1 :][:1],
                *(word.value for word in node.keywords if word.arg == "mode"),
            ]
            yield name, not any(set(_text(mode, {}) or "") & set("wax") for mode in modes)
        elif called in _WRITES or called.startswith("to_"):
            yield name, False
        elif called in _READS or called.startswith("read_"):
            yield name, True


def _text(node: ast.expr, named: dict[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return named.get(node.id)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _opened_javascript(code: str) -> Iterator[tuple[str, bool]]:
    for node in javascript_source.walk(javascript_source.parse(code)):
        called = node.child_by_field_name("function") if node.type == "call_expression" else None
        first = next(iter(javascript_source.given(node)), None)
        if called is None or first is None or first.type != "string":
            continue
        opens = _JAVASCRIPT.search(javascript_source.text(called))
        name = javascript_source.text(first)[1:-1]
        if opens and _FILE.match(name):
            yield name, bool(opens[1])

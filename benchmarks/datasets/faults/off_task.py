"""`off_task`: answers that define other functions than the ones that their task names by a head or by a call."""

import ast
import re

from benchmarks.datasets.faults.cases import CODE_KINDS, Case
from benchmarks.datasets.faults.python_code import parse

_HEAD = re.compile(r"(?:^|[\s`])def\s+(\w+)\s*\(")
_CALLED = re.compile(r"(?:^|[\s`])assert\s+(?:not\s+)?(\w+)\(")


def off_task(case: Case) -> str | None:
    """The name that a task asks for and a Python answer with functions of its own lacks; None where it has it."""
    if case.kind not in CODE_KINDS or case.language != "python" or (tree := parse(case.code)) is None:
        return None
    statement = next((section.text for section in case.sections if not section.title), "")
    asked = {*_HEAD.findall(statement), *_CALLED.findall(statement)}
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    defined = {node.name for node in ast.walk(tree) if isinstance(node, kinds)}
    if not asked or not defined or asked & defined:
        return None
    return f"the task names {', '.join(sorted(asked))}, the answer defines {', '.join(sorted(defined))}"

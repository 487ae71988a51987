"""Repairs that change more than their failure speaks of."""

import ast
import re

from capibara_assets.datasets.code import python_source
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.datasets.kinds.prompts import ERROR, TESTS, section
from capibara_assets.executions.parsing import JAVASCRIPT

WIDER = "its repair also changes functions that neither its error nor its test speaks of"
ANEW = "its repair is written anew: most of what it changes has nothing to do with the failure"

_MOST_OTHERS = 1  # a helper may change with what uses it
_MOST_LINES = 24  # taken out and put in


def changes_others(candidate: ExampleCandidate) -> str | None:
    """Why a recorded repair does more than mend what failed; None where it does not."""
    if candidate.kind != "repair" or candidate.derived is not None or candidate.language not in ("python", *JAVASCRIPT):
        return None
    changed_lines = [line for line in (candidate.diff or "").split("\n")[2:] if line[:1] in ("+", "-")]
    if len(changed_lines) > _MOST_LINES:
        return ANEW
    before, after = _bodies(candidate.failing or ""), _bodies(candidate.answer)
    changed = {name for name in before.keys() & after.keys() if before[name] != after[name]}
    told = f"{section(candidate.prompt, ERROR)}\n{section(candidate.prompt, TESTS)}"
    others = {name for name in changed if re.search(rf"\b{name.rpartition('.')[2]}\b", told) is None}
    return WIDER if len(others) > _MOST_OTHERS else None


def _bodies(code: str) -> dict[str, str]:
    """Qualified name -> body, without its docstring, of each function at the top or in a class there."""
    tree = python_source.parse(code)
    found: dict[str, str] = {}
    for node in tree.body if tree is not None else ():
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        owner = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for member in members:
            if isinstance(member, python_source.Function):
                body = member.body[1:] if ast.get_docstring(member) is not None else member.body
                found[owner + member.name] = "\n".join(map(ast.dump, body))
    return found

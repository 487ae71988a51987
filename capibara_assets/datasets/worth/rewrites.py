"""Repairs that change more than their failure speaks of."""

import ast
import difflib
import re
from collections import Counter

from sqlglot import exp

from capibara_assets.datasets.code import python_source
from capibara_assets.datasets.code.queries import last_select
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.datasets.kinds.prompts import ERROR, ONLY_ERROR, TESTS, section, states_task
from capibara_assets.executions.parsing import JAVASCRIPT
from capibara_assets.executions.patterns.similarity import tokens

WIDER = "its repair also changes functions that neither its error nor its test speaks of"
ANEW = "its repair is written anew: it changes more places, or more of the code, than a failure speaks of"
ELSE = "its repair selects something else than the query that failed"
WRAPS = "its answer wraps the former version of what it defines, which runs once and mends nothing"

_WRAPS = re.compile(r"^(?P<kept>\w+) = (?P<former>\w+)\n(?:.*\n)*?(?:async )?def (?P=former)\(", re.MULTILINE)
_CUT = re.compile(r"\b(?:LIMIT|TOP|ROWNUM|FETCH)\b", re.IGNORECASE)
_CLAUSE = re.compile(r"\b(WHERE|GROUP BY|HAVING|ORDER BY|JOIN|UNION)\b", re.IGNORECASE)
_MOST_OTHERS = 1  # a helper may change with what uses it
_MOST_PLACES = 6  # runs of words and signs that are taken out or put in
_FEW_PLACES, _MOST_CHANGED = 3, 0.25  # of more places than these, the share of the words and signs that may change


def written_anew(candidate: ExampleCandidate) -> str | None:
    """Why a recorded repair is no mend but another version of the code; None where it is one.

    Of the repairs that people read, half of such ones were wrong elsewhere, and one in ten of the others.
    """
    if candidate.kind != "repair" or candidate.derived is not None or candidate.failing is None:
        return None
    matcher = difflib.SequenceMatcher(None, tokens(candidate.failing), tokens(candidate.answer), autojunk=False)
    places = sum(change != "equal" for change, *_ in matcher.get_opcodes())
    much = places > _FEW_PLACES and 1 - matcher.ratio() > _MOST_CHANGED
    return ANEW if places > _MOST_PLACES or much else None


def changes_others(candidate: ExampleCandidate) -> str | None:
    """Why a recorded repair does more than mend what failed; None where it does not."""
    if candidate.kind != "repair" or candidate.derived is not None or candidate.language not in ("python", *JAVASCRIPT):
        return None
    before, after = _bodies(candidate.failing or ""), _bodies(candidate.answer)
    changed = {name for name in before.keys() & after.keys() if before[name] != after[name]}
    told = f"{section(candidate.prompt, ERROR)}\n{section(candidate.prompt, TESTS)}"
    others = {name for name in changed if re.search(rf"\b{name.rpartition('.')[2]}\b", told) is None}
    return WIDER if len(others) > _MOST_OTHERS else None


def selects_else(candidate: ExampleCandidate) -> str | None:
    """Why a recorded repair of a query asks for something else; None where it does not."""
    if candidate.kind != "repair" or candidate.derived is not None or candidate.failing is None:
        return None
    if _CUT.search(candidate.answer) and not _CUT.search(candidate.failing):
        return ELSE
    if candidate.prompt.startswith(ONLY_ERROR) and _other_clauses(candidate.failing, candidate.answer):
        return ELSE
    before, after = (last_select(code) for code in (candidate.failing, candidate.answer))
    if before is not None and after is not None and after.is_star and not before.is_star:
        return ELSE  # what was joined or ranked to select comes along
    if before is not None and after is not None and _ungroups(before, after):
        return ELSE  # a row for each row instead of one for each group
    asked = states_task(candidate.prompt) and not candidate.prompt.startswith(ONLY_ERROR)
    if asked or before is None or after is None or before.is_star:
        return None  # a task tells what is to be selected
    return ELSE if len(before.selects) != len(after.selects) else None


def _ungroups(before: exp.Select, after: exp.Select) -> bool:
    return before.args.get("group") is not None and not (after.args.get("group") or after.args.get("distinct"))


def _other_clauses(before: str, after: str) -> bool:
    """Whether clauses were added or taken out, and none put in the place of others (`WHERE` by `HAVING`)."""
    had, has = (Counter(clause.upper() for clause in _CLAUSE.findall(code)) for code in (before, after))
    return "SELECT" in before.upper() and bool(has - had) != bool(had - has)


def wraps_former(code: str) -> str | None:
    """Why code that defines a function is no version of it: it calls the former one by another name."""
    return WRAPS if _WRAPS.search(code) else None


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

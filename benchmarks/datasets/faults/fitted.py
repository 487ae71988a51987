"""`fitted`: code that answers its tests' cases one by one, read from its text, without running it.

Every branch that compares with literals alone and gives a literal is held against the calls in prompt and test. The
code is fitted when two calls or more, with different results, are answered so: all, or two thirds where nothing loops.
"""

import re
from itertools import pairwise

from benchmarks.datasets.faults import edits
from benchmarks.datasets.faults.cases import CODE_KINDS, Case

_LIT = r"(?<![\w.])(?:-?\d+(?:\.\d+)?|'[^'\n]*'|\"[^\"\n]*\"|true|false|True|False|null|None)"
_RESULT = rf"(?:{_LIT}|\[[^;{{}}\n]*\])"
_IF = re.compile(rf"\bif\b\s*\(?([^{{}}\n:]+?)\)?\s*(?:\{{|:)?\s*return\s+({_RESULT})\s*;?\s*(?=[\n}};]|$)")
_CHOICE = re.compile(
    rf"([\w.]+\s*={{2,3}}\s*{_LIT}(?:\s*&&\s*[\w.]+\s*={{2,3}}\s*{_LIT})*)\s*\)?\s*\?\s*\(?({_RESULT})\s*\)?\s*:"
)
_PYTHON_CHOICE = re.compile(rf"({_LIT})\s+if\s+([^\n:]+?)\s+else\b")
_SWITCH = re.compile(rf"\bcase\s+({_LIT})\s*:\s*return\s+({_RESULT})")
_TABLE = re.compile(r"\{([^{}]*)\}\s*\)?\s*\[")
_ENTRY = re.compile(rf"({_LIT}|\w+)\s*:\s*({_LIT})")
_EQUAL = re.compile(rf"={{2,3}}\s*({_LIT})|({_LIT})\s*={{2,3}}")
_ONLY_EQUAL = re.compile(rf"\(*\s*(?:[\w.]+\s*={{2,3}}\s*{_LIT}|{_LIT}\s*={{2,3}}\s*[\w.]+)\s*\)*")
_LOOPS = re.compile(r"\bfor\b|\bwhile\b|\.(?:map|reduce|filter|forEach)\(")
_DEFINED = re.compile(r"\b(?:def|function)\s+(\w+)|\b(?:const|let|var)\s+(\w+)\s*=\s*(?:\(|function|\w+\s*=>)")
_REACH = 200  # characters behind a call in which its result stands


def fitted(case: Case) -> str | None:
    """How many of its tests' calls the code answers by a branch for each; None where it computes."""
    if edits.is_edit(case):
        return edits.silences(case)
    if case.kind not in CODE_KINDS or case.language not in ("python", "javascript", "typescript"):
        return None
    answers = branches(case.code)
    name = next((one or other for one, other in _DEFINED.findall(case.code)), "")
    if len(answers) < 2 or not name:
        return None
    calls = _calls(name, f"{case.prompt}\n{case.test or ''}")
    told = {
        (given, result): value
        for given, result in calls
        for compared, value in answers
        if all(_holds(given, one) for one in compared) and _holds(result, value)
    }
    recurs = len(re.findall(rf"\b{re.escape(name)}\s*\(", case.code)) > 1
    distinct = {given for given, _ in calls}
    answered = {given for given, _ in told}
    if len(answered) < 2 or len(set(told.values())) < 2:
        return None
    if answered == distinct or (3 * len(answered) >= 2 * len(distinct) and not recurs and not _LOOPS.search(case.code)):
        return f"answers {len(answered)} of {len(distinct)} calls by a branch for each"
    return None


def branches(code: str) -> list[tuple[tuple[str, ...], str]]:
    """(literals compared with, literal given) of each branch that asks for nothing else."""
    pairs = [*_IF.findall(code), *_CHOICE.findall(code)]
    pairs += [(test, value) for value, test in _PYTHON_CHOICE.findall(code)]
    found = []
    for test, value in pairs:
        for side in re.split(r"\|\||\bor\b", test):
            parts = re.split(r"&&|\band\b", side)
            if all(_ONLY_EQUAL.fullmatch(part.strip()) for part in parts):
                found.append((tuple(a or b for a, b in _EQUAL.findall(side)), value))
    found += [((one,), value) for one, value in _SWITCH.findall(code)]
    for inside in _TABLE.findall(code):
        found += [((key,), value) for key, value in _ENTRY.findall(inside)]
    return found


def _calls(name: str, text: str) -> list[tuple[str, str]]:
    """(arguments, what stands behind, up to the next call) of each call in a text."""
    found = []
    places = [match.end() for match in re.finditer(rf"(?<![\w.]){re.escape(name)}\(", text)]
    for place, after in pairwise([*places, len(text)]):
        depth, end = 1, place
        while end < len(text) and depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        found.append((text[place : end - 1], text[end : min(end + _REACH, max(after, end))]))
    return [(given, behind) for given, behind in found if given.strip() and re.search(r"[\d'\"]", given)]


def _holds(text: str, literal: str) -> bool:
    if literal.startswith("["):
        return _flat(literal) in _flat(text)
    bare = literal.strip("'\"").removesuffix(".0")
    return bool(re.search(rf"(?<![\w.-]){re.escape(bare)}(?:\.0)?(?![\w.])", text, re.I)) if bare else literal in text


def _flat(text: str) -> str:
    return re.sub(r"[\s'\"]", "", text)

"""The grader proven with recorded answers and mutants of them as "models": the first pass, most of the second fail.

A mutant differs from its answer in one place: an operator, a constant, a bound, a dropped statement, a keyword. Some
are equivalent (an initial value that is overwritten), some are not covered by the recorded tests; both pass rightly.
"""

import ast
import copy
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from capibara_assets.evaluation.grading.grade import SandboxSettings, grade
from capibara_assets.evaluation.items.items import Item

_OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_TEXT = {
    "javascript": [
        (r"===", "!=="), (r"(?<=[\w)\]] )\+(?= [\w(\[])", "-"), (r"(?<=[\w)\]] )-(?= [\w(\[])", "+"), (r" < ", " <= "),
        (r" >= ", " > "), (r" > ", " >= "), (r"\b0\b", "1"), (r"\b1\b", "2"), (r"&&", "||"), (r"\|\|", "&&"),
        (r"\breturn (?=[^;\n])", "return !"), (r"\.map\(", ".filter("), (r"\bpush\b", "unshift"), (r" \* ", " + "),
    ],
    "sql": [
        (r"\bSUM\(", "AVG("), (r"\bAVG\(", "SUM("), (r"\bMAX\(", "MIN("), (r"\bMIN\(", "MAX("), (r" > ", " < "),
        (r" >= ", " < "), (r" < ", " > "), (r" = ", " <> "), (r"\bDESC\b", "ASC"), (r"\bCOUNT\(", "MAX("),
        (r"\bLIMIT \d+", "LIMIT 1"), (r"\bAND\b", "OR"), (r"\bON [\w.]+ = [\w.]+", "ON TRUE"),
        (r"\bWHERE\b", "WHERE NOT"), (r"\bIN \(", "NOT IN ("),
    ],
}  # fmt: skip


@dataclass(frozen=True)
class _Answer:
    contender: str
    item_id: str
    sample: int
    text: str


def run_mutants(items: Sequence[Item], workers: int = 2, most: int = 6, seed: int = 20_261_121) -> dict[str, Any]:
    """Grades the reference of every item that is run, and up to `most` mutants of each.

    Returns:
        Shares of references that pass and of mutants that fail, among the items that can be graded here, with their
        numbers; the reasons why others cannot; the mutants that passed.
    """
    run = [item for item in items if item.check.kind in ("assertions", "output")]
    answers = [_Answer("reference", item.item_id, 0, item.reference) for item in run]
    for item in run:
        chosen = list(dict.fromkeys(mutants(item.reference, item.language)))
        random.Random(f"{seed} {item.item_id}").shuffle(chosen)
        answers += [_Answer("mutant", item.item_id, number, text) for number, text in enumerate(chosen[:most])]
    grades = grade(run, answers, SandboxSettings(workers))
    by_id = {item.item_id: item for item in run}
    references = [each for each in grades if each.contender == "reference"]
    graded = {each.item_id for each in references if each.verdict != "ungraded"}
    changed = [(a, g) for a, g in zip(answers, grades, strict=True) if a.contender == "mutant" and a.item_id in graded]
    passed = [a for a, g in changed if g.verdict == "passed"]
    return {
        "items": len(run),
        "graded": len(graded),
        "references_passed": sum(each.verdict == "passed" for each in references),
        "not_graded": dict(Counter(each.detail for each in references if each.verdict == "ungraded")),
        "mutants": len(changed),
        "mutants_failed": len(changed) - len(passed),
        "share_failed": round(1 - len(passed) / len(changed), 4) if changed else None,
        "by_language": dict(sorted(Counter(f"{by_id[a.item_id].language} {g.verdict}" for a, g in changed).items())),
        "passed": [{"item_id": a.item_id, "text": a.text} for a in passed],
    }


def mutants(code: str, language: str) -> Iterator[str]:
    """Variants of the code with one change each."""
    if language == "python":
        yield from _python(code)
        return
    for pattern, by in _TEXT[language]:
        for match in re.finditer(pattern, code):
            yield code[: match.start()] + by + code[match.end() :]


def _python(code: str) -> Iterator[str]:
    tree = ast.parse(code)
    for place, node in enumerate(ast.walk(tree)):
        for change in _changes(node):
            other = copy.deepcopy(tree)
            changed = next(each for number, each in enumerate(ast.walk(other)) if number == place)
            change(changed)
            yield ast.unparse(ast.fix_missing_locations(other))


def _changes(node: ast.AST) -> Iterator[Any]:
    match node:
        case ast.BinOp(op=op) | ast.AugAssign(op=op) | ast.BoolOp(op=op) if type(op) in _OPERATORS:
            yield lambda n: setattr(n, "op", _OPERATORS[type(n.op)]())
        case ast.Compare(ops=[op, *_]) if type(op) in _OPERATORS:
            yield lambda n: n.ops.__setitem__(0, _OPERATORS[type(n.ops[0])]())
        case ast.Constant(value=bool()):
            yield lambda n: setattr(n, "value", not n.value)
        case ast.Constant(value=int() | float()):
            yield lambda n: setattr(n, "value", n.value + 1)
        case ast.UnaryOp(op=ast.Not()):
            yield lambda n: setattr(n, "op", ast.UAdd())
        case ast.Return(value=value) if value is not None:
            yield lambda n: setattr(n, "value", ast.Constant(None))
        case ast.FunctionDef(body=[_, _, *_]):
            for number in range(len(node.body)):
                if not isinstance(node.body[number], ast.FunctionDef | ast.Return):
                    yield lambda n, number=number: n.body.pop(number)

"""Difficulty of an example, 0 easy .. 1 hard, from failed attempts, class of error, complexity and length.

    difficulty = sum_i w_i x_i / sum_i w_i, with the weights of the recipe and
    attempts    1 - 1 / (1 + failures before the code worked)
    error       rank of the hardest class of error met (`_ERRORS`), 0 without one
    complexity  min(1, log2(1 + decisions) / 5); a decision is a branch, loop, boolean operator, join, sub-query ...
    length      min(1, log2(1 + tokens / 16) / 6); 16 tokens give 0.17, 1,000 tokens 1

The error ranks grow with how little an error says about its cause: a NameError names it, an AssertionError does not.
"""

import math
from collections.abc import Collection, Iterable

from capibara_assets.datasets.code.structure import tokens
from capibara_assets.datasets.recipe import DifficultyWeights

_ERRORS = {
    "SyntaxError": 0.2,
    "IndentationError": 0.2,
    "NameError": 0.3,
    "ReferenceError": 0.3,
    "ImportError": 0.3,
    "ModuleNotFoundError": 0.3,
    "UnboundLocalError": 0.4,
    "FileNotFoundError": 0.4,
    "AttributeError": 0.5,
    "TypeError": 0.5,
    "KeyError": 0.5,
    "ZeroDivisionError": 0.5,
    "IndexError": 0.6,
    "ValueError": 0.6,
    "RangeError": 0.7,
    "OperationalError": 0.5,
    "DatabaseError": 0.5,
    "IntegrityError": 0.6,
    "RecursionError": 0.8,
    "AssertionError": 0.9,
    "TimeoutException": 1.0,
    "TimeoutError": 1.0,
}
_UNKNOWN_ERROR = 0.6
_DECISION_WORDS = """if elif for while and or except case assert match when join having union intersect switch catch
in exists group over with"""
_DECISIONS = frozenset(_DECISION_WORDS.split())
_SYMBOLS = frozenset("?&|")


def difficulty(code: str, language: str, failures: int, errors: Collection[str], weights: DifficultyWeights) -> float:
    """Difficulty of an example whose answer or subject is `code`, rounded to six digits.

    Args:
        failures: failed attempts at the same code before.
        errors: classes of the errors of those attempts.
    """
    code_tokens = tokens(code, language)
    ingredients = (
        (weights.attempts, 1 - 1 / (1 + failures)),
        (weights.error, max((_ERRORS.get(error, _UNKNOWN_ERROR) for error in errors), default=0.0)),
        (weights.complexity, min(1.0, math.log2(1 + decisions(code_tokens)) / 5)),
        (weights.length, min(1.0, math.log2(1 + len(code_tokens) / 16) / 6)),
    )
    return round(sum(weight * value for weight, value in ingredients) / sum(weight for weight, _ in ingredients), 6)


def decisions(code_tokens: Iterable[str]) -> int:
    """Number of branches, loops, boolean operators, joins, sub-queries ... among the tokens of code."""
    return sum(token.lower() in _DECISIONS or token in _SYMBOLS for token in code_tokens)

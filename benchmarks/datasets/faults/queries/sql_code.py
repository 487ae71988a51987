"""SQL of examples, read with sqlglot."""

import logging

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns of every statement of another dialect


def statements(code: str) -> list[exp.Expr]:
    """The trees of a script; none where it does not parse."""
    try:
        return [tree for tree in sqlglot.parse(code, dialect="sqlite") if tree is not None]
    except (SqlglotError, RecursionError):
        return []

"""The role of each statement in an SQL script."""

import re

from capibara_assets.datasets.anatomy.flow import Program, Unit
from capibara_assets.datasets.anatomy.roles import Role
from capibara_assets.datasets.code import sql_source
from capibara_assets.datasets.code.names import StatementNames
from capibara_assets.datasets.code.structure import tokens

_COMMENT = r"--[^\n]*|/\*.*?\*/"
_PART = re.compile(rf"(?P<comment>{_COMMENT})|'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|(?P<end>;)|[^'\"`;/-]+|.", re.DOTALL)
_COMPARES = frozenset({"=", "<", ">", "!", "is", "in", "between", "exists", "like"})


def program(code: str) -> Program:
    """Model the script's statements; what they do is in `names`."""
    units, start, end = [], -1, 0
    for match in _PART.finditer(code):
        if match["end"] and start >= 0:
            units.append(Unit(start, match.end(), ()))
            start = -1
        elif not match["comment"] and match[0].strip() and not match["end"]:
            start = match.start() + len(match[0]) - len(match[0].lstrip()) if start < 0 else start
            end = match.start() + len(match[0].rstrip())
    if start >= 0:
        units.append(Unit(start, end, ()))
    return Program(tuple(units), frozenset(), frozenset())


def roles(code: str, found: Program) -> list[Role]:
    """Role of each statement. Tests compare every column with earlier results; demonstrations read a whole view."""
    listed = [tokens(code[unit.start : unit.end], "sql") for unit in found.units]
    named = [sql_source.names([each for each in words if each != ";"]) for words in listed]
    played = []
    for position, words in enumerate(listed):
        before = named[:position]
        works = any(not _only_fills(words) for words in listed[:position])
        made = {name for names in before for name in names.bound | names.changed}
        if not works or not words or words[0] not in ("select", "with", "values") or not named[position].needed & made:
            played.append(Role.SOLUTION)
        elif _compares(words):
            played.append(Role.TEST)
        elif (
            words[:3] == ["select", "*", "from"]
            and _views(listed[:position], before) & named[position].needed
            and len(words) < 6
        ):
            played.append(Role.DEMONSTRATION)
        else:
            played.append(Role.SOLUTION)
    return played


def _only_fills(words: list[str]) -> bool:
    """Whether a statement makes a table or fills it: what a query asks, not what was asked for."""
    return words[:1] == ["insert"] or (words[:1] == ["create"] and "table" in words[:4]) or words[:1] == ["select"]


def _views(listed: list[list[str]], named: list[StatementNames]) -> set[str]:
    return {n for words, names in zip(listed, named, strict=True) if "view" in words[:4] for n in names.bound}


def _compares(words: list[str]) -> bool:
    """Whether every column of a query is a comparison, or a literal that hangs on one."""
    if words[0] != "select":
        return False
    columns: list[list[str]] = [[]]
    depth = 0
    for word in words[1:]:
        if depth == 0 and word in ("from", ";"):
            break
        if depth == 0 and word == ",":
            columns.append([])
            continue
        columns[-1].append(word)
        depth += {"(": 1, ")": -1, "case": 1, "end": -1}.get(word, 0)
    return all(_is_comparison(column) for column in columns)


def _is_comparison(column: list[str]) -> bool:
    if column[:1] == ["case"]:
        results = [column[i + 1] for i, word in enumerate(column[:-1]) if word in ("then", "else")]
        return any(word in _COMPARES for word in column) and all(word[0] in "'\"" or word.isdigit() for word in results)
    depth = 0
    for word in column:
        depth += {"(": 1, ")": -1}.get(word, 0)
        if word in _COMPARES and depth == 0:
            return True
    return False

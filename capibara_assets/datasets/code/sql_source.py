"""SQL scripts cut into statements, with the tables that each creates, changes and reads."""

import re
from collections.abc import Iterator, Sequence

from capibara_assets.datasets.code.names import Statement, StatementNames
from capibara_assets.datasets.code.structure import tokens, without_comments

_PART = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|;|[^'\"`;]+|['\"`]")
_STOP_WORDS = """where group order join inner left right full cross natural on having limit union except intersect ;
select"""
_STOPS = frozenset(_STOP_WORDS.split())


def statements(code: str) -> tuple[Statement, ...]:
    """The statements of a script, without comments, each ending in a semicolon."""
    texts, current = [], ""
    for part in _PART.findall(without_comments(code, "sql")):
        if part == ";":
            texts.append(current.strip())
            current = ""
        else:
            current += part
    texts.append(current.strip())
    return tuple(Statement(text + ";", names(tokens(text, "sql"))) for text in texts if text)


def names(found: Sequence[str]) -> StatementNames:
    """Tables of one statement, given as tokens: created ones are bound, read ones needed; its own CTEs do not count."""
    bound: set[str] = set()
    changed: set[str] = set()
    used: set[str] = set()
    own = {found[i].strip('"`') for i in range(len(found) - 2) if found[i + 1] == "as" and found[i + 2] == "("}
    verb = found[0] if found else ""
    for i, token in enumerate(found):
        name = _table(found, i + 1)
        if name is None:
            continue
        if token in ("table", "view") and verb == "create":
            bound.add(name)
        elif (
            token in ("into", "update", "table") and verb in ("insert", "replace", "update", "alter", "drop", "with")
        ) or (token == "from" and verb == "delete"):
            changed.add(name)
            used.add(name)
        elif token in ("from", "join"):
            used |= set(_listed(found, i + 1))
        elif token == "on" and verb == "create" and "index" in found[:4]:
            changed.add(name)
            used.add(name)
    return StatementNames(frozenset(bound), frozenset(changed), frozenset(used - own), True)


def _table(found: Sequence[str], start: int) -> str | None:
    """The table name at `start`, past IF [NOT] EXISTS; None before a sub-query or at the end."""
    while start < len(found) and found[start] in ("if", "not", "exists", "only", "table"):
        start += 1
    if start >= len(found) or not re.match(r"[\w\"`\[]", found[start]):
        return None
    return found[start].strip('"`').lower()


def _listed(found: Sequence[str], start: int) -> Iterator[str]:
    """Tables of `FROM a, b AS c`: the name at `start` and those after commas at the same level."""
    first = _table(found, start)
    if first is not None:
        yield first
    depth = 0
    for i in range(start, len(found)):
        depth += {"(": 1, ")": -1}.get(found[i], 0)
        if depth < 0 or (depth == 0 and found[i] in _STOPS):
            return
        if found[i] == "," and depth == 0 and (following := _table(found, i + 1)):
            yield following

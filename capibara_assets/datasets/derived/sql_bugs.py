"""Bugs to inject into SQL as token edits, and translations of a query into another dialect's words."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from capibara_assets.datasets.code.quoted_texts import with_texts
from capibara_assets.datasets.derived.edits import RepairEdit
from capibara_assets.datasets.derived.literals import others
from capibara_assets.datasets.worth.query_sense import says_nothing

_SIGNS = {"<": ("<=", ">"), "<=": ("<",), ">": (">=", "<"), ">=": (">",), "=": ("<>",), "<>": ("=",), "!=": ("=",)}
_WORDS = {
    "and": ("boolean", ("OR",)), "or": ("boolean", ("AND",)), "asc": ("order", ("DESC",)), "desc": ("order", ("",)),
    "distinct": ("missing_distinct", ("",)), "left": ("join", ("INNER",)), "inner": ("join", ("LEFT",)),
    "min": ("aggregate", ("MAX",)), "max": ("aggregate", ("MIN",)), "sum": ("aggregate", ("COUNT", "AVG")),
    "avg": ("aggregate", ("SUM",)), "count": ("aggregate", ("SUM",)), "not": ("negation", ("",)),
    "except": ("set_operation", ("INTERSECT",)), "intersect": ("set_operation", ("UNION",)),
    "union": ("set_operation", ("EXCEPT",)),
    "is": ("null_compared", ("=",)), "rank": ("window", ("ROW_NUMBER",)), "dense_rank": ("window", ("RANK",)),
}  # fmt: skip
_CLAUSES = (exp.Where, exp.Having, exp.Group, exp.Order, exp.Limit)
_DIALECTS = ("postgres", "tsql", "mysql")


def bugs(code: str) -> list[RepairEdit]:
    """Every edit of these kinds; none for code that does not parse."""
    try:
        tokens = sqlglot.tokenize(code, read="sqlite")
        tree = sqlglot.parse_one(code, read="sqlite")
    except (SqlglotError, RecursionError):
        return []
    return [*_of_tokens(code, tokens), *_columns(code, tokens, tree), *_clauses(code, tree), *_dialects(code, tree)]


def inputs(code: str) -> list[RepairEdit]:
    """Meaningful changes of a query's constants, order and limit."""
    edits = []
    for token in sqlglot.tokenize(code, read="sqlite"):
        end = token.end + 1
        if token.token_type.name == "NUMBER" and token.text.isdigit():
            edits += [RepairEdit("value", token.start, end, text) for text in others(int(token.text)) if text != "0"]
        elif token.text.lower() in ("asc", "desc") and token.token_type.name in ("ASC", "DESC"):
            edits.append(RepairEdit("order", token.start, end, "ASC" if token.text.lower() == "desc" else "DESC"))
        elif token.text in _SIGNS and token.text != "=":
            edits += [RepairEdit("condition", token.start, end, text) for text in _SIGNS[token.text]]
    return [edit for edit in edits if not says_nothing(edit.applied(code))]


def _of_tokens(code: str, tokens: Sequence[Any]) -> Iterator[RepairEdit]:
    for token in tokens:
        word, end = token.text.lower(), token.end + 1
        if token.token_type.name in ("STRING", "IDENTIFIER"):
            continue
        yield from (RepairEdit("comparison", token.start, end, other) for other in _SIGNS.get(token.text, ()))
        kind, replacing = _WORDS.get(word, ("", ()))
        yield from (RepairEdit(kind, token.start, end, other) for other in replacing)
        if token.token_type.name == "NUMBER" and token.text.isdigit():
            yield from (RepairEdit("constant", token.start, end, str(int(token.text) + step)) for step in (1, 9))


def _columns(code: str, tokens: Sequence[Any], tree: exp.Expr) -> Iterator[RepairEdit]:
    """A misspelt or another column, and a qualifier left out."""
    names = {column.name for column in with_texts(tree).find_all(exp.Column)}
    ordered = sorted(names)
    for position, token in enumerate(tokens):
        if token.text not in names or token.token_type.name == "STRING":
            continue
        end = token.end + 1
        yield RepairEdit(
            "misspelt_column", token.start, end, token.text[:-1] if token.text.endswith("s") else token.text + "s"
        )
        other = ordered[(ordered.index(token.text) + 1) % len(ordered)]
        wrong = RepairEdit("wrong_column", token.start, end, other)
        if other != token.text and not _selects_twice(wrong.applied(code)):
            yield wrong
        if position >= 2 and tokens[position - 1].text == ".":
            yield RepairEdit("missing_qualifier", tokens[position - 2].start, token.start, "")


def _selects_twice(code: str) -> bool:
    """Whether two columns of a result have one name: where a result is shown as a table, one of them is missing."""
    with suppress(SqlglotError):
        tree = sqlglot.parse_one(code, read="sqlite")
        names = [one.alias_or_name.lower() for one in tree.selects] if isinstance(tree, exp.Query) else []
        return len(set(names)) < len(names)
    return False


def _clauses(code: str, tree: exp.Expr) -> Iterator[RepairEdit]:
    """The whole query without one of its clauses, or without one condition of several."""
    for clause in tree.find_all(*_CLAUSES):
        position = next((i for i, other in enumerate(tree.find_all(*_CLAUSES)) if other is clause), 0)
        changed = tree.copy()
        list(changed.find_all(*_CLAUSES))[position].pop()
        yield from _lacking(code, f"missing_{clause.key}", tree, changed)
    for position, both in enumerate(tree.find_all(exp.And)):
        changed = tree.copy()
        node = list(changed.find_all(exp.And))[position]
        node.replace(both.left.copy())
        yield from _lacking(code, "missing_condition", tree, changed)


def _lacking(code: str, kind: str, tree: exp.Expr, changed: exp.Expr) -> Iterator[RepairEdit]:
    """The code without what a changed tree lacks, and nothing else that writing a tree out changes."""
    whole, lacking = (one.sql(dialect="sqlite") for one in (tree, changed))
    own, old, new = ([token for token in sqlglot.tokenize(one, read="sqlite") if token.text != ";"]
                     for one in (code, whole, lacking))  # fmt: skip
    gone = _differences(old, new)
    if len(_differences(own, new)) <= len(gone):
        yield from _whole(code, kind, lacking)
    elif len(gone) == 1 and gone[0][0] == "delete":
        words = [token.text.lower() for token in old[gone[0][1] : gone[0][2]]]
        listed = [token.text.lower() for token in own]
        places = [at for at in range(len(listed)) if listed[at : at + len(words)] == words]
        if len(places) == 1:
            yield RepairEdit(kind, own[places[0]].start, own[places[0] + len(words) - 1].end + 1, "")


def _differences(old: Sequence[Any], new: Sequence[Any]) -> list[tuple[str, int, int, int, int]]:
    """Where two lists of tokens differ, without regard to capitals."""
    before, after = ([token.text.lower() for token in tokens] for tokens in (old, new))
    return [one for one in SequenceMatcher(None, before, after, autojunk=False).get_opcodes() if one[0] != "equal"]


def _dialects(code: str, tree: exp.Expr) -> Iterator[RepairEdit]:
    for dialect in _DIALECTS:
        with suppress(SqlglotError):
            yield from _whole(code, "dialect", tree.sql(dialect=dialect), dialect)


def _whole(code: str, kind: str, changed: str, dialect: str = "sqlite") -> Iterator[RepairEdit]:
    """The tokens that a changed query has in place of the code's, in the code's own layout otherwise."""
    try:
        listed = sqlglot.tokenize(code, read="sqlite"), sqlglot.tokenize(changed, read=dialect)
        old, new = ([token for token in one if token.token_type.name != "SEMICOLON"] for one in listed)
    except SqlglotError:
        return
    pieces, first, last = [], None, 0
    matcher = SequenceMatcher(None, [t.text.lower() for t in old], [t.text.lower() for t in new], autojunk=False)
    for sort, i, j, k, m in matcher.get_opcodes():
        if sort == "equal":
            continue
        start = old[i].start if i < len(old) else old[-1].end + 1
        end = old[j - 1].end + 1 if j > i else start
        text = changed[new[k].start : new[m - 1].end + 1] if m > k else ""
        if i == j and k:  # inserted, with the spaces that it has there
            before = " " if changed[new[k].start - 1].isspace() and not code[start - 1].isspace() else ""
            text = before + text + (changed[new[m - 1].end + 1 : new[m].start] if m < len(new) else "")
        if text and text[-1].isalnum() and code[end : end + 1].isalnum():
            text += " "
        if text and text[0].isalnum() and start and code[start - 1].isalnum():
            text = " " + text
        if first is None:
            first = start
        else:
            pieces.append(code[last:start])
        pieces.append(text)
        last = end
    if first is not None:
        yield RepairEdit(kind, first, last, "".join(pieces))

"""Double-quoted texts in SQL: identifiers by the standard, but values in MySQL's and SQLite's queries."""

from sqlglot import exp

_COMPARED = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Like, exp.ILike, exp.In, exp.Between)


def with_texts(tree: exp.Expr) -> exp.Expr:
    """Convert `"…"` to text literals where they are compared or inserted; returns `tree` if there are none.

    One that also stands where only a name can (a column selected, a table) says that its author quotes names: there
    all of them stay names.
    """
    quoted = [name for name in tree.find_all(exp.Identifier) if name.args.get("quoted")]
    values = [name for name in quoted if _is_value(name)]
    names = [name for name in quoted if not _is_value(name) and name.arg_key != "alias"]
    if names or not values:
        return tree
    copied = tree.copy()
    for name in [name for name in copied.find_all(exp.Identifier) if name.args.get("quoted") and _is_value(name)]:
        if name.parent is not None:
            name.parent.replace(exp.Literal.string(name.name))
    return copied


def _is_value(name: exp.Identifier) -> bool:
    """Whether a quoted name without a table stands where a value is compared with, or inserted."""
    column = name.parent
    if not isinstance(column, exp.Column) or column.table:
        return False
    place = column.parent
    if isinstance(place, exp.Tuple):
        return isinstance(place.parent, exp.Values)
    if isinstance(place, exp.DPipe):
        return not name.name.replace("_", "").isalnum()  # a blank or a sign that is joined to a name
    return isinstance(place, _COMPARED) and column.arg_key != "this"

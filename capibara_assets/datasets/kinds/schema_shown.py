"""The schema in a prompt: tables used by its SQL, as the session defined or printed them earlier.

Where a session never tells of its tables, another session's word for them counts if it is the only one: every table and
column that the SQL uses is in it, and no other session has these tables with other columns. Where nobody tells, the
queries of the session that ran do: a table has at least the columns that they read. Of that schema the prompt shows no
more than was used, which makes the task easier than it was, so such an example is of lower quality.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from capibara_assets.datasets.code.queries import QueryTable, Reads, merged, reads_of
from capibara_assets.datasets.code.schemas import tables_told
from capibara_assets.datasets.code.sessions import Row
from capibara_assets.datasets.kinds.evidence import Evidence
from capibara_assets.datasets.kinds.proof import recorded_output

TOO_LONG = "the schema that it needs is longer than the recipe's context"
_TELLS = re.compile(
    r"create\s|table_x?info|sqlite_(?:master|schema)|get_columns|inspect|schema|describe|\bdesc\b|show\s+columns|information_schema|\\d|\bcols|alter\s+table|__tablename__|"
    r"\bTable\(|DataFrame|\.(info|dtypes|columns|head|tail|sample)\b|select\s+\*",
    re.IGNORECASE,
)
_LONG_DEFINITION = 500
_LISTS = (
    r"[`'\"\])*]*\s*(?:\(|:|\||,?\s*(?:\w+\s+){0,3}columns?\b)"  # `t(a, b)`, `t: a, b`, `t, which has the columns a, b`
)


@dataclass(frozen=True)
class ShownSchema:
    """Text of a prompt's schema, the executions it comes from, and why it is missing, if so."""

    text: str
    execution_ids: tuple[str, ...] = ()
    lacking: str | None = None
    inferred: bool = False  # from the columns that queries read, not from a definition


def schema_shown(
    evidence: Evidence,
    execution_id: str,
    codes: Sequence[tuple[str, str]],
    prompt: str,
    earlier: Sequence[str],
    budget: int,
) -> ShownSchema:
    """Schema of the tables that these codes (code, language) use and the prompt does not already state.

    Args:
        codes: the answer first; of the others, tables that nobody tells of are no loss.
        prompt: what the prompt says besides.
        earlier: code of the session that the prompt shows.
    """
    reads = [reads_of(*code) for code in codes]
    wanted = dict.fromkeys(table for one in reads for table in sorted(one.tables))
    context = "\n".join(earlier)
    whole = f"{prompt}\n{context}"
    if not wanted or told_in(context, reads[0]) or (told_in(whole, reads[0]) and _lists(whole, reads[0])):
        return ShownSchema("")
    known = _told_before(evidence, execution_id)
    absent = {table for table in reads[0].tables if table not in known}
    if absent:
        known = {**_told_elsewhere(evidence, execution_id, reads[0]), **known}
    shown = [known[table] for table in wanted if table in known]
    columns = {column for table, _ in shown for column in table.column_names}
    if inferred := not (reads[0].tables <= known.keys() and reads[0].columns <= columns):
        told, further, used_by = _used(evidence, execution_id, wanted, {name: known[name][0] for name in known})
    for short in (False, True):
        if inferred:
            text = "\n".join([*(rendered(table, short) for table in told), *further])
            ids = [*used_by, *(row["execution_id"] for _, row in shown)]
        else:
            text = "\n".join(rendered(table, short) for table, _ in shown)
            ids = [row["execution_id"] for _, row in shown]
        if len(text) <= budget:
            return ShownSchema(text, tuple(dict.fromkeys(ids)), None, inferred)
    return ShownSchema("", (), TOO_LONG)


def told_in(prompt: str, reads: Reads) -> bool:
    """Whether a text contains every table and column."""
    words = set(re.findall(r"\w+", prompt.lower()))
    return all(name in words or (" " in name and name in prompt.lower()) for name in {*reads.tables, *reads.columns})


def _lists(text: str, reads: Reads) -> bool:
    """Whether a text says of each table what it has: a name that prose or a failing query holds tells of no table."""
    return all(re.search(rf"\b{re.escape(name)}\b{_LISTS}", text, re.IGNORECASE) for name in reads.tables)


def rendered(table: QueryTable, short: bool = False) -> str:
    """Format a table for a prompt: its definition, or `name(column TYPE, …)`."""
    if table.definition and not short and len(table.definition) <= _LONG_DEFINITION:
        return table.definition.strip().rstrip(";") + ";"
    return f"{table.name}({', '.join(table.columns)})"


def _used(
    evidence: Evidence, execution_id: str, wanted: Iterable[str], known: Mapping[str, QueryTable]
) -> tuple[list[QueryTable], list[str], list[str]]:
    """(tables with the columns that the session's queries read, a line of columns of unknown tables, those queries)."""
    session, _ = evidence.place(execution_id)
    columns: dict[str, dict[str, None]] = {table: {} for table in wanted}
    loose: dict[str, None] = {}
    ids = []
    for row in session:
        reads = reads_of(row["code"], row["language"]) if row["outcome"] == "ok" else None
        if reads is None or not reads.tables & columns.keys():
            continue
        ids.append(row["execution_id"])
        for table, column in sorted(reads.owned):
            if table in columns:
                columns[table][column] = None
            elif not table and reads.tables <= columns.keys():
                loose[column] = None
    tables = []
    for name, listed in columns.items():
        before = known.get(name, QueryTable(name, ()))
        new = [column for column in listed if column not in before.column_names]
        if before.columns or new:
            tables.append(QueryTable(before.name, (*before.columns, *new), None if new else before.definition))
    owned = {column for table in tables for column in table.column_names}
    rest = sorted(loose.keys() - owned)
    return tables, [f"Further columns of these tables: {', '.join(rest)}"] if rest else [], ids


def _told_before(evidence: Evidence, execution_id: str) -> dict[str, tuple[QueryTable, Row]]:
    """Lower-case name -> table as the session told it before an execution, and the cell that told it last."""
    session, position = evidence.place(execution_id)
    return _told(session[:position])


def _told(rows: Iterable[Row]) -> dict[str, tuple[QueryTable, Row]]:
    known: dict[str, tuple[QueryTable, Row]] = {}
    for row in rows:
        for table in _tables(row):
            before = known.get(table.name.lower())
            known[table.name.lower()] = (merged([before[0], table]) if before else table, row)
    return known


def _tables(row: Row) -> tuple[QueryTable, ...]:
    output = recorded_output(row)
    if not _TELLS.search(row["code"]) and "CREATE TABLE" not in output:
        return ()
    return tables_told(row["code"], row["language"], output, row["outcome"] == "ok")


def _told_elsewhere(evidence: Evidence, execution_id: str, reads: Reads) -> dict[str, tuple[QueryTable, Row]]:
    """The tables as the other sessions tell them; none where these do not agree, or do not tell all that is used."""
    own = evidence.places[execution_id][0][0] if execution_id in evidence.places else {}
    split = evidence.splits.get(execution_id)
    fitting: list[dict[str, tuple[QueryTable, Row]]] = []
    for known in _catalogue(evidence):
        if not reads.tables <= known.keys():
            continue
        mine = {name: known[name] for name in reads.tables}
        rows = [row for _, row in mine.values()]
        columns = {column for table, _ in mine.values() for column in table.column_names}
        if not reads.columns <= columns or any(row["tenant"] != own.get("tenant") for row in rows):
            continue
        fitting.append(mine)
    if len({tuple(sorted((n, t.column_names) for n, (t, _) in one.items())) for one in fitting}) != 1:
        return {}
    usable = [one for one in fitting if all(evidence.splits.get(r["execution_id"]) == split for _, r in one.values())]
    return min(usable, key=_ids, default={})


def _ids(told: dict[str, tuple[QueryTable, Row]]) -> list[str]:
    return sorted(row["execution_id"] for _, row in told.values())


def _catalogue(evidence: Evidence) -> list[dict[str, tuple[QueryTable, Row]]]:
    """What each session tells of tables, by reading all of it; made once."""

    def read() -> list[dict[str, tuple[QueryTable, Row]]]:
        return [told for session in evidence.whole_sessions if (told := _told(session))]

    made: list[dict[str, tuple[QueryTable, Row]]] = evidence.remembered("tables", read)
    return made

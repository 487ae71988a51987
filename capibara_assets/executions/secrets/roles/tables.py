"""Cells of a table under a header that names a credential: CSV, Markdown, consoles of databases, INSERT, COPY.

Neither the place of the column nor its neighbours matter: a cell is found by its number.
"""

import re
from collections.abc import Iterator
from functools import partial

from capibara_assets.executions.secrets.plausibility import column_password, credential
from capibara_assets.executions.secrets.roles.foreign import FOREIGN_ANCHORS
from capibara_assets.executions.secrets.roles.passwords import CHOSEN, ENDING, ENDS, ENDS_ANCHORS
from capibara_assets.executions.secrets.roles.role import Role

Span = tuple[int, int]

_KEYS = "api|access|auth|private|signing|license"
_SECRETS = rf"(?:secret|token|(?:{_KEYS})[_ -]?key)"
SECRETS_ANCHORS = ("secret", "token", *(f"{of}{gap}key" for of in _KEYS.split("|") for gap in ("", *" _-")))
#: What is said of a password behind its name, in a column.
_STATE = r"_(?:plain|clear|raw|old|new|temp)\w{0,8}"
_PASSWORDS = rf"(?:{ENDS}|(?:passw(?:or)?d|pass|pwd){_STATE}(?![\w.-]))"
_PASSWORD_NAME = re.compile(rf"[\w .-]*?{_PASSWORDS}", re.IGNORECASE)
_SECRET_NAME = re.compile(rf"[\w .-]*?{_SECRETS}", re.IGNORECASE)
_NAME = re.compile(r"(?=[^\n]{0,40}$)[\w.-]*(?: [\w.-]+){0,2}")  # more words are a sentence or code
_LINES = frozenset("-+|=: \t_*┌┬┐├┼┤└┴┘─│╞╪╡━┃╇┡┩┏┳┓")  # what a line between rows is drawn with
_ROWS = 40
_SOON = re.compile(rf"\r?\n(?:[^\n]*\n){{0,6}}[^\n]*{CHOSEN}")  # what the gate asks for
_AROUND = "\"'`* \t\r\n[]"
_BARS, _COMMAS, _SEMICOLONS, _BLANKS, _TABS = (
    re.compile(cell)
    for cell in (
        r"(?<![^|│┃\n])[^|│┃\n]*(?=[|│┃]|$)",
        r"(?<![^,\n])(?:\"[^\"\n]*\"|[^,\n]*)(?=,|$)",
        r"(?<![^;\n])(?:\"[^\"\n]*\"|[^;\n]*)(?=;|$)",
        r"\S+(?:[ ]\S+)*",
        r"[^\t\n]+",
    )
)
#: Cells by what divides them, in the order in which a header is tried.
_DIVIDED = (_BARS, _TABS, _COMMAS, _SEMICOLONS, _BLANKS)
_NO_FRAME = (0, 0)
_TUPLE = re.compile(r"\((?:'(?:[^'\n]|'')*'|[^()'\n])*\)")
_ITEM = re.compile(r"(?:^|(?<=[(,]))\s*+('(?:[^'\n]|'')*'|\"[^\"\n]*\"|[^,()\n]*)")
_COMMA = re.compile(r"\s*+,\s*+")


def cells_below(header: re.Match[str], named: re.Pattern[str]) -> Iterator[Span]:
    """Where the values of the columns that are `named` so stand in the rows below a line (the match's first group)."""
    text = header.string
    if not _SOON.match(text, header.end(1)):
        return
    for divided in _DIVIDED:
        names = _cells(text, *header.span(1), divided)
        frame = _frame(names) if divided is _BARS else _NO_FRAME
        names = _within(names, frame)
        shown = [text[start:end] for start, end in names]
        if "pass" in shown and (divided is _BLANKS or all(name.isdigit() for name in shown if name != "pass")):
            return  # a keyword behind its line's number
        wanted = _wanted(shown, named)
        if wanted and sum(start < end for start, end in names) > 1:
            yield from _rows(text, header.end(1) + 1, divided, len(names), wanted, frame)
            return


def values_inserted(header: re.Match[str], named: re.Pattern[str]) -> Iterator[Span]:
    """As `cells_below`, in the tuples, or lines with tabs, behind a list of columns (the match's first group)."""
    text, at = header.string, header.end()
    names = [name.strip(_AROUND) for name in header.group(1).split(",")]
    wanted = _wanted(names, named)
    if "stdin" in header.group(0).lower():
        yield from _rows(text, at, _TABS, len(names), wanted)
        return
    while wanted and (row := _TUPLE.match(text, at)):
        items = [_bare(text, *one.span(1)) for one in _ITEM.finditer(text, row.start() + 1, row.end() - 1)]
        yield from (items[i] for i in wanted if i < len(items))
        more = _COMMA.match(text, row.end())
        at = more.end() if more else len(text)


def _wanted(names: list[str], named: re.Pattern[str]) -> list[int]:
    """The numbers of the columns that are named so, unless the line is no header at all."""
    if not all(_NAME.fullmatch(name) for name in names):
        return []
    return [i for i, name in enumerate(names) if named.fullmatch(name)]


def _frame(names: list[Span]) -> tuple[int, int]:
    """How many cells of a header are the frame of the table: the empty ones before its first and behind its last."""
    return (int(names[0][0] == names[0][1]), int(names[-1][0] == names[-1][1])) if names else _NO_FRAME


def _within(cells: list[Span], frame: tuple[int, int]) -> list[Span]:
    return cells[frame[0] : len(cells) - frame[1]]


def _rows(
    text: str,
    at: int,
    divided: re.Pattern[str],
    count: int,
    wanted: list[int],
    frame: tuple[int, int] = _NO_FRAME,
) -> Iterator[Span]:
    for _ in range(_ROWS):
        if at >= len(text):
            return
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        if not _LINES.issuperset(text[at:end]):
            cells = _within(_cells(text, at, end, divided), frame)
            if len(cells) == count + 1 and divided is _BLANKS:
                del cells[0]  # the row's number, which has no header
            if len(cells) != count:
                return
            yield from (cells[i] for i in wanted)
        at = end + 1


def _cells(text: str, start: int, end: int, divided: re.Pattern[str]) -> list[Span]:
    cells = [_bare(text, *one.span()) for one in divided.finditer(text, start, end)]
    # between signs a cell may be empty
    return cells if divided in (_BARS, _COMMAS, _SEMICOLONS) else [one for one in cells if one[0] < one[1]]


def _bare(text: str, start: int, end: int) -> Span:
    """A cell without the blanks and quotes around it."""
    while start < end and text[start] in _AROUND:
        start += 1
    while end > start and text[end - 1] in _AROUND:
        end -= 1
    return start, end


_DIVIDES = r"[|,;\t│┃]"
_BEHIND = r"[ \t|,;\"'`*│┃]"  # a name in a header
_HEAD = r"[\w \t|,;\"'`.*│┃-]"
#: The statement of an ORM's error, whose values stand apart.
_APART = r"\([%?:$\w,\s()]{1,200}\)\]\s{1,4}\[parameters:\s"
_COPIED = (
    r"(?:insert\s++into|copy)\s++[^\s();]{1,80}\s*+\(([^()]{0,400})\)\s*+"
    rf"(?:values\s*+(?:{_APART})?|from[ ]stdin[^\n]{{0,80}}\n)"
)


def _password(value: str) -> bool:
    return column_password(value) or credential(value)


def _tables() -> Iterator[Role]:
    for kind, anchors, name, gate, columns, named, plausible in (
        (
            "PASSWORD",
            ENDS_ANCHORS,
            _PASSWORDS,
            rf"(?:{ENDING}|pass)(?:{_STATE})?",
            "|".join((*ENDS_ANCHORS, *sorted({word[:3] for word in FOREIGN_ANCHORS}))),
            _PASSWORD_NAME,
            _password,
        ),
        ("SECRET", SECRETS_ANCHORS, _SECRETS, _SECRETS, _SECRETS, _SECRET_NAME, credential),
    ):
        yield Role(
            kind, anchors, rf"^({_HEAD}{{0,300}}?{name}{_HEAD}{{0,300}}\r?)$", plausible,
            rf"(?im)^{_HEAD}*(?:(?:{_DIVIDES}|[^\s][ ]{{2}}){_HEAD}*{gate}\d?(?:{_BEHIND}{_HEAD}*)?"
            rf"|{gate}\d?(?:{_BEHIND}{_HEAD}*)?(?:{_DIVIDES}|[ ]{{2,}}[^\s]){_HEAD}*)"
            rf"\r?\n(?:[^\n]*\n){{0,6}}[^\n]*{CHOSEN}", cells=partial(cells_below, named=named),
        )  # fmt: skip
        yield Role(
            kind, ("insert", "copy"), _COPIED, plausible,
            rf"(?i)(?:insert\s+into|copy)\s[^();]*\([^()]*(?:{columns})[^()]*\)\s*(?:values|from stdin)",
            cells=partial(values_inserted, named=named),
        )  # fmt: skip


TABLES: tuple[Role, ...] = tuple(_tables())

"""Secrets that code puts together from literals of which none is one: by an operator, or by a function of a list."""

import re
from collections.abc import Iterator

from capibara_assets.executions.secrets.passwords import ENDING, ENDS, ENDS_ANCHORS
from capibara_assets.executions.secrets.plausibility import chosen_password, credential
from capibara_assets.executions.secrets.roles import Role
from capibara_assets.executions.secrets.tables import SECRETS_ANCHORS

_PIECES = re.compile(r"[\"']([^\"'\n]*)[\"']")
_TOKENS = r"(?:secret|token|(?:api|access|auth|private|signing|license)[ _-]?key)(?![\w.-])"
_ASSIGNED = r"[\"'\]]{0,2}[ \t]*+(?::[ \t]*+\w+[ \t]*+)?(?::=|=>|=|:)[ \t]*+"
_KIND = r"[NnbBfFrRuU@$]?"  # of a literal: N'…' in SQL, b"…" in Python
_LITERAL = r"[\"'][^\"'\s\\]{2,60}[\"']"
_JOINS = r"(?:\+{1,2}|\.{1,2}|&|<>|\|\||~|\)?\.(?:concat|append|plus)\()"
_OPERATOR = rf"[ \t]*+(?:{_JOINS})?[ \t\\]*+(?:\n[ \t]*+)?(?:{_JOINS})?[ \t]*+{_KIND}"
_COMMA = rf"[ \t]*+,\s{{0,40}}{_KIND}"
#: What joins the literals of a list, and may be told first what stands between them: nothing.
_JOINER = (
    r"(?:\w{0,12}(?:concat\w{0,8}|paste0?|strcat|str_c|cat)\([ \t]*+(?:[\"']{2},[ \t]*+)?|[\"']{2}\.join\([\[(]"
    r"|\[(?=[^\]\n]{0,300}\][ \t]*+\.(?:join|concat)))[ \t]*+"
)
_FIRST = rf"{_KIND}[\"'][^\"'\n ]+[\"']"
_JOINER_GATE = (
    r"(?:\w*(?:concat|paste|strcat|str_c|cat)\w*\(|[\"']{2}\.join\(|\[[^\n]*\][ \t]*+\.(?:join|concat))"
    r"[^\n]*"
)


def _whole(stretch: str) -> str:
    """What the pieces make; the stretch lacks the quotes at both ends."""
    return "".join(_PIECES.findall(f'"{stretch}"'))


def _password(stretch: str) -> bool:
    return chosen_password(_whole(stretch)) or credential(_whole(stretch))


def _token(stretch: str) -> bool:
    return credential(_whole(stretch))


def _pieces() -> Iterator[Role]:
    for kind, anchors, name, given, plausible, ending in (
        (
            *("PASSWORD", (*ENDS_ANCHORS, "identified", "secure")),
            rf"(?:{ENDS}(?:{_ASSIGNED}|[ \t]++)|identified[^\n']{{0,40}}\bby[ \t]++)",
            rf"{ENDS}{_ASSIGNED}",
            _password,
            rf"(?:{ENDING}|pass|identified[^\n']*by)\d?",
        ),
        (
            *("SECRET", SECRETS_ANCHORS),
            *(rf"{_TOKENS}{_ASSIGNED}",) * 2,
            _token,
            "(?:secret|token|key)",
        ),
    ):
        assigned = rf"(?i){ending}(?:{_ASSIGNED}|[ \t]+)"
        for begins, between, gate in (
            (rf"{name}\(?[ \t]*+", _OPERATOR, rf"{assigned}\(?[ \t]*+{_FIRST}{_OPERATOR}[\"'][^\"'\n ]"),
            (rf"{given}{_JOINER}", _COMMA, rf"{assigned}{_JOINER_GATE}"),
        ):
            yield Role(
                kind, anchors,
                rf"{begins}{_KIND}[\"']"
                rf"([^\"'\s\\]{{2,60}}[\"'](?:{between}{_LITERAL}){{0,6}}{between}[\"'][^\"'\s\\]{{2,60}})(?=[\"'])",
                plausible, gate,
            )  # fmt: skip


PIECES: tuple[Role, ...] = tuple(_pieces())

"""Secrets that code puts together from literals of which none is one, or hands on under a name that does not tell.

Pieces are joined by an operator or by a function of a list. What is handed on is assigned to a name that says nothing
(`x = "..."`), and the name to a parameter, a header, a flag or a call that takes secrets (`connect(password=x)`).
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from capibara_assets.executions.secrets.characters import mingled
from capibara_assets.executions.secrets.plausibility import (
    chosen_or_made,
    credential,
    filled_in,
    pieced,
    scrambled_or_digest,
    stated_password,
)
from capibara_assets.executions.secrets.roles.passwords import ENDING, ENDS, ENDS_ANCHORS
from capibara_assets.executions.secrets.roles.role import CHARS, MINGLED, Role
from capibara_assets.executions.secrets.roles.tables import SECRETS_ANCHORS

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
    r"|join\([\"']{2},[ \t]*+[\[(]"
    r"|\[(?=[^\]\n]{0,300}\][ \t]*+\.(?:join|concat)))[ \t]*+"
)
_FIRST = rf"{_KIND}[\"'][^\"'\n ]+[\"']"
_JOINER_GATE = (
    r"(?:\w*(?:concat|paste|strcat|str_c|cat)\w*\(|[\"']{2}\.join\(|join\([\"']{2},|\[[^\n]*\][ \t]*+\.(?:join|concat))"
    r"[^\n]*"
)


def _whole(stretch: str) -> str:
    """What the pieces make; the stretch lacks the quotes at both ends."""
    return "".join(_PIECES.findall(f'"{stretch}"'))


def _password(stretch: str) -> bool:
    return chosen_or_made(_whole(stretch))


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


# --- what a name is handed to --------------------------------------------------------------------------------------

_TELLS = (
    r"(?:secret|(?<!next)(?<!page)token(?!iz|is|s\b)|passw|passphrase|pwd|\bpass\b|\bpw\b|credential"
    r"|authorization|\bauth\b|bearer"
    r"|(?:api|access|auth|signing|private|encryption|master|license|shared|account)[_-]?key|(?-i:[A-Z]_KEY\b))"
)
_TELLS_GATE = (
    r"secret|token(?:[^si]|s\w|i[^sz])|passw|passphrase|pwd|\bpass\b|\bpw\b|credential|auth|bearer|(?:api"
    r"|access|sign\w*|private|encrypt\w*|master|license"
    r"|shared|account|[A-Z])[_-]?key|log_?in\w*\(|connect\w*\(|hmac|jwt|crypt\w*\(|fernet|cipher|sign\w*\(|pdo"
    r"|mysqli|[ \t]-(?:p|P|a|w|u|k)"
)
#: A parameter, a header, a variable of that name, and what it is given: names of variables among other signs.
_GIVEN_TO = re.compile(
    rf"{_TELLS}[\w.-]{{0,20}}[\"'\])}}]{{0,3}}[ \t]*+(?:=>|:=|<-|=|:|,|\()[ \t]*+(?:[\w.:]{{1,30}}\(|\[\]byte\()?"
    rf"([^\n,;)]{{1,120}})",
    re.IGNORECASE,
)
_GIVEN_FLAG = re.compile(
    r"[ \t](?:-(?:p|pw|P|a|w|u|k)[ =]?|--?(?:[\w-]{0,24}(?:pass|token|secret|key|user|auth|cred)[\w-]{0,12})[ =])"
    r"[\"']?(?:[\w.@$\{\}-]{0,40}:)?\$([\w{}]{1,40})|-SecureString[ ]++(?:-String[ ]++)?\$(\w{1,40})"
)
_CALLED_WITH = re.compile(
    r"(?:log_?in|connect|auth|credential|hmac|jwt|encrypt|decrypt|fernet|cipher|\bsign|securestring|\bpdo"
    r"|mysqli|oauth)"
    r"[\w.:]{0,24}\(([^\n]{1,160})",
    re.IGNORECASE,
)
_VARIABLE = re.compile(r"(?<![\w.\"'-])[A-Za-z_]\w{0,40}(?![\w(=:\"'-])|(?<=[$#{])[A-Za-z_]\w{0,40}")
#: Names that say that the value is no secret.
_OTHER_NAMES = re.compile(
    r"user|name|host|addr|ur[il]|path|file|region|_?id$|mail|bucket|table|model|version|algo|schema|title|label|text"
    r"|message|prompt|date|time|hash|digest|sha|commit|expect|public|salt|nonce|data|body|payload|query|sql",
    re.IGNORECASE,
)
_OPENS = r"[ \t]*+(?:@|[A-Za-z])?[\"'`]"
_ASSIGNS = (
    r"^[ \t]*+(?:[\w<>\[\]*&:]{1,24}[ \t]++){0,3}?([$@]?[A-Za-z_]\w{0,40}(?:,[ \t]*+[$@]?[A-Za-z_]\w{0,40}){0,3})"
    r"(?:[ \t]*+:[ \t]*+\w{1,20})?[ \t]*+(?::=|<-|=)"
)
_GIVEN_LITERAL = re.compile(r"[\"'`]([^\s\"'`\\<>]{4,400})[\"'`](?![ \t]*+:)")
_GIVEN_WORD = re.compile(rf"([{CHARS}-]{{8,400}}={{0,2}})(?=[ \t]*+(?:$|[;&]))")
_GIVES = (
    rf"\w(?:(?:[ \t]*:[ \t]*\w{{1,20}})?[ \t]*(?::=|<-|=)[ \t]*(?:[\[({{]|\w)?[^\n]{{0,80}}[\"'`]"
    rf"[^\s\"'`\\<>]*{MINGLED}"
    rf"[^\s\"'`\\<>]*[\"'`]|=[{CHARS}-]*{MINGLED})"
)


def _called(value: str) -> bool:
    return stated_password(value) or scrambled_or_digest(value)


@lru_cache(maxsize=8)
def _taken(text: str) -> dict[str, Callable[[str], bool]]:
    """The variables that are handed to what takes secrets, and how plausible a value of each must be."""
    taken: dict[str, Callable[[str], bool]] = {}
    for call in _CALLED_WITH.finditer(text):
        for name in _VARIABLE.findall(call.group(1)):
            taken[name] = _called
    for flag in _GIVEN_FLAG.finditer(text):
        taken[(flag.group(1) or flag.group(2)).strip("{}")] = chosen_or_made
    for given in _GIVEN_TO.finditer(text):
        names = _VARIABLE.findall(given.group(1))
        for name in names:
            taken[name] = chosen_or_made if len(names) == 1 else _pieced
    return taken


def _pieced(value: str) -> bool:
    return chosen_or_made(value) or pieced(value)


def _handed_on(assigned: re.Match[str]) -> Iterator[tuple[int, int]]:
    """The literals of an assignment whose names are used as secrets somewhere in the text."""
    text, names = assigned.string, [name.strip("$@ \t") for name in assigned.group(1).split(",")]
    taken = _taken(text)
    if not any(name in taken and not _OTHER_NAMES.search(name) for name in names):
        return
    end = text.find("\n", assigned.end())
    end = min(len(text) if end < 0 else end, assigned.end() + 400)
    listed = text[assigned.end() : end].lstrip()[:1] in ("[", "(", "{")
    values = list(_GIVEN_LITERAL.finditer(text, assigned.end(), end))
    if not values and (word := _GIVEN_WORD.match(text, assigned.end(), end)):
        values = [word]
    for number, value in enumerate(values):
        name = names[0] if listed and len(names) == 1 else names[number] if number < len(names) else ""
        if (plausible := taken.get(name)) is None or _OTHER_NAMES.search(name):
            continue
        if not mingled(value.group(1)):  # as the gate asks for
            continue
        if plausible(value.group(1)) or (listed and _pieced(value.group(1))):
            yield value.span(1)


_HANDED_ON = Role(
    "SECRET", ("=", "<-"), rf"{_ASSIGNS}(?={_OPENS}|[ \t]*+[\[({{]|[{CHARS}-]{{8}})", filled_in,
    gate=rf"(?s)(?:{_GIVES}.*(?i:{_TELLS_GATE})|(?i:{_TELLS_GATE}).*{_GIVES})", cells=_handed_on,
)  # fmt: skip

PIECES: tuple[Role, ...] = (*_pieces(), _HANDED_ON)

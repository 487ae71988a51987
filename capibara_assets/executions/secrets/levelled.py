"""A second view of a text, in which no sign ends a value before its quotes do, or its line.

Rules read a value up to a sign that ends an unquoted word: `&`, `(`, `<`, `|`, `;`, `,` and the like. Between quotes
these are signs as `!` is, and generators draw them as often. Rather than teach each rule the quotes around its value,
the view has `^` in place of each of them: every rule, gate and test of plausibility knows that sign. No character
moves, so a place that is found in the view is the same place of the text.

Only what looks drawn at random, or is a word, a sign and a number, is levelled: `'a|b'` and `f(x,y)` are code.

Letters beyond ASCII have those of ASCII in their place, in words with a digit: passwords hold them in any language.
"""

import re
import unicodedata
from collections.abc import Collection
from functools import lru_cache

from capibara_assets.executions.secrets.characters import changes, in_words, three_sorts

SIGN = "^"  # paths, queries and addresses lack it, and no rule takes a word for a password for having it
_ENDS = "&()<>|;,{}[]"
_INSIDE = {"'": _ENDS + '"`\\$', '"': _ENDS + "'", "`": _ENDS + "\"'", "": _ENDS}
_HARD = re.escape("".join(sorted(set("".join(_INSIDE.values()) + ":=+~_-" + SIGN))))
#: What nearly all values have that are drawn at random, or of a word and a number; a sign may stand within.
_DIGITS = rf"[{_HARD}]?[0-9]+(?:[{_HARD}][0-9]*)?"
_DRAWN = rf"[A-Za-z]{_DIGITS}[A-Za-z]"
_MIXED = rf"(?:{_DRAWN}|[a-z]{{2}}[{_HARD}][0-9]{{3}})"
_MIX, _MINGLED = re.compile(_MIXED), re.compile(_DRAWN)
_WORD = "[^\\s\"'`]*"
#: What is drawn, or chosen, with a capital before it, in it or behind it: half of the lines of code end in the rest.
_WITH_CAPITAL = (
    rf"(?:[A-Z]{_WORD}{_MIXED}|{_MIXED}{_WORD}[A-Z]"
    rf"|[A-Z]{_DIGITS}[A-Za-z]|[A-Za-z]{_DIGITS}[A-Z])"
)
_IS = "is|to|was|ist|lautet|auf|est|es|naar|é|è"
_NO_WORD = r"\s\"'`<>()\[\]{},;:=/\\|"
_LETTERS = "\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0370-\u052f"
#: Found in every text of which the view differs (a property test checks that): by quotes, at a line's end, behind a
#: flag or a name, in an element. Letters are asked of the text itself (`isascii`).
MAY_BE_LEVELLED = (
    *(f"{quote}[^\\s{quote}]*{_MIXED}[^\\s{quote}]*{quote}" for quote in "'\"`"),
    rf"{_WITH_CAPITAL}[^\s\"'`]*[ \t\r]*(?m:$)",
    rf"(?:[ \t]--?[A-Za-z](?:[A-Za-z0-9_-]*[ =])?|[A-Za-z]=|[ \t](?:{_IS})[ ]|:[ ])"
    rf"{_WORD}{_MIXED}{_WORD}[ \t.,]",
    rf">[^\s\"'`<>]*{_MIXED}[^\s\"'`<>]*</",
)
_QUOTED = re.compile(
    r"[\"'`](?:(?<=')(?P<single>[^'\s]{8,90}+)'|(?<=\")(?P<double>[^\"\s\\]{8,90}+)\\{0,3}\""
    r"|(?<=`)(?P<back>[^`\s]{8,90}+)`)"
)
#: Also a line of nothing else.
_LAST = re.compile(r"[=: \t\n](?P<bare>[^\s\"'`]{8,90}+)(?=[ \t\r]{0,4}$)", re.MULTILINE)
_NAME = re.compile(r"(?=[\w.-]{0,77}?(?:[a-z]{3}|[A-Z_]{3}))[A-Za-z_.-][\w.-]{4,80}+[:=](?!//)")
#: Behind a flag or a word that tells it; behind a name; in an element.
_BEHIND_WORD = re.compile(
    rf"[ \t](?:-{{1,2}}[A-Za-z](?:[A-Za-z0-9_-]{{0,30}}[ =])?|(?:{_IS})[ ])"
    r"(?P<given>[^\s\"'`<>]{8,90}?)(?=[.,]?[ \t])"
)
_BEHIND_SIGN = re.compile(
    r"[=:>](?:(?:(?<=[A-Za-z]=)|(?<=:)[ ])(?P<given>[^\s\"'`<>]{8,90}?)(?=[.,]?[ \t])"
    r"|(?<=>)(?P<element>[^\s\"'`<>]{8,90}+)(?=</))"
)
_QUOTES = {"single": "'", "double": '"', "back": "`", "bare": "", "given": "", "element": ""}
_LETTER = re.compile(f"[{_LETTERS}]")
#: A word with letters beyond ASCII, and a digit.
_FOREIGN = re.compile(
    rf"(?<![^{_NO_WORD}])(?=[^{_NO_WORD}]{{0,64}}[{_LETTERS}])(?=[^{_NO_WORD}]{{0,64}}[0-9])[^{_NO_WORD}]{{6,64}}+"
)
_PASSES = (
    (frozenset((0, 1, 2)), _QUOTED),
    (frozenset((3,)), _LAST),
    (frozenset((4,)), _BEHIND_WORD),
    (frozenset((4, 5)), _BEHIND_SIGN),
)
#: Names before a value within its quotes: `user:`, `pass=`, `host:5432:db:user:`, `CORP\\user:`; a flag of one letter.
_NAMES = re.compile(
    r"(?:[A-Za-z]{1,20}\\{1,2})?(?:(?:[a-z0-9_.*/-]+|[A-Z0-9_.*-]+|[A-Za-z][a-z]*(?:-[A-Z][a-z]*)*)[:=%](?!//))+|-[A-Za-z](?=[A-Za-z0-9])|"
)
#: Code, templates, addresses, expressions of `re`, which mix signs, too; brackets that are closed; placeholders.
_CODE = re.compile(
    r"://|[?&;,][A-Za-z_][\w.-]*[:=]|;base64,|\A(?:sha\d{3}-|\d{1,9}>)|\$[{(]|\{\{|\}\}|<%|\[\w-\w|\(\?|\\[dDwWsSbBnrtuUx]|&\w+;"
    r"|\([^)]*\)|\[[^\]]*\]|\{[^}]*\}|<[^>]*>"
)
_LIST = re.compile(r"[A-Z]*[a-z]*[0-9]{0,3}(?:[,;|&][A-Z]*[a-z]*[0-9]{0,3}){2,}")  # of names: E401,Login;Retry2
_CALL = re.compile(r"[A-Za-z]{7}\w*\(")
_CHOSEN = re.compile(r"[A-Z][a-z]{2,15}\^[0-9]{3,8}[A-Za-z]{0,8}|[A-Z][a-z]{2,15}[0-9]{2,8}\^[A-Za-z]{2,8}")


@lru_cache(maxsize=4)  # the rules of a text and what they find in it both ask
def levelled(text: str) -> str:
    """The view of a text; the text itself where nothing is levelled."""
    return levelled_as_told(text, range(len(MAY_BE_LEVELLED)))


def levelled_as_told(text: str, told: Collection[int]) -> str:
    """The same, sooner: by the numbers of the patterns that may be levelled which the text holds."""
    if not text.isascii() and _LETTER.search(text) and (plain := _FOREIGN.sub(_in_ascii, text)) != text:
        told, text = range(len(MAY_BE_LEVELLED)), plain
    for patterns, runs in _PASSES:
        if not patterns.isdisjoint(told):
            text = _with_plain(runs, text)
    return text


def _in_ascii(word: re.Match[str]) -> str:
    """The word; no name in code is spelt so, and what joins its parts is a sign."""
    plain = (character if character.isascii() else _plain_letter(character) for character in word.group())
    return "".join(plain).replace("_", SIGN)


def _plain_letter(character: str) -> str:
    """The letter of ASCII that a letter begins with, or any of its case; other signs as they are."""
    if not _LETTER.match(character):
        return character
    base = unicodedata.normalize("NFD", character)[0]
    return base if base.isascii() else "A" if character.isupper() else "a"


def _with_plain(runs: re.Pattern[str], text: str) -> str:
    parts, last = [], 0
    for match in runs.finditer(text):
        kind = str(match.lastgroup)
        run = match[kind]
        own_line = kind == "bare" and text[match.start()] == "\n"
        if (plain := _plain(run, _QUOTES[kind], own_line)) != run:
            parts += [text[last : match.start(kind)], plain]
            last = match.end(kind)
    return "".join([*parts, text[last:]]) if parts else text


def _plain(run: str, quote: str, own_line: bool) -> str:
    """What stands between quotes, or at a line's end, with its signs levelled if it is a value."""
    if run.isalnum() or not _MIX.search(run):
        return run
    name = _NAME.match(run) if own_line else None
    names = _NAMES.match(run, name.end() if name else 0)
    at = names.end() if names else 0
    if _CODE.search(run, at) or (not quote and _CALL.search(run, at)):
        return run
    # what ends a line may be the syntax of what stands around; `=` fills up base64
    value = run[at:].rstrip("=" if quote else ":=" + _ENDS)
    if len(value) < 8 or not value.isascii() or _LIST.fullmatch(value):
        return run
    joins = ":=" if not quote or "." in value or "/" in value else ":=+~_-"  # the others join names of files, versions
    plain = value[0].translate(_table(quote, "")) + value[1:].translate(_table(quote, joins))
    return run[:at] + plain + run[at + len(value) :] if _drawn_or_chosen(plain) else run


def _table(quote: str, joins: str) -> dict[int, str]:
    return dict.fromkeys(map(ord, _INSIDE[quote] + joins), SIGN)


def _drawn_or_chosen(plain: str) -> bool:
    """Whether a levelled value is letters of both cases and digits at random, or a word, a sign and a number."""
    told = "".join(filter(str.isalnum, plain))
    if not three_sorts(plain) or len(told) < 0.6 * len(plain):
        return False
    drawn = len(told) >= 9 and changes(told) >= 0.3 and in_words(plain) <= 0.6 and _MINGLED.search(plain)
    return bool(drawn) or _CHOSEN.fullmatch(plain) is not None

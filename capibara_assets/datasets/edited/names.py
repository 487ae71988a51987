"""Names of a text in any programming language, as Pygments tells them apart from keywords, texts and comments."""

import re
from collections.abc import Iterator

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_for_filename
from pygments.token import Comment, Keyword, Literal, Name, _TokenType, is_token_subtype
from pygments.util import ClassNotFound

_BOUND = re.compile(
    r"\b(?:def|func|function|fn|class|struct|interface|enum|type|trait|let|const|var|val|mut|import|from|as|for|with|catch"
    r"|except|lambda|use|package|module|static|final|auto)\s+(?:\*\s*)?([A-Za-z_$][\w$]*)"
)
_ASSIGNED = re.compile(r":=|(?<![=!<>+*/%&|^-])=(?![=>])")
_PARAMETERS = re.compile(r"\(([^()\n]*)\)[^\n]*(?:\{|=>|:)[ \t]*$|\|([^|\n]*)\|", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
_MEMBER = re.compile(r"(?:\.|->|::|\?\.)\s*\Z")


def code_lexer(path: str) -> Lexer | None:
    """The lexer of a file's language by its name; None for prose and what is not known."""
    name = path.rsplit("/", 1)[-1]
    if name.lower().endswith((".md", ".txt", ".rst", ".lock", ".log", ".svg")):
        return None
    try:
        return get_lexer_for_filename(name)
    except ClassNotFound:
        return None


def words(text: str) -> set[str]:
    """All words of a text that can be names."""
    return set(_WORD.findall(text))


def unknown_names(lexer: Lexer, code: str, told: set[str]) -> list[str]:
    """Names that code reads without binding them, no members, which are not among those told; sorted."""
    bound = set(_BOUND.findall(code))
    for line in code.split("\n"):
        if sign := _ASSIGNED.search(line):
            bound |= words(line[: sign.start()].partition(":")[0])
    for match in _PARAMETERS.finditer(code):
        listed = next(filter(None, match.groups()), "").split(",")
        bound |= {name for one in listed for name in words(one.partition(":")[0])}  # `name: Type` binds the name
    return sorted({name for name in _read(lexer, code) if name not in told and name not in bound})


def _read(lexer: Lexer, code: str) -> Iterator[str]:
    before = ""
    for kind, text in lexer.get_tokens(code):
        if (_is_name(kind) or (is_token_subtype(kind, Keyword.Type) and text[:1].isupper())) and not _MEMBER.search(
            before
        ):
            yield from _WORD.findall(text)
        before = f"{before}{text}"[-8:]


def _is_name(kind: _TokenType) -> bool:
    given = is_token_subtype(kind, Name.Builtin) or is_token_subtype(kind, Name.Attribute)
    return is_token_subtype(kind, Name) and not given


def without_remarks(lexer: Lexer, code: str) -> str:
    """The tokens of code without comments, spaces, commas and semicolons, joined by blanks: what a formatter keeps."""
    kept = [
        text for kind, text in lexer.get_tokens(code) if not is_token_subtype(kind, Comment) and text.strip(" \t\n,;")
    ]
    return " ".join(kept)


def texts(lexer: Lexer, code: str) -> list[str]:
    """The texts and numbers that stand in code."""
    found = [(kind, text.strip("\"'`")) for kind, text in lexer.get_tokens(code)]
    return [text for kind, text in found if text and is_token_subtype(kind, Literal)]

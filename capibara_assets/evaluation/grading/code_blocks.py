"""The code in an answer, which is chat text."""

import re
from dataclasses import dataclass

from capibara_assets.datasets.code.javascript_source import parse as parse_javascript
from capibara_assets.datasets.code.python_source import parse as parse_python

_FENCE = re.compile(
    r"^[ \t]*(?P<fence>`{3,}|~{3,})[ \t]*(?P<name>[\w+-]*)[^\n]*\n(?P<code>.*?)(?:^[ \t]*(?P=fence)[ \t]*$|\Z)",
    re.M | re.S,
)
_NAMES = {
    "python": frozenset({"python", "py", "python3", "ipython", "pycon"}),
    "javascript": frozenset({"javascript", "js", "node", "nodejs", "mjs", "cjs"}),
    "sql": frozenset({"sql", "sqlite", "sqlite3"}),
}
_SQL = re.compile(
    r"^\s*(--[^\n]*\n\s*|/\*.*?\*/\s*)*(select|with|insert|update|delete|create|alter|drop|values|explain|pragma)\b",
    re.I | re.S,
)


@dataclass(frozen=True)
class ExtractedCode:
    """The code of an answer and where it stood; None where there is none."""

    code: str | None
    how: str


def extract_code(answer: str, language: str) -> ExtractedCode:
    """The first fenced block of the language, else the first fenced block, else the whole answer if it parses."""
    blocks = [(match["name"].lower(), match["code"].rstrip("\n")) for match in _FENCE.finditer(answer)]
    for name, code in blocks:
        if name in _NAMES[language]:
            return ExtractedCode(code, f"the first {language} block")
    if blocks:
        name, code = blocks[0]
        return ExtractedCode(code, f"the first block ({name or 'of no language'})")
    if answer.strip() and parses(answer, language):
        return ExtractedCode(answer, "the whole answer")
    return ExtractedCode(None, f"no fenced block, and the whole is no {language}")


def parses(code: str, language: str) -> bool:
    """Whether code is of the language, as far as its text tells (of SQL: how it begins)."""
    if language == "python":
        return parse_python(code) is not None
    if language == "javascript":
        return not parse_javascript(code).has_error
    return bool(_SQL.match(code))


def plain_text(answer: str) -> str:
    """An answer that is no code: what stands in its first fenced block, else all of it; no line feeds around it."""
    match = _FENCE.search(answer)
    return (match["code"] if match else answer).strip("\n").rstrip()

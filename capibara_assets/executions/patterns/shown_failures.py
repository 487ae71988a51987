"""Failures that a program shows although it ended well: in words, as unlike values, or beside a comment."""

import re

import polars as pl

_WORDS = (
    r"\bFAIL|\bfail(?:s|ed|ures?)?\b|[✗✘❌]"
    r"|\b(?:not ok|wrong|WRONG|mismatch(?:es)?|MISMATCH|false|False|missing|unexpected)\b"
    r"|\b[Ee]xpected\b.*\b(?:got|but|found|actual)\b|\b[Gg]ot\b.*\b(?:want|[Ee]xpected)\b"
)
_SAYS = re.compile(_WORDS)
_NONE_FAILED = re.compile(
    r"\b(?:0|no) (?:tests? )?(?:fail|mismatch|wrong|unexpected|missing)"
    r"|\b(?:fail\w*|mismatch\w*|wrong|unexpected|missing)\b\W{0,3}(?:\[\]|\{\}|\(\)|set\(\)|0\b|none\b)",
    re.IGNORECASE,
)
_PAIR = re.compile(
    r"\b[Gg]ot\b[:=]?\s*(?P<got>.+?)[\s|,;(-]*\b(?:[Ee]xpected|want(?:ed)?)\b[:=]?\s*(?P<want>.+?)\)?$"
    r"|\b[Ee]xpected\b[:=]?\s*(?P<wanted>.+?)[\s|,;(-]*\b(?:but )?(?:got|found|actual)\b[:=]?\s*(?P<given>.+?)\)?$"
)
_BESIDE = re.compile(r"^(?P<got>.*\S)[\s|,;(-]+(?:should be|want(?:ed)?|expected)\b[:=]?\s*(?P<want>\S.*?)\)?$")
_COMMENTED = r"^(?:print|console\.log)\(.*\);?[ \t]+(?:#|//)"
_PRINTS = re.compile(r"^(?:print|console\.log)\(", re.MULTILINE)
_VALUE = re.compile(
    rf"{_COMMENTED}[ \t]*(?:expected|expect|should (?:be|print|give)|=+>|->|→)?[:=]?[ \t]*(.+)$", re.MULTILINE
)
_MOST_CHARS = 500  # of a line: what a test says of a failure is short, and the expressions take the square of it
_OUTPUTS = ("stdout", "stderr", "result_text")

MAY_SHOW = pl.any_horizontal(
    pl.col(name).str.contains(rf"{_WORDS}|\b(?:should be|want|wanted|expected)\b") for name in _OUTPUTS
) | pl.col("code").str.contains(f"(?m){_COMMENTED}")
"""Rows of executions of which `shows_failure` may hold."""


def shows_failure(code: str, output: str) -> bool:
    """Whether the output of a program says that something is not as it should be.

    A word says so (`FAIL`, `not ok`, `false`), a value beside the one that was expected, or, where each print has a
    comment with a value (`print(f(2))  # 4`), a line that differs from it.
    """
    lines = [line[:_MOST_CHARS] for line in output.split("\n") if line.strip()]
    values = _VALUE.findall(code)
    if values and len(values) == len(_PRINTS.findall(code)) == len(lines):
        return any(_plain(line) != _plain(value) for line, value in zip(lines, values, strict=True))
    return any(_fails(line) for line in lines)


def _fails(line: str) -> bool:
    if (pair := _PAIR.search(line)) is not None:
        got, want = (pair["got"] or pair["given"], pair["want"] or pair["wanted"])
        return _plain(got) != _plain(want)
    if (beside := _BESIDE.match(line)) is not None and not _SAYS.search(line):
        got, want = beside["got"].rstrip(" |,;(-"), beside["want"]
        return _plain(got) != _plain(want) and not re.search(rf"[\s:=|]{re.escape(want)}$", got)
    return _SAYS.search(line) is not None and _NONE_FAILED.search(line) is None


def _plain(value: str) -> str:
    return re.sub(r"[\s'\"`]", "", value).rstrip(".;,")

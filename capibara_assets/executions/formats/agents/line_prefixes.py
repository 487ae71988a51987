"""What runners of jobs and containers write before each line of what they ran: times, names, levels; and without it."""

import re
from itertools import islice

_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_PREFIXES = tuple(
    re.compile(form)
    for form in (
        r"\ufeff?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3,9}(?:Z|[+-]\d\d:\d\d)(?: |(?=\r?\Z))",  # GitHub Actions, Docker
        rf"[^\t\n]{{1,99}}\t[^\t\n]{{1,99}}\t\ufeff?{_TIME}(?: |\r?\Z)",  # gh run view --log
        rf"(?:{_TIME} )?(?P<name>[\w.-]{{1,60}}) +\| ?",  # docker compose
        r"\[pod/(?P<name>[\w./-]{1,200})\] ",  # kubectl logs --prefix
        r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,99} (?P<name>[\w.@/-]{1,60})\[\d+\]: ?",  # journald
    )
)
_RECORDS = re.compile(rf"\[?{_TIME}\]?(?: -)? +\[?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\]?(?: -|:)?(?: |\r?\Z)")
_SHOWN = 20  # lines that show whether the others have one
_HEAD = 20_000  # characters in which these stand
_MOST = 0.9  # of a text's lines, at least, that have one: a page may have lines above and below what was pasted
_NAMES = 8  # of what wrote them, at most: a table has more in its first column


def without_prefixes(text: str) -> str:
    """The text without what stands before most of its lines; what several wrote stands one after another."""
    head = [line for line in islice(text[:_HEAD].split("\n"), 2 * _SHOWN) if line.strip()][:_SHOWN]
    for prefix in (*_PREFIXES, _RECORDS) if len(head) > 1 else ():
        least = 1.0 if prefix is _RECORDS else _MOST  # else it tells where a record of several lines begins
        if sum(map(bool, map(prefix.match, head))) >= least * len(head):
            return _without(text, prefix, least)
    return text


def _without(text: str, prefix: re.Pattern[str], least: float) -> str:
    named: dict[str, list[str]] = {}
    found, filled, name = 0, 0, ""
    for line in text.split("\n"):
        told = prefix.match(line)
        if told is not None:
            found, line = found + 1, line[told.end() :]
            name = told["name"] if "name" in prefix.groupindex else ""
            filled += 1
        else:
            filled += bool(line.strip())
        named.setdefault(name, []).append(line)
    if found < least * filled or len(named) > _NAMES:
        return text
    return "\n".join(line for lines in named.values() for line in lines)

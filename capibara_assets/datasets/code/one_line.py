"""Joins code of several lines into one, leaving quoted texts unchanged."""

import re

_BREAK = re.compile(r"(?<!\s)\s*\n\s*")
_SPANNING = ("`", '"""', "'''")


def in_one_line(code: str) -> str:
    """Replace line breaks by blanks; code is unchanged if its texts may contain line breaks.

    Blanks within a line stay: some stand in quotes, and `split(" ")` is not `split("")`.
    """
    return code if any(quote in code for quote in _SPANNING) else _BREAK.sub(" ", code)

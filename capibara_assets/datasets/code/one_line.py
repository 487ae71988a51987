"""Code of several lines in one, with what stands in quotes as it was."""

import re

_BREAK = re.compile(r"\s*\n\s*")
_SPANNING = ("`", '"""', "'''")


def in_one_line(code: str) -> str:
    """Code with a blank for each line break; as it is where its texts may hold line breaks themselves.

    Blanks within a line stay: some stand in quotes, and `split(" ")` is not `split("")`.
    """
    return code if any(quote in code for quote in _SPANNING) else _BREAK.sub(" ", code)

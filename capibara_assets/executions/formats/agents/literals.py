"""Values that a log shows as Python writes them (`repr`), not as JSON."""

import ast
import re
import warnings
from typing import Any

_MOST = 200_000  # characters: a parsed one takes hundreds of bytes for each


_TOKEN = re.compile(
    r"""(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<opened>[(\[{])|(?P<closed>[)\]}])|(?P<comma>,)|(?P<name>\w+)=""",
    re.DOTALL,
)


def fields_of(text: str, kind: str) -> dict[str, str]:
    """Name -> `repr` of each field in the `repr` of a dataclass (`Step(number=1, error=None)`).

    A value may be of a kind whose `repr` is no Python. Empty where the text shows no object of `kind`.
    """
    if not text.startswith(f"{kind}("):
        return {}
    found: dict[str, str] = {}
    depth, name, begin = 0, "", 0
    for token in _TOKEN.finditer(text):
        depth += token["opened"] is not None
        if depth == 1 and token["name"]:
            name, begin = token["name"], token.end()
        if name and depth == 1 and (token["comma"] or token["closed"]):
            found[name] = text[begin : token.start()]
            name = ""
        depth -= token["closed"] is not None
        if not depth:
            break
    return found


def literal(text: str) -> Any:
    """The value that a `repr` shows; None where it shows none, or no plain one."""
    if len(text) > _MOST:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in its strings
            return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None

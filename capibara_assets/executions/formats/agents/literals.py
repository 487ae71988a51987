"""Values that a log shows as Python writes them (`repr`), not as JSON."""

import ast
import warnings
from typing import Any

_MOST = 200_000  # characters: a parsed one takes hundreds of bytes for each


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

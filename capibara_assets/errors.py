"""Errors that a caller can act on; everything else is a defect and keeps its traceback."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError

_OURS = "Value error, "  # Pydantic's mark of a message that is not its own; ours name the value themselves
_WORDS = {"missing": "is missing", "extra_forbidden": "is no known field"}
_MOST_SHOWN = 60  # characters of a value
_MOST_CLAUSES = 20  # of a document with an error on every line


class InputError(Exception):
    """Something the user gave is wrong or missing; the message says what, where and what to do (exit code 2)."""


class IntegrityError(Exception):
    """Stored bytes are not the bytes that were published (digest, size or file list differ)."""


def in_words(error: "ValidationError") -> str:
    """What pydantic found, one clause a field: its path, what is expected there, and the value that is there."""
    found = error.errors(include_url=False)
    more = f"; and {len(found) - _MOST_CLAUSES} more" if len(found) > _MOST_CLAUSES else ""
    return "; ".join(map(clause, found[:_MOST_CLAUSES])) + more


def clause(found: Any) -> str:
    """One of a ValidationError's `errors()`, in words."""
    where, value = ".".join(map(str, found["loc"])), found["input"]
    said = _WORDS.get(found["type"]) or found["msg"].removeprefix(_OURS).removeprefix("Input ")
    named = found["type"] in _WORDS or found["msg"].startswith(_OURS)
    if not named and (value is None or isinstance(value, str | int | float)):
        shown = repr(value)
        said += f", not {shown if len(shown) <= _MOST_SHOWN else shown[:_MOST_SHOWN] + ' …'}"
    return f"{where}: {said}" if where else str(said)

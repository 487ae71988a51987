"""Errors that a caller can act on; everything else is a defect and keeps its traceback."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class InputError(Exception):
    """Something the user gave is wrong or missing; the message says what, where and what to do (exit code 2)."""


class IntegrityError(Exception):
    """Stored bytes are not the bytes that were published (digest, size or file list differ)."""


def in_words(error: "ValidationError") -> str:
    """What pydantic found, one clause a field: its path, and what is expected there."""
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'document'}: {one['msg']}" for one in error.errors())

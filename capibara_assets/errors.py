"""Errors that a caller can act on; everything else is a defect and keeps its traceback."""


class InputError(Exception):
    """Something the user gave is wrong or missing; the message says what, where and what to do (exit code 2)."""


class IntegrityError(Exception):
    """Stored bytes are not the bytes that were published (digest, size or file list differ)."""

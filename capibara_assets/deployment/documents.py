"""Files that are read in one piece, whoever gave them: none of them waits for ever or is endless."""

import os
import stat
from pathlib import Path

from capibara_assets.errors import InputError

LARGEST_DOCUMENT = 64 << 20
"""Bytes of a file that is read in one piece: parsed, some twenty times as much memory."""


def read_document(file: Path, most: int = LARGEST_DOCUMENT) -> bytes:
    """The bytes of a file that is read in one piece: a config, a certificate, a recipe.

    Raises:
        InputError: a pipe, socket or device, or more than `most` bytes.
        OSError: it cannot be read.
    """
    try:
        with open(file, "rb", opener=_without_waiting) as opened:
            require_regular(file, os.fstat(opened.fileno()).st_mode)
            data = opened.read(most + 1)  # whatever size the file states: it may grow, or have none
    except ValueError as error:  # a name with a zero byte or half a character
        raise InputError(f"cannot read {str(file)!r}: {error}") from error
    if len(data) > most:
        raise InputError(f"{file} has more than {most:,} bytes, none of its kind does: give another file")
    return data


def _without_waiting(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NONBLOCK)  # a pipe would wait for its writer


def require_regular(path: Path, mode: int) -> None:
    """Refuse pipes, sockets and devices. Raises InputError: it is one."""
    if not stat.S_ISREG(mode):
        raise InputError(f"{path} is no file but a pipe, socket or device: nothing is read from it")

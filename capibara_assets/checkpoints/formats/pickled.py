"""What a pickle of torch.save may hold: told from its opcodes, before any of them runs.

`torch.load(weights_only=True)` runs no code of the file's choice, but it calls what it allows with whatever the file
gives: `bytearray(2 ** 31)` takes memory, `torch.Tensor(1000)` shows what stood in this process's memory, a quadratic
codec or a dictionary of integers with one hash takes minutes.
"""

import encodings.aliases
import io
import pickletools
import pkgutil
from collections.abc import Iterator
from typing import IO

from capibara_assets.errors import InputError

_LATIN = frozenset({"latin1", "latin_1", "iso8859_1", "iso_8859_1", "8859", "cp819", "l1", "latin", "utf_8", "utf8"})
_CODECS = (
    frozenset(name for pair in encodings.aliases.aliases.items() for name in pair)
    | frozenset(module.name for module in pkgutil.iter_modules(encodings.__path__))
) - _LATIN
_MOST_LARGE = 1000  # integers beyond 64 bits: the states of random generators are a few
_LONGEST = 64  # characters of a codec's name


def require_plain_pickle(source: bytes | IO[bytes], what: str, parts: int = 1) -> None:
    """Check the `parts` pickles that `source` begins with; what is damaged is left to the unpickler to name.

    Raises:
        InputError: they hold what takes memory or time without end; it is named.
    """
    stream = io.BytesIO(source) if isinstance(source, bytes) else source
    for _ in range(parts):
        try:
            reason = _odd(pickletools.genops(stream))
        except (ValueError, IndexError, UnicodeDecodeError, OverflowError):
            return
        if reason:
            raise InputError(
                f"{what} holds {reason}, which no checkpoint does: it is made to fill memory or time; where you trust "
                "it, load it with the program that wrote it and save tensors and plain values only"
            )


def _odd(opcodes: Iterator[tuple[pickletools.OpcodeInfo, object, int | None]]) -> str | None:
    large, encodes = 0, False
    codec: str | None = None
    for opcode, value, _ in opcodes:
        if isinstance(value, str) and opcode.name == "GLOBAL":  # the only one of its kind that torch knows
            module, _, called = value.partition(" ")
            if called == "bytearray":
                return "a bytearray"
            if called.endswith("Tensor") and module.split(".")[0] == "torch":
                return f"{module}.{called}, which gives as much uninitialised memory as it asks for"
            encodes = encodes or module == "_codecs"
        elif isinstance(value, str) and len(value) <= _LONGEST:
            name = encodings.normalize_encoding(value).lower()
            codec = codec or (name if name in _CODECS else None)
        elif isinstance(value, int) and value.bit_length() > 64:
            large += 1
        if encodes and codec:  # at once: a pickle that lacks its end runs up to there
            return f"text for the codec {codec}"
        if large > _MOST_LARGE:
            return f"more than {_MOST_LARGE:,} integers beyond 64 bits"
    return None

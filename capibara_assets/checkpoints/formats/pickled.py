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
from typing import IO, Any

from capibara_assets.errors import InputError

_LATIN = frozenset({"latin1", "latin_1", "iso8859_1", "iso_8859_1", "8859", "cp819", "l1", "latin", "utf_8", "utf8"})
_CODECS = (
    frozenset(name for pair in encodings.aliases.aliases.items() for name in pair)
    | frozenset(module.name for module in pkgutil.iter_modules(encodings.__path__))
) - _LATIN
_MOST_LARGE = 1000  # integers beyond 64 bits: the states of random generators are a few
_ITEMS = {
    "Double": 8, "Float": 4, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2, "ComplexDouble": 16,
    "ComplexFloat": 8, "QInt32": 4,
}  # fmt: skip
"""Bytes of an element of a typed storage, where it is not one."""
_MARK = object()
_OF_TYPE = ("torch._tensor _rebuild_from_type_v2", "torch._tensor _rebuild_from_type")
_Opcodes = Iterator[tuple[pickletools.OpcodeInfo, object, int | None]]
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


def stored_sizes(data: bytes) -> Iterator[tuple[str, int]]:
    """The members that a pickle of torch.save takes tensors from, and the bytes that it says each has, in its order.

    Told from the persistent ids `("storage", type, key, location, elements)`. Raises ValueError: an id is none.
    """
    for name, _, taken in _followed(pickletools.genops(data)):
        if name == "BINPERSID":
            match taken:
                case [("storage", str(kind), str(key), _, int(elements))]:
                    yield key, elements * _ITEMS.get(kind.rpartition(" ")[2].removesuffix("Storage"), 1)
                case _:
                    raise ValueError("a persistent id that names no storage")


def _followed(opcodes: _Opcodes) -> Iterator[tuple[str, object, list[Any]]]:
    """Each opcode's name and value, and what it takes from the stack: tuples, texts, numbers, names of classes."""
    stack: list[Any] = []
    kept: dict[Any, Any] = {}
    for opcode, value, _ in opcodes:
        name = opcode.name
        if name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            kept[len(kept) if name == "MEMOIZE" else value] = stack[-1] if stack else None
            continue
        parts = _taken(stack, opcode)
        yield name, value, parts
        if name in ("BINGET", "LONG_BINGET"):
            stack.append(kept.get(value))
        elif name in ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"):
            stack.append(tuple(parts))
        elif name == "MARK":
            stack.append(_MARK)
        else:
            stack += [value] * len(opcode.stack_after)


def _taken(stack: list[Any], opcode: pickletools.OpcodeInfo) -> list[Any]:
    """What an opcode takes from the stack, without the mark below it."""
    before = opcode.stack_before
    if pickletools.markobject in before:
        place = next((at for at in reversed(range(len(stack))) if stack[at] is _MARK), 0)
        taken = stack[place + 1 :]
        del stack[max(0, place - before.index(pickletools.markobject)) :]
        return taken
    taken = stack[len(stack) - len(before) :] if before else []
    del stack[len(stack) - len(taken) :]
    return taken


def _odd(opcodes: _Opcodes) -> str | None:
    large, encodes = 0, False
    codec: str | None = None
    for name, value, taken in _followed(opcodes):
        if name in ("REDUCE", "NEWOBJ") and (called := _tensor_made(taken)):
            return f"{called}, which gives as much uninitialised memory as it asks for"
        if isinstance(value, str) and name == "GLOBAL":  # the only one of its kind that torch knows
            module, _, called = value.partition(" ")
            if called == "bytearray":
                return "a bytearray"
            encodes = encodes or module == "_codecs"
        elif isinstance(value, str) and len(value) <= _LONGEST:
            text = encodings.normalize_encoding(value).lower()
            codec = codec or (text if text in _CODECS else None)
        elif isinstance(value, int) and value.bit_length() > 64:
            large += 1
        if encodes and codec:  # at once: a pickle that lacks its end runs up to there
            return f"text for the codec {codec}"
        if large > _MOST_LARGE:
            return f"more than {_MOST_LARGE:,} integers beyond 64 bits"
    return None


def _tensor_made(taken: list[Any]) -> str | None:
    """The class of tensors that a call makes one of, or hands to what may call it.

    One that only tells the type of what is made, as ZeRO's third stage has it, calls nothing.
    """
    called, given, *_ = *taken, None, None
    if called in _OF_TYPE and isinstance(given, tuple) and len(given) > 1 and not isinstance(given[1], tuple):
        given = (given[0], *given[2:])
    return _tensor_class(called) or _tensor_class(given)


def _tensor_class(value: Any) -> str | None:
    """The first class of tensors in a value and the tuples within it."""
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, tuple):
            pending += one
        elif isinstance(one, str) and one.endswith("Tensor") and one.partition(" ")[0].split(".")[0] == "torch":
            return one.replace(" ", ".")
    return None

"""Atomic, durable writing of small files, and reading of JSON documents: a user's, and versioned ones of our own."""

import json
import math
import os
import shutil
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.storage.foreign import read_document, read_stored

if TYPE_CHECKING:
    from upath import UPath

_LONGEST_NAME = 80  # characters of a name in a message
_LARGEST = 2**53 - 1  # of whole numbers: beyond, other readers of JSON see another one, and arithmetic ends


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Context in which an error of a write or a sync, which know a descriptor alone, gets the name of its file."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable: a rename is only on disk once its folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with naming(folder):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(folder: Path) -> None:
    """Create a folder, and those above it that are not there; their names are durable."""
    missing = [path for path in (folder, *folder.parents) if not path.is_dir()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in reversed(missing):
        sync_folder(path.parent)


def delete_durable(path: Path) -> None:
    """Delete a file, or a folder with all that it holds, so that no loss of power brings it back."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if path.parent.is_dir():
        sync_folder(path.parent)


def write_durable(path: Path, data: bytes) -> None:
    """Write bytes to a new file and wait until they are on disk."""
    with naming(path):
        _write(path, data)


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_bytes_atomic(path: Path, data: bytes) -> None:
    """Replace `path` by `data` in one step: written beside it, synced, renamed. Creates parent folders."""
    make_folders(path.parent)
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with naming(path):
            _write(beside, data)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def readable_json(value: Any) -> bytes:
    """JSON for people (sorted keys, two spaces, UTF-8). Raises ValueError: NaN or infinity."""
    return (json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")


def write_json_atomic(path: Path, value: Any) -> None:
    """Replace `path` by `readable_json` in one step; NaN and infinity are refused."""
    write_bytes_atomic(path, readable_json(value))


def first_twice(pairs: Sequence[tuple[str, Any]]) -> str:
    """The first name that was there before, of an object that has one; in one pass, however many there are."""
    seen = set[str]()
    for name, _ in pairs:
        if name in seen:
            return name
        seen.add(name)
    raise ValueError("every name is there once")


def strict_json(data: bytes) -> Any:
    """Parse JSON text strictly (RFC 8259), for documents that all readers must interpret alike.

    Raises:
        ValueError: not JSON in UTF-8, NaN or infinity, a number beyond those that all readers have (2**53 - 1 where it
            is whole, else float64), a name twice in one object, or half of a surrogate pair, which can be written
            nowhere.
    """
    value = json.loads(
        data.decode("utf-8-sig"),
        object_pairs_hook=_once,
        parse_constant=_no_number,
        parse_int=_whole,
        parse_float=_finite,
    )
    _require_text(value, data.lower())
    return value


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _whole(text: str) -> int:
    # By its length first: Python takes no more than some thousand digits, and long for these
    if len(text) > len(str(-_LARGEST)) or abs(value := int(text)) > _LARGEST:
        digits = len(text.lstrip("-"))
        raise _AmbiguousError(f"a whole number has {digits} digits, the largest that all readers have is {_LARGEST:,}")
    return value


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise _AmbiguousError(f"the number {text[:_LONGEST_NAME]} is larger than any that all readers have")
    return value


def _require_text(value: Any, lower: bytes) -> None:
    """Raise UnicodeEncodeError, a ValueError, where a text has half of a surrogate pair, which is always escaped."""
    if b"\\ud" in lower:
        json.dumps(value, ensure_ascii=False).encode("utf-8")


class _AmbiguousError(ValueError):
    """A name twice in one object, or a number too large for some readers: they take different values."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise _AmbiguousError(f"{first_twice(pairs)[:_LONGEST_NAME]!r} is there twice in one object")
    return members


def parse_json(data: bytes | str) -> Any:
    """Parse JSON that this code wrote. Raises ValueError: it is none, or nested more deeply than is read."""
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError(f"it is {why_not_json(error)}") from error


def user_json(data: bytes | str, what: object) -> Any:
    """Parse JSON that a user wrote, in each of JSON's encodings; NaN and infinity are values.

    Args:
        what: the document's name, for messages.

    Raises:
        InputError: it is not JSON, nested too deeply, has a name twice in one object, or half of a surrogate pair.
    """
    try:
        text = data if isinstance(data, str) else data.decode(json.detect_encoding(data))
        value = json.loads(text, object_pairs_hook=_once)
        _require_text(value, text.lower().encode("utf-8", "surrogatepass"))
        return value
    except (ValueError, RecursionError) as error:
        raise InputError(f"{what} is {why_not_json(error)}") from error


def foreign_json(data: bytes, what: object) -> Any:
    """Parse a document that other programs read, too, as all of them do; NaN and infinity are values.

    UTF-8 without a byte order mark, as Transformers and PEFT read it: whatever is read here from another encoding,
    they refuse.

    Args:
        what: the document's name, for messages.

    Raises:
        InputError: it is not JSON, in another encoding, nested too deeply, has a name twice in one object, or half of
            a surrogate pair.
    """
    try:
        value = json.loads(data.decode(), object_pairs_hook=_once)
        _require_text(value, data.lower())
        return value
    except (ValueError, RecursionError) as error:
        raise InputError(f"{what} is {why_not_json(error)}") from error


def foreign_object(data: bytes, what: object) -> dict[str, Any]:
    """As `foreign_json`, of an object. Raises InputError: as there, or it is another value."""
    value = foreign_json(data, what)
    if not isinstance(value, dict):
        raise InputError(f"{what}: expected a JSON object, found {type(value).__name__}")
    return value


def well_formed(text: str) -> str:
    """Text whose lone surrogates, halves of characters, are U+FFFD: no table and no file can hold them."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def is_whole(value: Any) -> bool:
    """Whether a value of a document is a whole number from 0 that every reader reads alike."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST


def why_not_json(error: ValueError | RecursionError) -> str:
    """What is wrong with a document, behind `is`, of an error of `json.loads`, which speaks to programmers."""
    if isinstance(error, RecursionError):
        return "nested too deeply to be read"
    if isinstance(error, UnicodeDecodeError):
        return f"not JSON: byte {error.start}, {error.object[error.start]:#04x}, is not {error.encoding}"
    if isinstance(error, UnicodeEncodeError):
        return f"not Unicode text: it has {error.object[error.start]!a}, half of a character"
    said = str(error)
    if isinstance(error, _AmbiguousError):
        return f"ambiguous: {said}"
    if "BOM" in said:
        said = "it begins with a byte order mark, which its other readers refuse"
    if "integer string conversion" in said:  # Python's limit, and how to lift it in a program
        said = f"a number has more than {sys.get_int_max_str_digits():,} digits"
    return f"not JSON: {said}"


def read_json(file: Path, strict: bool = False) -> Any:
    """The value in a JSON file that a user can mend, as `user_json`; `strict`: as `strict_json`.

    Raises:
        InputError: it cannot be read, is no document (`read_document`), or as there.
    """
    try:
        return strict_json(read_document(file)) if strict else user_json(read_document(file), file)
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is {why_not_json(error)}") from error


def read_object(file: Path, expected: str = "a JSON object", strict: bool = False) -> dict[str, Any]:
    """As `read_json`, of an object. Raises InputError: as there, or it is another value than `expected` names."""
    value = read_json(file, strict)
    if not isinstance(value, dict):
        raise InputError(f"{file}: expected {expected}, found {type(value).__name__}")
    return value


def read_foreign_object(file: Path) -> dict[str, Any]:
    """As `foreign_object`, of a file. Raises InputError: as there, or it cannot be read."""
    try:
        return foreign_object(read_document(file), file)
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error


def read_versioned(path: "Path | UPath", version: int, remedy: str) -> dict[str, Any]:
    """Read a versioned JSON document of a ledger; a damaged one raises and never counts as absent.

    Args:
        remedy: what to do about a damaged document, and why; ends the error message.

    Raises:
        IntegrityError: it is damaged, or of another version than `schema_version`.
    """
    try:
        document: dict[str, Any] = parse_json(read_stored(path))
        stated = document["schema_version"]
    except (ValueError, KeyError, TypeError) as error:
        raise IntegrityError(f"{path} is damaged: {remedy}") from error
    if stated != version:
        raise IntegrityError(f"{path}: version {stated}, this code reads {version}")
    return document

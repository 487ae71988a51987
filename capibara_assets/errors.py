"""Errors that a caller can act on; everything else is a defect and keeps its traceback."""

import difflib
import errno
import re
import resource
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError

_OURS = "Value error, "  # Pydantic's mark of a message that is not its own; ours name the value themselves
_WORDS = {"missing": "is missing", "extra_forbidden": "is no known field"}
_MOST_SHOWN, _LONGEST_NAME = 60, 160  # characters of a value, and of a name
_LONGEST, _END = 2000, 400  # characters of a message, and of its end, which says what to do
_MOST_NAMES = 5
_MOST_CLAUSES = 20  # of a document with an error on every line


_PLACES = "CAPIBARA_HOME, CAPIBARA_STORE, CAPIBARA_WORK, or the command's --out"
_OPEN_FILES, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
REMEDIES = {
    errno.ENOSPC: f"make room on that disk, or write to another: {_PLACES}",
    errno.EDQUOT: f"your quota is used up: make room, or write to another disk: {_PLACES}",
    errno.EFBIG: f"files may not grow that large here: raise the limit (ulimit -f), or write elsewhere: {_PLACES}",
    errno.EROFS: f"write to another disk: {_PLACES}",
    errno.EACCES: f"change its owner or permissions, or write elsewhere: {_PLACES}",
    errno.EPERM: f"change its owner or permissions, or write elsewhere: {_PLACES}",
    errno.ENOTDIR: f"a file lies where a folder is needed: move it, or write elsewhere: {_PLACES}",
    errno.EEXIST: f"a file lies where a folder is needed: move it, or write elsewhere: {_PLACES}",
    errno.ENAMETOOLONG: "no file can have so long a name: give a shorter one",
    errno.EMFILE: f"raise this process's limit of open files, {_OPEN_FILES}: ulimit -n 65536",
    errno.ENFILE: "the machine's limit of open files is reached: end other programs, or raise fs.file-max",
    errno.EIO: "the disk failed: look what the system says of it (dmesg), and write to another",
}
"""What to do where the system refuses something that is no defect of ours."""
_NUMBER = re.compile(r"\[Errno (\d+)\]")
_SOURCE = re.compile(r"'[^']*' -> (?=')")  # in a message about two files


def number_of(message: str) -> int | None:
    """The system's number of an error, by its message: `[Errno 28]`; None for another one."""
    found = _NUMBER.search(message)
    return int(found[1]) if found else None


def remedy_of(message: str) -> str:
    """What to do about an error of the system, by its number in the message; empty for another one."""
    return REMEDIES.get(number_of(message) or 0, "")


def place_of(error: OSError) -> str:
    """The file of an error; of a copied or renamed one the new name: there the disk is full. One that failed is either.

    Returns:
        both names, with an arrow, where a disk failed; empty where the system names none.
    """
    names = [str(name) for name in (error.filename, error.filename2) if name]
    return printable(" -> ".join(names if error.errno == errno.EIO else names[-1:]))


def without_source(message: str) -> str:
    """An error's message in which, as by `place_of`, only the new name of a copied or renamed file stands."""
    return message if number_of(message) in (None, errno.EIO) else _SOURCE.sub("", message)


def remedy_behind(error: BaseException) -> str:
    """What to do where an error comes of too many open files, whatever it says it could not do; else empty."""
    of = (getattr(cause, "errno", None) for cause in causes(error))
    return next((REMEDIES[number] for number in of if number in (errno.EMFILE, errno.ENFILE)), "")


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, what caused it, and so on; each once, since an error may be its own cause."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


class _ToldError(Exception):
    """An error whose words people read: on one line and bounded, whatever was put into them out of a file."""

    def __str__(self) -> str:
        return bounded(printable(super().__str__()))


def bounded(text: str) -> str:
    """A message without its middle where it is long: its end says what to do."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - _END]} … {text[-_END:]}"


class InputError(_ToldError):
    """Something the user gave is wrong or missing; the message says what, where and what to do (exit code 2)."""


class ClusterSilent(Exception):
    """The cluster or cloud did not answer for longer than its caller waits."""


class IntegrityError(_ToldError):
    """Stored bytes are not the bytes that were published (digest, size or file list differ)."""


def printable(text: str) -> str:
    """A stranger's text as a terminal and UTF-8 may have it: what they cannot show is spelt out."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def named(name: str) -> str:
    """A name out of a stranger's file, for a message: printable, and cut."""
    shown = printable(name[: _LONGEST_NAME + 1])
    return shown if len(name) <= _LONGEST_NAME else f"{shown[:_LONGEST_NAME]} …"


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
    if found["type"] == "literal_error" and isinstance(value, str):
        said += nearest(value, re.findall(r"'([^']*)'", found["ctx"]["expected"]))
    return f"{where}: {said}" if where else str(said)


def nearest(name: str, known: Collection[str]) -> str:
    """A clause with the known name that is most like this one; empty if none is like it."""
    near = difflib.get_close_matches(name[:_LONGEST_NAME], known, n=1)
    return f"; did you mean {str(near[0])!r}?" if near else ""


def unknown(kind: str, name: str, known: Collection[str]) -> InputError:
    """The error for a name that is none of the known ones, which it lists, with the one that is most like it."""
    return InputError(f"unknown {kind} {named(name)!r}: choose from {', '.join(known)}{nearest(name, known)}")


def ambiguous(names: Collection[str]) -> str:
    """A clause with the first of several names that were meant by one beginning; empty if there is none."""
    shown = ", ".join(named(name) for name in sorted(names)[:_MOST_NAMES])
    return f" ({shown}{' …' if len(names) > _MOST_NAMES else ''}: give more of it)" if names else ""

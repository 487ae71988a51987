"""What API bodies say of code that the provider executed: the calls, their answers, and the user's words between."""

import re
from typing import Any, NamedTuple

# a traceback of Python or IPython, or the error that is shown without one
_TRACEBACK = re.compile(r"^.*Traceback \(most recent call last\)", re.MULTILINE)
_RAISED = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Iteration)(?::|$)", re.MULTILINE)
_UNPARSED = re.compile(r"^(?:Syntax|Indentation|Tab)Error: .*\s*\Z", re.MULTILINE)


class Task(NamedTuple):
    """What the user asks for from here on."""

    text: str


class ApiCall(NamedTuple):
    """Code that was handed to the provider's interpreter, or (`path`) a file that it was told to write."""

    key: str | None  # the API's id; older versions of Gemini have none
    language: str
    code: str
    path: str | None = None


class ApiAnswer(NamedTuple):
    """The result of the call with the same key or, without a key, of the last call."""

    key: str | None
    success: bool | None
    output: str = ""
    stderr: str = ""
    exit_code: int | None = None
    timed_out: bool = False
    refused: bool = False  # it did not run


class NoCode(NamedTuple):
    """A call whose code the body does not show."""

    detail: str
    value: Any


Item = Task | ApiCall | ApiAnswer | NoCode


def shows_error(output: str) -> bool:
    """Whether output of Python ends in an error that nothing caught."""
    *_, last = [None, *_TRACEBACK.finditer(output)]
    return bool(_RAISED.search(output, last.end()) if last else _UNPARSED.search(output))

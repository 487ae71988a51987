"""Reads an execution's results, streams and errors, as the E2B SDKs write them, into plain text and an outcome."""

import re
from typing import Any, NamedTuple

from capibara_assets.executions.formats.quick_json import quick_texts
from capibara_assets.executions.formats.strict_json import SURROGATE, Fault, json_type, parse_text

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_RULE, _HEADER = "-" * 20, "Traceback (most recent call last)"
_RULE_BEFORE_TEXT = re.compile(r"^(-{20,})(?=\S)")
_SILENT = '{"stdout": [], "stderr": []}'  # the logs of four records of ten
_HEADER_BEFORE_FRAME = re.compile(r"(Traceback \(most recent call last\):?)(?=[CF]\w+ )")


class CellOutput(NamedTuple):
    """What an execution led to; fields as in Recorded."""

    outcome: str
    stdout: str = ""
    stderr: str = ""
    result_text: str | None = None
    error_name: str | None = None
    error_value: str | None = None
    traceback: str | None = None


class Cleaner:
    """Replaces lone surrogates, which no UTF-8 table can hold, and adds the flag `lone_surrogate`."""

    def __init__(self, flags: set[str]) -> None:
        self._flags = flags

    def __call__(self, text: str) -> str:
        if text.isascii() or not SURROGATE.search(text):
            return text
        self._flags.add("lone_surrogate")
        return SURROGATE.sub("\ufffd", text)


def strip_ansi(text: str) -> str:
    """`text` without terminal escape sequences."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def read_output(record: dict[str, Any], language: str, clean: Cleaner) -> CellOutput:
    """Outcome and output of an envelope's `execution` field, or of `exception` where that is null. Raises Fault."""
    execution = record["execution"]
    if isinstance(execution, str):
        execution = _nested(execution, "execution")
    if execution is None:
        return _without_execution(record.get("exception"), clean)
    if not isinstance(execution, dict):
        raise Fault("type:execution", f"expected an object, found {json_type(execution)}")
    if "logs" not in execution and (code := _exit_code(execution)) is not None:
        return _command_output(execution, code, clean)
    stdout = stderr = ""
    if (logs := execution.get("logs")) is not None and logs != _SILENT:
        logs = _nested(logs, "logs")
        stdout, stderr = _stream(logs, "stdout", clean), _stream(logs, "stderr", clean)
    error = execution.get("error")
    if error is not None:
        error = _nested(error, "error")
    text = _results(execution.get("results"), clean)
    if error is not None:
        name, value = _error_text(error, "name", clean), _error_text(error, "value", clean)
        trace = _error_text(error, "traceback", clean)
        trace = readable_traceback(trace) if trace else None
        return CellOutput("error", stdout, stderr, text, name or "Error", value, trace)
    if stderr and language in ("javascript", "typescript") and (failed := _failed_assertion(stderr)) is not None:
        # console.assert writes to stderr and goes on: error is null, but the program did not do what it should
        return CellOutput("error", stdout, stderr, text, "AssertionError", failed)
    return CellOutput("ok", stdout, stderr, text)


def _exit_code(execution: dict[str, Any]) -> int | None:
    """The exit code of a CommandResult (`exit_code` in Python, `exitCode` in JavaScript); None: it is none."""
    value = execution.get("exit_code", execution.get("exitCode"))
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise Fault("type:execution", f"exit_code: expected an integer, found {json_type(value)}")
    return value


def _command_output(execution: dict[str, Any], exit_code: int, clean: Cleaner) -> CellOutput:
    """A shell command's: text instead of chunks, and the exit code instead of an error object."""
    message = _error_text(execution, "error", clean)
    stdout, stderr = _stream(execution, "stdout", clean), _stream(execution, "stderr", clean)
    if exit_code == 0:
        return CellOutput("ok", stdout, stderr)
    value = message or f"exit code {exit_code}"
    return CellOutput("error", stdout, stderr, error_name="CommandExitException", error_value=value)


def _without_execution(exception: Any, clean: Cleaner) -> CellOutput:
    if exception is None:
        raise Fault("type:execution", "null without an exception that says why")
    if isinstance(exception, str):
        exception = {"name": "Exception", "message": exception}
    if not isinstance(exception, dict):
        raise Fault("type:exception", f"expected an object, found {json_type(exception)}")
    name = _error_text(exception, "name", clean) or "Exception"
    outcome = "timeout" if "timeout" in name.lower() else "error"
    return CellOutput(outcome, error_name=name, error_value=_error_text(exception, "message", clean))


def _nested(value: Any, name: str) -> dict[str, Any] | None:
    """An object, given as such (JS SDK) or as JSON text (Python SDK)."""
    if isinstance(value, str):
        quick = quick_texts(value)
        value = parse_text(value, name, "type:execution") if quick is None else quick
    if value is not None and not isinstance(value, dict):
        raise Fault("type:execution", f"{name}: expected an object, found {json_type(value)}")
    return value


def _stream(logs: dict[str, Any] | None, name: str, clean: Cleaner) -> str:
    chunks = logs.get(name) if logs else None
    if chunks is None or chunks == []:
        return ""
    if isinstance(chunks, str):
        chunks = [chunks]
    if not isinstance(chunks, list) or not all(isinstance(chunk, str) for chunk in chunks):
        raise Fault("type:execution", f"logs.{name}: expected a list of texts")
    return strip_ansi(clean("".join(chunks)))


def _results(results: Any, clean: Cleaner) -> str | None:
    if results is None or results == []:
        return None
    if not isinstance(results, list) or not all(isinstance(result, dict) for result in results):
        raise Fault("type:execution", "results: expected a list of objects")
    texts = [result.get("text") for result in results]
    if any(text is not None and not isinstance(text, str) for text in texts):
        raise Fault("type:execution", "results: text is neither text nor null")
    joined = "\n".join(text for text in texts if text)
    return strip_ansi(clean(joined)) if joined else None


def _error_text(error: dict[str, Any], key: str, clean: Cleaner) -> str | None:
    value = error.get(key)
    if value is None:
        return None
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        value = "\n".join(value)
    if not isinstance(value, str):
        raise Fault("type:execution", f"error.{key}: expected text, found {json_type(value)}")
    return strip_ansi(clean(value))


def _failed_assertion(stderr: str) -> str | None:
    """The message of the first failed console.assert, "" when it has none; None when all held."""
    for line in stderr.splitlines():
        if line.startswith("Assertion failed"):
            return line.removeprefix("Assertion failed").lstrip(": ")
    return None


def readable_traceback(text: str) -> str:
    """Restores the ends of a traceback's first two lines, which E2B's server joins without them."""
    if text.startswith(_RULE):
        text = _RULE_BEFORE_TEXT.sub(r"\1\n", text, count=1)
    return _HEADER_BEFORE_FRAME.sub(r"\1\n", text) if _HEADER in text else text

"""Judges the runs of a replay: the recorded output, another output, or something missing here that the code needs."""

from __future__ import annotations

import builtins
import errno
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from capibara_assets.executions.formats.cell_outputs import Cleaner, read_output
from capibara_assets.executions.recording.envelope import execution_json
from capibara_assets.executions.replay.workers import Ran
from capibara_assets.executions.sandbox.results import ExecutionError, Logs, SandboxExecution, bundle_result
from capibara_assets.storage.digests import canonical_json, sha256_bytes

Verified = Literal["reexecuted", "recorded", "unverified"]

#: kind -> (verdict, reason). What follows a colon is a name that occurs in the code, or a well-known error class.
REASONS: dict[str, tuple[Verified, str]] = {
    "package": ("recorded", "its package is not installed here"),
    "version": ("recorded", "its package is installed here in another version"),
    "state": ("recorded", "its session's state is gone"),
    "database": ("recorded", "its database is gone"),
    "file": ("recorded", "a file that it reads is not here"),
    "network": ("recorded", "it needs the network"),
    "place": ("recorded", "it needs rights that the sandbox does not give"),
    "input": ("recorded", "it asks for input"),
    "differs": ("unverified", "not deterministic"),
    "output": ("unverified", "another output than was recorded"),
    "failed": ("unverified", "failed where it had succeeded"),
    "succeeded": ("unverified", "succeeded where it had failed"),
    "error": ("unverified", "another error than was recorded"),
    "reported": ("unverified", "its values do not pass its test outside their process"),
    "unreported": ("unverified", "not all its values leave their process"),
    "cpu": ("unverified", "used up its CPU seconds"),
    "wall": ("unverified", "ran past its wall clock, also alone"),
    "stuck": ("unverified", "waits for something that never comes"),
    "memory": ("unverified", "used up its memory"),
    "ended": ("unverified", "ended its process"),
    "lost": ("unverified", "its worker died with it, also alone"),
}
EARLY = " (in an earlier cell that it needs)"
#: Kinds that depend on the machine's load or luck as well: such a verdict is not cached.
NOT_CACHED = frozenset({"wall", "lost", "memory"})
_ENDS = {"exit": "ended", "signal": "ended", "garbled": "lost"}

_NETWORK_CLASSES = frozenset(
    (
        "gaierror",
        "ConnectionError",
        "ConnectError",
        "URLError",
        "MaxRetryError",
        "NameResolutionError",
        "ClientConnectorError",
        "APIConnectionError",
    )
)
_NETWORK_NUMBERS = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ECONNREFUSED, errno.ENETDOWN})
_NULLS = frozenset(("None", "NaN", "NULL", "<NA>", "nan"))
_NO_TABLE = re.compile(r"no such table: (?:main\.)?([^\s\]]+)")
_NO_MODULE = re.compile(r"Cannot find module '([^']+)'")
_NOT_DEFINED = re.compile(r"^(\S+) is not defined$")

Output = tuple[str, str, str, str | None]


@dataclass(frozen=True)
class ReplayFinding:
    """Why a replay is not `reexecuted`; `name` occurs in its code or is well known, so it reveals no output."""

    kind: str
    name: str | None = None
    early: bool = False

    @property
    def verified(self) -> Verified:
        return REASONS[self.kind][0]

    @property
    def reason(self) -> str:
        name = f": {self.name}" if self.name else ""
        return REASONS[self.kind][1] + name + (EARLY if self.early else "")


def expected_output(stdout: str, result_text: str | None, outcome: str, error_name: str | None) -> Output:
    """The values that are compared: standard output and results' text without line feeds around them, and outcome."""
    return stdout.strip("\n"), (result_text or "").strip("\n"), outcome, error_name


def judge(
    language: str, cells: Sequence[str], expected: Output, runs: Sequence[Ran]
) -> tuple[ReplayFinding | None, str | None]:
    """Compares all runs with the recorded output.

    Returns:
        (None when every run gave the recorded output, else the finding; digest of the output that all runs gave).
    """
    last = len(cells) - 1
    seen = [_seen(language, cells, expected, ran, last) for ran in runs]
    if any(each != seen[0] for each in seen):
        return ReplayFinding("differs"), None
    finding, output = seen[0]
    return finding, None if output is None else sha256_bytes(canonical_json(list(output)))


def _seen(
    language: str, cells: Sequence[str], expected: Output, ran: Ran, last: int
) -> tuple[ReplayFinding | None, Output | None]:
    early = ran.cell < last
    if ran.ended != "done":
        return ReplayFinding(_ENDS.get(ran.ended, ran.ended), None, early), None
    output = output_of(language, ran.answer)
    if not early and (output == expected or (language == "sql" and _is_same_table(output, expected))):
        return None, output
    error = ran.answer["error"]
    missing = None if error is None else _missing(error)
    if missing is not None:
        kind, name = missing
        return ReplayFinding(kind, name if name and _within(name, cells) else None, early), None
    if error is not None and error["name"] == "MemoryError" and expected[2] == "ok":
        return ReplayFinding("memory", None, early), None
    known = output[3] if output[3] and (output[3] in _KNOWN_ERRORS or _within(output[3], cells)) else None
    if early:
        return ReplayFinding("failed", known, True), None
    if output[2] != "ok" and expected[2] == "ok":
        return ReplayFinding("failed", known), output
    if output[2] == "ok" and expected[2] != "ok":
        return ReplayFinding("succeeded"), output
    if output[3] != expected[3]:
        return ReplayFinding("error", known), output
    return ReplayFinding("output"), output


def _is_same_table(output: Output, expected: Output) -> bool:
    """Whether two outputs of queries differ only in how a table is set: widths, digits shown, the word for NULL."""
    ours, theirs = output[1].split(), expected[1].split()
    same = (output[0], *output[2:]) == (expected[0], *expected[2:]) and len(ours) == len(theirs)
    return same and all(a == b or _is_same_cell(a, b) for a, b in zip(ours, theirs, strict=True))


def _is_same_cell(a: str, b: str) -> bool:
    if {a, b} <= _NULLS:
        return True
    if "." not in f"{a}{b}":
        return False
    try:
        return f"{float(a):.6g}" == f"{float(b):.6g}" or math.isclose(float(a), float(b), abs_tol=1e-6)
    except ValueError:
        return False


def output_of(language: str, answer: dict[str, Any]) -> Output:
    """The output in a worker's answer, read in the same way as the logs of recorded executions."""
    failure = answer["error"]
    execution = SandboxExecution(
        results=[
            bundle_result(
                {"text/plain": each["text"]},
                is_main=each.get("main", True),
                quoted=each.get("quoted", language == "python"),
            )
            for each in answer["results"]
        ],
        logs=Logs(_chunks(answer["stdout"]), _chunks(answer["stderr"])),
        error=None if failure is None else ExecutionError(failure["name"], failure["value"], ""),
    )
    read = read_output({"execution": execution_json(execution)}, language, Cleaner(set()))
    return expected_output(read.stdout, read.result_text, read.outcome, read.error_name)


def _chunks(text: str | list[str]) -> list[str]:
    return [text] if isinstance(text, str) else text


def stream_text(stream: str | list[str]) -> str:
    """The text of a stream in a worker's answer; Node's worker gives it in the pieces that were written."""
    return "".join(_chunks(stream))


def _missing(error: dict[str, Any]) -> tuple[str, str | None] | None:
    """(kind, name) when an error says that something is missing that the code needs."""
    name, value = str(error["name"]), str(error["value"])
    bases = {name, *error.get("bases", ())}
    if "ModuleNotFoundError" in bases:
        return "package", error.get("missing")
    if "ImportError" in bases:
        return "version", error.get("missing")
    if match := _NO_MODULE.search(value):
        return "package", match.group(1)
    if "NameError" in bases and "UnboundLocalError" not in bases:
        return "state", error.get("missing")
    if name == "ReferenceError" and (match := _NOT_DEFINED.match(value)):
        return "state", match.group(1)
    if match := _NO_TABLE.search(value):
        return "database", match.group(1)
    if "FileNotFoundError" in bases or "unable to open database file" in value:
        return "file", None
    if bases & _NETWORK_CLASSES or error.get("errno") in _NETWORK_NUMBERS:
        return "network", None
    if "PermissionError" in bases or error.get("errno") in (errno.EROFS, errno.EPERM):
        return "place", None
    if bases & {"EOFError", "StdinNotImplementedError"}:
        return "input", None
    return None


def _within(name: str, cells: Sequence[str]) -> bool:
    return any(name in cell for cell in cells)


_KNOWN_ERRORS = frozenset(
    (
        *(
            name
            for name, value in vars(builtins).items()
            if isinstance(value, type) and issubclass(value, BaseException)
        ),
        "OperationalError",
        "IntegrityError",
        "ProgrammingError",
        "DatabaseError",
        "Warning",
        "Error",
        "RangeError",
        "ReferenceError",
        "EvalError",
        "URIError",
        "AggregateError",
    )
)

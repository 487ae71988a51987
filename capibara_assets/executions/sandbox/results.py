"""Results of code run on this machine, with the attributes of E2B's SDK: executions, displayed values, errors."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from capibara_assets.executions.recording.envelope import execution_json

LANGUAGES = ("python", "javascript", "sql")  # that can be run on this machine

_MIME_KEYS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
    "e2b/data": "data",
    "e2b/chart": "chart",
}


@dataclass
class Logs:
    """Output of an execution in the chunks that the process flushed, not in lines."""

    stdout: list[str] = field(default_factory=list)
    stderr: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ExecutionError:
    """The exception that ended an execution; the traceback keeps its ANSI colours."""

    name: str
    value: str
    traceback: str


@dataclass(frozen=True)
class DisplayedResult:
    """One displayed value in its formats: `text`, `html`, `png`, `data` ...; unknown MIME types stand in `extra`."""

    formats: dict[str, Any]
    is_main_result: bool = False
    extra: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        if name in _MIME_KEYS.values():
            return self.formats.get(name)
        raise AttributeError(name)


@dataclass
class SandboxExecution:
    """The result of `run_code`, with the attributes of E2B's `Execution`."""

    results: list[DisplayedResult] = field(default_factory=list)
    logs: Logs = field(default_factory=Logs)
    error: ExecutionError | None = None
    execution_count: int | None = None

    @property
    def text(self) -> str | None:
        """The text of the main result (the value of the cell's last expression)."""
        return next((result.text for result in self.results if result.is_main_result), None)

    def to_json(self) -> str:
        """The execution as JSON text, as E2B's SDK writes it."""
        return json.dumps(execution_json(self), ensure_ascii=False)


def bundle_result(bundle: dict[str, Any], *, is_main: bool, quoted: bool = True) -> DisplayedResult:
    """Converts a kernel's MIME bundle; `quoted`: a string's text has quotes, which E2B's server removes."""
    formats = {_MIME_KEYS[mime]: value for mime, value in bundle.items() if mime in _MIME_KEYS}
    text = formats.get("text")
    if quoted and isinstance(text, str) and len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        formats["text"] = text[1:-1]  # as E2B's server does with strings
    extra = {mime: value for mime, value in bundle.items() if mime not in _MIME_KEYS}
    return DisplayedResult(formats, is_main, extra)

"""Isolated rendering of foreign chat templates: a process with bounded time, memory and output.

Jinja's sandbox keeps a template from files and code, not from loops without end or texts without end, and what one does
cannot be interrupted from within. The process is started once, at the first template that does not ship with this
project, and again after one that was ended; it takes a second.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from capibara_assets.datasets.tokens.template_worker import CHARACTERS, SECONDS
from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError

LONGEST_TEMPLATE = 1 << 18  # characters; published ones have up to 30,000
_PROGRAM = Path(__file__).with_name("template_worker.py")
_PASSED_ON = (
    "PATH",
    "HOME",
    "LANG",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONDONTWRITEBYTECODE",
    "LD_LIBRARY_PATH",
    "TMPDIR",
)
_LONGEST_LINE = 12 * CHARACTERS + (1 << 20)  # each character escaped as two surrogates


@cache
def shipped_templates() -> frozenset[str]:
    """Chat templates that ship with this project and are trusted in the calling process."""
    return frozenset(
        file.read_text("utf-8") for file in (resources_root() / "base_models").glob("*/chat_template.jinja")
    )


def require_short(template: str) -> str:
    """Return the template. Raises InputError if it is too long to be parsed quickly."""
    if len(template) > LONGEST_TEMPLATE:
        raise InputError(
            f"the chat template has {len(template)} characters, more than {LONGEST_TEMPLATE}: use another template"
        )
    return template


def rendered_apart(
    template: str,
    messages: Sequence[Mapping[str, str]],
    arguments: Mapping[str, Any],
    *,
    marked: bool,
    generation_prompt: bool,
) -> tuple[str, list[tuple[int, int]]]:
    """The rendered text, and (start, end) of the spans that the template marks as generated.

    Raises:
        jinja2.TemplateError: the template refuses the conversation, or takes more than it may.
    """
    request = {
        "template": template,
        "messages": [dict(message) for message in messages],
        "marked": marked,
        "generation_prompt": generation_prompt,
        "arguments": dict(arguments),
    }
    answer = _PROCESS.ask(request)
    if "error" in answer:
        raise jinja2.TemplateError(answer["error"])
    return answer["text"], [(start, end) for start, end in answer["marks"]]


class _RenderingProcess:
    """The process, started where it is first asked; a fork of this process starts its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._ended: dict[str, str] = {}  # template -> how the process ended over it: it is not asked again

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer one request; fails at once if the same template has killed the process before."""
        if request["template"] in self._ended:
            return {"error": self._ended[request["template"]]}
        line = json.dumps(request).encode() + b"\n"
        with self._lock:
            process = self._running()
            assert process.stdin is not None and process.stdout is not None
            try:
                process.stdin.write(line)
                process.stdin.flush()
                told = process.stdout.readline(_LONGEST_LINE)
            except BrokenPipeError:
                told = b""
            if told.endswith(b"\n"):
                answer: dict[str, Any] = json.loads(told)
                return answer
            self._ended[request["template"]] = _ended(self._stop())
            return {"error": self._ended[request["template"]]}

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None or self._owner != os.getpid():
            known = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
            self._owner = os.getpid()
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(_PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=known | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
            )
        return self._process

    def _stop(self) -> int:
        """End the process; how it ended."""
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return 0
        assert process.stdin is not None and process.stdout is not None
        process.stdout.close()
        with suppress(BrokenPipeError):  # it is gone, with a part of a request unread
            process.stdin.close()
        return process.wait()

    def close(self) -> None:
        """End the process; it also ends by itself when its parent is gone."""
        with self._lock:
            self._stop()


def _ended(code: int) -> str:
    if code == -signal.SIGPROF:
        return f"it takes more than {SECONDS:g} s of processor time"
    named = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return f"the process that renders it ended with {named}"


_PROCESS = _RenderingProcess()
atexit.register(_PROCESS.close)

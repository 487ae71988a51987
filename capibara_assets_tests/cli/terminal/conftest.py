"""A real terminal for what commands print."""

import os
import pty
import threading
from collections.abc import Iterator
from typing import TextIO

import pytest


class Terminal:
    """A pseudo-terminal: `stream` is what a program writes to, `seen` what has arrived at the other end."""

    def __init__(self) -> None:
        self._ours, theirs = pty.openpty()
        self.stream: TextIO = os.fdopen(theirs, "w", encoding="utf-8")
        self._kept = bytearray()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._ours, 65536)
            except OSError:  # the other end is closed
                return
            if not data:
                return
            self._kept += data

    def seen(self) -> str:
        """All that was written; nothing can be written afterwards."""
        self.stream.close()
        self._thread.join(30)
        return self._kept.decode()

    def so_far(self) -> str:
        return self._kept.decode(errors="ignore")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    made = Terminal()
    yield made
    made.seen()

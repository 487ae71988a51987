"""What a pod's container printed, with the time of each line, as a container runtime keeps it."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

_STEP = timedelta(microseconds=1)


@dataclass
class PodLog:
    """The log of one pod, read from the file that its process writes."""

    file: Path
    _lines: list[tuple[datetime, bytes]] = field(default_factory=list)
    _read: int = 0
    _begun: bytes = b""

    def lines(self, ended: bool = False) -> list[tuple[datetime, bytes]]:
        """The whole lines until now, each with when it was first seen; `ended`: the last one is whole, too."""
        with self.file.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        self._read += len(data)
        *whole, self._begun = (self._begun + data).split(b"\n")
        if ended and self._begun:
            whole, self._begun = [*whole, self._begun], b""
        for line in whole:
            last = self._lines[-1][0] if self._lines else datetime.min.replace(tzinfo=UTC)
            self._lines.append((max(datetime.now(UTC), last + _STEP), line + b"\n"))
        return self._lines

    def text(self, begin: int, *, ended: bool, stamped: bool, seconds: int | None) -> tuple[bytes, int]:
        """The lines from a number on, and the number of the next one.

        Args:
            stamped: each line begins with its time.
            seconds: only lines that are no older; None: all.
        """
        lines = self.lines(ended)
        oldest = None if seconds is None else datetime.now(UTC) - timedelta(seconds=seconds)
        wanted = [(at, line) for at, line in lines[begin:] if oldest is None or at >= oldest]
        form = "%Y-%m-%dT%H:%M:%S.%fZ"
        return b"".join(f"{at:{form}} ".encode() + line if stamped else line for at, line in wanted), len(lines)

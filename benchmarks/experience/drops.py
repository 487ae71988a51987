"""Files as they arrive in real folders: renamed into place, written slowly, grown later, or late with an old time."""

import json
import os
import random
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

_TORN = '{"sandbox_id": "i00000000000000000000", "execution_id": "cut\n'


class Dropper:
    """Drops `count` log files over `seconds`, with `lines` executions each.

    Attributes:
        expected: execution id -> code of everything that was written whole.
        torn: lines written that hold no execution: one at the end of each `torn_every`-th file.
    """

    def __init__(
        self, folder: Path, count: int, seconds: float, seed: int, lines: int = 1, torn_every: int = 0
    ) -> None:
        self.expected: dict[str, str] = {}
        self.torn = 0
        self._folder, self._count, self._seconds = folder, count, seconds
        self._lines, self._torn_every = lines, torn_every
        self._dice = random.Random(seed)
        self._made = 0
        self._grow: list[Path] = []

    def run(self) -> None:
        start = time.monotonic()
        for number in range(self._count):
            time.sleep(max(0.0, start + self._seconds * number / self._count - time.monotonic()))
            self._drop(number)
        for path in self._grow:
            self._append(path)

    def _drop(self, number: int) -> None:
        folder = self._folder / f"day-{number % 7}"
        folder.mkdir(exist_ok=True)
        path = folder / f"executions-{number:07d}.jsonl"
        kind = number % 5
        if kind == 0:  # written beside, renamed when whole
            part = path.with_suffix(".part")
            part.write_text(self._text(number))
            part.rename(path)
        elif kind == 1:  # a line in two writes
            text = self._text(number)
            with path.open("w") as file:
                file.write(text[:40])
                file.flush()
                file.write(text[40:])
        elif kind == 2:  # comes late, with the time of last year
            path.write_text(self._text(number))
            past = time.time() - 3e7
            os.utime(path, (past, past))
        elif kind == 3:  # grows after the last file has come
            path.write_text(self._text(number))
            if self._dice.random() < 0.1:
                self._grow.append(path)
        else:  # each line twice
            text = self._text(number)
            path.write_text(text + text.removesuffix(_TORN))

    def _append(self, path: Path) -> None:
        with path.open("a") as file:
            file.write(self._line())

    def _text(self, number: int) -> str:
        """The lines of a file, and where its turn has come one that was cut off."""
        torn = self._torn_every and number % self._torn_every == 0
        self.torn += bool(torn)
        return "".join(self._line() for _ in range(self._lines)) + (_TORN if torn else "")

    def _line(self) -> str:
        """One execution as the recorder writes it, unlike any other."""
        self._made += 1
        execution_id = str(uuid.UUID(int=self._dice.getrandbits(128), version=4))
        code = f"total = {self._made} + {self._dice.randrange(1000)}\nprint(total)"
        self.expected[execution_id] = code
        moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self._made)
        record = {
            "sandbox_id": f"i{self._made:020d}",
            "execution_id": execution_id,
            "timestamp": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "template_id": "code-interpreter-v1",
            "language": "python",
            "code": code,
            "execution": {"results": [], "logs": json.dumps({"stdout": ["1\n"], "stderr": []}), "error": None},
            "execution_count": 1,
            "duration_ms": 1.0,
            "timeout_s": 10,
        }
        return json.dumps(record) + "\n"

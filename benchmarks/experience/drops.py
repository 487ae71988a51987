"""Files as they arrive in real folders: renamed into place, written slowly, grown later, or late with an old time."""

import json
import os
import random
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path


class Dropper:
    """Drops `count` log files over `seconds`; `expected` are the ids of all executions in them."""

    def __init__(self, folder: Path, count: int, seconds: float, seed: int) -> None:
        self.expected: set[str] = set()
        self._folder, self._count, self._seconds = folder, count, seconds
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
            part.write_text(self._line())
            part.rename(path)
        elif kind == 1:  # a line in two writes
            line = self._line()
            with path.open("w") as file:
                file.write(line[:40])
                file.flush()
                file.write(line[40:])
        elif kind == 2:  # comes late, with the time of last year
            path.write_text(self._line())
            past = time.time() - 3e7
            os.utime(path, (past, past))
        elif kind == 3:  # grows after the last file has come
            path.write_text(self._line())
            if self._dice.random() < 0.1:
                self._grow.append(path)
        else:  # the same line as in an earlier file beside one of its own
            line = self._line()
            path.write_text(line + line)

    def _append(self, path: Path) -> None:
        with path.open("a") as file:
            file.write(self._line())

    def _line(self) -> str:
        """One execution as the recorder writes it, unlike any other."""
        self._made += 1
        execution_id = str(uuid.UUID(int=self._dice.getrandbits(128), version=4))
        self.expected.add(execution_id)
        moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self._made)
        record = {
            "sandbox_id": f"i{self._made:020d}",
            "execution_id": execution_id,
            "timestamp": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "template_id": "code-interpreter-v1",
            "language": "python",
            "code": f"total = {self._made} + {self._dice.randrange(1000)}\nprint(total)",
            "execution": {"results": [], "logs": json.dumps({"stdout": ["1\n"], "stderr": []}), "error": None},
            "execution_count": 1,
            "duration_ms": 1.0,
            "timeout_s": 10,
        }
        return json.dumps(record) + "\n"

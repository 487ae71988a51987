"""Hostile programs against the grader: none passes, none harms, each ends within its limits, and the next is right."""

import os
import secrets
import socket
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from capibara_assets.evaluation.grading.grade import Grade, SandboxSettings, counts, grade
from capibara_assets.evaluation.items.items import Check, Item
from capibara_assets.executions.replay.workers import node
from capibara_assets_tests.evaluation.drills.hostile_programs import (
    JAVASCRIPT,
    PYTHON,
    REACHING_JAVASCRIPT,
    REACHING_PYTHON,
    SQL,
)  # fmt: skip

VARIABLE = "CAPIBARA_HOSTILE_SECRET"
HONEST = "honest"
TIMEOUT_S = 2.0
MEMORY_MIB = 256
_PYTHON_TESTS = """assert add(2, 3) == 5
assert add(-1, 1) == 0
for a, b, c in [(10, 20, 30), (1, -4, -3)]:
    assert add(a, b) == c"""
_JAVASCRIPT_TESTS = (
    "const assert = require('assert');\nassert.strictEqual(add(2, 3), 5);\nconsole.assert(add(-1, 1) === 0);"
)
_CROPS = "CREATE TABLE crops (name TEXT, acres INTEGER);\nINSERT INTO crops VALUES ('oats', 7), ('rye', 12);"


@dataclass(frozen=True)
class _Program:
    contender: str
    item_id: str
    sample: int
    text: str


def run_hostile(workers: int = 2, only: Collection[str] = ()) -> dict[str, Any]:
    """Grades every hostile program (or `only` those: "language: name"), with honest answers among them.

    Returns:
        `hostile_passed` (0 is right), `harmed` (what was found damaged; empty is right), `honest_failed` (0 is right),
        how many programs there were, their verdicts, the most memory that their processes held at once, seconds, and
        the isolation.
    """
    began = time.monotonic()
    secret = secrets.token_hex(16)
    with TemporaryDirectory(prefix="capibara-hostile-") as folder, _listener(secret) as port, _environment(secret):
        file = Path(folder) / "secret.txt"
        file.write_text(secret)
        places = {"port": str(port), "parent": str(os.getpid()), "file": str(file), "variable": VARIABLE}
        items, programs = _programs(places, secret, only)
        before = _children()
        with _Watch() as watch:
            grades = grade(items, programs, SandboxSettings(workers, MEMORY_MIB, patient=False))
        hostile = [each for each in grades if each.contender != HONEST]
        honest = [each for each in grades if each.contender == HONEST]
        harmed = [] if file.read_text() == secret else ["the file of the user was changed"]
        harmed += [f"{path.name} was left in its folder" for path in Path(folder).iterdir() if path != file]
        harmed += [f"process {process.pid} was left" for process in _children() - before]
    return {
        "hostile_programs": len(hostile),
        "hostile_passed": sum(each.verdict == "passed" for each in hostile),
        "passed": sorted(each.contender for each in hostile if each.verdict == "passed"),
        "harmed": harmed,
        "honest_answers": len(honest),
        "honest_failed": sum(each.verdict != "passed" for each in honest),
        "verdicts": counts(hostile),
        "details": {each.contender: f"{each.verdict}: {each.detail}" for each in hostile},
        "peak_memory_mib": watch.peak >> 20,
        "seconds": round(time.monotonic() - began, 1),
        "isolation": _one(grades),
    }


def _programs(places: Mapping[str, str], secret: str, only: Collection[str]) -> tuple[list[Item], list[_Program]]:
    """(items, answers: hostile ones, and honest ones after each few of them)."""
    add = "def add(a, b):\n    return a + b"
    items = [
        _item("python", "python", add, Check("assertions", tests=_PYTHON_TESTS, timeout_s=TIMEOUT_S)),
        # its reference prints the secret, so who can print it, too, has reached it
        _item("reaching python", "python", f"print({secret!r})", Check("output", expected=secret, timeout_s=TIMEOUT_S)),
        _item("sql", "sql", "SELECT name, acres FROM crops ORDER BY name;",
              Check("output", _CROPS, expected="   name  acres\n0  oats      7\n1   rye     12", timeout_s=TIMEOUT_S)),
    ]  # fmt: skip
    sets = [("python", PYTHON), ("reaching python", REACHING_PYTHON), ("sql", SQL)]
    if node() is not None:
        items += [
            _item("javascript", "javascript", "function add(a, b) { return a + b; }",
                  Check("assertions", tests=_JAVASCRIPT_TESTS, timeout_s=TIMEOUT_S)),
            _item("reaching javascript", "javascript", f"console.log('{secret}');",
                  Check("output", expected=secret, timeout_s=TIMEOUT_S)),
        ]  # fmt: skip
        sets += [("javascript", JAVASCRIPT), ("reaching javascript", REACHING_JAVASCRIPT)]
    found: list[_Program] = []
    by_id = {item.item_id: item for item in items}
    for item_id, programs in sets:
        item = by_id[item_id]
        chosen = {name: code for name, code in programs.items() if not only or f"{item.language}: {name}" in only}
        for number, (name, code) in enumerate(chosen.items()):
            for place, value in places.items():
                code = code.replace("{" + place + "}", value)
            found.append(_Program(f"{item.language}: {name}", item_id, 0, f"```{item.language}\n{code}\n```"))
            if number % 4 == 0:
                comment = {"python": "#", "sql": "--", "javascript": "//"}[item.language]
                text = f"```{item.language}\n{item.reference}\n{comment} {number}\n```"  # so that each runs
                found.append(_Program(HONEST, item_id, number, text))
    return items, found


def _item(item_id: str, language: str, reference: str, check: Check) -> Item:
    prompt = ({"role": "user", "content": "Write add(a, b)."},)
    return Item(item_id, item_id, language, "solve", language, prompt, reference, check, ())


def _one(grades: list[Grade]) -> str:
    return next(each.isolation for each in grades)


def _children() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


@contextmanager
def _listener(secret: str) -> Iterator[int]:
    """A service of this machine that tells the secret to everybody who gets through."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return  # closed
                with connection:
                    connection.sendall(secret.encode())

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


@contextmanager
def _environment(secret: str) -> Iterator[None]:
    os.environ[VARIABLE] = secret
    try:
        yield
    finally:
        del os.environ[VARIABLE]


class _Watch:
    """The most memory that this process's children held at once, looked at ten times a second."""

    def __init__(self) -> None:
        self.peak = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "_Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.1):
            self.peak = max(self.peak, sum(map(_memory, _children())))


def _memory(process: psutil.Process) -> int:
    try:
        found = process.memory_info()
        return int(found.rss - getattr(found, "shared", 0))  # forks share what they did not change
    except psutil.Error:
        return 0

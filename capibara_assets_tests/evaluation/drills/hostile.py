"""Hostile programs against the grader: none passes, none harms, each ends within its limits, and the next is right."""

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from capibara_assets import executions
from capibara_assets.evaluation.grading.grade import Grade, SandboxSettings, counts, grade
from capibara_assets.evaluation.items.items import Check, Item
from capibara_assets.executions.replay.e2b import sandbox_place
from capibara_assets.executions.replay.replay import Replay, replay_batch
from capibara_assets.executions.replay.workers import node
from capibara_assets.storage.digests import sha256_bytes
from capibara_assets_tests.evaluation.drills.hostile_elsewhere import (
    MORE_JAVASCRIPT,
    MORE_SQL,
    REACHING_MORE_JAVASCRIPT,
)
from capibara_assets_tests.evaluation.drills.hostile_exhaustion import EXHAUSTING_PYTHON
from capibara_assets_tests.evaluation.drills.hostile_judge import CHEATING_PYTHON
from capibara_assets_tests.evaluation.drills.hostile_kernel import KERNEL_PYTHON
from capibara_assets_tests.evaluation.drills.hostile_programs import (
    JAVASCRIPT,
    PYTHON,
    REACHING_JAVASCRIPT,
    REACHING_PYTHON,
    SQL,
)
from capibara_assets_tests.evaluation.drills.hostile_reaching import REACHING_MORE

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
    with _places(secret) as (places, harm):
        items, programs = _programs(places, secret, only)
        with _Watch() as watch:
            grades = grade(items, programs, SandboxSettings(workers, MEMORY_MIB, patient=False))
        hostile = [each for each in grades if each.contender != HONEST]
        honest = [each for each in grades if each.contender == HONEST]
        harmed = harm()
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


def replayed_hostile(only: Collection[str] = ()) -> dict[str, Any]:
    """Has the programs that reach out executed again, as if the secret had been recorded as their output.

    Returns:
        how many `replayed`, which `reached` what they should not (empty is right), and what was `harmed`.
    """
    secret = secrets.token_hex(16)
    with _places(secret) as (places, harm):
        programs = {
            f"{language}: {name}": (language, _filled(code, places))
            for language, item_id, each in _sets()
            if item_id.startswith("reaching")
            for name, code in each.items()
            if not only or f"{language}: {name}" in only
        }
        replays = [Replay(name, language, (code,), f"{secret}\n") for name, (language, code) in programs.items()]
        replays.append(Replay(HONEST, "python", (f"print({secret!r})",), f"{secret}\n"))
        batch = replay_batch(replays, timeout_s=TIMEOUT_S, memory_mib=MEMORY_MIB, times=1)
        harmed = harm()
    again = {verdict.execution_id for verdict in batch.verdicts if verdict.verified == "reexecuted"}
    harmed += [] if HONEST in again else ["what does print it was not verified"]
    return {"replayed": len(programs), "reached": sorted(again - {HONEST}), "harmed": harmed}


def _sets() -> list[tuple[str, str, Mapping[str, str]]]:
    """(language, item, programs by name) of all that this machine can run and promises to withstand."""
    sets: list[tuple[str, str, Mapping[str, str]]] = [
        ("python", "python", PYTHON | EXHAUSTING_PYTHON | CHEATING_PYTHON),
        ("python", "reaching python", REACHING_PYTHON | REACHING_MORE),
        ("sql", "sql", SQL | MORE_SQL),
    ]
    if sandbox_place().system_calls:  # else the statement says that all can be made
        sets.append(("python", "reaching python", KERNEL_PYTHON))
    if node() is not None:
        sets += [
            ("javascript", "javascript", JAVASCRIPT | MORE_JAVASCRIPT),
            ("javascript", "reaching javascript", REACHING_JAVASCRIPT | REACHING_MORE_JAVASCRIPT),
        ]
    return sets


def _filled(code: str, places: Mapping[str, str]) -> str:
    for place, value in places.items():
        code = code.replace("{" + place + "}", value)
    return code


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
    if node() is not None:
        items += [
            _item("javascript", "javascript", "function add(a, b) { return a + b; }",
                  Check("assertions", tests=_JAVASCRIPT_TESTS, timeout_s=TIMEOUT_S)),
            _item("reaching javascript", "javascript", f"console.log('{secret}');",
                  Check("output", expected=secret, timeout_s=TIMEOUT_S)),
        ]  # fmt: skip
    found: list[_Program] = []
    by_id = {item.item_id: item for item in items}
    for _, item_id, programs in _sets():
        item = by_id[item_id]
        chosen = {name: code for name, code in programs.items() if not only or f"{item.language}: {name}" in only}
        for number, (name, code) in enumerate(chosen.items()):
            code = _filled(code, places)
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
def _places(secret: str) -> Iterator[tuple[dict[str, str], Callable[[], list[str]]]]:
    """(what is there to be reached, by the name that programs give it; what tells which of it was harmed)."""
    shared = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    with (
        TemporaryDirectory(prefix="capibara-hostile-") as folder,
        TemporaryDirectory(prefix="capibara-hostile-", dir=shared) as memory,
        _service(secret, socket.AF_INET, ("127.0.0.1", 0)) as port,
        _service(secret, socket.AF_UNIX, f"\0capibara-hostile-{secret[:8]}"),
        _service(secret, socket.AF_UNIX, f"{folder}/service"),
        _environment(secret),
    ):
        file, in_memory = Path(folder) / "secret.txt", Path(memory) / "secret.txt"
        file.write_text(secret)
        in_memory.write_text(secret)
        places = {"port": str(port[1]), "abstract": f"capibara-hostile-{secret[:8]}", "socket": f"{folder}/service"}
        places |= {"parent": str(os.getpid()), "file": str(file), "shared": str(in_memory)}
        places |= {"variable": VARIABLE, "worked": secret}
        before, programs = _children(), _sources()

        def harm() -> list[str]:
            harmed = [f"{each} was changed" for each in (file, in_memory) if each.read_text() != secret]
            known = {file, in_memory, Path(folder) / "service"}
            found = [path for place in (folder, memory) for path in Path(place).iterdir()]
            harmed += [f"{path.name} was left in its folder" for path in found if path not in known]
            harmed += [f"process {process.pid} was left" for process in _children() - before]
            return harmed if programs == _sources() else [*harmed, "the programs that execute were changed"]

        yield places, harm


def _sources() -> dict[str, str]:
    """Digests of what sandboxes are shown of this package."""
    scripts = [path for name in ("replay", "sandbox") for path in (Path(executions.__path__[0]) / name).iterdir()]
    return {path.name: sha256_bytes(path.read_bytes()) for path in scripts if path.suffix in (".py", ".js")}


@contextmanager
def _service(secret: str, family: socket.AddressFamily, address: Any) -> Iterator[Any]:
    """A service of this machine that tells the secret to everybody who gets through; yields its address."""
    with socket.socket(family) as server:
        server.bind(address)
        server.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return  # closed
                with connection:
                    connection.sendall(secret.encode())

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()


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

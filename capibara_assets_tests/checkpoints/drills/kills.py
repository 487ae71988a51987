"""Writers that are killed: real processes save, retire and collect in one store until SIGKILL ends them.

Everything that touches the store runs in a process forked for it, so that the one that forks never has threads.
"""

import itertools
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from capibara_assets.checkpoints.store.store import CheckpointStore
from capibara_assets_tests.checkpoints.drills.check import (
    Ledger,
    found_in,
    model_name,
    problems_after_crash,
    rubbish,
    try_collect,
)
from capibara_assets_tests.checkpoints.drills.disk import killed_at
from capibara_assets_tests.checkpoints.drills.states import small_state

MakeStore = Callable[[], CheckpointStore]

_LONGEST = 0.4  # seconds until a victim of the clock dies
_MOST_CALLS = 150  # changes of the file system until a victim of its calls dies: some four saves
_PATIENCE = 60.0  # seconds for a victim to reach its call, on a busy machine
_KEEP = 2  # checkpoints of each writer that stay, so that a store does not grow


def kill_writers(folder: Path, make: MakeStore, kills: int, seed: int) -> dict[str, Any]:
    """Kill so many writers, two at work at a time, one reader beside; what was found wrong, and how much was tried.

    Half die at a random time, half at a random call into the file system, a write cut in the middle. After each
    death all that was acknowledged is loaded; when both are dead the next writer works, verify and gc run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    chance, ledger = random.Random(seed), Ledger()
    counts: dict[str, Any] = {"kills": 0, "saved": 0, "at_work": {}, "corrupt": [], "lost": [], "reads": 0}
    with _reading(folder, make) as reads:
        for round_number in itertools.count():
            if counts["kills"] >= kills or counts["corrupt"] or counts["lost"]:
                break
            victims = [_start(folder, make, writer, round_number, chance) for writer in (1, 2)]
            for last, (victim, notes, deadline) in enumerate(victims):
                _end(victim, deadline)
                counts["kills"] += 1
                doing = _read_notes(notes, ledger, counts)
                counts["at_work"][doing] = counts["at_work"].get(doing, 0) + 1
                examine = partial(_examine, make, ledger, work_on=last == 1, step=round_number)
                found = _in_child(folder, examine)
                for kind in ("corrupt", "lost"):
                    counts[kind] += found[kind]
                for note in found.get("notes", ()):
                    ledger.add(note)
        counts["reads"], corrupt = reads()
        counts["corrupt"] += corrupt
    if not counts["corrupt"] and not counts["lost"]:
        counts["corrupt"] += _in_child(folder, lambda: _sweep(make))["left"]
    return counts | {"seed": seed, "owed_at_the_end": len(ledger.owed)}


def _start(
    folder: Path, make: MakeStore, writer: int, round_number: int, chance: random.Random
) -> tuple[int, Path, float]:
    """(process, its notes, when to kill it); a process that dies at a call has long enough to get there."""
    notes = folder / f"notes-{round_number}-{writer}.jsonl"
    own = random.Random(chance.random())
    at_call = chance.randrange(_MOST_CALLS) if chance.random() < 0.5 else None
    delay = _PATIENCE if at_call is not None else chance.uniform(0.0, _LONGEST)
    pid = _fork(lambda: _write(make, notes, writer, round_number, at_call, own))
    return pid, notes, time.monotonic() + delay


def _write(
    make: MakeStore, notes: Path, writer: int, round_number: int, at_call: int | None, chance: random.Random
) -> None:
    """A writer's life: it saves, retires its old ones, sweeps, and says so before and after, until it is killed."""
    descriptor = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def tell(*note: Any) -> None:
        os.write(descriptor, json.dumps(note).encode() + b"\n")

    def work() -> None:
        store, mine = make(), []
        for number in itertools.count():
            step = round_number * 1000 + number
            state = small_state(writer, step)
            tell("doing", "save")
            mine.append(store.save(state, step, model_name(writer)))
            tell("saved", mine[-1], writer, step)
            if len(mine) > _KEEP and chance.random() < 0.5:
                old, mine = mine[:-_KEEP], mine[-_KEEP:]
                tell("retiring", *old)
                tell("doing", "retire")
                store.retire(old)
                tell("doing", "nothing")
            if chance.random() < 0.3:
                tell("doing", "gc")
                try_collect(store)
                tell("doing", "nothing")

    try:
        with killed_at(at_call, chance) if at_call is not None else nullcontext():
            work()
    except BaseException:  # noqa: BLE001 - a writer that ends otherwise than by a kill is a finding
        tell("failed", traceback.format_exc()[-2000:])


def _read_notes(notes: Path, ledger: Ledger, counts: dict[str, Any]) -> str:
    """Enter what a dead writer told; what it was doing when it died. A line cut off was not told."""
    doing = "start"
    for line in notes.read_text().splitlines(keepends=True) if notes.exists() else ():
        if not line.endswith("\n"):
            break
        note = json.loads(line)
        ledger.add(note)
        if note[0] == "failed":
            counts["corrupt"].append(f"a writer failed: {note[1]}")
        counts["saved"] += note[0] == "saved"
        doing = note[1] if note[0] == "doing" else "nothing" if note[0] == "saved" else doing
    notes.unlink(missing_ok=True)
    return doing


def _end(pid: int, deadline: float) -> None:
    """Wait until a victim has died or its time has come, and then kill it."""
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() >= deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return
        time.sleep(0.002)


def _examine(make: MakeStore, ledger: Ledger, *, work_on: bool, step: int) -> dict[str, Any]:
    """After a death: problems; when no writer is left also the next save, verify, and old checkpoints retired."""
    try:
        found: dict[str, Any] = dict(problems_after_crash(make, ledger, work_on=work_on, seed=3, step=step))
    except Exception:  # noqa: BLE001 - whatever the next writer meets is a finding
        return {"corrupt": [f"the next writer failed: {traceback.format_exc()[-2000:]}"], "lost": []}
    if work_on and not found["corrupt"] and not found["lost"]:
        store = make()
        whole, _ = found_in(store)
        of_model: dict[str, list[str]] = {}
        for checkpoint in whole.values():
            of_model.setdefault(checkpoint.manifest.about.model, []).append(checkpoint.id)
        old = [each for ids in of_model.values() for each in ids[:-_KEEP]]
        store.retire(old)
        found["notes"] = [["retiring", *old]]
    return found


def _sweep(make: MakeStore) -> dict[str, Any]:
    """After all is over: what gc leaves although no checkpoint needs it. The killed are known to be dead at once."""
    make().collect()
    return {"left": [f"gc leaves {name}" for name in rubbish(make())]}


@contextmanager
def _reading(folder: Path, make: MakeStore) -> Iterator[Callable[[], tuple[int, list[str]]]]:
    """A process that lists and loads everything over and over; the call tells (reads, problems) so far."""
    told = folder / "reader.jsonl"

    def read() -> None:
        descriptor = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        while True:
            try:
                whole, problems = found_in(make())
                told_of = [len(whole), problems]
            except Exception:  # noqa: BLE001 - whatever a reader meets is a finding
                told_of = [0, [f"a reader failed: {traceback.format_exc()[-2000:]}"]]
            os.write(descriptor, json.dumps(told_of).encode() + b"\n")
            time.sleep(0.005)

    def so_far() -> tuple[int, list[str]]:
        lines = [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []
        return sum(line[0] for line in lines), [problem for line in lines for problem in line[1]]

    pid = _fork(read)
    try:
        yield so_far
    finally:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if (ended, status) != (0, 0):
            raise RuntimeError(f"the reader ended by itself (status {status}): see its traceback above")
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _in_child(folder: Path, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `work` returns (JSON), done in a process of its own. Raises RuntimeError: it failed."""
    answer = folder / "answer.json"
    answer.unlink(missing_ok=True)
    pid = _fork(lambda: answer.write_text(json.dumps(work())))
    _, status = os.waitpid(pid, 0)
    if status:
        raise RuntimeError(f"a process that checks the store ended with status {status}: its traceback is above")
    return dict(json.loads(answer.read_text()))


def _fork(work: Callable[[], object]) -> int:
    """A child that does `work` and ends without running anything of the parent's; its id."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    except BaseException:  # noqa: BLE001 - the parent sees the status
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)

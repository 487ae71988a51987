"""Losses of power and full disks: a store's own changes recorded, replayed in part, and failed at any call."""

import random
import shutil
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from capibara_assets.checkpoints.store.store import CheckpointStore, MissingCheckpoint
from capibara_assets.errors import InputError
from capibara_assets_tests.checkpoints.drills.check import (
    Ledger,
    files_under,
    found_in,
    model_name,
    problems_after_crash,
    try_collect,
)
from capibara_assets_tests.checkpoints.drills.disk import LOSSES, Change, Loss, Recorder, Tree, full_disk, left_by_crash
from capibara_assets_tests.checkpoints.drills.states import small_state

StoreAt = Callable[[Path], CheckpointStore]

_SAVES = 5  # of each writer of a recording
_SYNC_S = 0.002
_CALLS_BETWEEN = 170  # how many calls the one writer of `record_between` makes, about
_CRASHES = 20  # crashes that are made of one recording
_MOST_CALLS = 160  # a full disk's first failing call is among so many


def record(root: Path, store_at: StoreAt, seed: int, writers: int = 2) -> list[Change]:
    """What writers of one store changed while they saved, retired and collected beside each other.

    They save the same tensors under one model, at times the very same checkpoint, so that one builds on what another
    has just written.

    Raises:
        RuntimeError: the changes do not add up to the tree that is there: something was changed past `files`.
    """
    root.mkdir(parents=True)
    recorder = Recorder(root, _SYNC_S)
    failed: list[str] = []

    def write(number: int) -> None:
        chance, store, mine = random.Random(seed * 100 + number), store_at(root), []
        try:
            for step in range(_SAVES):
                tags = (f"by-{number}",) if chance.random() < 0.5 else ()  # without: the very same checkpoint
                mine.append(_save(store, recorder, seed, step, tags))
                if len(mine) > 2 and chance.random() < 0.6:
                    with suppress(MissingCheckpoint):  # the other writer had the very same one, and was quicker
                        _retire(store, recorder, mine.pop(0))
                if chance.random() < 0.4:
                    try_collect(store)
        except BaseException:  # noqa: BLE001 - told by the thread that waits
            failed.append(traceback.format_exc())

    with recorder.recording():
        threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failed:
        raise RuntimeError(failed[0])
    return _complete(recorder)


def record_between(root: Path, store_at: StoreAt, seed: int, at: int) -> list[Change]:
    """One writer's changes, and right before its call number `at` all that another one does: a whole save, of the very
    same checkpoint or of one with the same tensors, a retirement, a collection. Ends when both have ended.

    Raises:
        RuntimeError: as `record`.
    """
    root.mkdir(parents=True)
    chance = random.Random(seed)
    other_tags, act = chance.choice(((), ("other",))), chance.choice(("save", "retire", "collect"))
    saved: list[str] = []

    def meanwhile() -> None:
        other = store_at(root)
        if act == "retire" and len(saved) > 1:
            with suppress(MissingCheckpoint):
                _retire(other, recorder, saved[0])
        if act == "collect":
            try_collect(other)
        _save(other, recorder, seed, min(len(saved), 2), other_tags)

    recorder = Recorder(root, at=at, meanwhile=meanwhile)
    with recorder.recording():
        store = store_at(root)
        for step in range(3):
            saved.append(_save(store, recorder, seed, step, ()))
        with suppress(MissingCheckpoint):
            _retire(store, recorder, saved[1])
        try_collect(store)
    return _complete(recorder)


def _save(store: CheckpointStore, recorder: Recorder, seed: int, step: int, tags: tuple[str, ...]) -> str:
    saved = store.save(small_state(seed, step), step, model_name(seed), tags=tags)
    recorder.note(["saved", saved, seed, step])
    return saved


def _retire(store: CheckpointStore, recorder: Recorder, checkpoint: str) -> None:
    recorder.note(["retiring", checkpoint])
    store.retire([checkpoint])


def _complete(recorder: Recorder) -> list[Change]:
    """The changes, if they add up to the tree that is there. Raises RuntimeError: they do not."""
    if {name: len(data) for name, data in whole_tree(recorder.changes).files.items()} != files_under(recorder.root):
        raise RuntimeError(
            "what was recorded is not what is there: the store changes files past checkpoints/store/files.py"
        )
    return recorder.changes


def replay(folder: Path, store_at: StoreAt, crashes: int, seed: int) -> dict[str, Any]:
    """Crashes at random changes of recorded series, of every kind of loss in turn; what was wrong, how much was tried.

    `damaging`: how many left something else on disk than all changes up to there, that is, really lost something.
    """
    chance = random.Random(seed)
    counts: dict[str, Any] = {"replayed": 0, "damaging": 0, "owed": 0, "corrupt": [], "lost": []}
    counts["by_kind"] = dict.fromkeys(LOSSES, 0)
    while counts["replayed"] < crashes:
        series = chance.randrange(1, 1 << 20)
        if chance.random() < 0.5:
            changes = record(folder / "recorded", store_at, series, writers=chance.choice((1, 2, 3)))
        else:
            changes = record_between(folder / "recorded", store_at, series, chance.randrange(_CALLS_BETWEEN))
        for _ in range(min(_CRASHES, crashes - counts["replayed"])):
            loss = LOSSES[counts["replayed"] % len(LOSSES)]
            point = chance.randrange(1, len(changes) + 1)
            problems = crash(folder / "crashed", store_at, changes[:point], loss, chance, counts)
            where = f"(series {series}, {point} of {len(changes)} changes, {loss})"
            for kind in ("corrupt", "lost"):
                counts[kind] += [f"{problem} {where}" for problem in problems[kind]]
            counts["replayed"] += 1
            counts["by_kind"][loss] += 1
        shutil.rmtree(folder / "recorded")
    return counts | {"seed": seed}


def crash(
    root: Path, store_at: StoreAt, changes: list[Change], loss: Loss, chance: random.Random, counts: dict[str, Any]
) -> dict[str, list[str]]:
    """One crash: the tree that is left is written to `root`, judged, and removed."""
    ledger = Ledger()
    for change in changes:
        if change.call == "note":
            ledger.add(change.note)
    tree = left_by_crash(changes, loss, chance)
    counts["damaging"] += tree != whole_tree(changes)
    counts["owed"] += len(ledger.owed)
    tree.write(root)
    try:
        return problems_after_crash(lambda: store_at(root), ledger, work_on=True, seed=9, step=7)
    except Exception as error:  # noqa: BLE001 - whatever it raises is a finding, not the end of the bench
        return {"corrupt": [f"{type(error).__name__}: {error}"], "lost": []}
    finally:
        shutil.rmtree(root)


def whole_tree(changes: list[Change]) -> Tree:
    """What is there when nothing is lost."""
    return left_by_crash([*changes, Change("note")], "killed", random.Random(0))


def fill_disk(folder: Path, store_at: StoreAt, crashes: int, seed: int) -> dict[str, Any]:
    """ENOSPC at a random call while a store is written, for one call, for a few or for good; then there is room again.

    A save must succeed or raise InputError; what had been saved before stays readable while the disk is full.
    """
    chance = random.Random(seed)
    counts: dict[str, Any] = {"filled": 0, "failed_calls": {}, "refused_saves": 0, "corrupt": [], "lost": []}
    while counts["filled"] < crashes:
        root, ledger = folder / "filled", Ledger()
        root.mkdir(parents=True)
        store, series = store_at(root), chance.randrange(1, 1 << 20)
        after, calls = chance.randrange(_MOST_CALLS), chance.choice((1, 4, 1 << 30))
        where = f"(series {series}, {calls} calls from number {after} on)"
        with full_disk(after, calls) as failed:
            for step in range(6):
                try:
                    _one_step(store, ledger, series, step)
                except InputError as error:
                    counts["refused_saves"] += 1
                    if "no room" not in str(error):
                        counts["corrupt"].append(f"a full disk is not named: {error} {where}")
                except Exception as error:  # noqa: BLE001 - a finding
                    counts["corrupt"].append(f"a full disk raises {type(error).__name__}: {error} {where}")
            whole, corrupt = found_in(store)
            counts["corrupt"] += [f"{problem}, while full {where}" for problem in corrupt]
            counts["lost"] += [f"{each[:12]}, while full {where}" for each in sorted(ledger.owed - whole.keys())]
        if failed:
            counts["filled"] += 1
            counts["failed_calls"][failed[0]] = counts["failed_calls"].get(failed[0], 0) + 1
            try:
                problems = problems_after_crash(partial(store_at, root), ledger, work_on=True, seed=9, step=7)
            except Exception as error:  # noqa: BLE001 - a finding
                problems = {"corrupt": [f"with room again: {type(error).__name__}: {error}"], "lost": []}
            for kind in ("corrupt", "lost"):
                counts[kind] += [f"{problem} {where}" for problem in problems[kind]]
        shutil.rmtree(root)
    return counts | {"seed": seed}


def _one_step(store: CheckpointStore, ledger: Ledger, series: int, step: int) -> None:
    saved = store.save(small_state(series, step), step, model_name(series))
    ledger.add(["saved", saved, series, step])
    if step == 3:
        oldest = sorted(ledger.owed, key=lambda each: ledger.saved[each][1])[0]
        ledger.add(["retiring", oldest])
        store.retire([oldest])
        store.collect()

"""Killed writers, lost power, full disks, flipped bits: readers see whole checkpoints, and all that were published.

The same drills as `python -m benchmarks checkpoint --part crashes`, fewer of them; and stores made careless on
purpose, to see that the drills find it.
"""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from capibara_assets.checkpoints.store import files
from capibara_assets.checkpoints.store.places import LocalPlace
from capibara_assets.checkpoints.store.store import CheckpointStore
from capibara_assets_tests.checkpoints.drills.disk import LOSSES, Change
from capibara_assets_tests.checkpoints.drills.flips import flip_bits
from capibara_assets_tests.checkpoints.drills.kills import kill_writers
from capibara_assets_tests.checkpoints.drills.replay import crash, fill_disk, record, record_between, replay
from capibara_assets_tests.checkpoints.drills.states import encrypted_store

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
extended = pytest.mark.extended  # more of the same, and other kinds of store: `make test-all`


def plain(root: Path) -> CheckpointStore:
    return CheckpointStore(root)


def raw(root: Path) -> CheckpointStore:
    return CheckpointStore(root, compression="none")


def encrypted(root: Path) -> CheckpointStore:
    return encrypted_store(root, "zstd")


def crashes(folder: Path, changes: list[Change], count: int) -> list[str]:
    """Problems of so many crashes of one recording, of every kind in turn, the last change among them."""
    chance = random.Random(3)
    found = []
    for number in range(count):
        point = len(changes) if number < len(LOSSES) else chance.randrange(1, len(changes))
        counts = {"damaging": 0, "owed": 0}
        problems = crash(folder / "crashed", plain, changes[:point], LOSSES[number % len(LOSSES)], chance, counts)
        found += problems["corrupt"] + problems["lost"]
    return found


@pytest.mark.parametrize(
    ("store_at", "kills"),
    [(plain, 4), pytest.param(plain, 16, marks=extended), pytest.param(encrypted, 16, marks=extended)],
)
def test_killed_writers(tmp_path: Path, store_at: Callable[[Path], CheckpointStore], kills: int) -> None:
    found = kill_writers(tmp_path, lambda: store_at(tmp_path / "store"), kills=kills, seed=1)
    assert found["corrupt"] == [] and found["lost"] == []
    assert found["kills"] == kills
    assert found["at_work"].get("save", 0) >= kills // 4, "too few died while they saved: the test proves nothing"
    assert found["saved"] >= kills // 2 and found["reads"] >= kills


@pytest.mark.parametrize(
    "store_at", [plain, pytest.param(raw, marks=extended), pytest.param(encrypted, marks=extended)]
)
def test_losses_of_power(tmp_path: Path, store_at: Callable[[Path], CheckpointStore]) -> None:
    found = replay(tmp_path, store_at, crashes=24, seed=5)
    assert found["corrupt"] == [] and found["lost"] == []
    assert found["damaging"] >= 8 and found["owed"] >= 12, "too little was at stake: the test proves nothing"


@pytest.mark.parametrize("every", [30, *(pytest.param(every, marks=extended) for every in (15, 5))])
def test_another_process_between_any_two_calls_and_power_lost_right_after(tmp_path: Path, every: int) -> None:
    """What one writer relies on may be what another has made and not yet synced."""
    found: list[str] = []
    for at in range(0, 150, every):
        changes = record_between(tmp_path / str(at), plain, seed=at, at=at)
        points = [position + 1 for position, change in enumerate(changes) if change.call == "note"]
        for loss in ("lost", "reordered"):
            point = random.Random(at).choice(points)
            counts = {"damaging": 0, "owed": 0}
            problems = crash(tmp_path / "crashed", plain, changes[:point], loss, random.Random(at), counts)
            found += [f"{problem} (at {at})" for problem in problems["corrupt"] + problems["lost"]]
    assert found == []


@pytest.mark.parametrize("settles", [True, pytest.param(False, marks=extended)])  # that the drill would see it
def test_what_another_writer_has_not_synced_yet_is_settled_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settles: bool
) -> None:
    if not settles:
        monkeypatch.setattr(LocalPlace, "sync_names", lambda self, folder: None)
    found = []
    for at in range(44, 56):  # around the first writer's publishing
        changes = record_between(tmp_path / str(at), plain, seed=1000 + at, at=at)
        first = next(position for position, change in enumerate(changes) if change.call == "note")
        counts = {"damaging": 0, "owed": 0}
        problems = crash(tmp_path / "crashed", plain, changes[: first + 1], "lost", random.Random(0), counts)
        found += problems["corrupt"] + problems["lost"]
    assert (found == []) == settles


@pytest.mark.parametrize("store_at", [plain, pytest.param(encrypted, marks=extended)])
def test_full_disks(tmp_path: Path, store_at: Callable[[Path], CheckpointStore]) -> None:
    found = fill_disk(tmp_path, store_at, crashes=12, seed=2)
    assert found["corrupt"] == [] and found["lost"] == []
    assert len(found["failed_calls"]) >= 4 and found["refused_saves"] >= 12


@pytest.mark.parametrize("store_at", [plain, pytest.param(encrypted, marks=extended)])
def test_flipped_bits_are_found_and_named(tmp_path: Path, store_at: Callable[[Path], CheckpointStore]) -> None:
    found = flip_bits(tmp_path, store_at, flips=60, seed=4, every=7)
    assert found["missed"] == []
    assert found["files"] >= 13 and found["exhaustive"] > 200


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("sync", ""),
        ("sync_folder", "models/"),
        pytest.param("sync_folder", "", marks=extended),
        pytest.param("sync_folder", "packs", marks=extended),
    ],
)
def test_the_drill_finds_a_sync_left_out(tmp_path: Path, name: str, path: str) -> None:
    changes = record(tmp_path / "recorded", plain, seed=7, writers=1)
    careless = [change for change in changes if not (change.call == name and change.path.startswith(path))]
    assert len(careless) < len(changes)
    assert crashes(tmp_path, changes, 12) == []
    assert crashes(tmp_path, careless, 12) != []


def test_the_drill_finds_versions_written_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def create(self: LocalPlace, name: str, data: bytes, *, durable: bool = True) -> bool:
        fd = files.create(self._target(name))
        files.pwrite(fd, data, 0)
        files.sync(fd)
        files.close(fd)
        files.sync_folder(self._target(name).parent)
        return True

    monkeypatch.setattr(LocalPlace, "create", create)
    changes = record(tmp_path / "recorded", plain, seed=7, writers=1)
    writes = [position for position, change in enumerate(changes) if change.call == "pwrite"]
    versions = {change.inode for change in changes if change.call == "create" and change.path.startswith("models/")}
    point = next(position for position in writes if changes[position].inode in versions)
    counts = {"damaging": 0, "owed": 0}
    problems = crash(tmp_path / "crashed", plain, changes[: point + 1], "killed", random.Random(1), counts)
    assert problems["corrupt"] != []

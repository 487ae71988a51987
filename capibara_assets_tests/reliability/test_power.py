"""Whatever a loss of power leaves of a writer's changes, readers find what was or what was to be, and go on."""

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

import pytest

from capibara_assets_tests.reliability.power import WRITERS, PowerLoss, record
from capibara_assets_tests.reliability.system_calls import SCENARIOS

LOSSES: tuple[PowerLoss, ...] = get_args(PowerLoss)
DIFFERENT = dict.fromkeys(SCENARIOS, 4) | {"ingest": 40, "publish": 60, "export": 60, "mirror": 40, "purge": 20}
"""At least so many different states of a scenario are seen, of 400."""


@pytest.fixture(scope="module", autouse=True)
def _strace() -> Iterator[None]:
    if shutil.which("strace") is None or subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"]).returncode:
        pytest.skip("strace is not installed, or may not trace here")
    before = os.umask(0o077)  # modes are not in the model: a key must stay its owner's
    yield
    os.umask(before)


def powerless(folder: Path, name: str, states: int, seed: int = 1, *, first: bool = False) -> int:
    """Lose power after some of a writer's changes, read, write again, read; how many states differed.

    Args:
        first: the writer begins in an empty folder.
    """
    scenario, chance, before = WRITERS[name], random.Random(seed), None
    folder.mkdir(parents=True)
    if not first:
        scenario.prepare(folder)
        before = scenario.read(folder)
    recording = record(name, folder)
    after, last = scenario.read(folder), len(recording.changes)
    points = [last] * (states // 4) + [chance.randrange(1, last + 1) for _ in range(states - states // 4)]
    known = set()
    for number, point in enumerate(points):
        loss, written = LOSSES[number % len(LOSSES)], point == last and scenario.durable
        tree = recording.left(point, loss, chance)
        if (state := (tree.folders, frozenset(tree.files.items()), written)) in known:
            continue
        known.add(state)
        shutil.rmtree(folder)
        tree.write(folder)
        with noted(f"{name}: {loss} after {point} of {last} changes"):
            if written or not first:
                assert scenario.read(folder) in ((after,) if written else (before, after, *scenario.between))
            scenario.write(folder)
            assert scenario.read(folder) == after
    return len(known)


@contextmanager
def noted(where: str) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(where)
        raise


@pytest.mark.parametrize("name", ["export", pytest.param("remove", marks=pytest.mark.extended)])
def test_power_lost(tmp_path: Path, name: str) -> None:
    assert powerless(tmp_path / name, name, states=40) >= DIFFERENT[name] // 4


def test_power_lost_after_the_first_artifact(tmp_path: Path) -> None:
    assert powerless(tmp_path / "publish", "publish", states=40, first=True) >= 8


@pytest.mark.extended
@pytest.mark.parametrize("name", SCENARIOS)
def test_power_lost_anywhere(tmp_path: Path, name: str) -> None:
    assert powerless(tmp_path / name, name, states=400) >= DIFFERENT[name]


@pytest.mark.extended
@pytest.mark.parametrize("name", ["publish", "promote", "log", "export", "tombstone", "use"])
def test_power_lost_while_the_first_is_written(tmp_path: Path, name: str) -> None:
    assert powerless(tmp_path / name, name, states=200, first=True) >= 4


def test_a_careless_writer_is_found_out(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        powerless(tmp_path / "careless", "careless", states=40)

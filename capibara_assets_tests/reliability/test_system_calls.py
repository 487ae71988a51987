"""Killed before any of its system calls, or told by one that the disk is full or broken, a writer loses nothing."""

import shutil
import subprocess
from pathlib import Path

import pytest

from capibara_assets_tests.reliability.system_calls import REFUSED, SCENARIOS, copies, inject

CALLS = ("write", "pwrite64", "fsync", "rename", "link", "unlink", "unlinkat", "rmdir", "mkdir", "ftruncate")
FAULTS = [
    *(("signal=KILL", call) for call in CALLS),
    *(("error=ENOSPC", call) for call in ("write", "pwrite64", "rename", "mkdir", "fsync")),
    *(("error=EIO", call) for call in ("write", "pwrite64", "fsync")),
]
MOST = 40
"""Points of each call: more than any scenario but `cache` has."""
QUICK = [
    ("publish", "signal=KILL", "rename"),
    pytest.param("export", "signal=KILL", "unlinkat", marks=pytest.mark.extended),
]
INTERRUPTED = {
    "ingest": 60,
    "publish": 40,
    "promote": 12,
    "log": 8,
    "export": 40,
    "remove": 20,
    "key": 8,
    "cache": 20,
    "mirror": 25,
    "purge": 15,
    "tombstone": 10,
    "use": 10,
}
"""At least so many points of all faults and calls of a scenario are ones that its writer comes to."""


@pytest.fixture(scope="module", autouse=True)
def _strace() -> None:
    if shutil.which("strace") is None or subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"]).returncode:
        pytest.skip("strace is not installed, or may not trace here")


def interrupted(folder: Path, name: str, fault: str, call: str, most: int = MOST) -> int:
    """Interrupt a writer at each of its calls, read, write again, read; how often it was interrupted."""
    scenario = SCENARIOS[name]
    (folder / "before").mkdir(parents=True)
    scenario.prepare(folder / "before")
    shutil.copytree(folder / "before", folder / "after")
    scenario.write(folder / "after")
    before, after = scenario.read(folder / "before"), scenario.read(folder / "after")
    assert before != after
    points = range(1, most + 1)
    copies(folder / "before", folder / "points", points)
    codes = dict(zip(points, inject(name, folder / "points", call, fault, points), strict=True))
    assert set(codes.values()) <= {0, REFUSED, -9}, codes
    for point, code in codes.items():
        where, place = f"{name}, {fault} at call {point} of {call}", folder / "points" / str(point)
        assert scenario.read(place) in ((after,) if code == 0 else (before, after, *scenario.between)), where
        scenario.write(place)
        assert scenario.read(place) == after, where
    shutil.rmtree(folder)
    return sum(code != 0 for code in codes.values())


@pytest.mark.parametrize(("name", "fault", "call"), QUICK)
def test_interrupted_at_a_call_it_leaves_what_was_there_or_what_was_to_be(
    tmp_path: Path, name: str, fault: str, call: str
) -> None:
    assert interrupted(tmp_path / "drill", name, fault, call, most=8) >= 2


@pytest.mark.extended
@pytest.mark.parametrize("name", SCENARIOS)
def test_interrupted_anywhere(tmp_path: Path, name: str) -> None:
    counts = [interrupted(tmp_path / f"{fault}-{call}", name, fault, call) for fault, call in FAULTS]
    assert sum(counts) >= INTERRUPTED[name], dict(zip(FAULTS, counts, strict=True))

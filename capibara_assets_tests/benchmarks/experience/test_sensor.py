"""The sensor bench, small: ticks over a folder, and a real daemon whose runs and whole self are killed with -9."""

from pathlib import Path

import pytest

from benchmarks.experience.drops import Dropper
from benchmarks.experience.sensor import measure_storm, measure_ticks


def test_ticks_ask_once_for_what_is_new() -> None:
    found = measure_ticks(600, 20)
    assert found["requests_per_tick"] == [1] * 6
    assert found["cursor_bytes"] < 200 and 0 < found["tick_s"] < 5


def test_the_dropper_knows_what_it_dropped(tmp_path: Path) -> None:
    dropper = Dropper(tmp_path, 50, 0.0, seed=2)
    dropper.run()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 50 and not any(path.suffix == ".part" for path in files)
    text = "".join(path.read_text() for path in files)
    assert all(execution in text for execution in dropper.expected)
    assert text.count('"execution_id"') > len(dropper.expected) >= 50


@pytest.mark.extended
@pytest.mark.timeout(600)
@pytest.mark.extended
def test_nothing_is_missed_or_doubled_while_processes_die() -> None:
    found = measure_storm(drops=120, kills=2, seconds=40.0, wait=300.0, seed=3)
    assert (found["missed"], found["doubled"], found["unexpected"]) == (0, 0, 0)
    assert found["kills"]["daemon"] == 1 and found["run_keys_used_twice"] == 0
    assert found["runs"]["SUCCESS"] >= 1

"""Lanes: tasks run side by side in processes, after what they wait for; deaths, interruptions, a run that is killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from capibara_assets.automation.lanes import LaneSettings, Materialize, run_in_lanes, shares
from capibara_assets.automation.outcome import Report, RunOutcome, Task
from capibara_assets.domains import Domain
from capibara_assets_tests.waiting import until

ALL = os.sched_getaffinity(0)
PYTHON, SQL, ML = Domain.PYTHON, Domain.SQL, Domain.ML
pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


@contextmanager
def scripted(folder: Path) -> Iterator[Materialize]:
    """Tasks named after what they do; each leaves `<name>.begun` and, if it ends well, `<name>.done`."""

    def materialize(task: Task, report: Report) -> RunOutcome:
        (name,) = task.assets
        print("begins", name)
        (folder / f"{name}.begun").write_text(f"{os.getpid()} {sorted(os.sched_getaffinity(0))}")
        match name.split("-")[0]:
            case "meets":  # ends only if the other one of its kind runs at the same time
                await_files(folder, "meets-1.begun", "meets-2.begun")
            case "widens":  # ends only if it may use so many cores
                while len(os.sched_getaffinity(0)) < int(name.removeprefix("widens-")):
                    time.sleep(0.02)
            case "narrows":  # ends only once it may use fewer, as when another one works beside it
                while len(os.sched_getaffinity(0)) >= int(name.removeprefix("narrows-")):
                    time.sleep(0.02)
            case "follows":
                await_files(folder, f"{name.removeprefix('follows-')}.done")
            case "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            case "tells":
                (folder / "tells.variable").write_text(os.environ["CAPIBARA_TEST_OF_LANES"])
            case "breaks":
                raise ValueError("a defect")
            case "sleeps":
                time.sleep(60)
            case "stays":  # whoever interrupts it
                signal.signal(signal.SIGINT, lambda *_: (folder / f"{name}.asked").touch())
                (folder / f"{name}.stays").write_text("yes")
                while True:
                    time.sleep(60)
        (folder / f"{name}.done").write_text("yes")
        return RunOutcome(seconds={(name, str(task.partition)): 1.0})

    yield materialize


def await_files(folder: Path, *names: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not all((folder / name).is_file() and (folder / name).read_text() for name in names):
        assert time.monotonic() < deadline, f"{names} are not all there"
        time.sleep(0.02)


def task(name: str, partition: Domain | None = None, *after: int) -> Task:
    return Task((name,), partition, frozenset(after))


def test_shares_are_disjoint_and_whole():
    assert shares([0, 1, 2, 5, 7], 2) == [{0, 2, 7}, {1, 5}]
    assert shares([3], 1) == [{3}]


def test_tasks_run_side_by_side_on_cores_of_their_own_and_after_what_they_wait_for(tmp_path: Path):
    lines: list[str] = []
    tasks = [task("meets-1", PYTHON), task("meets-2", SQL), task("last", None, 0, 1)]
    outcome = run_in_lanes(LaneSettings(2, partial(scripted, tmp_path)), tasks, lines.append)
    assert set(outcome.seconds) == {("meets-1", "python"), ("meets-2", "sql"), ("last", "None")}
    assert sorted(lines[:2]) == ["begins meets-1", "begins meets-2"] and lines[2] == "begins last"
    (one, cores), (two, others) = ((tmp_path / f"meets-{n}.begun").read_text().split(" ", 1) for n in (1, 2))
    assert one != two and cores != others


@pytest.mark.timeout(60)
def test_the_cores_of_a_lane_without_a_task_are_lent_to_the_other_and_taken_back(tmp_path: Path):
    tasks = [
        task("meets-1", PYTHON),
        task("meets-2", SQL),
        task(f"widens-{len(ALL)}", PYTHON, 0, 1),
        task(f"narrows-{len(ALL)}", PYTHON, 2),
        task(f"follows-narrows-{len(ALL)}", SQL, 2),
    ]
    outcome = run_in_lanes(LaneSettings(2, partial(scripted, tmp_path)), tasks, lambda line: None)
    assert not outcome.failures and len(outcome.seconds) == 5


def test_a_lane_has_todays_variables_and_not_those_of_the_fork_servers_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for value in ("one", "two"):
        monkeypatch.setenv("CAPIBARA_TEST_OF_LANES", value)
        run_in_lanes(LaneSettings(1, partial(scripted, tmp_path)), [task("tells", PYTHON)], lambda line: None)
        assert (tmp_path / "tells.variable").read_text() == value


def test_what_lanes_import_beforehand_starts_no_thread(nano: Path):
    """Threads of a fork server would be missing in the lanes that are forked from it."""
    script = f"""
import importlib, os, sys
from pathlib import Path
from capibara_assets.cli.graph.lane import ALWAYS, FOR_MODELS
from capibara_assets.modeling.files import modeling_module
for name in [*ALWAYS, *FOR_MODELS, modeling_module(Path({str(nano)!r}))]:
    importlib.import_module(name)
print(len(os.listdir("/proc/self/task")))
"""
    code = ["taskset", "-c", str(min(ALL)), sys.executable, "-c", script]
    assert subprocess.run(code, capture_output=True, text=True, check=True).stdout.split() == ["1"]


def test_a_lane_that_dies_costs_its_task_alone(tmp_path: Path):
    lines: list[str] = []
    tasks = [task("dies", PYTHON), task("breaks", SQL), task("after", PYTHON, 0), task("further", ML)]
    outcome = run_in_lanes(LaneSettings(2, partial(scripted, tmp_path)), tasks, lines.append)
    assert (
        "killed by signal 9" in outcome.failures["dies", "python"]
        and "--parallel" in outcome.failures["dies", "python"]
    )
    assert "ended with 1" in outcome.failures["breaks", "sql"]
    assert {name for name, _ in outcome.seconds} == {"after", "further"}, "those that waited for it still run"
    assert any("FAILED" in line and "dies" in line for line in lines)


def test_a_lane_that_holds_much_memory_is_replaced_after_its_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tasks = [task("first", PYTHON), task("second", PYTHON, 0), task("third", PYTHON, 1)]

    def processes(most: int) -> int:
        monkeypatch.setattr("capibara_assets.automation.lanes._MOST_RESIDENT", most)
        outcome = run_in_lanes(LaneSettings(1, partial(scripted, tmp_path)), tasks, lambda line: None)
        assert not outcome.failures and len(outcome.seconds) == 3
        return len({(tmp_path / f"{name}.begun").read_text().split()[0] for name in ("first", "second", "third")})

    assert (processes(1 << 40), processes(1 << 20)) == (1, 3)


RUN = """
import sys
from functools import partial
from pathlib import Path
from capibara_assets.automation.lanes import LaneSettings, run_in_lanes
from capibara_assets_tests.automation.test_lanes import scripted, task
try:
    run_in_lanes(LaneSettings(2, partial(scripted, Path(sys.argv[1]))), [task(name) for name in sys.argv[2:]], print)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, marks=pytest.mark.extended),  # once and again below
        signal.SIGTERM,
        signal.SIGKILL,
    ],
)
def test_a_run_that_is_stopped_leaves_no_lane_behind(tmp_path: Path, number: signal.Signals):
    command = [sys.executable, "-c", RUN, str(tmp_path), "sleeps-1", "sleeps-2", "sleeps-3"]
    run = subprocess.Popen(command, start_new_session=True)
    await_files(tmp_path, "sleeps-1.begun", "sleeps-2.begun")
    lanes = [psutil.Process(int(file.read_text().split()[0])) for file in tmp_path.glob("*.begun")]
    run.send_signal(number)
    assert run.wait(120) == (-number if number == signal.SIGKILL else 130)
    gone, alive = psutil.wait_procs(lanes, 120)
    assert len(gone) == 2 and not alive
    assert not list(tmp_path.glob("*.done")), "the steps were interrupted"
    assert len(lanes) == len(list(tmp_path.glob("*.begun"))) == 2, "and no other began"


@pytest.mark.timeout(300)
def test_a_second_interruption_kills_a_lane_that_does_not_end(tmp_path: Path):
    command = [sys.executable, "-c", RUN, str(tmp_path), "stays-1", "sleeps-2"]
    run = subprocess.Popen(command, start_new_session=True)
    await_files(tmp_path, "stays-1.stays", "sleeps-2.begun")
    lanes = [psutil.Process(int(file.read_text().split()[0])) for file in tmp_path.glob("*.begun")]
    run.send_signal(signal.SIGINT)
    until((tmp_path / "stays-1.asked").exists)
    assert run.poll() is None, "one interruption waits for the step that runs"
    run.send_signal(signal.SIGINT)
    assert run.wait(120) == 130
    gone, alive = psutil.wait_procs(lanes, 120)
    assert len(gone) == 2 and not alive

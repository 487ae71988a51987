"""No process outlives its group: neither when it ignores signals nor when we are killed ourselves."""

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from capibara_assets.processes.groups import process_group, wait
from capibara_assets_tests.waiting import until

# A child that starts a grandchild; both write their process ids; what SIGINT does is the first argument.
FAMILY = """
import os, pathlib, signal, subprocess, sys, time
reaction, folder = sys.argv[1], pathlib.Path(sys.argv[2])
if reaction == "ignore":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
if reaction == "save":
    def save(*_):
        (folder / "saved").write_text("yes")
        sys.exit(0)
    signal.signal(signal.SIGINT, save)
deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(900)"
grandchild = subprocess.Popen([sys.executable, "-S", "-c", deaf])
(folder / "pids.tmp").write_text(f"{os.getpid()} {grandchild.pid}")
(folder / "pids.tmp").rename(folder / "pids")
if reaction == "leave":
    sys.exit(3)
time.sleep(900)
"""


def family(folder: Path, reaction: str) -> list[str]:
    return [sys.executable, "-S", "-c", FAMILY, reaction, str(folder)]


def pids(folder: Path) -> list[int]:
    until((folder / "pids").exists, 120, "the child never started")
    return [int(text) for text in (folder / "pids").read_text().split()]


def alive(pid: int) -> bool:
    """Running: a zombie that nobody has reaped yet does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):  # gone before it is opened, or while it is read
        return False


def all_gone(members: list[int], within_s: float = 60.0) -> bool:
    deadline = time.monotonic() + within_s
    while any(alive(pid) for pid in members):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.timeout(300)  # a child that ends at once is not waited for: here that would be without end
def test_interruption_lets_the_child_save_and_then_ends_the_whole_group(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), process_group(family(tmp_path, "save"), grace_s=math.inf) as process:
        members = pids(tmp_path)
        raise KeyboardInterrupt
    assert (tmp_path / "saved").read_text() == "yes" and process.returncode == 0
    assert all_gone(members)


@pytest.mark.timeout(300)  # left alone, they would stay for longer
def test_a_child_that_ignores_the_signal_is_killed_with_its_grandchild(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), process_group(family(tmp_path, "ignore"), grace_s=0.5) as process:
        members = pids(tmp_path)
        assert all(alive(pid) for pid in members)
        raise RuntimeError
    assert process.returncode == -signal.SIGKILL
    assert all_gone(members)


def test_a_grandchild_left_behind_by_a_child_that_ended_is_killed(tmp_path: Path) -> None:
    with process_group(family(tmp_path, "leave"), grace_s=5) as process:
        members = pids(tmp_path)
        wait(process)
        assert alive(members[1])
    assert process.returncode == 3
    assert all_gone(members)


def test_the_group_ends_when_our_own_process_is_killed_outright(tmp_path: Path) -> None:
    parent = f"""
import sys
from capibara_assets.processes.groups import process_group, wait
with process_group({family(tmp_path, "ignore")!r}, grace_s=0.3) as process:
    wait(process)
"""
    launcher = subprocess.Popen([sys.executable, "-c", parent], cwd=Path(__file__).parents[2])
    members = pids(tmp_path)
    os.kill(launcher.pid, signal.SIGKILL)
    launcher.wait()
    assert all_gone(members)


def test_nothing_runs_when_our_own_process_is_killed_before_the_guard_stands(tmp_path: Path) -> None:
    parent = f"""
import os, signal, subprocess
from capibara_assets.processes.groups import process_group
start = subprocess.Popen
def once(*arguments, **options):
    subprocess.Popen = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
    process = start(*arguments, **options)
    print(process.pid, flush=True)
    return process
subprocess.Popen = once
with process_group({family(tmp_path, "ignore")!r}):
    pass
"""
    ended = subprocess.run(
        [sys.executable, "-c", parent], cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    assert all_gone([int(ended.stdout)]) and not (tmp_path / "pids").exists()


@pytest.mark.parametrize("program", ["/nowhere/at-all", "no-such-program-at-all"])
def test_a_program_that_is_not_there_is_a_sentence_and_an_exit_code(
    program: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with process_group([program]) as process:
        wait(process)
    assert process.returncode == 1 and capfd.readouterr().err == f"{program}: No such file or directory\n"


def test_the_exit_code_of_a_child_is_kept() -> None:
    with process_group([sys.executable, "-S", "-c", "raise SystemExit(7)"]) as process:
        wait(process)
    assert process.returncode == 7

"""The memory of a whole tree, files without a name included, is bounded where a control group can be made."""

import subprocess
import sys
import time
from typing import Any

import psutil
import pytest

from capibara_assets.executions.sandbox.cgroup import groups_are_here
from capibara_assets.executions.sandbox.isolation import best_isolation

# It begins when it is told, as workers do: a process is in its group before it gets any code.
_FILES = """
import os, sys
sys.stdin.readline()
kept = []
for _ in range({count}):
    kept.append(os.memfd_create("x"))
    os.write(kept[-1], bytes(40 << 20))
print("written")
"""


@pytest.mark.skipif(not groups_are_here(), reason="no control group can be made here")
@pytest.mark.parametrize(("count", "fits"), [(1, True), (20, False)])
def test_files_in_memory_count(count: int, fits: bool) -> None:
    command = [sys.executable, "-I", "-S", "-c", _FILES.format(count=count)]
    sandboxed = best_isolation().start(command, memory_mib=256)
    try:
        said, _ = sandboxed.process.communicate(b"begin\n", timeout=120)
        group = sandboxed.group
        assert group is not None
    finally:
        sandboxed.close()
    assert (said == b"written\n") is fits
    assert (sandboxed.process.returncode == 0) is fits
    assert not group.exists(), "the group went with its processes"


class SlowStart(subprocess.Popen[bytes]):
    """A process whose starter is held up once it runs, as on a busy machine."""

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **named)
        time.sleep(0.5)


@pytest.mark.skipif(not groups_are_here(), reason="no control group can be made here")
def test_no_process_is_outside_however_late_its_starter_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", SlowStart)
    sandboxed = best_isolation().start([sys.executable, "-I", "-S", "-c", "input()"], memory_mib=256)
    try:
        assert sandboxed.group is not None
        inside = {int(line) for line in (sandboxed.group / "cgroup.procs").read_text().split()}
        started = psutil.Process(sandboxed.process.pid)
        assert {started.pid, *(child.pid for child in started.children(recursive=True))} <= inside
    finally:
        sandboxed.close()


def test_without_a_limit_there_is_no_group() -> None:
    sandboxed = best_isolation().start([sys.executable, "-I", "-S", "-c", "pass"])
    sandboxed.process.communicate(timeout=120)
    sandboxed.close()
    assert sandboxed.group is None

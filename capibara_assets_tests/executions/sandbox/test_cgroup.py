"""The memory of a whole tree, files without a name included, is bounded where a control group can be made."""

import sys

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


def test_without_a_limit_there_is_no_group() -> None:
    sandboxed = best_isolation().start([sys.executable, "-I", "-S", "-c", "pass"])
    sandboxed.process.communicate(timeout=120)
    sandboxed.close()
    assert sandboxed.group is None

"""Pools of worker processes: what their workers do, and that none outlives the process that made the pool."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from capibara_assets.processes.pools import process_pool
from capibara_assets_tests.processes.test_groups import alive, all_gone

BUSY_AND_IDLE = """
import os, sys, time
from capibara_assets.processes.pools import process_pool
if __name__ == "__main__":
    with process_pool(2) as pool:
        list(pool.map(time.sleep, [0.2, 0.2]))
        if sys.argv[1] == "busy":
            pool.submit(time.sleep, 60)
        print("ready", flush=True)
        time.sleep(60)
"""


def given(value: str) -> None:
    os.environ["CAPIBARA_TEST_POOL"] = value


def test_each_worker_begins_with_what_it_is_given() -> None:
    with process_pool(1, given, ("a value",)) as pool:
        assert pool.submit(os.getenv, "CAPIBARA_TEST_POOL").result() == "a value"
        assert pool.submit(os.getpid).result() != os.getpid()
    assert "CAPIBARA_TEST_POOL" not in os.environ


@pytest.mark.parametrize("workers", ["idle", "busy"])
def test_workers_end_with_a_killed_parent(tmp_path: Path, workers: str) -> None:
    script = tmp_path / "pool.py"
    script.write_text(BUSY_AND_IDLE)
    with subprocess.Popen([sys.executable, script, workers], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        started = [child.pid for child in psutil.Process(parent.pid).children(recursive=True)]
        assert len([pid for pid in started if alive(pid)]) >= 2
        parent.send_signal(signal.SIGKILL)
    assert all_gone(started)

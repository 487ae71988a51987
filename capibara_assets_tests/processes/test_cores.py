"""Cores of a process: a change reaches its threads and the processes below it."""

import os
import subprocess
import sys

import psutil
import pytest

from capibara_assets.processes.cores import allow_cores, cores_here
from capibara_assets_tests.waiting import until

ALL = os.sched_getaffinity(0)
pytestmark = pytest.mark.skipif(len(ALL) < 2, reason="needs two cores")
WITH_A_THREAD_AND_A_CHILD = """
import subprocess, sys, threading, time
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("begun", flush=True)
time.sleep(60)
"""


def masks(process: psutil.Process) -> list[set[int]]:
    """Of each thread of a process and of those below it."""
    family = [process, *process.children(recursive=True)]
    return [os.sched_getaffinity(thread.id) for each in family for thread in each.threads()]


def test_a_change_reaches_all_threads_and_processes_below():
    child = subprocess.Popen([sys.executable, "-c", WITH_A_THREAD_AND_A_CHILD], stdout=subprocess.PIPE)
    process = psutil.Process(child.pid)
    try:
        assert child.stdout is not None and child.stdout.readline() == b"begun\n"
        until(lambda: len(masks(process)) >= 3, 10)
        for cores in ({min(ALL)}, ALL):
            allow_cores(child.pid, cores)
            assert masks(process) == [cores] * 3
    finally:
        for each in [*process.children(recursive=True), process]:
            each.kill()
        child.wait()


def test_a_process_that_has_ended_is_passed_over():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    allow_cores(child.pid, ALL)


def test_the_cores_of_this_process_are_counted():
    assert cores_here() == len(ALL)

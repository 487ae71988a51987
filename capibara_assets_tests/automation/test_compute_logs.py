"""What steps print is captured and shown, and Ctrl-C in a terminal ends none of the helpers before their step does."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from capibara_assets.cli.graph.instance import open_instance
from capibara_assets.deployment.environment import Deployment
from capibara_assets_tests.waiting import until

STEP = """
import os, sys, time
from capibara_assets.cli.graph.instance import open_instance
from capibara_assets.deployment.environment import Deployment

with open_instance(Deployment.from_environment()) as instance:
    try:
        with instance.compute_log_manager.capture_logs(["run", "compute_logs", "step"]):
            print("begun", flush=True)
            try:
                time.sleep(60)
            except KeyboardInterrupt:
                print("interrupted, and says so", flush=True)
                time.sleep(1.5)  # tail looks once a second
                raise
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.fixture
def step(tmp_path: Path) -> subprocess.Popen[str]:
    """A process that captures what it prints, in a group of its own as in a terminal, with its two helpers each."""
    process = subprocess.Popen(
        [sys.executable, "-c", STEP],
        env={**os.environ, "CAPIBARA_HOME": str(tmp_path), "DAGSTER_HOME": ""},
        stdout=(tmp_path / "shown").open("w"),
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    until(lambda: "begun" in (tmp_path / "shown").read_text() and len(helpers(process)) == 4)
    return process


def helpers(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children()


def test_ctrl_c_ends_a_step_without_a_traceback_of_its_helpers(step: subprocess.Popen[str], tmp_path: Path):
    watchers = [one for one in helpers(step) if one.name() != "tail"]
    until(lambda: all(one.status() == psutil.STATUS_SLEEPING for one in watchers))
    time.sleep(0.3)  # their interpreters have begun: before, the signal kills them without a word
    os.killpg(step.pid, signal.SIGINT)
    assert step.wait(60) == 130
    shown = (tmp_path / "shown").read_text()
    assert "Traceback" not in shown and "says so" in shown, shown
    with open_instance(Deployment.from_environment({"CAPIBARA_HOME": str(tmp_path)})) as instance:
        kept = instance.compute_log_manager.get_log_data(["run", "compute_logs", "step"]).stdout
    assert kept == b"begun\ninterrupted, and says so\n"


def test_helpers_end_with_a_step_that_is_killed(step: subprocess.Popen[str]):
    others = helpers(step)
    step.kill()
    step.wait()
    until(lambda: not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in others))

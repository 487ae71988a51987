"""A run whose worker was killed is seen to be dead; one that lives, or is not ours to judge, is not."""

import os
import subprocess
import sys
import time
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.events import EngineEventData
from dagster._core.launcher.base import WorkerStatus

from capibara_assets.automation.run_launcher import WatchedRunLauncher
from capibara_assets_tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
HERE = {".dagster/grpc_info": '{"host": "localhost", "socket": "/tmp/s"}'}


@pytest.fixture
def instance(tmp_path: Path):
    (tmp_path / "dagster.yaml").write_text((ROOT / "dagster.yaml").read_text())
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        yield instance


def health(instance: dg.DagsterInstance, pid: int | None, tags: dict[str, str]) -> WorkerStatus:
    run = instance.add_run(dg.DagsterRun(job_name="j", tags=tags, status=dg.DagsterRunStatus.STARTED))
    if pid is not None:
        instance.report_engine_event(f"Started process for run (pid: {pid}).", run, EngineEventData.in_process(pid))
    assert isinstance(instance.run_launcher, WatchedRunLauncher)
    assert instance.run_launcher.supports_check_run_worker_health
    return instance.run_launcher.check_run_worker_health(run).status


def test_the_living_and_the_dead(instance: dg.DagsterInstance) -> None:
    assert health(instance, os.getpid(), HERE) is WorkerStatus.RUNNING
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    assert health(instance, child.pid, HERE) is WorkerStatus.RUNNING
    child.kill()
    until(lambda: health(instance, child.pid, HERE) is WorkerStatus.FAILED, 120)  # first a zombie
    child.wait()
    assert health(instance, child.pid, HERE) is WorkerStatus.FAILED  # then gone


def test_runs_of_other_machines_and_of_this_process_are_left_alone(instance: dg.DagsterInstance) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert health(instance, gone.pid, {".dagster/grpc_info": '{"host": "other", "port": 4000}'}) is WorkerStatus.RUNNING
    assert health(instance, None, HERE) is WorkerStatus.RUNNING


def test_a_later_process_with_the_number_of_a_dead_one_is_another(instance: dg.DagsterInstance, monkeypatch) -> None:
    later = time.time() + 3600
    monkeypatch.setattr("capibara_assets.automation.run_launcher.psutil.Process.create_time", lambda _: later)
    assert health(instance, os.getpid(), HERE) is WorkerStatus.FAILED

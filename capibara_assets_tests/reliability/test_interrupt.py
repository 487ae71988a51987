"""Ctrl-C in the middle of training: nothing half-written, no orphan, and the same command goes on."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from capibara_assets.checkpoints.artifacts import open_artifacts
from capibara_assets.deployment import Deployment

pytestmark = [pytest.mark.slow, pytest.mark.resume]
UPSTREAM = "ace_playbooks,e2b_logs,e2b_executions,e2b_patterns,consolidated_playbook,example_groups"
SELECT = f"{UPSTREAM},moe_dataset,lora_config,trained_adapters,consensus_checkpoint"


def start(environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "capibara_assets.cli", "run", "--domains", "sql", "--select", SELECT],
        env={**os.environ, **environment},
        stdout=log.open("wb"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def training_processes(work: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(str(work) in part for part in process.info["cmdline"] or ()):
            found.append(process)
    return found


def test_interrupted_training_goes_on(deployment_environment: dict[str, str], tmp_path: Path):
    deployment = Deployment.from_environment(deployment_environment)
    store = open_artifacts(deployment.store, deployment.work)
    first = start(deployment_environment, tmp_path / "first.log")
    events = deployment.work / "trained_adapters" / "sql"
    deadline = time.monotonic() + 180
    while not any(path.stat().st_size for path in events.glob("*/**/events.jsonl")):
        assert first.poll() is None and time.monotonic() < deadline, (tmp_path / "first.log").read_text()[-3000:]
        time.sleep(0.1)
    first.send_signal(signal.SIGINT)
    assert first.wait(timeout=60) == 130, (tmp_path / "first.log").read_text()[-3000:]
    time.sleep(1.0)
    assert not training_processes(deployment.work)
    assert not store.list("trained_adapters")
    for name in store.names():
        for artifact in store.list(name):
            artifact.verify()
    kept = [path for path in events.rglob("*") if path.is_file()]
    assert kept, "no resume point was kept"

    second = start(deployment_environment, tmp_path / "second.log")
    assert second.wait(timeout=300) == 0, (tmp_path / "second.log").read_text()[-3000:]
    output = (tmp_path / "second.log").read_text()
    assert "trained_adapters" in output and "consensus_checkpoint" in output
    assert not re.search(r"\be2b_patterns +\d", output), "stages before training were run again"
    (adapters,) = store.list("trained_adapters")
    adapters.verify()

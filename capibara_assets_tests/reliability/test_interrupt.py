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
import yaml

from capibara_assets.checkpoints.artifacts import open_artifacts
from capibara_assets_tests.home import MadeHome

pytestmark = [pytest.mark.slow, pytest.mark.resume]
UPSTREAM = "ace_playbooks,e2b_logs,e2b_executions,e2b_patterns,consolidated_playbook,example_groups"
SELECT = f"{UPSTREAM},moe_dataset,lora_config,trained_adapters"


def start(environment: dict[str, str], log: Path, select: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "capibara_assets.cli", "run", "--domains", "sql", "--select", select],
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


@pytest.mark.parametrize(
    ("voters", "steps", "after"),
    [
        pytest.param(2, 40, "", id="adapters"),
        pytest.param(4, 60, ",consensus_checkpoint", marks=pytest.mark.extended, id="up_to_consensus"),
    ],
)
def test_interrupted_training_goes_on(voters: int, steps: int, after: str, own_home: MadeHome, tmp_path: Path):
    recipe = own_home.folder / "recipes" / "training-demo.yaml"
    values = yaml.safe_load(recipe.read_text())
    # another recipe: adapters are trained again, and long enough to be interrupted
    values["training"]["max_steps"] = steps
    values["voters"] = values["voters"][:voters]
    recipe.write_text(yaml.safe_dump(values))
    deployment, environment = own_home.deployment, own_home.environment
    store = open_artifacts(deployment.store, deployment.work)
    before = {artifact.digest for artifact in store.list("trained_adapters")}
    first = start(environment, tmp_path / "first.log", SELECT + after)
    events = deployment.work / "trained_adapters" / "sql"
    deadline = time.monotonic() + 180
    while not any(path.stat().st_size for path in events.glob("*/**/events.jsonl")):
        assert first.poll() is None and time.monotonic() < deadline, (tmp_path / "first.log").read_text()[-3000:]
        time.sleep(0.02)
    first.send_signal(signal.SIGINT)
    assert first.wait(timeout=60) == 130, (tmp_path / "first.log").read_text()[-3000:]
    deadline = time.monotonic() + 10
    while training_processes(deployment.work):
        assert time.monotonic() < deadline, "an orphan trains on"
        time.sleep(0.05)
    assert {artifact.digest for artifact in store.list("trained_adapters")} == before
    for name in store.names():
        for artifact in store.list(name):
            artifact.verify()
    assert [path for path in events.rglob("*") if path.is_file()], "no resume point was kept"

    second = start(environment, tmp_path / "second.log", SELECT + after)
    assert second.wait(timeout=300) == 0, (tmp_path / "second.log").read_text()[-3000:]
    output = (tmp_path / "second.log").read_text()
    assert all(name in output for name in ("trained_adapters", *after.split(",")))
    assert not re.search(r"\be2b_patterns in \d", output), "stages before training were run again"
    (adapters,) = [one for one in store.list("trained_adapters") if one.digest not in before]
    adapters.verify()

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
from capibara_assets_tests.home import MadeHome, command_here
from capibara_assets_tests.waiting import until

# In `make test`: a training process that is stopped leaves no orphan and goes on (training/supervisor/test_run.py); a
# run's process that is stopped leaves none (automation/test_lanes.py), and a second run leaves alone what is current.
pytestmark = [pytest.mark.slow, pytest.mark.resume, pytest.mark.extended]
UPSTREAM = "ace_playbooks,e2b_logs,e2b_executions,e2b_patterns,consolidated_playbook,example_groups"
SELECT = f"{UPSTREAM},moe_dataset,lora_config,trained_adapters"


def arguments(domains: tuple[str, ...], select: str) -> list[str]:
    """Of `capibara`: a process for each of several domains."""
    return ["run", "--domains", ",".join(domains), "--parallel", str(len(domains)), "--select", select]


def start(environment: dict[str, str], log: Path, domains: tuple[str, ...], select: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "capibara_assets.cli", *arguments(domains, select)],
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


def pause(work: Path) -> list[psutil.Process]:
    """The processes that train below a folder, held until they are resumed."""
    running = [one for one in training_processes(work) if one.status() != psutil.STATUS_STOPPED]
    for process in running:
        process.suspend()
    return running


@pytest.mark.parametrize(
    ("domains", "voters", "steps", "after"),
    [
        pytest.param(("sql",), 2, 40, "", id="adapters"),
        pytest.param(("python", "sql"), 2, 40, "", id="adapters_of_two_domains"),
        pytest.param(("sql",), 4, 60, ",consensus_checkpoint", id="up_to_consensus"),
    ],
)
def test_interrupted_training_goes_on(
    domains: tuple[str, ...], voters: int, steps: int, after: str, own_home: MadeHome, tmp_path: Path
):
    recipe = own_home.folder / "recipes" / "training-demo.yaml"
    values = yaml.safe_load(recipe.read_text())
    # another recipe: adapters are trained again, and long enough to be interrupted
    values["training"]["max_steps"] = steps
    values["voters"] = values["voters"][:voters]
    recipe.write_text(yaml.safe_dump(values))
    deployment, environment = own_home.deployment, own_home.environment
    store = open_artifacts(deployment.store, deployment.work)
    before = {artifact.digest for artifact in store.list("trained_adapters")}
    first = start(environment, tmp_path / "first.log", domains, SELECT + after)
    work = [deployment.work / "trained_adapters" / domain for domain in domains]
    deadline = time.monotonic() + 180
    paused: list[psutil.Process] = []
    while not all(begun := [any(path.stat().st_size for path in one.glob("*/**/events.jsonl")) for one in work]):
        assert first.poll() is None and time.monotonic() < deadline, (tmp_path / "first.log").read_text()[-3000:]
        for one in (folder for folder, has in zip(work, begun, strict=True) if has):
            paused += pause(one)  # on a busy machine it would be done before the other begins
        time.sleep(0.02)
    for process in paused:
        process.resume()
    first.send_signal(signal.SIGINT)
    assert first.wait(timeout=300) == 130, (tmp_path / "first.log").read_text()[-3000:]
    until(lambda: not training_processes(deployment.work), said="an orphan trains on")
    assert {artifact.digest for artifact in store.list("trained_adapters")} == before
    for name in store.names():
        for artifact in store.list(name):
            artifact.verify()
    assert all(any(path.is_file() for path in one.rglob("*")) for one in work), "no resume point was kept"

    output = command_here(environment, *arguments(domains, SELECT + after))
    assert all(name in output for name in ("trained_adapters", *after.split(",")))
    assert not re.search(r"\be2b_patterns in \d", output), "stages before training were run again"
    adapters = [one for one in store.list("trained_adapters") if one.digest not in before]
    assert sorted(one.partition or "" for one in adapters) == sorted(domains)
    for one in adapters:
        one.verify()

"""A file dropped while the UI runs: its domains, and only those, go to a new consensus checkpoint with no click."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from capibara_assets.assets.inputs import latest_digest
from capibara_assets.cli.instance import open_instance
from capibara_assets.deployment import Deployment
from capibara_assets.domains import DOMAINS, Domain

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
TRAINED = ("python", "sql")
TABLES = ("e2b_executions", "consolidated_playbook", "e2b_patterns", "moe_dataset")
ADAPTERS = ("lora_config", "tpu_config", "trained_adapters", "consensus_checkpoint")
STAGES = (*TABLES, *ADAPTERS)
SHARED = ("ace_playbooks", "e2b_logs", "example_groups", "routing_dataset")
CHANGED = ("e2b_executions", "e2b_patterns", "moe_dataset", "trained_adapters", "consensus_checkpoint")


@pytest.fixture
def ui(
    deployment_environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, str]]:
    """A deployment whose `capibara ui` runs, after `capibara run`: tables of all domains, adapters of two."""
    environment = {**os.environ, **deployment_environment, "CAPIBARA_TICK_SECONDS": "3"}
    for stages, domains in ((SHARED + TABLES, DOMAINS), (ADAPTERS, TRAINED)):
        run = [sys.executable, "-m", "capibara_assets.cli", "run", "--domains", ",".join(domains)]
        subprocess.run(
            [*run, "--select", ",".join(stages)], env=environment, check=True, timeout=400, stdout=subprocess.DEVNULL
        )
    pretend_adapters(deployment_environment, monkeypatch)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = (tmp_path / "ui.log").open("w")
    process = subprocess.Popen(
        [sys.executable, "-m", "capibara_assets.cli", "ui", "--port", str(port)],
        env=environment,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield deployment_environment
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=60)


def pretend_adapters(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The other domains' adapters are there as far as Dagster knows, or the UI would first train them all."""
    monkeypatch.setenv("DAGSTER_HOME", "")
    with open_instance(Deployment.from_environment(environment)) as instance:
        for name in ADAPTERS:
            for domain in set(DOMAINS) - set(TRAINED):
                instance.report_runless_asset_event(dg.AssetMaterialization(name, partition=domain.value))


def digests(instance: dg.DagsterInstance) -> dict[tuple[str, str], str | None]:
    return {(stage, d): latest_digest(instance, stage, d) for stage in STAGES for d in DOMAINS}


def new_sql_session() -> str:
    """Some executions of a sandbox that is not there yet, on tables that no shipped task uses."""
    lines = []
    for number in range(12):
        lines.append(
            {
                "sandbox_id": f"inewharbour{number:09d}",
                "execution_id": f"5f0c1d7e-0000-4000-8000-{number:012d}",
                "timestamp": f"2026-10-21T10:{number:02d}:00.000Z",
                "language": "sql",
                "task": f"List the {number + 3} longest piers of every harbour in berth zone {number}.",
                "code": f"SELECT pier FROM pier WHERE zone = {number} ORDER BY length_m DESC LIMIT {number + 3};",
                "execution": {
                    "results": [{"text": f"harbour | pier | length_m\nA | {number} | 120"}],
                    "logs": json.dumps({"stdout": [], "stderr": []}),
                    "error": None,
                },
                "execution_count": 1,
                "duration_ms": 1.0,
                "timeout_s": 10,
            }
        )
    return "".join(json.dumps(line) + "\n" for line in lines)


def test_a_dropped_file_reaches_its_consensus_checkpoint(
    ui: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("DAGSTER_HOME", "")
    with open_instance(Deployment.from_environment(ui)) as instance:
        before = digests(instance)
        (Path(ui["CAPIBARA_EXPERIENCE"]) / "e2b_logs" / "dropped.jsonl").write_text(new_sql_session())
        deadline = time.monotonic() + 500
        agreed = "consensus_checkpoint", Domain.SQL
        while latest_digest(instance, *agreed) == before[agreed]:
            assert time.monotonic() < deadline, (tmp_path / "ui.log").read_text()[-4000:]
            time.sleep(2.0)
        after = digests(instance)
    changed = {key for key in after if after[key] != before[key]}
    assert {(stage, "sql") for stage in CHANGED} <= changed
    assert not {key for key in changed if key[1] != "sql"}

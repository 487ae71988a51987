"""A dropped file: its domains, and only those, go to a new consensus checkpoint with no click."""

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from capibara_assets.assets.inputs import latest_digest
from capibara_assets.automation.requests import LastRequest
from capibara_assets.automation.sensors import new_experience
from capibara_assets.cli.graph.instance import open_instance
from capibara_assets.definitions import build
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.resources import Experience
from capibara_assets_tests.home import DOMAINS as TRAINED
from capibara_assets_tests.home import MadeHome, command_here
from capibara_assets_tests.ui.process import running_ui

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
LATER = ("consolidated_playbook", "e2b_patterns", "moe_dataset", "lora_config", "tpu_config", "trained_adapters")
STAGES = ("e2b_executions", *LATER, "consensus_checkpoint")
SHARED = ("ace_playbooks", "e2b_logs", "example_groups", "routing_dataset")
Digests = dict[tuple[str, str], str | None]
CHANGED = {"e2b_executions", "e2b_patterns", "moe_dataset", "trained_adapters", "consensus_checkpoint"}


@pytest.fixture
def ready(made: MadeHome) -> MadeHome:
    """All domains' executions, and as far as Dagster knows all that follows, or it would make that for all first."""
    others = [domain for domain in DOMAINS if domain not in TRAINED]
    command_here(made.environment, "run", "--select", "e2b_executions", "--domains", ",".join(others))
    with open_instance(made.deployment) as instance:
        for name in (*LATER, "consensus_checkpoint"):
            for domain in others:
                instance.report_runless_asset_event(dg.AssetMaterialization(name, partition=domain.value))
    return made


def digests(instance: dg.DagsterInstance) -> Digests:
    return {(stage, d): latest_digest(instance, stage, d) for stage in STAGES for d in DOMAINS}


def drop_new_sql_session(made: MadeHome) -> None:
    """Some executions of a sandbox that is not there yet, on tables that no shipped task uses; not just now."""
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
    dropped = made.folder / "experience" / "e2b_logs" / "dropped.jsonl"
    dropped.write_text("".join(json.dumps(line) + "\n" for line in lines))
    os.utime(dropped, (time.time() - 60, time.time() - 60))


def assert_only_sql_changed(
    before: dict[tuple[str, str], str | None], after: dict[tuple[str, str], str | None]
) -> None:
    changed = {key for key in after if after[key] != before[key]}
    assert {(stage, "sql") for stage in CHANGED} <= changed
    assert not {key for key in changed if key[1] != "sql"}


class Daemon:
    """What Dagster's daemon does with our sensor and our conditions, tick by tick in this process."""

    def __init__(self, made: MadeHome, instance: dg.DagsterInstance):
        self.made, self.instance, self.definitions = made, instance, build(made.deployment)
        self.job = self.definitions.resolve_implicit_global_asset_job_def()
        self.files: str | None = None
        self.conditions: dg.AssetDaemonCursor | None = None

    def look(self) -> set[str]:
        """One tick of the sensor over the files; the assets that it had made."""
        resources = {"experience": Experience(folder=str(self.made.folder / "experience"))}
        with dg.build_sensor_context(
            instance=self.instance,
            cursor=self.files,
            definitions=self.definitions,
            resources=resources,
        ) as context:
            tick = new_experience.evaluate_tick(context)
        self.files = self._done(tick.cursor)
        wanted = [key for request in tick.run_requests or () for key in request.asset_selection or ()]
        self._make(wanted, None)
        return {key.to_user_string() for key in wanted}

    @staticmethod
    def _done(cursor: str | None) -> str:
        """The cursor when the runs that were asked for have succeeded, as they have here."""
        asked = {name: LastRequest.read(text) for name, text in json.loads(cursor or "{}").items()}
        return json.dumps(
            {name: str(LastRequest(a.fingerprint, a.serial, a.tries, a.at, True)) for name, a in asked.items()}
        )

    def settle(self) -> set[tuple[str, str | None]]:
        """Ticks of the conditions until nothing more is asked for; what was."""
        seen: set[tuple[str, str | None]] = set()
        for _ in range(20):
            if not (asked := self._tick()):
                return seen
            seen |= asked
        raise AssertionError(f"still asking after twenty ticks: {seen}")

    def _tick(self) -> set[tuple[str, str | None]]:
        selection = dg.AssetSelection.assets(*SHARED, *STAGES)
        result = dg.evaluate_automation_conditions(self.definitions, self.instance, selection, cursor=self.conditions)
        self.conditions = result.cursor
        asked: dict[str | None, list[dg.AssetKey]] = defaultdict(list)
        for name in (*SHARED, *STAGES):
            for partition in result.get_requested_partitions(dg.AssetKey(name)) or ():
                asked[partition].append(dg.AssetKey(name))
        for partition, keys in asked.items():
            self._make(keys, partition)
        return {(key.to_user_string(), partition) for partition, keys in asked.items() for key in keys}

    def _make(self, keys: list[dg.AssetKey], partition: str | None) -> None:
        if keys:
            made = self.job.execute_in_process(instance=self.instance, asset_selection=keys, partition_key=partition)
            assert made.success


@pytest.mark.extended
def test_the_stages_of_a_dropped_file_are_asked_for_one_after_the_other(ready: MadeHome):
    """Sensor, conditions and assets, without the daemon's processes; with them in `make test-all`."""
    with open_instance(ready.deployment) as instance:
        daemon = Daemon(ready, instance)
        daemon.settle()
        assert daemon.look() == {"e2b_logs", "ace_playbooks"}  # the first look cannot know that they are current
        before = digests(instance)
        assert not {name for name, _ in daemon.settle()} & CHANGED, "what came out the same wakes nothing"
        drop_new_sql_session(ready)
        assert daemon.look() == {"e2b_logs"}
        asked = daemon.settle()
        assert {(name, "sql") for name in CHANGED} <= asked
        assert {domain for name, domain in asked if name in {"trained_adapters", "consensus_checkpoint"}} == {"sql"}
        assert_only_sql_changed(before, digests(instance))


@pytest.fixture
def ui(ready: MadeHome, tmp_path: Path) -> Iterator[MadeHome]:
    """The deployment with its `capibara ui`, daemon and all."""
    with running_ui(ready, tmp_path / "ui.log", CAPIBARA_TICK_SECONDS="3"):
        yield ready


@pytest.mark.extended
def test_a_dropped_file_reaches_its_consensus_checkpoint_while_the_ui_runs(ui: MadeHome, tmp_path: Path):
    with open_instance(ui.deployment) as instance:
        before = digests(instance)
        drop_new_sql_session(ui)
        deadline = time.monotonic() + 500
        agreed = "consensus_checkpoint", Domain.SQL
        while latest_digest(instance, *agreed) == before[agreed]:
            assert time.monotonic() < deadline, (tmp_path / "ui.log").read_text()[-4000:]
            time.sleep(0.5)
        assert_only_sql_changed(before, digests(instance))

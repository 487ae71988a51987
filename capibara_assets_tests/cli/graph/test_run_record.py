"""A home knows the experience that its runs read: whatever reads logs again later reads these, and says so."""

import os
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from capibara_assets.assets.inputs import Inputs
from capibara_assets.automation import pipeline
from capibara_assets.cli.graph.instance import open_instance
from capibara_assets.deployment.environment import Deployment
from capibara_assets.deployment.home import kept_experience
from capibara_assets.deployment.locations import resources_root
from capibara_assets.resources import Store
from capibara_assets_tests.executions.conftest import envelope, line

Capibara = Callable[..., object]
LOGS = ("run", "--domains", "sql", "--select", "e2b_logs")


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An experience of three executions and a line that is none; no variable names it."""
    monkeypatch.delenv("CAPIBARA_EXPERIENCE", raising=False)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "logs" / "e2b_logs"
    folder.mkdir(parents=True)
    lines = [*(line(envelope(f"print({number})", execution_id=f"e{number}")) for number in range(3)), b"[]"]
    (folder / "a.jsonl").write_bytes(b"".join(each + b"\n" for each in lines))
    return folder.parent


def executions(home: Path) -> list[str]:
    deployment = Deployment.from_environment({"CAPIBARA_HOME": str(home)})
    os.environ["DAGSTER_HOME"] = ""
    with open_instance(deployment) as instance:
        store = Store(root=deployment.store, work=str(deployment.work)).open()
        return sorted(Inputs(instance, store).artifact("e2b_logs").frame("executions")["execution_id"])


def test_what_reads_logs_again_reads_those_that_the_home_was_made_from(
    capibara: Capibara, logs: Path, tmp_path: Path
) -> None:
    home, said = tmp_path / "home", f"experience {logs}"
    capibara(*LOGS, "--experience", "logs", home=home)
    assert executions(home) == ["e0", "e1", "e2"] and kept_experience(home) == str(logs)
    for arguments in (
        LOGS,
        ("backfill", "--domains", "sql", "--select", "e2b_logs"),
        ("quarantine", "retry"),
        ("forget", "e1", "--reason", "asked to"),
    ):
        done = capibara(*arguments, home=home)
        assert done.returncode == 0 and said in done.stdout + done.stderr, done
        assert executions(home) == (["e0", "e2"] if arguments[0] == "forget" else ["e0", "e1", "e2"])


def test_another_that_is_named_is_read_and_what_ships_is_nothing_to_keep(
    capibara: Capibara, logs: Path, tmp_path: Path
) -> None:
    home, other = tmp_path / "home", tmp_path / "other" / "e2b_logs"
    other.mkdir(parents=True)
    (other / "b.jsonl").write_bytes(line(envelope(execution_id="of the other")) + b"\n")
    capibara(*LOGS, "--experience", str(logs), home=home)
    capibara(*LOGS, home=home, CAPIBARA_EXPERIENCE="other")
    assert executions(home) == ["of the other"] and kept_experience(home) == str(other.parent)
    refused = capibara(*LOGS, "--experience", "nowhere", home=home)
    assert refused.returncode == 2 and "--experience, or CAPIBARA_EXPERIENCE" in refused.stderr
    assert kept_experience(home) == str(other.parent)


def test_a_run_that_is_killed_has_told_its_home_already_and_what_ships_is_kept_nowhere(
    capibara: Capibara, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setattr(pipeline, "run_graph", Mock(side_effect=KeyboardInterrupt))
    assert capibara(*LOGS, "--experience", str(logs), home=home).returncode == 130
    assert kept_experience(home) == str(logs)
    capibara(*LOGS, "--experience", str(resources_root() / "experience"), home=home)
    assert kept_experience(home) == ""

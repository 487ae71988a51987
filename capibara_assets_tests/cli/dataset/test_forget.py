"""`capibara forget` on real tables: nothing for unknown ids, any interruption can be taken up, two at once are safe."""

import json
import os
import shutil
import subprocess
import sys
from unittest.mock import Mock

import dagster as dg
import pytest
from click.testing import CliRunner

from capibara_assets.cli.dataset import forget as forget_module
from capibara_assets.cli.dataset.forget import forget, forget_in
from capibara_assets.cli.dataset.lineage import lineage
from capibara_assets.cli.graph.instance import open_instance
from capibara_assets.definitions import build
from capibara_assets.deployment.environment import Deployment
from capibara_assets.errors import InputError
from capibara_assets.lineage import forget as library
from capibara_assets.lineage.forget import REMADE
from capibara_assets.resources import Store
from capibara_assets.storage.digests import tree_digest
from capibara_assets_tests.canary import CANARY, FAILED, MENDED, singing
from capibara_assets_tests.home import MadeHome, versions

pytestmark = pytest.mark.slow

CHANGED = {
    "e2b_logs", "example_groups", "routing_dataset",
    "e2b_executions[python]", "e2b_patterns[python]", "moe_dataset[python]",
}  # fmt: skip
"""What is made again when the canary's executions, all of them Python, are forgotten."""


@pytest.fixture
def deployment(made: MadeHome) -> Deployment:
    """Of the home whose logs hold the canary."""
    return made.deployment


def test_unknown_ids_are_named_and_nothing_is_done(deployment: Deployment) -> None:
    home = tree_digest(deployment.home / "store"), tree_digest(deployment.home / "work" / "e2b_logs")
    with pytest.raises(InputError, match=r"no execution 'nix', 'nobody' in any table"):
        forget_in(deployment, ["nix", MENDED, "nobody"], "", dry_run=False)
    assert home == (tree_digest(deployment.home / "store"), tree_digest(deployment.home / "work" / "e2b_logs"))


def test_a_dry_run_lists_all_and_touches_nothing(deployment: Deployment) -> None:
    home = tree_digest(deployment.home / "store"), tree_digest(deployment.home / "work" / "e2b_logs")
    result = CliRunner().invoke(forget, [MENDED, "--dry-run", "--json"], catch_exceptions=False)
    report = json.loads(result.stdout)
    assert home == (tree_digest(deployment.home / "store"), tree_digest(deployment.home / "work" / "e2b_logs"))
    assert report["dry_run"] and report["forgotten"] == [MENDED] and report["domains"] == ["python"]
    assert [(one["file"], one["line"]) for one in report["sources"]] == [
        ("e2b_logs/canary.jsonl", 2),
        ("e2b_logs/copy.jsonl.gz", 2),
    ]
    assert {name.split()[0] for name in report["removed"]} == CHANGED
    assert report["quarantined"] == 1 and sum(report["history"].values()) > 0
    assert singing(deployment.home)


def test_a_lost_dataset_is_named_and_the_rest_goes(deployment: Deployment) -> None:
    """Whatever was made from it may have seen the record; what is made anew without it is no such thing."""
    (lost,) = [path.parent for path in (deployment.home / "store/artifacts/moe_dataset/python").glob("*/manifest.json")]
    shutil.rmtree(lost)
    for arguments in ([MENDED, "--dry-run", "--json"], [MENDED, "--json"]):
        result = CliRunner().invoke(forget, arguments, catch_exceptions=False)
        report = json.loads(result.stdout)
        assert (lost.name, "missing") in {(one["digest"], one["why"]) for one in report["unread"]}
        assert any("routing_dataset" in name for one in report["unread"] for name in one["of"])
        assert result.exit_code == (1 if report["left"] and not report["dry_run"] else 3)
    assert {name.split()[0] for name in report["removed"]} >= {"e2b_logs", "e2b_executions[python]"}


OF_THE_COMMAND = ("_remake", "rewrite_history", "_search")
STEPS = ("_remake", "purge_ledgers", "delete", "rewrite_history", "remove", "_search")


def interrupt(deployment: Deployment, records: list[str], step: str) -> None:
    """Forget records; Ctrl-C comes at a step."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            forget_module if step in OF_THE_COMMAND else library, step, Mock(side_effect=KeyboardInterrupt(step))
        )
        with pytest.raises(KeyboardInterrupt, match=step):
            forget_in(deployment, records, "asked to", dry_run=False)


@pytest.mark.extended  # between steps: `test_an_interrupted_forget_goes_on_with_what_was_removed_before` of `lineage`
def test_interrupted_anywhere_it_can_be_run_again(deployment: Deployment) -> None:
    old = versions(deployment, REMADE)
    for step in STEPS:
        interrupt(deployment, [FAILED, MENDED], step)
    report = forget_in(deployment, [FAILED, MENDED], "asked to", dry_run=False)
    assert (report.forgotten_before, report.left, report.failures) == ((FAILED, MENDED), (), {})
    assert singing(deployment.home) == []
    new = versions(deployment, REMADE)
    assert {name for name in new if new[name] != old[name]} == CHANGED
    again = forget_in(deployment, [MENDED], "", dry_run=False)
    assert (again.removed, again.history, again.left) == ((), {}, ())
    assert versions(deployment, REMADE) == new


@pytest.mark.extended
def test_interrupted_it_goes_on_and_the_groups_and_splits_of_the_others_stay(deployment: Deployment) -> None:
    old_versions = versions(deployment, REMADE)
    store = Store(root=deployment.store, work=str(deployment.work)).open()
    old = store.latest("example_groups", None).frame("groups")  # type: ignore[union-attr]
    interrupt(deployment, [FAILED], "remove")  # the tables are made again, and the old ones are still there
    result = CliRunner().invoke(forget, [FAILED, "--reason", "asked to"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "e2b_logs/canary.jsonl:1" in result.stdout and "e2b_logs/copy.jsonl.gz:1" in result.stdout
    assert "delete or edit it there yourself" in result.stdout
    assert CANARY not in result.stdout and "NOT GONE" not in result.stdout
    assert "searched once more, wherever it may have been: nothing of it is left" in result.stdout
    asked = CliRunner().invoke(lineage, ["execution", FAILED])
    assert f"execution '{FAILED}' was forgotten" in str(asked.exception)
    new = store.latest("example_groups", None).frame("groups")  # type: ignore[union-attr]
    assert new.equals(old.filter(old["unit_id"] != FAILED)) and new.height == old.height - 1
    assert singing(deployment.home, (FAILED,)) == []
    assert singing(deployment.home, (MENDED,))  # the repair was not to be forgotten
    new_versions = versions(deployment, REMADE)
    changed = {name for name in new_versions if new_versions[name] != old_versions[name]}
    assert changed | {"routing_dataset"} == CHANGED, "its routes are the same where no example was made of it"


@pytest.mark.extended
def test_two_at_once_are_safe(deployment: Deployment) -> None:
    command = [sys.executable, "-m", "capibara_assets.cli", "forget", "--json"]
    both = [
        subprocess.Popen([*command, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ.copy())
        for name in (FAILED, MENDED)
    ]
    answers = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], answers
    assert singing(deployment.home) == []


def test_runs_under_way_are_waited_for(deployment: Deployment) -> None:
    with open_instance(deployment) as instance:
        job = build(deployment).resolve_implicit_global_asset_job_def()
        instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    with pytest.raises(InputError, match=r"runs are under way: .* \(started\)"):
        forget_in(deployment, [MENDED], "", dry_run=False)
    assert not (deployment.home / "store" / "tombstones").exists()

"""The doctor of a deployment: each thing that can be wrong is a line with the next step, and nothing is changed."""

import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin

from capibara_assets.cli.graph import health, health_of_results
from capibara_assets.cli.graph.health import (
    check_credentials,
    check_disk,
    check_jobs,
    check_keys,
    check_leftovers,
    check_libtpu,
    check_node,
    check_python,
    check_sandbox,
    check_settings,
    check_ui_port,
    deployment_findings,
    driver_here,
)
from capibara_assets.cli.graph.health_of_records import check_records
from capibara_assets.cli.graph.health_of_results import check_history, check_runs, check_store
from capibara_assets.cli.graph.instance import open_instance
from capibara_assets.deployment.environment import Deployment
from capibara_assets.domains import Domain
from capibara_assets.evaluation.serving.promotion import promote_manually
from capibara_assets.evaluation.serving.promotion_log import PromotionLog
from capibara_assets.processes.background import Jobs
from capibara_assets.storage.store import ArtifactStore
from capibara_assets.training.plan.preflight import CheckFinding
from capibara_assets_tests.home import MadeHome


def deployment(home: Path, **variables: str) -> Deployment:
    return Deployment.from_environment({"CAPIBARA_HOME": str(home), **variables})


def told(finding: CheckFinding | list[CheckFinding], status: str, *words: str) -> None:
    """A finding of this status says all of it, and a bad one what to do."""
    findings = finding if isinstance(finding, list) else [finding]
    of_it = [one for one in findings if one.status == status]
    assert of_it and all(any(word in one.line for one in of_it) for word in words), [one.line for one in findings]
    assert all(one.todo for one in findings if one.status != "pass")


def test_a_new_deployment_is_sound_and_nothing_is_made(tmp_path: Path):
    found = deployment_findings(deployment(tmp_path / "home"))
    assert not [one.line for one in found if one.status == "fail"]
    names = {one.check for one in found}
    assert names >= {"store", "disk", "keys", "ports", "gpu", "libtpu", "node", "credentials", "leftovers", "runs"}
    assert not (tmp_path / "home").exists()


def test_settings_that_a_run_would_refuse(tmp_path: Path):
    told(check_settings(deployment(tmp_path, CAPIBARA_BASE_MODEL="/nowhere/m")), "fail", "/nowhere/m", "mend it")
    told(check_settings(deployment(tmp_path)), "pass")


def test_a_result_of_which_a_file_is_gone(tmp_path: Path):
    here = deployment(tmp_path)
    store = ArtifactStore(here.store, here.work)
    store.publish("facts", Domain.SQL, documents={"x": 1})
    told(check_store(here), "pass", "1 latest results")
    (document,) = Path(here.store).rglob("x.json")
    document.unlink()
    told(check_store(here), "fail", "facts[sql] lacks x.json", "run --force --select facts --domains sql` makes it")
    document.write_text("1" * 9)
    told(check_store(here), "fail", "facts[sql] has 9 bytes of x.json, not")
    (manifest,) = Path(here.store).rglob("manifest.json")
    manifest.write_text("{")
    told(check_store(here), "fail", "manifest.json")


@pytest.fixture
def whole(own_home: MadeHome, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    for name, value in own_home.environment.items():
        monkeypatch.setenv(name, value)
    return own_home.deployment


def test_a_home_that_is_whole(whole: Deployment):
    findings = [*check_store(whole), *check_history(whole)]
    assert {one.check: one.status for one in findings}.items() >= {"store": "pass", "checkpoints": "pass"}.items()
    told(findings, "pass", "their packs are there")
    told([one for one in findings if one.check == "history"], "pass", "results, which are in")


def test_packs_that_manifests_name_and_that_are_gone(whole: Deployment):
    checkpoints = Path(whole.store) / "checkpoints"
    pack = max((checkpoints / "packs").iterdir(), key=lambda file: file.stat().st_size)
    pack.write_bytes(pack.read_bytes()[:-1])
    told(check_store(whole), "fail", "checkpoints are damaged", "capibara checkpoint verify")
    pack.unlink()
    told(check_store(whole), "fail", "checkpoints are damaged", "lacks the piece")
    shutil.rmtree(checkpoints)
    told(check_store(whole), "fail", "no checkpoint", "run --force --select")


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize("spoil", [emptied, a_pipe, Path.unlink])
def test_what_a_store_records_for_good(whole: Deployment, spoil: Callable[[Path], None]):
    root = Path(whole.store)
    told(check_records(whole), "pass", "lines, the current certificates stand in them")
    spoil(root / "certificates.jsonl")
    told([one for one in check_records(whole) if one.check == "certificates"], "fail", "certificates.jsonl")
    log = PromotionLog(ArtifactStore(whole.store, whole.work))
    for digest in ("a", "b"):
        log.move("promote", lambda now, _, digest=digest: (promote_manually(now, "sql", digest, "x"), "x"), by="ana")  # type: ignore[misc]
    told([one for one in check_records(whole) if one.check == "promotions"], "pass", "moves, each follows")
    first = root / "promotions" / "000001.json"
    spoil(first)
    told([one for one in check_records(whole) if one.check == "promotions"], "fail", "promotions", "from a copy")


def test_a_history_and_a_store_that_do_not_know_each_other(whole: Deployment):
    shutil.rmtree(Path(whole.store) / "artifacts" / "moe_dataset")
    told(check_history(whole), "fail", "of the history are not in", "moe_dataset[", "`capibara run` makes")
    history = whole.home / "dagster" / "history"
    shutil.rmtree(whole.home / "dagster")
    told(check_history(whole), "fail", "dagster is missing", "back from a copy")
    with open_instance(whole):  # makes databases
        pass
    told(check_history(whole), "fail", "are not in Dagster's history, first: ace_playbooks[_]")
    (history / "runs" / "index.db").write_text("no database\n" * 999)
    told(check_history(whole), "fail", "not a database", "back from a copy")
    (history / "runs.db").unlink()
    told(check_history(whole), "fail", "runs.db is missing")
    shutil.rmtree(whole.store)
    told(check_history(whole), "fail", "not a database")


@pytest.mark.parametrize(
    ("free", "status"), [(health.LOWEST - 1, "fail"), (health.LOW - 1, "warn"), (health.LOW, "pass")]
)
def test_a_disk_that_is_nearly_full(free: int, status: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=free))
    told(check_disk(deployment(tmp_path)), status, "GiB free")


def test_keys_that_are_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("CAPIBARA_CHECKPOINT_KEY", "short")
    monkeypatch.setenv("CAPIBARA_VOTER_KEYS", str(tmp_path / "none"))
    told(check_keys(), "fail", "CAPIBARA_CHECKPOINT_KEY", "CAPIBARA_VOTER_KEYS")


def test_credentials_that_the_settings_need(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    told(check_credentials(deployment(tmp_path)), "pass", "none are needed")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json")
    told(check_credentials(deployment(tmp_path, CAPIBARA_STORE="gs://b/x")), "fail", "/nowhere/key.json", "gcloud auth")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    on_a_cluster = deployment(tmp_path, CAPIBARA_LAUNCHER="k8s")
    told(check_credentials(on_a_cluster), "fail", "CAPIBARA_IMAGE", "no cluster is configured here: set KUBECONFIG")


def test_a_port_that_somebody_holds(monkeypatch: pytest.MonkeyPatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr(health, "UI_PORT", taken.getsockname()[1])
        told(check_ui_port(), "warn", f"process {os.getpid()} listens there", "--port")


def test_tools_that_are_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    told(check_node(), "warn", "not on the PATH", "install Node.js")
    monkeypatch.setenv("CAPIBARA_SANDBOX", "moon")
    told(check_sandbox(), "fail", "'moon'", "CAPIBARA_SANDBOX")


def test_a_node_that_is_too_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    program = tmp_path / "node"
    program.write_text("#!/bin/sh\necho v18.19.0\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    told(check_node(), "warn", "v18.19.0", "install Node.js 20")
    program.write_text("#!/bin/sh\necho v20.1.0\n")
    told(check_node(), "pass", "v20.1.0 at")


def test_a_python_that_this_was_not_made_for(monkeypatch: pytest.MonkeyPatch):
    told(check_python(), "pass", sys.executable)
    monkeypatch.setattr(sys, "version", "3.9.2 (old)")
    told(check_python(), "fail", "3.9.2 is not <3.15,>=3.11", "make clean setup")


def test_the_driver_is_named(tmp_path: Path):
    file = tmp_path / "version"
    file.write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 07:13:37 UTC 2025\nGCC 12.2.0\n"
    )
    assert driver_here(file) == "driver 580.65.06"
    assert driver_here(tmp_path / "none") == "driver of unknown version"


def test_a_target_whose_chips_are_not_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(health, "version", lambda _: "0.0.51")
    slice_of = {"CAPIBARA_TARGET": "tpu-v5e-64"}
    told(check_libtpu(deployment(tmp_path, **slice_of), tmp_path), "fail", "no TPU is here", "--target")
    told(check_libtpu(deployment(tmp_path), tmp_path), "pass", "libtpu 0.0.51")
    (tmp_path / "accel0").touch()
    told(check_libtpu(deployment(tmp_path, **slice_of), tmp_path), "pass", "1 chips here")


def test_libtpu_is_needed_on_a_slice_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def missing(name: str) -> str:
        raise health.PackageNotFoundError(name)

    monkeypatch.setattr(health, "version", missing)
    told(check_libtpu(deployment(tmp_path)), "warn", "pip install 'capibara-assets[aot]'")
    told(check_libtpu(deployment(tmp_path, CAPIBARA_TARGET="tpu-v5e-64")), "fail", "the target is tpu-v5e-64")


def test_what_an_interrupted_writer_left(tmp_path: Path):
    here = deployment(tmp_path)
    left = Path(here.store) / "staging" / "x"
    left.mkdir(parents=True)
    told(check_leftovers(here), "pass")
    os.utime(left, (time.time() - 2 * health.STALE_S,) * 2)
    told(check_leftovers(here), "warn", "1 folders of interrupted writers", "clean_up")
    assert left.is_dir(), "a doctor removes nothing"


def test_a_job_whose_process_is_gone(tmp_path: Path):
    here = deployment(tmp_path)
    told(check_jobs(here), "pass", "none")
    jobs = Jobs(here.home)
    job = jobs.register("train", ["true"])
    file = jobs.folder / f"{job.id}.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"started": "2026-01-01T00:00:00+00:00"}))
    told(check_jobs(here), "warn", "1 lost", "capibara jobs ls")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def test_runs_that_do_not_end_and_a_queue_that_nobody_takes(instance: dg.DagsterInstance):
    told(check_runs(instance), "pass", "0 going on, 0 queued")

    @dg.job
    def work() -> None: ...

    instance.create_run_for_job(work, status=dg.DagsterRunStatus.STARTED)
    told(check_runs(instance), "pass", "1 going on")
    later = time.time() + health_of_results.STUCK_S + 3600
    told(check_runs(instance, now=later), "warn", "1 runs have not ended for up to 7 h", "dagster run delete")
    repository = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "repository")
    origin = RemoteJobOrigin(repository, "work")
    instance.create_run_for_job(work, status=dg.DagsterRunStatus.QUEUED, remote_job_origin=origin)
    told(check_runs(instance), "warn", "1 runs are queued, and no daemon runs", "start `capibara ui`")

"""Dagster's own clients of Kubernetes on the fake cluster: runs by the launcher of deploy/, and pods by Pipes."""

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.launcher.base import LaunchRunContext
from dagster._daemon.monitoring.run_monitoring import monitor_started_run

from capibara_assets_tests.cluster.fake.api import TOKEN, Api
from capibara_assets_tests.cluster.fake.cluster import Cluster
from capibara_assets_tests.cluster.launched import SECRET, SECRETS
from capibara_assets_tests.cluster.launched_job import BEGAN, ENDED, FOLDER, HOLD, launched_job, two_steps
from capibara_assets_tests.waiting import until

pytestmark = pytest.mark.extended  # what the fake cluster answers them has tests of its own: `test_fake_semantics.py`

INSTANCE = Path(__file__).resolve().parents[2] / "deploy" / "k8s" / "dagster.yaml"
LINES = 12
TALKS = f"""
import time
from dagster_pipes import open_dagster_pipes
with open_dagster_pipes() as pipes:
    for number in range({LINES}):
        pipes.log.info(f"message {{number}} of " + pipes.get_extra("of"))
        time.sleep(0.02)
    pipes.report_asset_materialization(metadata={{"lines": {LINES}}})
"""


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    (tmp_path / "pods").mkdir()
    settings = {"capibara-environment": {FOLDER: str(tmp_path)}}
    secrets = {**SECRETS, "capibara-postgres": {"postgresql-password": "unused"}}
    api = Api(Cluster(tmp_path / "pods", secrets=secrets, config_maps=settings))
    with api.serving(tmp_path / "kubeconfig"):
        yield api


class Runs:
    """Runs that the launcher of deploy/k8s/dagster.yaml starts, but for how it finds the cluster."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance):
        from dagster_k8s import K8sRunLauncher

        self.folder, self.instance = folder, instance
        self.launcher = instance.run_launcher
        assert isinstance(self.launcher, K8sRunLauncher)

    def launch(self, job: dg.JobDefinition = launched_job) -> str:
        origin = dg.reconstructable(job).get_python_origin()
        run = self.instance.create_run_for_job(job, job_code_origin=origin)
        self.launcher.launch_run(LaunchRunContext(run, None))
        return str(run.run_id)

    def status(self, run_id: str) -> dg.DagsterRunStatus:
        run = self.instance.get_run_by_id(run_id)
        assert run is not None
        return run.status

    def ended(self) -> list[str]:
        file = self.folder / ENDED
        return file.read_text().split() if file.exists() else []


@pytest.fixture
def runs(api: Api, tmp_path: Path) -> Iterator[Runs]:
    if not INSTANCE.is_file():
        pytest.skip("deploy/ travels with the repository, not with the wheel")
    (tmp_path / "dagster").mkdir()
    values = {"DAGSTER_K8S_NAMESPACE": "ml", "CAPIBARA_IMAGE": "registry.example/capibara:1"}
    launcher = yaml.safe_load(INSTANCE.read_text())["run_launcher"]
    for key, value in launcher["config"].items():
        if isinstance(value, dict) and set(value) == {"env"}:
            launcher["config"][key] = values[value["env"]]
    found = {"load_incluster_config": False, "kubeconfig_file": str(tmp_path / "kubeconfig")}
    launcher["config"] |= {**found, "dagster_home": str(tmp_path / "dagster")}
    with dg.DagsterInstance.local_temp(str(tmp_path / "dagster"), {"run_launcher": launcher}) as instance:
        yield Runs(tmp_path, instance)


def test_a_run_of_the_instance_in_deploy_is_a_job_with_its_settings_and_without_its_secrets(
    runs: Runs, api: Api
) -> None:
    run_id = runs.launch()
    until(lambda: runs.status(run_id).value in ("SUCCESS", "FAILURE"), 300.0)
    assert runs.status(run_id) is dg.DagsterRunStatus.SUCCESS and runs.ended() == ["True"]
    (job,) = api.cluster.made
    pod = job["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "capibara-runs" and job["spec"]["ttlSecondsAfterFinished"] > 0
    (container,) = pod["containers"]
    assert {"name": "work", "mountPath": "/mnt/capibara"}.items() <= container["volumeMounts"][-1].items()
    assert container["resources"]["limits"]["memory"] == "4Gi"
    said = json.dumps(api.cluster.made) + "\n".join(str(one) for one in runs.instance.all_logs(run_id))
    assert SECRET not in said and TOKEN not in said


def test_a_run_whose_node_is_lost_is_seen_to_have_failed_and_one_that_is_cancelled_leaves_nothing(
    runs: Runs, api: Api, tmp_path: Path
) -> None:
    (tmp_path / HOLD).touch()
    lost = runs.launch()
    until((tmp_path / BEGAN).exists, 300.0)
    (name,) = api.cluster.names()
    api.cluster.lose_node(name)
    until(lambda: not api.cluster.names(), 300.0)
    (record,) = runs.instance.get_run_records(dg.RunsFilter(run_ids=[lost]))
    api.trouble.of = lambda method, path, left=[503]: left.pop() if left else None  # type: ignore[misc]
    runs.instance._run_launcher = runs.launcher
    until(lambda: runs.launcher.check_run_worker_health(record.dagster_run).status.value == "FAILED", 300.0)
    monitor_started_run(runs.instance, None, record, logging.getLogger())  # type: ignore[arg-type]
    assert runs.status(lost) is dg.DagsterRunStatus.FAILURE and runs.ended() == []

    (tmp_path / BEGAN).unlink()
    cancelled = runs.launch()
    until((tmp_path / BEGAN).exists, 300.0)
    assert runs.launcher.terminate(cancelled)
    until(lambda: all(cancelled[:8] not in one for one in (*api.cluster.jobs, *api.cluster.pods)), 300.0)
    until(lambda: runs.status(cancelled) is dg.DagsterRunStatus.CANCELED, 300.0)
    assert runs.ended() == []


def test_steps_are_pods_of_their_own_with_their_resources_where_the_deployment_says_so(
    runs: Runs, api: Api, tmp_path: Path
) -> None:
    launcher = {"executor": "k8s", "steps": {"compares": {"cpu": "500m", "memory": "3Gi"}}}
    (tmp_path / "deployment.yaml").write_text(yaml.safe_dump({"launcher": launcher}))
    api.cluster.config_maps["capibara-environment"]["CAPIBARA_DEPLOYMENT"] = str(tmp_path / "deployment.yaml")
    run_id = runs.launch(two_steps)
    until(lambda: runs.status(run_id).value in ("SUCCESS", "FAILURE"), 300.0)
    said = "\n".join(str(one) for one in runs.instance.all_logs(run_id))
    assert runs.status(run_id) is dg.DagsterRunStatus.SUCCESS and runs.ended() == ["True"], said
    pods = {
        job["metadata"]["labels"].get("dagster/op", "the run"): job["spec"]["template"]["spec"]
        for job in api.cluster.made
    }
    assert set(pods) == {"the run", "measures", "compares"}
    resources = {name: pod["containers"][0]["resources"] for name, pod in pods.items()}
    assert resources["measures"] == resources["the run"]
    assert resources["compares"] == {"requests": {"cpu": "500m", "memory": "3Gi"}, "limits": {"memory": "3Gi"}}
    for pod in pods.values():
        assert pod["serviceAccountName"] == "capibara-runs"
        assert {"name": "work", "mountPath": "/mnt/capibara"}.items() <= pod["containers"][0]["volumeMounts"][
            -1
        ].items()
    assert SECRET not in json.dumps(api.cluster.made) + said and TOKEN not in said


def piped(api: Api, tmp_path: Path, program: str = TALKS) -> tuple[bool, str, list[Any]]:
    """Run a program in a pod by Dagster's Pipes client; whether it succeeded, the event log, materializations."""
    from dagster_k8s import PipesK8sClient

    client = PipesK8sClient(kubeconfig_file=str(tmp_path / "kubeconfig"), poll_interval=0.05)

    @dg.asset
    def talked(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        done = client.run(
            context=context,
            image="i",
            command=[sys.executable, "-c", program],
            namespace="ml",
            extras={"of": "the pod"},
            base_pod_spec={"termination_grace_period_seconds": 1},
        )
        return done.get_materialize_result()

    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([talked], instance=instance, raise_on_error=False)
        said = [record.user_message for record in instance.all_logs(result.run_id)]
        made = instance.fetch_materializations(dg.AssetKey("talked"), limit=10).records
    until(lambda: not api.cluster.pods, 300.0)
    return result.success, "\n".join(said), list(made)


@pytest.mark.parametrize("cuts", [0, 3])
def test_what_a_pod_tells_by_pipes_arrives_once_though_its_log_is_cut(api: Api, tmp_path: Path, cuts: int) -> None:
    left = [cuts]

    def of(method: str, path: str) -> str | None:
        if "follow=" in path and left[0]:
            left[0] -= 1
            return "cut"
        return None

    api.trouble.of = of
    succeeded, said, made = piped(api, tmp_path)
    assert succeeded and left == [0]
    assert [said.count(f"message {number} of the pod") for number in range(LINES)] == [1] * LINES
    (materialization,) = made
    assert materialization.asset_materialization.metadata["lines"].value == LINES

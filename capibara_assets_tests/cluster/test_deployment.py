"""The files in deploy/: Dagster, dagster-k8s and Kubernetes accept them."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from dagster._config import process_config, resolve_to_config_type
from dagster._core.instance.config import dagster_instance_config_schema

from capibara_assets.cli.graph.instance import POSTGRES_SCHEME
from capibara_assets.deployment.environment import Deployment
from capibara_assets.planning.hardware.targets import load_targets

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
if not DEPLOY.is_dir():
    pytest.skip("deploy/ travels with the repository, not with the wheel", allow_module_level=True)


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "k8s" / name).read_text()))


def resolved(value: Any) -> Any:
    """The document with every {env: NAME} replaced by a stand-in."""
    if isinstance(value, dict):
        return "stand-in" if set(value) == {"env"} else {key: resolved(item) for key, item in value.items()}
    return [resolved(item) for item in value] if isinstance(value, list) else value


def test_dagster_accepts_the_instance() -> None:
    document = resolved(documents("dagster.yaml")[0])
    result = process_config(resolve_to_config_type(dagster_instance_config_schema()), document)
    assert result.success, [error.message for error in result.errors or []]


def test_the_run_launcher_accepts_its_configuration() -> None:
    from dagster_k8s import K8sRunLauncher

    (document,) = documents("dagster.yaml")
    schema = resolve_to_config_type(K8sRunLauncher.config_type())
    result = process_config(schema, resolved(document["run_launcher"]["config"]))
    assert result.success, [error.message for error in result.errors or []]


def test_a_misspelt_setting_of_the_run_launcher_is_caught() -> None:
    from dagster_k8s import K8sRunLauncher

    (document,) = documents("dagster.yaml")
    wrong = resolved(document["run_launcher"]["config"]) | {"job_imagge": "x"}
    assert not process_config(resolve_to_config_type(K8sRunLauncher.config_type()), wrong).success


@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_kubernetes_accepts_every_object(version: str) -> None:
    objects = documents("cluster.yaml")
    assert {one["kind"] for one in objects} >= {"ConfigMap", "PersistentVolumeClaim", "Role", "RoleBinding"}
    for one in objects:
        kubernetes_validate.validate(one, version, strict=True)


def test_postgres_is_reached_by_the_driver_that_the_image_has() -> None:
    storage = documents("dagster.yaml")[0]["storage"]["postgres"]["postgres_db"]
    chart = documents("values.yaml")[0]["postgresql"]
    assert storage["scheme"] == chart["postgresqlScheme"] == POSTGRES_SCHEME


def test_the_settings_are_those_of_a_deployment() -> None:
    (environment,) = [one["data"] for one in documents("cluster.yaml") if one["kind"] == "ConfigMap"]
    deployment = Deployment.from_environment(environment)
    assert deployment.launcher.value == "k8s"
    assert deployment.target in load_targets() and deployment.tpu_target in load_targets()
    assert str(deployment.work).startswith("/mnt/capibara")
    assert len({deployment.image, deployment.gpu_image, deployment.tpu_image}) == 3


def test_everyone_mounts_the_same_claim_at_the_same_place() -> None:
    claims = [one["metadata"]["name"] for one in documents("cluster.yaml") if one["kind"] == "PersistentVolumeClaim"]
    launcher = documents("dagster.yaml")[0]["run_launcher"]["config"]
    (server,) = documents("values.yaml")[0]["dagster-user-deployments"]["deployments"]
    for volumes, mounts in (
        (launcher["volumes"], launcher["volume_mounts"]),
        (server["volumes"], server["volumeMounts"]),
    ):
        assert [volume["persistentVolumeClaim"]["claimName"] for volume in volumes] == claims
        assert [mount["mountPath"] for mount in mounts] == ["/mnt/capibara"]

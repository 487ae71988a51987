"""A training's Kubernetes objects, made without a cluster: the schemas', the client's types, and golden files."""

import copy
import json
from pathlib import Path
from typing import Any

import dagster as dg
import kubernetes_validate
import pytest
import yaml
from dagster_k8s.models import k8s_model_from_dict, k8s_snake_case_dict
from kubernetes.client import V1Job, V1JobSpec

from capibara_assets.deployment.environment import LaunchMode
from capibara_assets.errors import InputError
from capibara_assets.launching.launchers import Launcher
from capibara_assets.launching.manifests import SPEC_DIGEST, TrainingObjects, training_objects, with_variables
from capibara_assets.planning.hardware.targets import HardwareTarget, find_target, load_targets
from capibara_assets.planning.options import HardwareOptions, Option
from capibara_assets_tests.cluster.launched import request_in

IMAGE = "registry.example/capibara-assets:1.0"
WORK = Path("/mnt/capibara/work/trained_adapters/sql/d1ge5t")
GOLDEN = Path(__file__).parent / "golden"
ON_CLUSTER = [target for target in load_targets().values() if target.kubernetes is not None]
GOLDEN_CASES = {
    "one-node": ("h100-8", False, 1),
    "one-node-spot": ("h100-8", True, 1),
    "tpu-one-host": ("tpu-v5e-8", False, 1),
    "arm": ("axion-c4a-32", False, 1),
    "voters-apart": ("h100-16", False, 1),
    "voter-over-nodes": ("h100-16", True, 16),
}
"""Golden file -> target, spot, processes of a voter."""


def launcher(**settings: Any) -> Launcher:
    defaults: dict[str, Any] = {
        "mode": LaunchMode.K8S,
        "image": IMAGE,
        "volume_claim": "capibara-work",
        "volume_path": "/mnt/capibara",
        "secrets": ["capibara-credentials"],
        "service_account": "capibara-training",
        "priority_class": "trainings",
        "max_hours": 24.0,
    }
    return Launcher(**(defaults | settings))


def rendered(target: str, spot: bool = False, processes: int = 1, **settings: Any) -> TrainingObjects:
    made = launcher(**settings)
    return training_objects(
        request_in(WORK, processes), Option(find_target(target), spot), made._pods(), made.max_hours
    )


def objects(made: TrainingObjects) -> list[dict[str, Any]]:
    return [*made.trained, *([made.assembled] if made.assembled else [])]


def job_specs(body: dict[str, Any]) -> list[dict[str, Any]]:
    if body["kind"] == "Job":
        return [body["spec"]]
    return [one["template"]["spec"] for one in body["spec"]["replicatedJobs"]]


def pod_of(body: dict[str, Any]) -> dict[str, Any]:
    (spec,) = job_specs(body)
    return dict(spec["template"]["spec"])


@pytest.mark.parametrize("name", GOLDEN_CASES)
def test_what_is_made_for_each_kind_of_target_is_the_golden_file(name: str) -> None:
    """A change shows as a diff; `yaml.safe_dump_all(objects(...), sort_keys=False)` makes a file anew."""
    made = objects(rendered(*GOLDEN_CASES[name]))
    assert made == list(yaml.safe_load_all((GOLDEN / f"{name}.yaml").read_text()))


@pytest.mark.parametrize("target", [*ON_CLUSTER, find_target("h100-16")], ids=lambda target: target.name)
@pytest.mark.parametrize("spot", [False, True], ids=["on-demand", "spot"])
def test_every_object_has_only_fields_that_the_clients_types_have(target: HardwareTarget, spot: bool) -> None:
    processes = [1, target.chips] if target.kubernetes and target.kubernetes.nodes > 1 else [1]
    for body in [one for count in processes for one in objects(rendered(target.name, spot, count))]:
        for spec in job_specs(body):
            k8s_model_from_dict(V1JobSpec, k8s_snake_case_dict(V1JobSpec, copy.deepcopy(spec)))
        if body["kind"] == "Job":
            k8s_model_from_dict(V1Job, k8s_snake_case_dict(V1Job, copy.deepcopy(body)))


@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_kubernetes_schemas_accept_each_kind_of_job(version: str) -> None:
    for case in GOLDEN_CASES.values():
        for body in objects(rendered(*case)):
            for spec in job_specs(body):
                named = {"apiVersion": "batch/v1", "kind": "Job", "metadata": body["metadata"], "spec": spec}
                kubernetes_validate.validate(named, version, strict=True)


def test_a_misspelt_key_is_caught_by_schema_and_types() -> None:
    (body,) = rendered("h100-2").trained
    wrong = copy.deepcopy(body)
    pod = wrong["spec"]["template"]["spec"]
    pod["nodeSelektor"] = pod.pop("nodeSelector")
    with pytest.raises(kubernetes_validate.ValidationError, match="nodeSelektor"):
        kubernetes_validate.validate(wrong, "1.37", strict=True)
    with pytest.raises(Exception, match=r"(?i)node_?selektor"):
        k8s_model_from_dict(V1Job, k8s_snake_case_dict(V1Job, wrong))


@pytest.mark.parametrize("name", GOLDEN_CASES)
def test_every_pod_is_confined(name: str) -> None:
    for body in objects(rendered(*GOLDEN_CASES[name])):
        pod = pod_of(body)
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0
        assert pod["automountServiceAccountToken"] is False and pod["serviceAccountName"] == "capibara-training"
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        writable = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert writable <= {"/tmp", "/dev/shm", "/mnt/capibara"} and "/tmp" in writable
        assert pod["terminationGracePeriodSeconds"] > launcher().grace_seconds
        assert "hostPath" not in json.dumps(pod) and "privileged" not in json.dumps(pod)


def test_a_preemption_starts_another_pod_on_the_last_target_alone() -> None:
    for last, action in ((True, "Ignore"), (False, "FailJob")):
        option = Option(find_target("h100-8"), spot=True)
        (body,) = training_objects(request_in(WORK), option, launcher()._pods(), last=last).trained
        final, disrupted = body["spec"]["podFailurePolicy"]["rules"]
        assert disrupted == {"action": action, "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
        assert final["action"] == "FailJob" and final["onExitCodes"]["values"] == [1, 2]
        assert body["spec"]["podReplacementPolicy"] == "Failed"  # two pods never write to one folder


def test_voters_that_fit_a_node_train_side_by_side_on_several() -> None:
    made = rendered("h100-16")
    assert [pod_of(body)["containers"][0]["command"][-2:] for body in made.trained] == [
        ["--voter", f"voter-{number}"] for number in range(4)
    ]
    assert made.assembled is not None
    assembly = pod_of(made.assembled)["containers"][0]
    assert assembly["command"][-1] == "--assemble" and "nvidia.com/gpu" not in assembly["resources"]["limits"]


def test_the_same_launch_has_the_same_digest_whatever_run_it_belongs_to() -> None:
    (one,), (other,) = (
        rendered("h100-8").trained,
        rendered("h100-8", image="registry.example/capibara-assets:2").trained,
    )
    assert one["metadata"]["name"] == other["metadata"]["name"]
    assert one["metadata"]["annotations"][SPEC_DIGEST] != other["metadata"]["annotations"][SPEC_DIGEST]
    told = with_variables(one, {"DAGSTER_PIPES_CONTEXT": "of this run"})
    assert told["metadata"]["annotations"] == one["metadata"]["annotations"]
    (container,) = pod_of(told)["containers"]
    assert container["env"][-1] == {"name": "DAGSTER_PIPES_CONTEXT", "value": "of this run"}
    assert "DAGSTER_PIPES_CONTEXT" not in json.dumps(one)


def test_pods_take_the_image_of_their_hardware() -> None:
    own = {"gpu_image": "registry.example/gpu:1", "tpu_image": "registry.example/tpu:1"}

    def images(target: str) -> list[str]:
        return [pod_of(body)["containers"][0]["image"] for body in objects(rendered(target, **own))]

    assert set(images("h100-8")) == {own["gpu_image"]} and set(images("tpu-v5e-8")) == {own["tpu_image"]}
    assert set(images("axion-c4a-32")) == {IMAGE}
    *voters, assembly = images("h100-16")
    assert set(voters) == {own["gpu_image"]} and assembly == IMAGE  # it has no devices


def test_a_target_is_rendered_from_a_requests_file(tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_text(request_in(WORK).model_dump_json())
    made = launcher().render(file, find_target("h100-16"), spot=True)
    assert made == objects(rendered("h100-16", spot=True))
    with pytest.raises(InputError, match="tpu-v5e-64 is 16 hosts"):
        launcher().render(file, find_target("tpu-v5e-64"))


def test_a_laptop_is_no_place_for_a_pod() -> None:
    with pytest.raises(InputError, match="cpu-laptop declares no `kubernetes` section"):
        rendered("cpu-laptop")


def options(name: str) -> HardwareOptions:
    return HardwareOptions((Option(find_target(name)),))


def test_cluster_mode_names_the_settings_it_lacks(tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_text("{}")
    with pytest.raises(InputError, match=r"needs image, volume_claim, volume_path.*CAPIBARA_IMAGE"):
        Launcher(mode=LaunchMode.K8S).run(dg.build_asset_context(), file, options("h100-2"))


def test_cluster_mode_refuses_a_request_that_the_pod_could_not_read(tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_text("{}")
    with pytest.raises(InputError, match="put the work directory on that volume"):
        launcher().run(dg.build_asset_context(), file, options("h100-2"))

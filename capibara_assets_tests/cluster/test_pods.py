"""Training pods, rendered without a cluster and held against the Kubernetes schemas."""

import copy
from pathlib import Path
from typing import Any

import dagster as dg
import kubernetes_validate
import pytest

from capibara_assets.deployment.environment import LaunchMode
from capibara_assets.errors import InputError
from capibara_assets.launching.launchers import Launcher
from capibara_assets.planning.hardware.targets import HardwareTarget, find_target, load_targets

IMAGE = "registry.example/capibara-assets:1.0"
REQUEST = "/mnt/capibara/work/request.json"
ON_CLUSTER = [target for target in load_targets().values() if target.kubernetes is not None]


def launcher(**settings: Any) -> Launcher:
    defaults: dict[str, Any] = {
        "mode": LaunchMode.K8S,
        "image": IMAGE,
        "volume_claim": "capibara",
        "volume_path": "/mnt/capibara",
        "secrets": ["hugging-face"],
        "service_account": "capibara-training",
    }
    return Launcher(**(defaults | settings))


@pytest.mark.parametrize("target", ON_CLUSTER, ids=lambda target: target.name)
@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_every_target_renders_a_pod_that_kubernetes_accepts(target: HardwareTarget, version: str) -> None:
    kubernetes_validate.validate(launcher().render_pod(target, IMAGE, REQUEST), version, strict=True)


def test_the_pod_asks_for_the_targets_hardware() -> None:
    pod = launcher().render_pod(find_target("h100-8"), IMAGE, REQUEST)["spec"]
    (container,) = pod["containers"]
    assert container["image"] == IMAGE
    assert container["command"] == ["python", "-m", "capibara_assets.training", "--request", REQUEST]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    assert pod["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert {volume["name"] for volume in pod["volumes"]} == {"shared-memory", "work"}
    assert container["envFrom"] == [{"secretRef": {"name": "hugging-face"}}]
    assert pod["restartPolicy"] == "Never"


def test_arm_nodes_are_selected_and_tolerated() -> None:
    pod = launcher().render_pod(find_target("axion-c4a-32"), IMAGE, REQUEST)["spec"]
    assert pod["nodeSelector"]["kubernetes.io/arch"] == "arm64"
    assert pod["tolerations"] == [
        {"key": "kubernetes.io/arch", "operator": "Equal", "value": "arm64", "effect": "NoSchedule"}
    ]


def test_the_grace_period_leaves_time_to_save() -> None:
    pod = launcher(grace_seconds=45.0).render_pod(find_target("h100-2"), IMAGE, REQUEST)["spec"]
    assert pod["terminationGracePeriodSeconds"] > 45


def test_a_misspelt_key_is_caught_by_the_schema() -> None:
    pod = launcher().render_pod(find_target("h100-2"), IMAGE, REQUEST)
    wrong = copy.deepcopy(pod)
    wrong["spec"]["nodeSelektor"] = wrong["spec"].pop("nodeSelector")
    with pytest.raises(kubernetes_validate.ValidationError, match="nodeSelektor"):
        kubernetes_validate.validate(wrong, "1.37", strict=True)


def test_a_misspelt_key_does_not_even_render(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Launcher.pod_spec
    monkeypatch.setattr(Launcher, "pod_spec", lambda self, target: {**original(self, target), "node_selektor": {}})
    with pytest.raises(Exception, match="node_selektor"):
        launcher().render_pod(find_target("h100-2"), IMAGE, REQUEST)


def test_a_laptop_is_no_place_for_a_pod() -> None:
    with pytest.raises(InputError, match="cpu-laptop declares no `kubernetes` section"):
        launcher().render_pod(find_target("cpu-laptop"), IMAGE, REQUEST)


def test_cluster_mode_names_the_settings_it_lacks(tmp_path: Path) -> None:
    request = tmp_path / "request.json"
    request.write_text("{}")
    with pytest.raises(InputError, match="needs image, volume_claim, volume_path"):
        Launcher(mode=LaunchMode.K8S).run(dg.build_asset_context(), request, find_target("h100-2"))


def test_cluster_mode_refuses_a_request_that_the_pod_could_not_read(tmp_path: Path) -> None:
    request = tmp_path / "request.json"
    request.write_text("{}")
    with pytest.raises(InputError, match="put the work directory on that volume"):
        launcher().run(dg.build_asset_context(), request, find_target("h100-2"))


def test_a_pods_name_is_known_to_the_jobs_and_its_progress_seen_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    from dagster_k8s.pipes import PipesK8sPodLogsMessageReader

    from capibara_assets.launching.pods import LivePodReader
    from capibara_assets.training.supervisor.reporting import PROGRESS

    seen: list[dict[str, Any]] = []
    monkeypatch.setattr("capibara_assets.launching.live.observe", lambda context, progress: seen.append(progress))
    handed_on: list[dict[str, Any]] = []

    class Handler:
        def handle_message(self, message: dict[str, Any]) -> None:
            handed_on.append(message)

    def logs(self: Any, **_: Any) -> None:  # what the parent reads from the cluster
        for payload in ({"kind": PROGRESS, "domain": "sql", "voters": []}, "other"):
            self._handler.handle_message({"method": "report_custom_message", "params": {"payload": payload}})

    monkeypatch.setattr(PipesK8sPodLogsMessageReader, "consume_pod_logs", logs)
    started: list[tuple[str, str]] = []
    reader = LivePodReader(None, lambda pod, namespace: started.append((pod, namespace)))
    with reader.read_messages(Handler()):
        reader.consume_pod_logs(context=None, core_api=None, pod_name="train-1", namespace="ml")
    assert started == [("train-1", "ml")]
    assert [one["domain"] for one in seen] == ["sql"]
    assert [message["params"]["payload"] for message in handed_on] == ["other"]

"""The compute resource for training: starts a local process group or a Kubernetes pod, through Dagster Pipes."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.errors import DagsterPipesExecutionError
from pydantic import Field

from capibara_assets.deployment.environment import Deployment, LaunchMode
from capibara_assets.errors import InputError
from capibara_assets.processes import groups as process_groups

if TYPE_CHECKING:
    from capibara_assets.planning.hardware.targets import HardwareTarget
    from capibara_assets.processes.background import Jobs

TRAINING_MODULE = "capibara_assets.training"


class Launcher(dg.ConfigurableResource[Any]):  # type: ignore[misc]  # dagster is untyped here
    """Starts `python -m capibara_assets.training --request FILE` and streams its Pipes messages into the run.

    Interrupting the run ends the training process and everything it started: SIGINT, `grace_seconds` to save, SIGKILL.
    """

    mode: LaunchMode = Field(default=LaunchMode.LOCAL, description="local: a process group on this machine; k8s: a pod")
    grace_seconds: float = Field(default=20.0, description="time to save work between the signal and the kill")
    environment: dict[str, str] = Field(default_factory=dict, description="variables set for the training process")
    image: str = Field(default="", description="k8s: container image with capibara-assets installed")
    namespace: str = Field(default="", description="k8s: namespace; empty for the current one")
    service_account: str = Field(default="", description="k8s: service account of the pod")
    secrets: list[str] = Field(default_factory=list, description="k8s: secrets whose keys become variables")
    volume_claim: str = Field(default="", description="k8s: volume claim that holds requests, inputs and work")
    volume_path: str = Field(default="", description="k8s: where the claim is mounted, here and in the pod alike")
    max_hours: float = Field(default=24.0, description="k8s: the pod is ended after so long")

    def run(
        self,
        context: dg.AssetExecutionContext | dg.OpExecutionContext,
        request: Path,
        target: "HardwareTarget",
        extras: Mapping[str, Any] | None = None,
    ) -> dg.PipesClientCompletedInvocation:
        """Run a training to its end and return what the process reported.

        Args:
            context: of the running asset or op.
            request: file with the training request (JSON).
            target: the hardware to train on.
            extras: values handed to the process through Pipes.

        Raises:
            InputError: the request is missing, or the target cannot be used in this mode.
            DagsterPipesExecutionError: the process failed.
        """
        if not request.is_file():
            raise InputError(f"no training request at {request}")
        check_reachable(target, self.mode)
        if self.mode is LaunchMode.LOCAL:
            from capibara_assets.processes.background import Jobs

            command = [sys.executable, "-m", TRAINING_MODULE, "--request", str(request)]
            environment = {**os.environ, **self.environment}
            jobs = Jobs(Deployment.from_environment().home)
            return run_locally(context, command, extras or {}, environment, self.grace_seconds, jobs)
        return self._run_in_pod(context, request, target, extras or {})

    def _run_in_pod(
        self,
        context: dg.AssetExecutionContext | dg.OpExecutionContext,
        request: Path,
        target: "HardwareTarget",
        extras: Mapping[str, Any],
    ) -> dg.PipesClientCompletedInvocation:
        self._check_cluster_settings(request)
        from dagster_k8s import PipesK8sClient

        from capibara_assets.launching.pods import LivePodReader

        command = training_command(str(request))
        from capibara_assets.launching.registration import registered
        from capibara_assets.processes.background import Jobs, Pod

        with registered(context, Jobs(Deployment.from_environment().home), command) as job:
            reader = LivePodReader(context, lambda pod, namespace: job.begin(pod=Pod(pod, namespace)))
            done = PipesK8sClient(message_reader=reader).run(
                context=context,
                extras=dict(extras),
                image=self.image,
                command=command,
                namespace=self.namespace or None,
                env=self.environment,
                base_pod_meta=self._pod_metadata(target),
                base_pod_spec=self.pod_spec(target),
                pod_wait_timeout=self.max_hours * 3600,
            )
            job.end(0)
        return done

    def _check_cluster_settings(self, request: Path) -> None:
        missing = [name for name in ("image", "volume_claim", "volume_path") if not getattr(self, name)]
        if missing:
            raise InputError(f"launcher mode k8s needs {', '.join(missing)}: set them on the launcher resource")
        if not request.resolve().is_relative_to(Path(self.volume_path).resolve()):
            raise InputError(
                f"launcher mode k8s: the pod sees {self.volume_path} (claim {self.volume_claim}) only, the training"
                f" request is {request}: put the work directory on that volume"
            )

    def render_pod(self, target: "HardwareTarget", image: str, request_uri: str) -> dict[str, Any]:
        """The pod that k8s mode would start, as a Kubernetes object, without a cluster.

        Raises:
            InputError: the target has no Kubernetes declaration.
            Exception: an unknown key in the pod's specification (from dagster-k8s, which names it).
        """
        import kubernetes
        from dagster_k8s.pipes import build_pod_body

        body = build_pod_body(
            pod_name=f"capibara-training-{target.name}",
            image=image,
            command=training_command(request_uri),
            env_vars=self.environment,
            base_pod_meta=self._pod_metadata(target),
            base_pod_spec=self.pod_spec(target),
        )
        pod: dict[str, Any] = kubernetes.client.ApiClient().sanitize_for_serialization(body)
        return {"apiVersion": "v1", "kind": "Pod", **pod}

    def _pod_metadata(self, target: "HardwareTarget") -> dict[str, Any]:
        return {"labels": {"app.kubernetes.io/component": "training", "capibara/target": target.name}}

    def pod_spec(self, target: "HardwareTarget") -> dict[str, Any]:
        """The pod's specification for a target: node selector, limits, tolerations, volumes.

        Raises:
            InputError: the target has no Kubernetes declaration.
        """
        if target.kubernetes is None:
            raise InputError(f"hardware target {target.name} declares no `kubernetes` section: no pod can reach it")
        volumes, mounts = self._volumes(target)
        container: dict[str, Any] = {
            "name": "training",
            "resources": {"limits": dict(target.kubernetes.limits), "requests": dict(target.kubernetes.limits)},
            "env_from": [{"secret_ref": {"name": secret}} for secret in self.secrets],
            "volume_mounts": mounts,
        }
        spec: dict[str, Any] = {
            "containers": [container],
            "restart_policy": "Never",
            "node_selector": dict(target.kubernetes.node_selector),
            "tolerations": [one.model_dump(exclude_none=True) for one in target.kubernetes.tolerations],
            "volumes": volumes,
            "termination_grace_period_seconds": round(self.grace_seconds) + 10,
            "active_deadline_seconds": round(self.max_hours * 3600),
        }
        if self.service_account:
            spec["service_account_name"] = self.service_account
        return spec

    def _volumes(self, target: "HardwareTarget") -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        volumes: list[dict[str, Any]] = []
        mounts: list[dict[str, Any]] = []
        if target.kind == "gpu":
            # NCCL's processes share memory; a pod's default /dev/shm is 64 MiB.
            volumes.append({"name": "shared-memory", "empty_dir": {"medium": "Memory", "size_limit": "16Gi"}})
            mounts.append({"name": "shared-memory", "mount_path": "/dev/shm"})
        if self.volume_claim:
            volumes.append({"name": "work", "persistent_volume_claim": {"claim_name": self.volume_claim}})
            mounts.append({"name": "work", "mount_path": self.volume_path})
        return volumes, mounts


def check_reachable(target: "HardwareTarget", mode: LaunchMode) -> None:
    """Refuse a TPU slice of several hosts in a cluster, each of which has to run the trainer.

    Raises:
        InputError: such a slice; names the files of `tpu_config` that start it.
    """
    nodes = target.kubernetes.nodes if target.kubernetes else 1
    if target.kind == "tpu" and mode is LaunchMode.K8S and nodes > 1:
        raise InputError(
            f"{target.name} is {nodes} hosts, and the launcher starts one pod: take a slice of one host"
            f" ({target.family}-8 or smaller), or start the slice with the gke.yaml or queued_resource.sh of tpu_config"
        )


def training_command(request: str) -> list[str]:
    """The training process's command line inside a container."""
    return ["python", "-m", TRAINING_MODULE, "--request", request]


def run_locally(
    context: dg.AssetExecutionContext | dg.OpExecutionContext,
    command: list[str],
    extras: Mapping[str, Any],
    environment: Mapping[str, str],
    grace_s: float,
    jobs: "Jobs | None" = None,
) -> dg.PipesClientCompletedInvocation:
    """Run a command in a process group of its own, with a Pipes session around it.

    Dagster's own subprocess client signals only the direct child and leaves it running when it does not end in time;
    here the whole group is gone when this returns or raises. Messages arrive while the process runs; its output goes
    to the step's compute logs.

    Args:
        jobs: registry in which `capibara jobs` finds the process; None: it is not recorded.

    Raises:
        DagsterPipesExecutionError: the process failed.
    """
    from capibara_assets.launching.live import LiveFileReader
    from capibara_assets.launching.registration import registered

    session_context = dg.open_pipes_session(
        context=context,
        extras=dict(extras),
        context_injector=dg.PipesTempFileContextInjector(),
        message_reader=LiveFileReader(context),
    )
    with session_context as session, registered(context, jobs, command) as job:
        child_environment = {**environment, **job.variables, **session.get_bootstrap_env_vars()}
        with process_groups.process_group(command, env=child_environment, grace_s=grace_s) as process:
            job.begin(pid=process.pid)
            try:
                process_groups.wait(process)
            except BaseException:
                context.log.info(f"interrupted: training process group {process.pid} has {grace_s:g} s to save and end")
                raise
        job.end(process.returncode)
        if process.returncode != 0:
            raise DagsterPipesExecutionError(f"training process ended with {process.returncode}: {' '.join(command)}")
    return dg.PipesClientCompletedInvocation(session)

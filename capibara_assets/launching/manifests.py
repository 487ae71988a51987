"""Kubernetes objects of a training: a Job, a Job per voter, or a JobSet, depending on the target."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from math import ceil
from pathlib import Path
from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.planning.options import Option
from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.training.plan.machine import RENDEZVOUS_PORT
from capibara_assets.training.request import TrainingRequest

TRAINING_MODULE = "capibara_assets.training"
CONTAINER = "training"
SPEC_DIGEST = "capibara/spec"
"""Annotation with the digest of what an object was made from: the same name and digest are the same launch."""
DISRUPTED = "DisruptionTarget"
"""Condition of a pod that was evicted, preempted, or whose node went away."""

_USER = 1000  # of the image
_SCRATCH = "/tmp"
_MARGIN_S = 10  # between the process's own grace period and the pod's
_KEPT_S = 3600  # a finished job that nobody deleted, because its launcher died, is removed by Kubernetes
_CRASHES = 3  # of a pod that nothing explains: of the node, or for want of memory
_FINAL_CODES = [1, 2]  # too few voters, bad input: another attempt would end alike
_SPOT = "cloud.google.com/gke-spot"
_EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_NODE_POOL = "cloud.google.com/gke-nodepool"
_ASSEMBLY = {"cpu": "2", "memory": "8Gi"}


@dataclass(frozen=True)
class PodSettings:
    """Common settings of a deployment's training pods.

    Attributes:
        images: kind of hardware -> image of the pods on it, where `image` is not meant for it.
        environment: variables of the training process; no secrets, which come by `secrets`.
        secrets: names of secrets whose keys become variables.
        volume_claim, volume_path: the shared volume, mounted in the same place as here.
    """

    image: str
    images: Mapping[str, str] = field(default_factory=dict)
    service_account: str = ""
    secrets: tuple[str, ...] = ()
    volume_claim: str = ""
    volume_path: str = ""
    priority_class: str = ""
    grace_seconds: float = 20.0
    start_minutes: float = 30.0
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainingObjects:
    """The objects of one training: those that train side by side, and the one that puts the voters together after."""

    trained: tuple[dict[str, Any], ...]
    assembled: dict[str, Any] | None = None


def training_objects(
    request: TrainingRequest, option: Option, pods: PodSettings, hours: float | None = None, *, last: bool = True
) -> TrainingObjects:
    """The objects that train a request on a target.

    On one node a Job runs the supervisor. On several each voter has a Job of its own and all train at a time; where
    one voter takes several nodes, a JobSet runs the request's launch script on all of them.

    Args:
        hours: after which it is ended; None: never.
        last: a preempted pod starts again on this target; else the job fails, and another target is tried.

    Raises:
        InputError: the target has no Kubernetes declaration.
    """
    kubernetes = option.target.kubernetes
    if kubernetes is None:
        raise InputError(f"hardware target {option.target.name} declares no `kubernetes` section: no pod can reach it")
    name, file = object_name(request), str(request.work / "request.json")
    make = _Maker(request.domain, option, pods, hours, last)
    if kubernetes.nodes == 1:
        return TrainingObjects((make.job(name, training_command(file)),))
    on_a_node = option.target.chips // kubernetes.nodes
    if (processes := request.recipe.hardware.processes) > on_a_node:
        return TrainingObjects((make.torch_set(name, request, ceil(processes / on_a_node)),))
    voters = [voter.name for voter in request.recipe.voters]
    jobs = [
        make.job(_suffixed(name, f"{number}-{voter}"), [*training_command(file), "--voter", voter])
        for number, voter in enumerate(voters)
    ]
    assembly = make.job(_suffixed(name, "assemble"), [*training_command(file), "--assemble"], computing=False)
    return TrainingObjects(tuple(jobs), assembly)


def slice_object(
    name: str, domain: str, command: list[str], option: Option, pods: PodSettings, hours: float | None = None
) -> dict[str, Any]:
    """The JobSet that runs a command on every host of a TPU slice: one pod a host, all on the slice's own nodes.

    A host that is lost ends the whole attempt, and the set starts all of them again: a slice computes as one.

    Raises:
        InputError: the target is no TPU slice, or has no Kubernetes declaration.
    """
    target = option.target
    if target.kind != "tpu" or target.kubernetes is None:
        raise InputError(f"{target.name} is no TPU slice that pods can reach: name one that Kubernetes Engine has")
    make = _Maker(domain, option, pods, hours, last=True)
    return make.jobset(name, "slice", command, {}, target.kubernetes.nodes, topology=True)


def training_command(request: str) -> list[str]:
    """The training process's command line inside a container."""
    return ["python", "-m", TRAINING_MODULE, "--request", request]


def object_name(request: TrainingRequest) -> str:
    """The name of a request's objects: the same for the same folder of work, which two launches must not share."""
    return name_of(request.domain, request.work)


def name_of(domain: str, folder: Path) -> str:
    """The object's name, derived from its work folder."""
    digest = sha256(str(folder).encode()).hexdigest()[:10]
    return f"capibara-{_plain(domain)[:24]}-{digest}"


def with_variables(body: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """Copy of an object with additional variables in its training container; its digest is unchanged."""

    def put(node: Any) -> Any:
        if isinstance(node, Mapping):
            copied = {key: put(value) for key, value in node.items()}
            if copied.get("name") == CONTAINER and "command" in copied:
                copied["env"] = [*copied["env"], *({"name": key, "value": value} for key, value in variables.items())]
            return copied
        return [put(one) for one in node] if isinstance(node, list) else node

    changed: dict[str, Any] = put(body)
    return changed


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _suffixed(name: str, suffix: str) -> str:
    return f"{name}-{_plain(suffix)[:18].strip('-')}"


@dataclass(frozen=True)
class _Maker:
    """Makes the objects of one request on one target."""

    domain: str
    option: Option
    pods: PodSettings
    hours: float | None
    last: bool

    def job(self, name: str, command: list[str], *, computing: bool = True) -> dict[str, Any]:
        """A Job of one pod; `computing`: on the target's devices."""
        return self._object("batch/v1", "Job", name, self._job_spec(command, computing=computing))

    def torch_set(self, name: str, request: TrainingRequest, nodes: int) -> dict[str, Any]:
        """A JobSet whose pods, one a node, run the launch script and find the first of them by its name."""
        script = str(request.work / "launch" / "launch.sh")
        variables = {
            "NNODES": str(nodes),
            "NPROC_PER_NODE": str(request.recipe.hardware.processes // nodes),
            "MASTER_ADDR": f"{name}-nodes-0-0.{name}",
            "MASTER_PORT": str(RENDEZVOUS_PORT),
        }
        return self.jobset(name, "nodes", ["bash", script, str(request.work / "request.json")], variables, nodes)

    def jobset(
        self,
        name: str,
        job: str,
        command: list[str],
        variables: Mapping[str, str],
        nodes: int,
        *,
        topology: bool = False,
    ) -> dict[str, Any]:
        """A JobSet of one job whose pods run a command on a node each.

        Args:
            topology: the job has a node pool to itself, as a TPU slice is one.
        """
        # The others cannot go on without a lost one: its job fails, and the set starts all of them again.
        alone = replace(self, last=False)
        spec = alone._job_spec(command, variables) | {
            "completionMode": "Indexed",
            "completions": nodes,
            "parallelism": nodes,
            "backoffLimit": 0,
        }
        del spec["ttlSecondsAfterFinished"]  # the set's own holds
        index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
        (container,) = spec["template"]["spec"]["containers"]
        container["env"].append({"name": "NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": index}}})
        body = {
            "network": {"enableDNSHostnames": True, "subdomain": name},
            "failurePolicy": {"maxRestarts": _CRASHES if self.last else 0},
            "replicatedJobs": [{"name": job, "replicas": 1, "template": {"spec": spec}}],
            "ttlSecondsAfterFinished": _KEPT_S,
        }
        annotations = {_EXCLUSIVE: _NODE_POOL} if topology else {}
        return self._object("jobset.x-k8s.io/v1alpha2", "JobSet", name, body, annotations)

    def _object(
        self, version: str, kind: str, name: str, spec: dict[str, Any], annotations: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": self._labels()}, "spec": spec}
        digest = sha256_bytes(canonical_json(body))
        body["metadata"]["annotations"] = {**(annotations or {}), SPEC_DIGEST: digest}  # type: ignore[index]
        return body

    def _labels(self) -> dict[str, str]:
        return {
            "app.kubernetes.io/name": "capibara-assets",
            "app.kubernetes.io/component": "training",
            "capibara/domain": _plain(self.domain),
            "capibara/target": self.option.target.name,
        }

    def _job_spec(
        self, command: list[str], variables: Mapping[str, str] | None = None, *, computing: bool = True
    ) -> dict[str, Any]:
        """A job's specification.

        Another attempt after a preemption is Kubernetes' own, once the pod before has ended: two must not write to one
        folder of work. Where another target can go on, the first preemption ends the job instead.
        """
        rules = [
            {
                "action": "FailJob",
                "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": _FINAL_CODES},
            },
            {
                "action": "Ignore" if self.last else "FailJob",
                "onPodConditions": [{"type": DISRUPTED, "status": "True"}],
            },
        ]
        spec: dict[str, Any] = {
            "backoffLimit": _CRASHES,
            "podFailurePolicy": {"rules": rules},
            "podReplacementPolicy": "Failed",
            "ttlSecondsAfterFinished": _KEPT_S,
            "template": {
                "metadata": {"labels": self._labels()},
                "spec": self._pod_spec(command, variables or {}, computing),
            },
        }
        if self.hours is not None:  # the launcher counts from the pod's start; this holds where the launcher is gone
            spec["activeDeadlineSeconds"] = round(self.hours * 3600 + self.pods.start_minutes * 60)
        return spec

    def _pod_spec(self, command: list[str], variables: Mapping[str, str], computing: bool) -> dict[str, Any]:
        pods, kubernetes = self.pods, self.option.target.kubernetes
        assert kubernetes is not None  # `training_objects` refuses it
        limits = dict(kubernetes.limits) if computing else _ASSEMBLY
        image = (pods.images.get(self.option.target.kind) if computing else None) or pods.image
        volumes, mounts = self._volumes()
        environment = {"HOME": _SCRATCH, **pods.environment, **variables}
        container: dict[str, Any] = {
            "name": CONTAINER,
            "image": image,
            "command": command,
            "env": [{"name": key, "value": value} for key, value in environment.items()],
            "envFrom": [{"secretRef": {"name": secret}} for secret in pods.secrets],
            "resources": {"limits": limits, "requests": limits},
            "volumeMounts": mounts,
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
        }
        spec: dict[str, Any] = {
            "restartPolicy": "Never",
            "containers": [container],
            "volumes": volumes,
            "terminationGracePeriodSeconds": round(pods.grace_seconds) + _MARGIN_S,
            "automountServiceAccountToken": False,  # it asks nothing of Kubernetes; buckets go by workload identity
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": _USER,
                "runAsGroup": _USER,
                "fsGroup": _USER,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
        }
        if computing:
            spec |= self._placement()
        if pods.service_account:
            spec["serviceAccountName"] = pods.service_account
        if pods.priority_class:
            spec["priorityClassName"] = pods.priority_class
        return spec

    def _placement(self) -> dict[str, Any]:
        """Where it may run: the target's nodes, of which spot nodes have a label and a taint of their own."""
        kubernetes = self.option.target.kubernetes
        assert kubernetes is not None
        selector = dict(kubernetes.node_selector)
        tolerations = [one.model_dump(exclude_none=True) for one in kubernetes.tolerations]
        if self.option.spot:
            selector[_SPOT] = "true"
            tolerations.append({"key": _SPOT, "operator": "Equal", "value": "true", "effect": "NoSchedule"})
        return {"nodeSelector": selector, "tolerations": tolerations}

    def _volumes(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        volumes: list[dict[str, Any]] = [{"name": "scratch", "emptyDir": {}}]
        mounts: list[dict[str, Any]] = [{"name": "scratch", "mountPath": _SCRATCH}]
        if self.option.target.kind == "gpu":
            # NCCL's processes share memory; a pod's default /dev/shm is 64 MiB.
            volumes.append({"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}})
            mounts.append({"name": "shared-memory", "mountPath": "/dev/shm"})
        if self.pods.volume_claim:
            volumes.append({"name": "work", "persistentVolumeClaim": {"claimName": self.pods.volume_claim}})
            mounts.append({"name": "work", "mountPath": self.pods.volume_path})
        return volumes, mounts

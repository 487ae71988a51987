"""Launch scripts for a TPU plan's job: queued resources, GKE, Vertex AI and XManager.

`run.sh` starts each trainer; every launcher copies it and the plan's files to each host and runs it there. Projects,
zones and images belong to the deployment: they are environment variables, or those
of the deployment when the files were written; a script exits naming one that is unset.
"""

import re
from typing import Any, Literal, NamedTuple

import yaml
from pydantic import Field

from capibara_assets.deployment.declarations import Declared
from capibara_assets.errors import InputError
from capibara_assets.planning.hardware.targets import HardwareTarget
from capibara_assets.planning.writers.templates import rendered

Trainer = Literal["jax", "maxtext", "t5x"]
CONFIGURATIONS: dict[Trainer, str] = {"jax": "jax.yaml", "maxtext": "maxtext.yml", "t5x": "t5x.gin"}
RUN, QUEUED, GKE, VERTEX, XMANAGER = "run.sh", "queued_resource.sh", "gke.yaml", "vertex.yaml", "xmanager_launch.py"
IMAGE = "REGION-docker.pkg.dev/PROJECT/capibara/tpu:latest"
# Images of TPU VMs, https://docs.cloud.google.com/tpu/docs/runtimes (read 2026-11).
RUNTIMES = {
    "tpu-v2": "tpu-ubuntu2204-base",
    "tpu-v3": "tpu-ubuntu2204-base",
    "tpu-v4": "tpu-ubuntu2204-base",
    "tpu-v5e": "v2-alpha-tpuv5-lite",
    "tpu-v5p": "v2-alpha-tpuv5",
    "tpu-v6e": "v2-alpha-tpuv6e",
}
# https://docs.cloud.google.com/vertex-ai/docs/training/training-with-tpu-vm (read 2026-11).
VERTEX_FAMILIES = frozenset({"tpu-v2", "tpu-v3", "tpu-v5e", "tpu-v6e"})
# What XManager's Vertex executor maps (xmanager/cloud/vertex.py, 0.8.5.post1).
XMANAGER_FAMILIES = frozenset({"tpu-v2", "tpu-v3"})
_CLOUD_NAME = r"^[a-z0-9.:-]*$"
_POD_NAME = 63  # characters
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,51}[a-z0-9])?")


class CloudPlace(Declared):
    """Google Cloud project and zone; empty: the caller of a launch script names them."""

    project: str = Field("", pattern=_CLOUD_NAME)
    zone: str = Field("", pattern=_CLOUD_NAME)

    @property
    def region(self) -> str:
        """`us-east5` of the zone `us-east5-a`."""
        return self.zone.rpartition("-")[0]


class LaunchJob(NamedTuple):
    """A job to launch.

    `files` are the plan's (name -> text), including the configuration of each of `trainers`, the first of which runs by
    default. `xla_flags` are passed to libtpu. `place` is where the scripts ask for the slice. `storage_root` holds the
    data, and for Vertex AI the plan's folder.
    """

    name: str
    domain: str
    trainers: tuple[Trainer, ...]
    files: dict[str, str]
    storage_root: str
    slices: int = 1
    xla_flags: tuple[str, ...] = ()
    place: CloudPlace = CloudPlace.model_validate({})


def launch_files(job: LaunchJob, target: HardwareTarget) -> dict[str, str]:
    """File name -> text of each launcher; one that does not support the target explains so in its file.

    Raises:
        InputError: not a TPU slice, no trainer, a trainer without its configuration, or an invalid job name.
    """
    if target.kind != "tpu" or target.topology is None:
        raise InputError(f"{target.name} is no TPU slice: adapters on CPUs and GPUs are started by training's scripts")
    missing = [CONFIGURATIONS[trainer] for trainer in job.trainers if CONFIGURATIONS[trainer] not in job.files]
    if missing or not job.trainers:
        raise InputError(f"job {job.name}: {', '.join(missing) or 'no trainer'} is not among the plan's files")
    if not _NAME.fullmatch(job.name):
        raise InputError(f"job name {job.name!r}: clouds take lower-case letters, digits and hyphens, 53 at the most")
    last_pod = f"{job.name}-slice-{job.slices - 1}-{target.vms - 1}-xxxxx"
    if job.slices > 1 and len(last_pod) > _POD_NAME:
        raise InputError(
            f"job name {job.name!r}: its pods would be called {last_pod}, {len(last_pod)} characters of {_POD_NAME}:"
            " shorten it"
        )
    return {
        RUN: _run(job, target),
        QUEUED: _queued(job, target),
        GKE: _gke(job, target),
        VERTEX: _vertex(job, target),
        XMANAGER: _xmanager(job, target),
    }


def _rendered(name: str, job: LaunchJob, target: HardwareTarget, **values: Any) -> str:
    files = {"run": RUN, "queued": QUEUED, "xmanager": XMANAGER}
    return rendered(name, job=job, target=target, slices=_slices(job, target), files=files, **values)


def _run(job: LaunchJob, target: HardwareTarget) -> str:
    return _rendered(RUN, job, target)


def _slices(job: LaunchJob, target: HardwareTarget) -> str:
    kind = target.accelerator_type or target.name
    return kind if job.slices == 1 else f"{job.slices} slices of {kind}"


def _queued(job: LaunchJob, target: HardwareTarget) -> str:
    """A script of gcloud commands: request the slice, wait, copy files, run on every host, release the slice."""
    runtime = RUNTIMES.get(target.family)
    if runtime is None or target.accelerator_type is None:
        return _refusal(
            f"Queued resources cannot be asked for {target.name}: no runtime image is known for {target.family}"
            f" (Google gives newer TPUs through GKE alone). Use {GKE}."
        )
    return _rendered(QUEUED, job, target, runtime=runtime)


def _refusal(words: str) -> str:
    return f"#!/usr/bin/env bash\necho {words!r} >&2\nexit 2\n"


def _gke(job: LaunchJob, target: HardwareTarget) -> str:
    """A ConfigMap with the files, and a Job with a pod per node; several slices are a JobSet of such Jobs.

    The pods of a slice find each other by the host names of a headless service: GKE sets TPU_WORKER_ID and
    TPU_WORKER_HOSTNAMES from them.
    """
    if target.kubernetes is None:
        return f"# {target.name} declares no kubernetes section in resources/hardware: no pod can reach it.\n"
    labels = {"app.kubernetes.io/name": "capibara", "capibara/job": job.name}
    documents: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": job.name, "labels": labels},
            "data": {**job.files, RUN: _run(job, target)},
        }
    ]
    if job.slices == 1:
        documents.append(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": job.name, "labels": labels},
                "spec": {"clusterIP": "None", "selector": {"job-name": job.name}},
            }
        )
        documents.append(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": job.name, "labels": labels},
                "spec": _job_spec(job, target, subdomain=job.name),
            }
        )
    else:
        documents.append(
            {
                "apiVersion": "jobset.x-k8s.io/v1alpha2",
                "kind": "JobSet",
                "metadata": {
                    "name": job.name,
                    "labels": labels,
                    "annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"},
                },
                "spec": {
                    "failurePolicy": {"maxRestarts": 3},
                    "replicatedJobs": [
                        {
                            "name": "slice",
                            "replicas": job.slices,
                            "template": {"spec": _job_spec(job, target, subdomain=None)},
                        }
                    ],
                },
            }
        )
    head = (
        f"# {job.name} on {_slices(job, target)}: kubectl apply -f {GKE}\n"
        f"# Set the image, which holds the trainer and jax for TPU; capibara/{RUN} is mounted from the ConfigMap.\n"
        + ("# Several slices need the JobSet controller (https://jobset.sigs.k8s.io).\n" if job.slices > 1 else "")
    )
    return head + yaml.safe_dump_all(documents, sort_keys=False, width=1000)


def _job_spec(job: LaunchJob, target: HardwareTarget, subdomain: str | None) -> dict[str, Any]:
    kubernetes = target.kubernetes
    assert kubernetes is not None  # checked by the caller
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "nodeSelector": dict(kubernetes.node_selector),
        "tolerations": [one.model_dump(exclude_none=True) for one in kubernetes.tolerations],
        "terminationGracePeriodSeconds": 120,
        "containers": [
            {
                "name": "training",
                "image": IMAGE,
                "command": ["bash", f"/capibara/{RUN}", job.trainers[0]],
                # JAX's coordinator, and the slices' own across the data-centre network
                "ports": [{"containerPort": 8471}, {"containerPort": 8080}],
                "resources": {"requests": dict(kubernetes.limits), "limits": dict(kubernetes.limits)},
                "volumeMounts": [{"name": "capibara", "mountPath": "/capibara"}],
            }
        ],
        "volumes": [{"name": "capibara", "configMap": {"name": job.name}}],
    }
    if subdomain:
        pod["subdomain"] = subdomain
    return {
        "backoffLimit": 0 if subdomain is None else 3,
        "completions": kubernetes.nodes,
        "parallelism": kubernetes.nodes,
        "completionMode": "Indexed",
        "template": {"spec": pod},
    }


def _vertex(job: LaunchJob, target: HardwareTarget) -> str:
    """A CustomJobSpec for `gcloud ai custom-jobs create --config`."""
    kubernetes = target.kubernetes
    if target.family not in VERTEX_FAMILIES or kubernetes is None or kubernetes.machine_type is None or job.slices > 1:
        why = (
            "it does not join several slices"
            if job.slices > 1 and target.family in VERTEX_FAMILIES
            else f"it has TPU v2, v3, v5e and v6e, not {target.family}"
        )
        return f"# Vertex AI's custom training cannot run this plan: {why}. Use {QUEUED} or {GKE}.\n"
    assert target.topology is not None  # checked by launch_files
    folder = f"{job.storage_root}/{job.domain}/plan"
    spec = {
        "workerPoolSpecs": [
            {
                "machineSpec": {
                    "machineType": kubernetes.machine_type,
                    "tpuTopology": "x".join(map(str, target.topology.axes)),
                },
                "replicaCount": kubernetes.nodes,
                "containerSpec": {
                    "imageUri": IMAGE,
                    "command": ["bash", f"{folder.replace('gs://', '/gcs/', 1)}/{RUN}", job.trainers[0]],
                },
            }
        ],
        "baseOutputDirectory": {"outputUriPrefix": f"{job.storage_root}/{job.domain}/vertex"},
    }
    head = (
        f"# {job.name} on {_slices(job, target)} as a custom job of Vertex AI; put this folder where it is read:\n"
        f"#   gcloud storage cp * {folder}/\n"
        f"#   gcloud ai custom-jobs create {_where(job)} --display-name {job.name} --config {VERTEX}\n"
        "# Set the image. Not tried on Vertex AI: no account was at hand.\n"
    )
    return head + yaml.safe_dump(spec, sort_keys=False, width=1000)


def _where(job: LaunchJob) -> str:
    """Project and region, as far as the deployment names them."""
    project = f"--project {job.place.project} " if job.place.project else ""
    return f"{project}--region {job.place.region or 'REGION'}"


def _xmanager(job: LaunchJob, target: HardwareTarget) -> str:
    """An XManager launcher: TPU v2 and v3 on Vertex AI; other TPUs through queued resources, as a local job."""
    # Cloud TPU v2 and v3 are counted in cores, two to a chip.
    kind = target.family.removeprefix("tpu-") if target.family in XMANAGER_FAMILIES else None
    return _rendered(XMANAGER, job, target, kind=kind, image=IMAGE)

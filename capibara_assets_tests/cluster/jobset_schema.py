"""What the controller of JobSet takes: a model of the fields that trainings use, and its CRD where that is at hand.

The model is ours, after the reference (https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/) and the rules of
its webhook. The CRD's own schema (`config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml` of kubernetes-sigs/jobset)
is not in this repository; `CAPIBARA_JOBSET_CRD` names a copy of it.
"""

import os
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import jsonschema
import kubernetes_validate
import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

CRD_VARIABLE = "CAPIBARA_JOBSET_CRD"
VERSION = "v1alpha2"
_LABEL = 63
_SUFFIX = "-xxxxx"  # of each pod
Label = Annotated[str, StringConstraints(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=_LABEL)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Metadata(_Strict):
    """The part of a set's metadata that a client states."""

    name: Label
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class Network(_Strict):
    enableDNSHostnames: bool = True
    subdomain: Label | None = None
    publishNotReadyAddresses: bool = True


class FailurePolicy(_Strict):
    maxRestarts: int = Field(default=0, ge=0)
    restartStrategy: Literal["Recreate", "BlockingRecreate", "InPlaceRestart"] = "Recreate"


class Template(_Strict):
    """Of a job; what is in `spec` is judged by Kubernetes' own schema."""

    metadata: dict[str, Any] = Field(default_factory=dict)
    spec: dict[str, Any]


class ReplicatedJob(_Strict):
    name: Label
    replicas: int = Field(default=1, ge=0)
    template: Template


class Coordinator(_Strict):
    replicatedJob: str
    jobIndex: int = Field(default=0, ge=0)
    podIndex: int = Field(default=0, ge=0)


class Spec(_Strict):
    replicatedJobs: list[ReplicatedJob] = Field(min_length=1)
    network: Network | None = None
    failurePolicy: FailurePolicy | None = None
    coordinator: Coordinator | None = None
    suspend: bool = False
    ttlSecondsAfterFinished: int | None = Field(default=None, ge=0)


class JobSet(_Strict):
    apiVersion: Literal["jobset.x-k8s.io/v1alpha2"]
    kind: Literal["JobSet"]
    metadata: Metadata
    spec: Spec


def problems(body: dict[str, Any], kubernetes: str = "1.37", crd: Path | None = None) -> list[str]:
    """What is wrong with a JobSet; empty where the controller takes it.

    Args:
        kubernetes: version whose schema judges the jobs in it.
        crd: file of the CRD, which judges it, too; default: the one that `CAPIBARA_JOBSET_CRD` names, if any.
    """
    named = os.environ.get(CRD_VARIABLE)
    crd = crd or (Path(named) if named else None)
    found = [] if crd is None else by_crd(body, crd)
    try:
        made = JobSet.model_validate(body)
    except ValidationError as error:
        where = [(".".join(map(str, one["loc"])), one["msg"]) for one in error.errors()]
        return found + [f"{place}: {said}" for place, said in where]
    found += [said for job in made.spec.replicatedJobs for said in _job_problems(made, job, kubernetes)]
    where, jobs = made.spec.coordinator, {job.name: job.replicas for job in made.spec.replicatedJobs}
    if where is not None and where.jobIndex >= jobs.get(where.replicatedJob, 0):
        found.append(f"coordinator: there is no job {where.replicatedJob} {where.jobIndex}")
    return found


def _job_problems(made: JobSet, job: ReplicatedJob, kubernetes: str) -> list[str]:
    found, spec = [], job.template.spec
    named = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job.name}, "spec": spec}
    try:
        kubernetes_validate.validate(named, kubernetes, strict=True)
    except kubernetes_validate.ValidationError as error:
        found.append(f"{job.name}: {error.message}")
    last = max(job.replicas - 1, 0), max((spec.get("completions") or spec.get("parallelism") or 1) - 1, 0)
    pod = f"{made.metadata.name}-{job.name}-{last[0]}-{last[1]}{_SUFFIX}"
    if len(pod) > _LABEL:
        found.append(f"{job.name}: its pods would be called {pod}, {len(pod)} characters of {_LABEL}")
    return found


def by_crd(body: dict[str, Any], crd: Path) -> list[str]:
    """What the CRD's own schema refuses, unknown fields included (the API server would drop them)."""
    validator = jsonschema.Draft202012Validator(_schema(crd))
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in validator.iter_errors(body)]


@cache
def _schema(crd: Path) -> dict[str, Any]:
    document = yaml.load(crd.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # it has 10,000 lines
    (version,) = [one for one in document["spec"]["versions"] if one["name"] == VERSION]
    schema: dict[str, Any] = _closed(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}
    return schema


def _closed(schema: Any) -> Any:
    """A structural schema as JSON Schema: an object has the fields that are listed and no others."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _closed(value) for key, value in schema.items() if not key.startswith("x-kubernetes-")}
    if schema.get("x-kubernetes-int-or-string"):
        made.pop("type", None)
    open_ = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object" and not open_:
        made["additionalProperties"] = False
    return made

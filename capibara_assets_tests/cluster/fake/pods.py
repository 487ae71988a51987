"""The pods of a fake cluster: a container's process, its environment and its status."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from capibara_assets_tests.cluster.fake.history import Document
from capibara_assets_tests.cluster.fake.logs import PodLog

INDEX = "batch.kubernetes.io/job-completion-index"


class Surroundings(Protocol):
    """What a cluster gives its pods (`cluster.Cluster`)."""

    folder: Path
    program: Callable[[Sequence[str]], Sequence[str]] | None
    secrets: dict[str, dict[str, str]]
    config_maps: dict[str, dict[str, str]]
    surroundings: dict[str, str]


@dataclass
class Running:
    """A pod's process.

    Attributes:
        kill_at: when its grace period is over; None: it was not asked to end.
    """

    process: "subprocess.Popen[bytes]"
    log: PodLog
    kill_at: float | None = None


def begin(name: str, pod: Document, cluster: Surroundings) -> Running:
    """Start the process of a pod's container."""
    container = pod["spec"]["containers"][0]
    variables = dict(cluster.surroundings)
    variables |= {key: os.environ[key] for key in ("PYTHONPATH", "OMP_NUM_THREADS") if key in os.environ}
    variables["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for one in container.get("envFrom") or ():
        variables |= cluster.secrets.get(one.get("secretRef", {}).get("name"), {})
        variables |= cluster.config_maps.get(one.get("configMapRef", {}).get("name"), {})
    for one in container.get("env") or ():
        source = one.get("valueFrom", {})
        if (key := source.get("secretKeyRef")) is not None:
            variables[one["name"]] = cluster.secrets[key["name"]][key["key"]]
        else:
            variables[one["name"]] = pod["metadata"]["annotations"][INDEX] if source else one.get("value", "")
    if "MASTER_ADDR" in variables:
        variables["MASTER_ADDR"] = "127.0.0.1"  # the set's names are no names here
    command = [*(container.get("command") or ()), *(container.get("args") or ())]
    command = command if cluster.program is None else list(cluster.program(command))
    log = cluster.folder / f"{name}.log"
    with log.open("ab") as file:
        process = subprocess.Popen(
            command, env=variables, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
    return Running(process, PodLog(log))


def container_status(pod: Document, state: Document) -> Document:
    """The status of a pod's container."""
    (container,) = pod["spec"]["containers"]
    own = {"name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0}
    return {**own, "ready": "running" in state, "state": state}


def ended(found: Mapping[str, Any]) -> str | None:
    """The type of the condition that ended a job or a set."""
    for one in found["status"].get("conditions", ()):
        if one["type"] in ("Complete", "Completed", "Failed"):
            return str(one["type"])
    return None


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(kind: str, reason: str, message: str, status: str = "True") -> Document:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now()}


def send(process: "subprocess.Popen[bytes]", number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)

"""A local endpoint that speaks Cloud TPU's and Vertex AI's REST, and whose hosts are processes of this machine."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from capibara_assets.processes import clouds
from capibara_assets_tests.served import QuietHandler, served

Document = dict[str, Any]
PROJECT, ZONE, REGION = "lab", "us-east5-a", "us-east5"
_QUEUED = re.compile(r"/v2/(projects/[^/]+/locations/[^/]+/queuedResources)(?:/([^/:]+))?")
_CUSTOM = re.compile(r"/v1/(projects/[^/]+/locations/[^/]+/customJobs)(?:/([^/:]+))?(:cancel)?")
# What a TPU VM has; docker runs the container's program as a process, beside what it is told by --env.
_SHIMS = {
    "docker": """while [ "$1" != --entrypoint ]; do [ "$1" = --env ] && export "$2"; shift; done
shift 3
[ ! -e {folder}/no_image ] || exit 125
exec {python} "$@"
""",
    "gcloud": """echo "$@" >> {folder}/gcloud
[ "$1 $2 $3" != "storage cp -" ] || {{ mkdir -p "$(dirname "$4")"; cat > "$4"; }}
""",
    "hostname": "echo $FAKE_HOST\n",
}


@dataclass
class FakeCloud:
    """One project. `state` moves what was asked for on; hosts run once a resource is active.

    Attributes:
        hosts: of a queued resource.
        waiting: while set, nothing that is created gets hosts.
        trouble: of method and path: a status, or `late` (done, without an answer), `drop` (not done); None: nothing.
        made: bodies of all that was created.
    """

    folder: Path
    hosts: int = 1
    waiting: bool = False
    trouble: Callable[[str, str], int | str | None] = lambda method, path: None
    made: list[Document] = field(default_factory=list)
    there: dict[str, Document] = field(default_factory=dict)
    running: dict[str, list["subprocess.Popen[bytes]"]] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def answer(self, method: str, path: str, body: Document) -> tuple[int, Document]:
        """The answer to one request."""
        parts = urlsplit(path)
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        with self.lock:
            self._move()
            if match := _QUEUED.fullmatch(parts.path):
                return self._queued(method, match[1], match[2] or query.get("queuedResourceId", ""), body)
            if match := _CUSTOM.fullmatch(parts.path):
                return self._custom(method, match[1], match[2], body, query)
        return _refused(404, f"no {parts.path}")

    def preempt(self, name: str) -> None:
        """A spot slice is taken away."""
        with self.lock:
            self.there[name]["state"] = {"state": "SUSPENDED"}
            self._kill(name)

    def _queued(self, method: str, parent: str, name: str, body: Document) -> tuple[int, Document]:
        name = f"{parent}/{name}"
        if method == "POST":
            if name in self.there:
                return _refused(409, f"{name} already exists")
            self._make(name, {**body, "state": {"state": "WAITING_FOR_RESOURCES"}})
            return 200, {"name": f"{parent.rpartition('/')[0]}/operations/1", "done": False}
        if name not in self.there:
            return _refused(404, f"{name} not found")
        if method == "DELETE":
            if self.there[name]["state"] == {"state": "DELETING"}:
                return _refused(400, f"{name} is being deleted")
            self._kill(name)
            self.there[name]["state"] = {"state": "DELETING"}
            return 200, {"name": f"{parent.rpartition('/')[0]}/operations/2", "done": False}
        found = {**self.there[name]}
        if found["state"] == {"state": "DELETING"}:  # seen so twice
            if found.get("seen"):
                del self.there[name]
            else:
                self.there[name]["seen"] = True
        return 200, found

    def _custom(
        self, method: str, parent: str, number: str | None, body: Document, query: dict[str, str]
    ) -> tuple[int, Document]:
        if number is None and method == "POST":
            name = f"{parent}/{len(self.made) + 1}"
            self._make(name, {**body, "state": "JOB_STATE_PENDING"})
            return 200, self.there[name]
        if number is None:
            key, value = re.fullmatch(r'labels\.([\w-]+)="(\w+)"', query["filter"]).groups()  # type: ignore[union-attr]
            found = [one for name, one in self.there.items() if name.startswith(parent) and one["labels"][key] == value]
            return 200, {"customJobs": found}
        name = f"{parent}/{number}"
        if name not in self.there:
            return _refused(404, f"{name} not found")
        if method == "POST":
            if self.there[name]["state"] not in ("JOB_STATE_PENDING", "JOB_STATE_RUNNING"):
                return _refused(400, f"{name} does not run")
            self._kill(name)
            self.there[name] |= {"state": "JOB_STATE_CANCELLING"}
            return 200, {}
        found = {**self.there[name]}
        if found["state"] == "JOB_STATE_CANCELLING":  # seen so once
            self.there[name] |= {"state": "JOB_STATE_CANCELLED", "endTime": _now()}
        return 200, found

    def _make(self, name: str, body: Document) -> None:
        self.made.append(body)
        self.there[name] = {**body, "name": name, "createTime": _now()}

    def _move(self) -> None:
        """Give hosts to what waits, and take note of those that have ended."""
        for name, one in self.there.items():
            if "tpu" in one and one["state"] == {"state": "WAITING_FOR_RESOURCES"} and not self.waiting:
                one["state"] = {"state": "ACTIVE"}
                script = one["tpu"]["nodeSpec"][0]["node"]["metadata"]["startup-script"]
                self._begin(name, ["bash", "-c", script], self.hosts)
            if "jobSpec" in one and one["state"] == "JOB_STATE_PENDING" and not self.waiting:
                one |= {"state": "JOB_STATE_RUNNING", "startTime": _now()}
                (pool,) = one["jobSpec"]["workerPoolSpecs"]
                command = [sys.executable, *pool["containerSpec"]["command"][1:]]
                self._begin(name, command, int(pool["replicaCount"]))
            if "jobSpec" in one and one["state"] == "JOB_STATE_RUNNING":
                codes = [process.poll() for process in self.running[name]]
                if None not in codes:
                    one |= {"state": f"JOB_STATE_{'FAILED' if any(codes) else 'SUCCEEDED'}", "endTime": _now()}

    def _begin(self, name: str, command: Sequence[str], hosts: int) -> None:
        tools = self.folder / "tools"
        tools.mkdir(exist_ok=True)
        for shim, text in _SHIMS.items():
            (tools / shim).write_text(f"#!/bin/bash\n{text.format(folder=self.folder, python=sys.executable)}")
            (tools / shim).chmod(0o755)
        for number in range(hosts):
            host = f"w-{number}"
            own = {"PATH": f"{tools}:{os.environ['PATH']}", "FAKE_HOST": host, "HOSTNAME": host}
            with (self.folder / f"{host}.out").open("ab") as out:
                process = subprocess.Popen(
                    command, env={**os.environ, **own}, start_new_session=True, stdout=out, stderr=out
                )
            self.running.setdefault(name, []).append(process)

    def _kill(self, name: str) -> None:
        for process in self.running.pop(name, ()):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    @contextmanager
    def serving(self, monkeypatch: pytest.MonkeyPatch) -> Iterator["FakeCloud"]:
        """Serve on a free port, to which the clients of both libraries go."""
        with served(_handler(self)) as server:
            address = f"127.0.0.1:{server.server_port}"
            monkeypatch.setattr(clouds, "tpu_client", lambda: _tpu_client(address))
            monkeypatch.setattr(clouds, "vertex_client", lambda region: _vertex_client(address))
            try:
                yield self
            finally:
                for name in list(self.running):
                    self._kill(name)


def _tpu_client(address: str) -> Any:
    from google.auth.credentials import AnonymousCredentials
    from google.cloud.tpu_v2.services.tpu import TpuClient
    from google.cloud.tpu_v2.services.tpu.transports.rest import TpuRestTransport

    return TpuClient(transport=TpuRestTransport(host=address, credentials=AnonymousCredentials(), url_scheme="http"))


def _vertex_client(address: str) -> Any:
    from google.auth.credentials import AnonymousCredentials
    from google.cloud.aiplatform_v1.services.job_service import JobServiceClient
    from google.cloud.aiplatform_v1.services.job_service.transports.rest import JobServiceRestTransport

    credentials = AnonymousCredentials()
    return JobServiceClient(transport=JobServiceRestTransport(host=address, credentials=credentials, url_scheme="http"))


def _handler(cloud: FakeCloud) -> type[BaseHTTPRequestHandler]:
    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def _take(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            trouble = cloud.trouble(self.command, self.path)
            if trouble == "drop":
                self.close_connection = True
                return
            if isinstance(trouble, int):
                status, answer = _refused(trouble, "try again")
            else:
                status, answer = cloud.answer(self.command, self.path, body)
            if trouble == "late":
                self.close_connection = True
                return
            with suppress(BrokenPipeError, ConnectionResetError):  # who asked has gone
                self.send(status, answer)

        do_GET = do_POST = do_DELETE = _take

    return Handler


def _refused(code: int, message: str) -> tuple[int, Document]:
    status = {404: "NOT_FOUND", 409: "ALREADY_EXISTS", 403: "PERMISSION_DENIED"}.get(code, "UNAVAILABLE")
    return code, {"error": {"code": code, "message": message, "status": status}}


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")

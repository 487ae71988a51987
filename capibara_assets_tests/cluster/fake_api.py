"""The HTTP API of a fake cluster, for the real `kubernetes` client: jobs, sets, pods, logs, and their troubles."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from capibara_assets_tests.cluster.fake_cluster import Cluster, Document

TOKEN = "canary-bearer-token-31337"
_JOBS = re.compile(r"/apis/batch/v1/namespaces/([^/]+)/jobs(?:/([^/]+))?")
_SETS = re.compile(r"/apis/jobset\.x-k8s\.io/v1alpha2/namespaces/([^/]+)/jobsets(?:/([^/]+))?")
_PODS = re.compile(r"/api/v1/namespaces/([^/]+)/pods(?:/([^/]+))?(/log|/status)?")

Answer = tuple[int, Any]


@dataclass
class Trouble:
    """What the API itself does wrong: `of(method, path)` gives a status, `drop`, `late` or None for each request.

    `drop`: the connection closes before anything was done; `late`: after it was done, without an answer.
    """

    of: Callable[[str, str], int | str | None] = lambda method, path: None


@dataclass
class Api:
    """A server on a free port of this machine.

    Attributes:
        asked: method and path of every request that was answered.
    """

    cluster: Cluster
    trouble: Trouble = field(default_factory=Trouble)
    asked: list[tuple[str, str]] = field(default_factory=list)

    @contextmanager
    def serving(self, kubeconfig: Path) -> Iterator[None]:
        """Serve, and write the file by which kubectl and the client find the server."""
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _take(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}") if length else {}
                method, path = self.command, self.path
                trouble = api.trouble.of(method, path)
                if trouble == "drop":
                    self.close_connection = True
                    return
                if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    status, answer = 401, _refused(401, "Unauthorized")
                elif isinstance(trouble, int):
                    status, answer = trouble, _refused(trouble, "try again")
                else:
                    status, answer = api.answer(method, path, body)
                    api.asked.append((method, path))
                if trouble == "late":
                    self.close_connection = True
                    return
                data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "text/plain" if isinstance(answer, str) else "application/json")
                self.send_header("Content-Length", str(len(data)))
                if status == 429:
                    self.send_header("Retry-After", "0")
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = _take

            def log_message(self, format: str, *args: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        kubeconfig.write_text(yaml.safe_dump(_kubeconfig(server.server_port)))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        self.cluster.start()
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            self.cluster.stop()

    def answer(self, method: str, path: str, body: Document) -> Answer:
        """The answer to one request."""
        parts = urlsplit(path)
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        for pattern, kind in ((_JOBS, "Job"), (_SETS, "JobSet")):
            if match := pattern.fullmatch(parts.path):
                return self._object(kind, method, match[1], match[2], body)
        if match := _PODS.fullmatch(parts.path):
            return self._pods(method, match[2], match[3], query)
        return 404, _refused(404, f"the server could not find {parts.path}")

    def _object(self, kind: str, method: str, namespace: str, name: str | None, body: Document) -> Answer:
        version = "batch/v1" if kind == "Job" else "jobset.x-k8s.io/v1alpha2"
        with self.cluster.lock:
            if method == "POST":
                if problem := _invalid(kind, body):
                    return 422, _refused(422, problem)
                made = self.cluster.create(body, kind, namespace)
                if made is None:
                    return 409, _refused(409, f"{body['metadata']['name']} already exists")
                return 201, {"apiVersion": version, "kind": kind, **_shown(made)}
            objects = self.cluster.jobs if kind == "Job" else self.cluster.sets
            found = objects.get(name or "")
            if found is None:
                return 404, _refused(404, f"{kind} {name} not found")
            if method == "DELETE":
                self.cluster.delete(kind, name or "")
            return 200, {"apiVersion": version, "kind": kind, **_shown(found)}

    def _pods(self, method: str, name: str | None, part: str | None, query: dict[str, str]) -> Answer:
        with self.cluster.lock:
            if name is None:
                wanted = dict(one.split("=", 1) for one in query.get("labelSelector", "").split(",") if one)
                pods = [
                    _shown(pod)
                    for pod in self.cluster.pods.values()
                    if wanted.items() <= pod["metadata"]["labels"].items()
                ]
                return 200, {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": pods}
            pod = self.cluster.pods.get(name)
            if pod is None:
                return 404, _refused(404, f"pods {name!r} not found")
            if part == "/log":
                text = self.cluster.log_of(name)
                if text is None:
                    return 400, _refused(400, "container is waiting to start")
                lines = text.splitlines(keepends=True)
                return 200, "".join(lines[-int(query["tailLines"]) :] if "tailLines" in query else lines)
            if method == "DELETE":
                self.cluster.delete_pod(name)
            return 200, {"apiVersion": "v1", "kind": "Pod", **_shown(pod)}


def _shown(found: Document) -> Document:
    """An object without what the controllers keep in it."""
    own = {"since", "done", "counted", "recreating"}
    status = {key: value for key, value in found["status"].items() if key not in own}
    return {"metadata": found["metadata"], "spec": found["spec"], "status": status}


def _invalid(kind: str, body: Document) -> str | None:
    """What Kubernetes would refuse of a job that its schema does not show."""
    if len(body["metadata"]["name"]) > 63:
        return "metadata.name: must be no more than 63 characters"
    specs = [body["spec"]] if kind == "Job" else [one["template"]["spec"] for one in body["spec"]["replicatedJobs"]]
    for spec in specs:
        if "podFailurePolicy" in spec and spec["template"]["spec"].get("restartPolicy") != "Never":
            return "spec.template.spec.restartPolicy: only Never is supported with podFailurePolicy"
        if "podFailurePolicy" in spec and spec.get("podReplacementPolicy") not in (None, "Failed"):
            return "spec.podReplacementPolicy: only Failed is supported with podFailurePolicy"
    return None


def _refused(code: int, message: str) -> Document:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}


def _kubeconfig(port: int) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "fake",
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake", "namespace": "ml"}}],
        "clusters": [{"name": "fake", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "fake", "user": {"token": TOKEN}}],
    }

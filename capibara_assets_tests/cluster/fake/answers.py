"""What a fake cluster's API answers: reads, lists, watches, creations, replacements, deletions, logs."""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from capibara_assets_tests.cluster.fake.cluster import TICK_S, Cluster, Document
from capibara_assets_tests.cluster.fake.history import API_VERSIONS, shown

Answer = tuple[int, Any]
"""Status, and a document, bytes, or pieces that are sent as they come."""
Query = dict[str, str]

_KINDS = {
    "Job": re.compile(r"/apis/batch/v1/namespaces/([^/]+)/jobs(?:/([^/]+))?(/status)?"),
    "JobSet": re.compile(r"/apis/jobset\.x-k8s\.io/v1alpha2/namespaces/([^/]+)/jobsets(?:/([^/]+))?(/status)?"),
    "Pod": re.compile(r"/api/v1/namespaces/([^/]+)/pods(?:/([^/]+))?(/log|/status)?"),
}
_EVENTS = re.compile(r"/api/v1/namespaces/[^/]+/events")
_GONE = "too old resource version"
_LONGEST_WATCH_S = 60.0


@dataclass(frozen=True)
class Answers:
    """The answers of one cluster."""

    cluster: Cluster

    def answer(self, method: str, path: str, body: Document) -> Answer:
        """The answer to one request."""
        parts = urlsplit(path)
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        for kind, pattern in _KINDS.items():
            if match := pattern.fullmatch(parts.path):
                with self.cluster.lock:
                    found = self._of(kind, method, match, query, body)
                    self.cluster.observe()
                    return found
        if _EVENTS.fullmatch(parts.path):
            return 200, {"apiVersion": "v1", "kind": "EventList", "metadata": {}, "items": []}
        return refused(404, f"the server could not find {parts.path}")

    def _of(self, kind: str, method: str, match: re.Match[str], query: Query, body: Document) -> Answer:
        namespace, name, part = match.groups()
        if name is None:
            if method == "POST":
                return self._create(kind, namespace, body)
            return self._watch(kind, query) if query.get("watch") in ("true", "True", "1") else self._list(kind, query)
        found = self.cluster.objects(kind).get(name)
        if found is None:
            return refused(404, f"{kind} {name!r} not found")
        if part == "/log":
            return self._log(name, query)
        if method == "PUT":
            return self._replace(kind, found, body)
        if method == "DELETE":
            return self._delete(kind, name, found, {**query, **body})
        return 200, shown(kind, found)

    def _create(self, kind: str, namespace: str, body: Document) -> Answer:
        if problem := _invalid(kind, body):
            return refused(422, problem)
        made = self.cluster.create(body, kind, namespace)
        if made is None:
            return refused(409, f"{body['metadata']['name']} already exists")
        return 201, shown(kind, made)

    def _replace(self, kind: str, found: Document, body: Document) -> Answer:
        """Replace what is not immutable; of an object that changed since it was read, nothing."""
        stated = body["metadata"].get("resourceVersion")
        if stated is not None and stated != found["metadata"]["resourceVersion"]:
            return refused(409, "the object has been modified; please apply your changes to the latest version")
        for key in ("labels", "annotations"):
            found["metadata"][key] = body["metadata"].get(key, {})
        self.cluster.observe()
        return 200, shown(kind, found)

    def _delete(self, kind: str, name: str, found: Document, options: Document) -> Answer:
        for key, value in (options.get("preconditions") or {}).items():
            if found["metadata"].get(key) != value:
                return refused(409, f"the {key} in the precondition ({value}) does not match the one in record")
        if kind == "Pod":
            self.cluster.delete_pod(name)
        else:
            # for jobs Kubernetes leaves the pods where nothing else is asked for
            policy = options.get("propagationPolicy") or ("Orphan" if kind == "Job" else "Background")
            self.cluster.delete(kind, name, policy)
        return 200, shown(kind, found)

    def _list(self, kind: str, query: Query) -> Answer:
        history, begin = self.cluster.history, ""
        if "continue" in query:
            version, _, begin = query["continue"].partition("/")
            if int(version) < history.forgotten:
                return refused(410, "The provided continue parameter is too old to display a consistent list result")
        objects = sorted(self.cluster.objects(kind).items())
        wanted = [shown(kind, one) for name, one in objects if name > begin and _selected(one, query)]
        metadata: Document = {"resourceVersion": str(history.version)}
        if (most := int(query.get("limit", 0))) and len(wanted) > most:
            wanted = wanted[:most]
            metadata["continue"] = f"{history.version}/{wanted[-1]['metadata']['name']}"
        return 200, {"apiVersion": API_VERSIONS[kind], "kind": f"{kind}List", "metadata": metadata, "items": wanted}

    def _watch(self, kind: str, query: Query) -> Answer:
        """The changes after a version, as they come; without one, first what is there."""
        begin = int(query.get("resourceVersion") or 0)
        if begin and begin < self.cluster.history.forgotten:
            return 200, iter([_line("ERROR", refused(410, f"{_GONE}: {begin}")[1])])
        return 200, self._changes(kind, begin, query)

    def _changes(self, kind: str, version: int, query: Query) -> Iterator[bytes]:
        deadline = time.monotonic() + float(query.get("timeoutSeconds", _LONGEST_WATCH_S))
        history = self.cluster.history
        if version == 0:
            with self.cluster.lock:
                there = [shown(kind, one) for one in self.cluster.objects(kind).values() if _selected(one, query)]
                version = history.version
            yield from (_line("ADDED", one) for one in there)
        while time.monotonic() < deadline and not self.cluster.stopped:
            with self.cluster.lock:
                events, version = history.since(version, kind), max(version, history.version)
            if events is None:
                yield _line("ERROR", refused(410, _GONE)[1])
                return
            yield from (_line(event.type, event.shown) for event in events if _selected(event.shown, query))
            time.sleep(TICK_S)

    def _log(self, name: str, query: Query) -> Answer:
        if name not in self.cluster.running:
            return refused(400, f'container in pod "{name}" is waiting to start: ContainerCreating')
        if query.get("follow") in ("true", "True"):
            return 200, self._followed(name, query)
        text = b"".join(self._lines(name, query))
        lines = text.splitlines(keepends=True)
        return 200, b"".join(lines[-int(query["tailLines"]) :] if "tailLines" in query else lines)

    def _lines(self, name: str, query: Query, begin: int = 0) -> Iterator[bytes]:
        running = self.cluster.running[name]
        seconds = int(query["sinceSeconds"]) if "sinceSeconds" in query else None
        stamped = query.get("timestamps") in ("true", "True")
        text, _ = running.log.text(begin, ended=running.process.poll() is not None, stamped=stamped, seconds=seconds)
        yield text

    def _followed(self, name: str, query: Query) -> Iterator[bytes]:
        """A log until its process has ended, or its pod is gone."""
        running, begin = self.cluster.running[name], 0
        seconds = int(query["sinceSeconds"]) if "sinceSeconds" in query else None
        stamped = query.get("timestamps") in ("true", "True")
        while not self.cluster.stopped:
            with self.cluster.lock:
                there, ended = name in self.cluster.pods, running.process.poll() is not None
                text, begin = running.log.text(begin, ended=ended, stamped=stamped, seconds=seconds)
            if text:
                yield text
            if ended or not there:
                return
            time.sleep(TICK_S)


def refused(code: int, message: str) -> Answer:
    """A refusal as Kubernetes words it."""
    reason = {404: "NotFound", 409: "Conflict", 410: "Expired", 429: "TooManyRequests"}.get(code, "")
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
    return code, {**status, "reason": reason}


def _line(type_: str, about: Document) -> bytes:
    return json.dumps({"type": type_, "object": about}).encode() + b"\n"


def _selected(found: Document, query: Query) -> bool:
    labels = found["metadata"].get("labels") or {}
    wanted = dict(one.split("=", 1) for one in query.get("labelSelector", "").split(",") if one)
    if not wanted.items() <= labels.items():
        return False
    for one in filter(None, query.get("fieldSelector", "").split(",")):
        path, _, value = one.partition("=")
        at: Any = found
        for key in path.split("."):
            at = at.get(key) if isinstance(at, dict) else None
        if at != value.lstrip("="):
            return False
    return True


def _invalid(kind: str, body: Document) -> str | None:
    """What Kubernetes would refuse of an object that its schema does not show."""
    if len(body["metadata"]["name"]) > 63:
        return "metadata.name: must be no more than 63 characters"
    specs = {"Job": [body["spec"]], "Pod": []}.get(kind)
    if specs is None:
        specs = [one["template"]["spec"] for one in body["spec"]["replicatedJobs"]]
    for spec in specs:
        if "podFailurePolicy" in spec and spec["template"]["spec"].get("restartPolicy") != "Never":
            return "spec.template.spec.restartPolicy: only Never is supported with podFailurePolicy"
        if "podFailurePolicy" in spec and spec.get("podReplacementPolicy") not in (None, "Failed"):
            return "spec.podReplacementPolicy: only Failed is supported with podFailurePolicy"
    return None

"""A cluster in one process: jobs make pods, a pod runs its command as a process here, and faults befall both.

Kubernetes' semantics as far as a launch can see them: names are taken (409), deletion waits for pods and their grace
period, a job's pod failure policy and backoff limit decide about another pod, which comes after the former has ended.
Pods of no job run once. Each change gets a resource version (`history`).
"""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from capibara_assets_tests.cluster.fake.history import API_VERSIONS, Document, History
from capibara_assets_tests.cluster.fake.pods import INDEX, Running, begin, condition, container_status, ended, now, send

TICK_S = 0.01
JOB_LABELS, SET_LABEL = ("batch.kubernetes.io/job-name", "job-name"), "jobset.sigs.k8s.io/jobset-name"


@dataclass
class Faults:
    """What goes wrong on the nodes; of the API see `api`.

    Attributes:
        no_image: seconds during which images cannot be pulled.
        no_node: node selectors (one label) that no node has.
        grace: factor on the pods' grace periods, so that tests are short.
    """

    no_image: float = 0.0
    no_node: frozenset[tuple[str, str]] = frozenset()
    grace: float = 1.0


@dataclass
class Cluster:
    """The state, and the controllers that a thread drives.

    Attributes:
        program: what is run instead of a container's command; None: the command itself.
        secrets, config_maps: name -> variables of it.
        surroundings: variables of every pod, for what a real one finds by itself, such as a bucket.
        made: every object that was created, as it came, for tests that look for credentials.
    """

    folder: Path
    program: Callable[[Sequence[str]], Sequence[str]] | None = None
    secrets: dict[str, dict[str, str]] = field(default_factory=dict)
    config_maps: dict[str, dict[str, str]] = field(default_factory=dict)
    surroundings: dict[str, str] = field(default_factory=dict)
    faults: Faults = field(default_factory=Faults)
    jobs: dict[str, Document] = field(default_factory=dict)
    sets: dict[str, Document] = field(default_factory=dict)
    pods: dict[str, Document] = field(default_factory=dict)
    running: dict[str, Running] = field(default_factory=dict)
    made: list[Document] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)
    history: History = field(default_factory=History)
    _stop: threading.Event = field(default_factory=threading.Event)
    _uids: int = 0
    _born: float = field(default_factory=time.monotonic)

    def start(self) -> threading.Thread:
        """Begin to drive the controllers."""
        thread = threading.Thread(target=self._drive, daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        """End the controllers and every process."""
        self._stop.set()
        with self.lock:
            for one in self.running.values():
                send(one.process, signal.SIGKILL)
                one.process.wait()

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    def objects(self, kind: str) -> dict[str, Document]:
        """The objects of a kind, by name."""
        return {"Job": self.jobs, "JobSet": self.sets, "Pod": self.pods}[kind]

    def observe(self) -> None:
        """Give each object that changed its resource version."""
        for kind in API_VERSIONS:
            self.history.observe(kind, self.objects(kind))

    # --- what the API does -------------------------------------------------------------------------------------------

    def create(self, body: Document, kind: str, namespace: str) -> Document | None:
        """A new job, set or pod; None where the name is taken."""
        with self.lock:
            where, name = self.objects(kind), body["metadata"]["name"]
            if name in where:
                return None
            self.made.append(body)
            stamps = {"namespace": namespace, "uid": self._uid(), "creationTimestamp": now()}
            where[name] = {**body, "metadata": {**body["metadata"], **stamps}, "status": {}}
            if kind == "Pod":
                where[name] |= {"status": {"phase": "Pending", "conditions": []}, "index": 0}
            self.observe()
            return where[name]

    def delete(self, kind: str, name: str, policy: str = "Foreground") -> Document | None:
        """Delete an object; None where there is none.

        Args:
            policy: `Foreground`: it is gone when its pods are; `Background`: at once, and its pods follow; `Orphan`: at
                once, and they stay.
        """
        with self.lock:
            found = self.objects(kind).get(name)
            if found is None:
                return None
            if policy == "Foreground":
                found["metadata"].setdefault("deletionTimestamp", now())
                return found
            if policy == "Background":
                for child in self._children(found) if kind == "JobSet" else ():
                    self.delete("Job", child["metadata"]["name"], policy)
                for pod in self._pods_of(name) if kind == "Job" else ():
                    self.delete_pod(pod)
            return self.objects(kind).pop(name)

    def delete_pod(self, name: str) -> Document | None:
        """Delete a pod as a user does: its process gets the grace period."""
        with self.lock:
            pod = self.pods.get(name)
            if pod is not None:
                pod["metadata"]["deletionTimestamp"] = now()
                self._end(name)
            return pod

    # --- what befalls nodes ------------------------------------------------------------------------------------------

    def names(self, phase: str = "Running") -> list[str]:
        """Pods in a phase."""
        with self.lock:
            return [name for name, pod in self.pods.items() if pod["status"]["phase"] == phase]

    def evict(self, name: str) -> None:
        """A spot node is taken away: the pod is told so, and gets its grace period."""
        with self.lock:
            if name in self.pods:
                said = condition("DisruptionTarget", "TerminationByKubelet", "the node is shutting down")
                self.pods[name]["status"].setdefault("conditions", []).append(said)
                self._end(name)

    def lose_node(self, name: str) -> None:
        """A node dies: its process is gone at once, and the pod is removed from the API."""
        with self.lock:
            if name in self.pods:
                said = condition("DisruptionTarget", "DeletionByPodGC", "the node is gone")
                self.pods[name]["status"].setdefault("conditions", []).append(said)
                self.pods[name]["metadata"]["deletionTimestamp"] = now()
                if name in self.running:
                    send(self.running[name].process, signal.SIGKILL)

    def crash(self, name: str) -> None:
        """The container is killed for want of memory."""
        with self.lock:
            if name in self.running:
                send(self.running[name].process, signal.SIGKILL)

    # --- controllers -------------------------------------------------------------------------------------------------

    def _drive(self) -> None:
        while not self._stop.wait(TICK_S):
            with self.lock:
                for one in list(self.sets.values()):
                    self._reconcile_set(one)
                for name in list(self.pods):
                    self._reconcile_pod(name)
                for job in list(self.jobs.values()):
                    self._reconcile_job(job)
                self.observe()

    def _reconcile_set(self, found: Document) -> None:
        name, children = found["metadata"]["name"], self._children(found)
        if "deletionTimestamp" in found["metadata"]:
            for child in children:
                self.delete("Job", child["metadata"]["name"])
            if not children:
                del self.sets[name]
            return
        if ended(found):
            return
        restarts = found["status"].setdefault("restarts", 0)
        if any(ended(child) == "Failed" for child in children):
            if restarts >= found["spec"]["failurePolicy"]["maxRestarts"]:
                jobs = ", ".join(one["metadata"]["name"] for one in children)
                self._conclude(
                    found, condition("Failed", "FailedJobs", f"jobset failed due to one or more job failures ({jobs})")
                )
                return
            for child in children:
                self.delete("Job", child["metadata"]["name"])
            found["status"]["recreating"] = True
            return
        if children and all(ended(child) == "Complete" for child in children):
            self._conclude(found, condition("Completed", "AllJobsCompleted", "jobset completed successfully"))
            return
        if children:
            return
        if found["status"].pop("recreating", False):
            found["status"]["restarts"] = restarts + 1
        for group in found["spec"]["replicatedJobs"]:
            spec = group["template"]["spec"]
            template = spec["template"]
            labels = {**template["metadata"].get("labels", {}), SET_LABEL: name}
            spec = {**spec, "template": {**template, "metadata": {**template["metadata"], "labels": labels}}}
            metadata = {"name": f"{name}-{group['name']}-0", "labels": {SET_LABEL: name}}
            self.create({"metadata": metadata, "spec": spec}, "Job", found["metadata"]["namespace"])

    def _children(self, found: Document) -> list[Document]:
        name = found["metadata"]["name"]
        return [job for job in self.jobs.values() if job["metadata"].get("labels", {}).get(SET_LABEL) == name]

    def _reconcile_job(self, job: Document) -> None:
        name, spec, status = job["metadata"]["name"], job["spec"], job["status"]
        mine = self._pods_of(name)
        active = {pod for pod, body in mine.items() if body["status"]["phase"] in ("Pending", "Running")}
        if "deletionTimestamp" in job["metadata"]:
            for pod in mine:
                self.delete_pod(pod)
            if not active:
                for pod in mine:
                    del self.pods[pod]
                del self.jobs[name]
            return
        if ended(job):
            for pod in active:
                self._end(pod)
            status["active"] = len(active)
            return
        status.setdefault("since", time.monotonic())
        done = status.setdefault("done", [])
        for pod, body in mine.items():
            if body["status"]["phase"] in ("Succeeded", "Failed") and pod not in status.setdefault("counted", []):
                status["counted"].append(pod)
                self._count(job, pod, body)
        if ended(job):
            return
        deadline = spec.get("activeDeadlineSeconds")
        if deadline is not None and time.monotonic() - status["since"] > deadline:
            self._conclude(
                job, condition("Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
            )
            return
        wanted = set(range(spec.get("completions", 1))) - set(done)
        if not wanted:
            self._conclude(
                job, condition("Complete", "CompletionsReached", "Reached expected number of succeeded pods")
            )
            return
        for index in wanted - {self.pods[pod]["index"] for pod in active}:
            self._make_pod(job, index)
        status["active"] = len(active)

    def _count(self, job: Document, pod: str, body: Document) -> None:
        """What a pod's end means for its job."""
        status, spec = job["status"], job["spec"]
        if body["status"]["phase"] == "Succeeded":
            status["done"].append(body["index"])
            status["succeeded"] = len(status["done"])
            return
        code = body["status"]["containerStatuses"][0]["state"].get("terminated", {}).get("exitCode", 137)
        kinds = {one["type"] for one in body["status"].get("conditions", ()) if one["status"] == "True"}
        where = f"{job['metadata']['namespace']}/{pod}"
        for number, rule in enumerate(spec.get("podFailurePolicy", {}).get("rules", ())):
            said = None
            if code in rule.get("onExitCodes", {}).get("values", ()):
                said = f"Container {rule['onExitCodes']['containerName']} for pod {where} failed with exit code {code}"
            for wanted in rule.get("onPodConditions", ()):
                if wanted["type"] in kinds:
                    said = f"Pod {where} has condition {wanted['type']}"
            if said is None:
                continue
            if rule["action"] == "FailJob":
                message = f"{said} matching FailJob rule at index {number}"
                self._conclude(job, condition("Failed", "PodFailurePolicy", message))
            if rule["action"] in ("FailJob", "Ignore"):
                return
        status["failed"] = status.get("failed", 0) + 1
        if status["failed"] > spec.get("backoffLimit", 6):
            message = "Job has reached the specified backoff limit"
            self._conclude(job, condition("Failed", "BackoffLimitExceeded", message))

    def _make_pod(self, job: Document, index: int) -> None:
        name = f"{job['metadata']['name'][:57]}-{random.randrange(16**5):05x}"
        template = job["spec"]["template"]
        labels = {**template["metadata"].get("labels", {}), **dict.fromkeys(JOB_LABELS, job["metadata"]["name"])}
        self.pods[name] = {
            "metadata": {
                "name": name,
                "namespace": job["metadata"]["namespace"],
                "uid": self._uid(),
                "labels": labels,
                "annotations": {INDEX: str(index)},
                "creationTimestamp": now(),
            },
            "spec": template["spec"],
            "status": {"phase": "Pending", "conditions": []},
            "index": index,
        }

    def _reconcile_pod(self, name: str) -> None:
        pod = self.pods[name]
        status = pod["status"]
        if status["phase"] == "Pending":
            self._schedule(name, pod)
        elif status["phase"] == "Running":
            self._watch(name, pod)
        elif "deletionTimestamp" in pod["metadata"]:
            owner = self._owner(pod)
            if owner is None or name in owner["status"].get("counted", ()):
                del self.pods[name]

    def _schedule(self, name: str, pod: Document) -> None:
        status, spec = pod["status"], pod["spec"]
        if "deletionTimestamp" in pod["metadata"]:
            status["phase"] = "Failed"
            status["containerStatuses"] = [container_status(pod, {})]
            return
        if self.faults.no_node & set(spec.get("nodeSelector", {}).items()):
            status["conditions"] = [condition("PodScheduled", "Unschedulable", "0/3 nodes are available", "False")]
            return
        status["conditions"] = [condition("PodScheduled", "", "")]
        image = spec["containers"][0]["image"]
        if time.monotonic() - self._born < self.faults.no_image:
            waiting = {"reason": "ImagePullBackOff", "message": f"Back-off pulling image {image}"}
            status["containerStatuses"] = [container_status(pod, {"waiting": waiting})]
            return
        self.running[name] = begin(name, pod, self)
        status["phase"] = "Running"
        status["containerStatuses"] = [container_status(pod, {"running": {"startedAt": now()}})]

    def _watch(self, name: str, pod: Document) -> None:
        one = self.running[name]
        code = one.process.poll()
        if code is None:
            if one.kill_at is not None and time.monotonic() > one.kill_at:
                send(one.process, signal.SIGKILL)
            return
        with suppress(ProcessLookupError):
            os.killpg(one.process.pid, signal.SIGKILL)  # a container's processes end with its first
        code = code if code >= 0 else 128 - code
        pod["status"]["phase"] = "Succeeded" if code == 0 else "Failed"
        terminated = {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "finishedAt": now()}
        pod["status"]["containerStatuses"] = [container_status(pod, {"terminated": terminated})]

    def _end(self, name: str) -> None:
        """Ask a pod's process to end, once."""
        one = self.running.get(name)
        if one is not None and one.kill_at is None and one.process.poll() is None:
            grace = self.pods[name]["spec"].get("terminationGracePeriodSeconds", 30) * self.faults.grace
            one.kill_at = time.monotonic() + grace
            os.kill(one.process.pid, signal.SIGTERM)

    def _owner(self, pod: Document) -> Document | None:
        return self.jobs.get((pod["metadata"].get("labels") or {}).get(JOB_LABELS[0], ""))

    def _pods_of(self, job: str) -> dict[str, Document]:
        return {
            name: pod
            for name, pod in self.pods.items()
            if (pod["metadata"].get("labels") or {}).get(JOB_LABELS[0]) == job
        }

    def _conclude(self, found: Document, how: Document) -> None:
        found["status"]["conditions"] = [how]

    def _uid(self) -> str:
        self._uids += 1
        return f"uid-{self._uids}"

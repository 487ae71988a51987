"""Registry of a deployment's background runs: one JSON file each, correct also after a crash or a reused process id.

Three kinds: `local` (started here in the background; a keeper process records how it ended), `pipes` (a training that
Dagster started on this machine) and `remote` (a pod). Imports no torch.
"""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from capibara_assets.errors import ClusterSilent, InputError, IntegrityError, ambiguous
from capibara_assets.processes import clouds
from capibara_assets.processes.groups import end_group
from capibara_assets.processes.identity import Process
from capibara_assets.storage.foreign import read_stored
from capibara_assets.storage.jsonfiles import parse_json, write_json_atomic

Kind = Literal["local", "pipes", "remote"]
State = Literal["running", "finished", "failed", "stopped", "lost", "unknown"]

JOB_LOG = "CAPIBARA_JOB_LOG"
"""Variable that names the log file to a training process whose output goes elsewhere."""

STOP_GRACE_S = 20.0
_KEPT = 200  # ended jobs; older ones are removed with their logs
_KEEPER_WRITES_S = 2.0  # between a job's end and its keeper's record of it


@dataclass(frozen=True)
class Pod:
    """A pod of a cluster, or a job of a cloud.

    Attributes:
        owner: `Job/NAME` or `JobSet/NAME` that would start another one in its place; empty: it stands alone. Of a
            job of Google Cloud its resource name.
    """

    name: str
    namespace: str
    owner: str = ""


@dataclass(frozen=True)
class Job:
    """A background run as its file records it; `state_of` gives the present state of one recorded as running.

    Attributes:
        process: leads the process group that does the work; None for a pod.
        keeper: process that records how a local job ends.
        output: folder that the job writes to, if known.
        run: Dagster's run, if it belongs to one.
        state: as recorded last.
    """

    id: str
    kind: Kind
    command: tuple[str, ...]
    cwd: str
    started: str
    log: str | None = None
    output: str | None = None
    process: Process | None = None
    keeper: Process | None = None
    pod: Pod | None = None
    run: str | None = None
    state: State = "running"
    code: int | None = None
    ended: str | None = None


class Jobs:
    """The job registry of one deployment, in `<home>/jobs`."""

    def __init__(self, home: Path):
        self.folder = home / "jobs"

    def all(self) -> list[Job]:
        """Every recorded job that can be read, the oldest first."""
        jobs = [job for path in self.folder.glob("*.json") if isinstance(job := _read(path), Job)]
        return sorted(jobs, key=lambda job: (job.started, job.id))

    def damaged(self, name: str = "") -> list[str]:
        """What is wrong with each file of a job, whose id begins with `name`, that cannot be read; sorted."""
        return [
            wrong
            for path in sorted(self.folder.glob("*.json"))
            if path.name.startswith(name) and isinstance(wrong := _read(path), str)
        ]

    def find(self, name: str) -> Job:
        """The job whose id begins with `name`; `latest` is the one started last.

        Raises:
            InputError: no job or several match.
            IntegrityError: none matches but one whose file is damaged.
        """
        known = self.all()
        matches = known[-1:] if name == "latest" else [job for job in known if job.id.startswith(name)]
        if not matches and (damaged := self.damaged("" if name == "latest" else name)):
            raise IntegrityError("; ".join(damaged))
        if len(matches) != 1:
            ids = ambiguous([job.id for job in matches])
            raise InputError(
                f"{name!r} names {len(matches) or 'no'} jobs of {self.folder}{ids}: see `capibara jobs ls`"
            )
        return matches[0]

    def write(self, job: Job) -> Job:
        """Write a job's file; returns the job."""
        document = {key: value for key, value in asdict(job).items() if value is not None}
        write_json_atomic(self.folder / f"{job.id}.json", document)
        return job

    def log_file(self, identifier: str) -> Path:
        """Path of a job's log file."""
        return self.folder / f"{identifier}.log"

    def register(
        self,
        kind: Kind,
        command: Sequence[str],
        *,
        identifier: str | None = None,
        pid: int | None = None,
        pod: Pod | None = None,
        log: Path | None = None,
        run: str | None = None,
    ) -> Job:
        """Record a job that the caller started; the caller reports its end with `end`."""
        self._remove_old()
        return self.write(
            Job(
                id=identifier or new_id(),
                kind=kind,
                command=tuple(command),
                cwd=str(Path.cwd()),
                started=_now(),
                log=None if log is None else str(log),
                process=None if pid is None else Process.of(pid),
                pod=pod,
                run=run,
            )
        )

    def end(self, job: Job, code: int | None) -> Job:
        """Record how a job ended.

        Args:
            code: exit code, negative or above 128 for a signal; None: it failed without one.
        """
        recorded = _read(self.folder / f"{job.id}.json")
        current = recorded if isinstance(recorded, Job) else job  # a damaged record is written anew
        if current.state == "stopped":
            return self.write(replace(current, code=code))
        by_request = code is not None and (code < 0 or code - 128 in (signal.SIGINT, signal.SIGTERM))
        state: State = "finished" if code == 0 else "stopped" if by_request else "failed"
        return self.write(replace(current, state=state, code=code, ended=_now()))

    def start_background(self, command: Sequence[str], *, output: Path | None = None) -> Job:
        """Start a command that outlives this process, with its output in a log file, and record it as a job.

        It leads a process group of its own; a keeper process beside it records its exit code.

        Raises:
            InputError: the command cannot be started.
        """
        self._remove_old()
        identifier = new_id()
        log = self.log_file(identifier)
        log.parent.mkdir(parents=True, exist_ok=True)
        place, to = str(Path.cwd()), str(output) if output else None
        note = Job(identifier, "local", tuple(command), place, _now(), str(log), to)
        self.write(note)
        with log.open("ab") as file:
            subprocess.Popen(
                [sys.executable, "-m", "capibara_assets.processes.background", str(self.folder.parent), identifier],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**os.environ, "PYTHONPATH": _with_package()},
                start_new_session=True,
            )
        deadline = time.monotonic() + 30
        while (job := self.find(identifier)).process is None:
            if job.state != "running":
                raise InputError(f"cannot start {command[0]}: {log.read_text('utf-8').strip() or 'no reason given'}")
            if time.monotonic() > deadline:
                raise InputError(f"{command[0]} did not start within 30 s: see {log}")
            time.sleep(0.02)
        return job

    def keep(self, identifier: str) -> int:
        """Run as the keeper of a recorded job: start it, wait, record how it ended. Returns its exit code."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # a stop ends the job's group; the keeper records it
        job = self.find(identifier)
        try:
            process = subprocess.Popen(
                job.command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_heed_signals
            )
        except OSError as error:
            print(f"{error.strerror}: {job.command[0]}", file=sys.stderr, flush=True)
            self.end(job, 127)
            return 127
        job = self.write(replace(job, process=Process.of(process.pid), keeper=Process.of(os.getpid())))
        code = process.wait()
        self.end(job, code)
        return code

    def _remove_old(self) -> None:
        ended = [job for job in self.all() if job.state != "running" or (job.process and not job.process.is_alive())]
        for job in ended[:-_KEPT]:
            self.log_file(job.id).unlink(missing_ok=True)
            (self.folder / f"{job.id}.json").unlink(missing_ok=True)


def state_of(job: Job) -> State:
    """A job's present state: `lost` where its process is gone and no end was recorded, `unknown` where a pod's cluster
    does not answer."""
    if job.state != "running":
        return job.state
    if job.pod is not None:
        return pod_state(job.pod)
    if job.process is None:  # its keeper is about to start it, or died before
        age = time.time() - datetime.fromisoformat(job.started).timestamp()
        return "running" if abs(age) < 30 else "lost"  # one that begins later: the clock was set back
    if job.process.is_alive():
        return "running"
    deadline = time.monotonic() + _KEEPER_WRITES_S
    while job.keeper is not None and job.keeper.is_alive() and time.monotonic() < deadline:
        time.sleep(0.02)  # it is about to record how the job ended
    current = _read(Path(job.log).parent / f"{job.id}.json") if job.keeper and job.log else None
    return current.state if isinstance(current, Job) and current.state != "running" else "lost"


def stop(jobs: Jobs, job: Job, grace_s: float = STOP_GRACE_S) -> Job:
    """End a job: SIGTERM to its process group, `grace_s` seconds to save, SIGKILL. A pod is deleted.

    Raises:
        InputError: it does not run, or its cluster does not answer.
    """
    state = state_of(job)
    if job.pod is not None and state == "running":
        # before the pod goes, as below: the run that follows it would else record a failure at the same time
        jobs.write(replace(job, state="stopped", ended=_now()))
        try:
            _delete_pod(job.pod, grace_s)
        except InputError:
            jobs.write(job)
            raise
        return jobs.find(job.id)
    if state != "running" or job.process is None:
        raise InputError(f"job {job.id} does not run: it is {state}")
    jobs.write(replace(job, state="stopped", ended=_now()))  # before the signal: its keeper then knows why it ended
    end_group(job.process, signal.SIGTERM, grace_s)
    return jobs.find(job.id)


def pod_state(pod: Pod) -> State:
    """A pod's state by its cluster; `unknown` where no cluster answers, `lost` where the cluster has no such pod."""
    if clouds.is_cloud_job(pod.owner):
        try:
            return clouds.state(pod.owner)
        except (ClusterSilent, InputError):
            return "unknown"
    try:
        phase = _core_api().read_namespaced_pod_status(pod.name, pod.namespace, _request_timeout=5).status.phase
    except InputError:
        return "unknown"
    except Exception as error:  # noqa: BLE001 - whatever the client raises when a cluster does not answer
        return "lost" if getattr(error, "status", None) == 404 else "unknown"
    states: dict[str, State] = {"Succeeded": "finished", "Failed": "failed", "Pending": "running", "Running": "running"}
    return states.get(phase, "unknown")


def pod_log(pod: Pod, follow: bool) -> Any:
    """A pod's log as a stream of bytes; with `follow` it goes on until the pod ends.

    Raises:
        InputError: its cluster does not answer, or it is a job of a cloud.
    """
    if clouds.is_cloud_job(pod.owner):
        raise InputError(f"the hosts of {pod.owner} write their logs beside its output; its end brings them to --out")
    try:
        return _core_api().read_namespaced_pod_log(
            pod.name, pod.namespace, follow=follow, _preload_content=False, _request_timeout=None if follow else 10
        )
    except InputError:
        raise
    except Exception as error:  # as above
        raise InputError(f"the log of pod {pod.namespace}/{pod.name} cannot be read: {_reason(error)}") from error


def new_id() -> str:
    """A new unique job id: sorts by time and is short enough to type."""
    return f"{datetime.now(UTC):%m%d-%H%M%S}-{uuid.uuid4().hex[:4]}"


def _delete_pod(pod: Pod, grace_s: float) -> None:
    try:
        if pod.owner:
            _delete_owner(pod)
        else:
            _core_api().delete_namespaced_pod(
                pod.name, pod.namespace, grace_period_seconds=round(grace_s), _request_timeout=10
            )
    except InputError:
        raise
    except Exception as error:  # as above
        raise InputError(f"pod {pod.namespace}/{pod.name} cannot be deleted: {_reason(error)}") from error


def _delete_owner(pod: Pod) -> None:
    """Delete what would replace a deleted pod, and the pod with it, which gets its own grace period."""
    if clouds.is_cloud_job(pod.owner):
        clouds.asked(f"end {pod.owner}", lambda: clouds.end(pod.owner), clouds.REQUEST_S)
        return
    client = cluster_client()
    import kubernetes

    kind, _, name = pod.owner.partition("/")
    body = kubernetes.client.V1DeleteOptions(propagation_policy="Foreground")
    if kind == "JobSet":
        kubernetes.client.CustomObjectsApi(client).delete_namespaced_custom_object(
            "jobset.x-k8s.io", "v1alpha2", pod.namespace, "jobsets", name, body=body, _request_timeout=10
        )
    else:
        kubernetes.client.BatchV1Api(client).delete_namespaced_job(name, pod.namespace, body=body, _request_timeout=10)


def cluster_client() -> Any:
    """API client of the cluster that kubectl is configured for, else of the one that this process runs in.

    Raises:
        InputError: the client is not installed, or no cluster is configured.
    """
    try:
        import kubernetes
    except ImportError as error:
        raise InputError("kubernetes is not installed: pip install 'capibara-assets[k8s]'") from error
    try:
        kubernetes.config.load_kube_config()
    except (kubernetes.config.ConfigException, OSError):
        try:
            kubernetes.config.load_incluster_config()
        except kubernetes.config.ConfigException as error:
            raise InputError("no cluster is configured here: set KUBECONFIG") from error
    return kubernetes.client.ApiClient()


def _core_api() -> Any:
    client = cluster_client()
    import kubernetes

    return kubernetes.client.CoreV1Api(client)


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error)


def _heed_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _with_package() -> str:
    """PYTHONPATH with this package in it, so that the keeper finds it."""
    package, given = str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH")
    return package if not given else os.pathsep.join([package, given])


def _read(path: Path) -> Job | str | None:
    """The job in a file, or what is wrong with the file; None where it is gone."""
    try:
        document = parse_json(read_stored(path))
        if document["id"] != path.stem:
            raise ValueError("its id is another")
        datetime.fromisoformat(document["started"])
        nested = {"process": Process, "keeper": Process, "pod": Pod}
        for key, kind in nested.items():
            if key in document:
                document[key] = kind(**document[key])
        return Job(**{**document, "command": tuple(document["command"])})
    except FileNotFoundError:
        return None
    except IntegrityError as error:
        return f"{error}; remove it, its job is no longer known"
    except (OSError, ValueError, TypeError, KeyError) as error:
        return f"{path} holds no job ({type(error).__name__}: {error}); remove it, its job is no longer known"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


if __name__ == "__main__":
    sys.exit(Jobs(Path(sys.argv[1])).keep(sys.argv[2]))

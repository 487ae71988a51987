"""Background runs with real processes: ends are noted, the dead recognised, recycled numbers too, stops complete."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from capibara_assets.cli.graph.jobs import jobs as command
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.processes.background import STOP_GRACE_S, Job, Jobs, Pod, pod_state, state_of, stop
from capibara_assets.processes.identity import Process
from capibara_assets_tests.processes.test_groups import all_gone, pids
from capibara_assets_tests.served import QuietHandler, served
from capibara_assets_tests.spoilt_files import put_in_place
from capibara_assets_tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    monkeypatch.setenv("CAPIBARA_HOME", str(tmp_path / "home"))
    known = Jobs(tmp_path / "home")
    yield known
    for job in known.all():  # nothing outlives a test that failed
        if job.kind == "local" and job.process and job.process.is_alive():
            os.killpg(job.process.pid, signal.SIGKILL)


def script(text: str) -> list[str]:
    return [sys.executable, "-S", "-c", text]


def ended(jobs: Jobs, job: Job, within_s: float = 20.0) -> Job:
    until(lambda: jobs.find(job.id).state != "running", within_s)
    return jobs.find(job.id)


def test_a_job_outlives_its_starter_and_its_end_is_noted(jobs: Jobs, tmp_path: Path) -> None:
    release = tmp_path / "released"
    text = f"""
import os, time
print('step 1', flush=True)
while not os.path.exists({str(release)!r}):
    time.sleep(0.01)
print('done')
raise SystemExit(3)
"""
    starter = f"""
import sys
from pathlib import Path
from capibara_assets.processes.background import Jobs
print(Jobs(Path({str(tmp_path / "home")!r})).start_background([sys.executable, "-S", "-c", {text!r}]).id)
"""
    identifier = subprocess.run(
        [sys.executable, "-c", starter], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
    job = jobs.find(identifier)
    assert state_of(job) == "running" and job.process and os.getpgid(job.process.pid) == job.process.pid
    threading.Timer(0.2, release.touch).start()  # the job ends while it is followed, or a moment before
    followed = CliRunner().invoke(command, ["logs", "-f", "latest"])
    assert followed.output == "step 1\ndone\n", "follows until the end"
    job = ended(jobs, job)
    assert (job.state, job.code) == ("failed", 3)
    assert all_gone([pid.pid for pid in (job.process, job.keeper) if pid])


def test_stop_ends_the_whole_group_after_its_grace(jobs: Jobs, tmp_path: Path) -> None:
    text = f"""
import signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-S", "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"])
def save(*_):
    open({str(tmp_path / "saved")!r}, "w").write("yes")
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
open({str(tmp_path / "pids.tmp")!r}, "w").write(str(child.pid))
import os; os.rename({str(tmp_path / "pids.tmp")!r}, {str(tmp_path / "pids")!r})
time.sleep(60)
"""
    job = jobs.start_background(script(text))
    (child,) = pids(tmp_path)
    began = time.monotonic()
    stopped = CliRunner().invoke(command, ["stop", job.id])
    assert stopped.output == f"{job.id} stopped\n" and time.monotonic() - began < STOP_GRACE_S
    assert (tmp_path / "saved").read_text() == "yes"
    assert job.process and all_gone([job.process.pid, child])
    with pytest.raises(InputError, match="does not run: it is stopped"):
        stop(jobs, jobs.find(job.id))


def test_a_job_that_ignores_the_signal_is_killed(jobs: Jobs, tmp_path: Path) -> None:
    text = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    job = jobs.start_background(script(f"{text}; print('deaf', flush=True); import time; time.sleep(60)"))
    until(lambda: "deaf" in jobs.log_file(job.id).read_text(), 120)
    began = time.monotonic()
    stop(jobs, job, grace_s=0.5)
    assert 0.5 <= time.monotonic() - began < 60
    assert job.process and all_gone([job.process.pid])
    assert ended(jobs, job).state == "stopped"


def test_killed_with_its_keeper_a_job_is_lost(jobs: Jobs) -> None:
    job = jobs.start_background(script("import time; time.sleep(60)"))
    job = jobs.find(job.id)
    assert job.process and job.keeper
    os.kill(job.keeper.pid, signal.SIGKILL)
    assert state_of(jobs.find(job.id)) == "running", "it works on without its keeper"
    os.kill(job.process.pid, signal.SIGKILL)
    assert all_gone([job.process.pid])
    assert state_of(jobs.find(job.id)) == "lost"
    listed = json.loads(CliRunner().invoke(command, ["ls", "--json"]).stdout)
    assert [one["state"] for one in listed] == ["lost"]


def test_a_recycled_process_number_is_neither_running_nor_signalled(jobs: Jobs) -> None:
    with subprocess.Popen(script("import time; time.sleep(60)"), start_new_session=True) as other:
        job = jobs.register("pipes", ["train"], pid=other.pid)
        assert job.process and state_of(job) == "running"
        stale = jobs.write(replace(job, process=Process(other.pid, job.process.started - 3600)))
        assert state_of(stale) == "lost"
        with pytest.raises(InputError, match="it is lost"):
            stop(jobs, stale)
        assert psutil.pid_exists(other.pid) and other.poll() is None
        other.kill()


def test_what_cannot_be_started_is_said(jobs: Jobs, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot start .*absent: No such file or directory"):
        jobs.start_background([str(tmp_path / "absent")])
    assert jobs.all()[0].state == "failed"


def test_names_are_beginnings_of_ids_and_foreign_files_no_jobs(jobs: Jobs) -> None:
    first = jobs.register("pipes", ["a"], identifier="1120-101500-aaaa", pid=os.getpid())
    jobs.register("pipes", ["b"], identifier="1120-101500-abbb", pid=os.getpid())
    (jobs.folder / "notes.json").write_text('{"some": "thing"}')
    (jobs.folder / "cut.json").write_text('{"id": "x')
    assert jobs.find("1120-101500-aa") == first
    for name, problem in (("1120", "names 2 jobs"), ("zz", "names no jobs")):
        with pytest.raises(InputError, match=problem):
            jobs.find(name)
    jobs.end(first, 0)
    listed = CliRunner().invoke(command, ["ls"])
    shown = listed.output
    assert str(listed.exception).count(" holds no job (") == 2
    assert "abbb" in shown and "aaaa" not in shown and "1 that ended: --all" in shown
    assert "state: finished" in CliRunner().invoke(command, ["status", "1120-101500-aa"]).output
    assert isinstance(CliRunner().invoke(command, ["logs", "1120-101500-aa"]).exception, InputError)


def spoilt(file: Path, to: str) -> None:
    text = file.read_text()
    texts = {"cut": text[:40], "another's": text.replace("1120", "1121"), "no time": '{"id": "b"}'}
    put_in_place(file, texts.get(to, to))


@pytest.mark.parametrize("to", ["cut", "a pipe", "a device", "another's", "no time"])
def test_a_damaged_file_of_a_job_is_told_and_the_others_are_listed(jobs: Jobs, to: str) -> None:
    whole = jobs.register("pipes", ["a"], identifier="1120-101500-aaaa", pid=os.getpid())
    broken = jobs.register("pipes", ["b"], identifier="1120-101500-bbbb", pid=os.getpid())
    assert CliRunner().invoke(command, ["ls"]).exit_code == 0
    file = jobs.folder / f"{broken.id}.json"
    spoilt(file, to)
    for arguments in (["ls"], ["ls", "--json"]):
        listed = CliRunner().invoke(command, arguments)
        assert isinstance(listed.exception, IntegrityError) and str(file) in str(listed.exception)
        assert whole.id in listed.output and "remove it" in str(listed.exception)
    assert jobs.all() == [whole] and jobs.find("latest") == whole
    with pytest.raises(IntegrityError, match="bbbb"):
        jobs.find("1120-101500-b")
    assert jobs.end(broken, 0).state == "finished" and jobs.damaged() == []


def test_only_so_many_ended_jobs_are_kept_with_their_logs(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capibara_assets.processes.background._KEPT", 2)
    running = jobs.register("pipes", ["runs"], identifier="1", pid=os.getpid())
    for name in ("2", "3", "4"):
        jobs.log_file(name).write_text("log")
        jobs.end(jobs.register("pipes", ["ended"], identifier=name, pid=os.getpid()), 0)
    jobs.register("pipes", ["new"], identifier="5", pid=os.getpid())
    assert [job.id for job in jobs.all()] == [running.id, "3", "4", "5"]
    assert sorted(path.name for path in jobs.folder.glob("*.log")) == ["3.log", "4.log"]


class Cluster(QuietHandler):
    """A Kubernetes API server with one pod that runs."""

    deleted: list[str]

    def do_GET(self) -> None:
        if self.path.split("?")[0].endswith("/pods/train-1/status"):
            self.send(200, {"kind": "Pod", "metadata": {"name": "train-1"}, "status": {"phase": "Running"}})
        elif self.path.split("?")[0].endswith("/pods/train-1/log"):
            self.send(200, "step 1\nstep 2\n", "text/plain")
        else:
            self.send(404, {"kind": "Status", "code": 404})

    def do_DELETE(self) -> None:
        self.deleted.append(self.path.split("?")[0])
        self.send(200, {"kind": "Pod", "metadata": {"name": "train-1"}})


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadingHTTPServer]:
    Cluster.deleted = []
    with served(Cluster) as server:
        named = {"cluster": "c", "user": "u"}
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "here", "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "here", "context": named}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        }  # fmt: skip
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
        yield server


def test_a_pod_is_asked_at_its_cluster_and_deleted_by_stop(jobs: Jobs, cluster: ThreadingHTTPServer) -> None:
    job = jobs.register("remote", ["train"], pod=Pod("train-1", "ml"))
    assert state_of(job) == "running"
    assert pod_state(Pod("train-2", "ml")) == "lost"
    assert CliRunner().invoke(command, ["logs", job.id]).output == "step 1\nstep 2\n"
    assert CliRunner().invoke(command, ["stop", job.id]).output == f"{job.id} stopped\n"
    assert Cluster.deleted == ["/api/v1/namespaces/ml/pods/train-1"]


def test_without_a_cluster_a_pods_state_is_unknown(
    jobs: Jobs, cluster: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "absent"))
    job = jobs.register("remote", ["train"], pod=Pod("train-1", "ml"))
    assert state_of(job) == "unknown"
    with pytest.raises(InputError, match="it is unknown"):
        stop(jobs, job)

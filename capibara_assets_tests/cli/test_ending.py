"""Commands that run until they are ended: by SIGINT or SIGTERM they do, also in the background of a script."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from capibara_assets.processes.background import Jobs, stop
from capibara_assets.processes.groups import family
from capibara_assets.processes.serving import require_free
from capibara_assets_tests.served import free_port
from capibara_assets_tests.training.exporters.test_exporters import write_log
from capibara_assets_tests.training.monitoring.test_views import training
from capibara_assets_tests.ui.process import IGNORING_SIGINT
from capibara_assets_tests.waiting import until

LONG = (pytest.mark.extended, pytest.mark.slow)
SIGNALS = [signal.SIGINT, signal.SIGTERM]


@dataclass(frozen=True)
class Started:
    """A command that runs, and the file that gets what it prints."""

    process: "subprocess.Popen[bytes]"
    said: Path

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + 240
        while text not in self.said.read_text():
            assert time.monotonic() < deadline and self.process.poll() is None, self.said.read_text()[-3000:]
            time.sleep(0.05)

    def ends_by(self, number: signal.Signals, code: int) -> None:
        """Signal this one process, and no other of its group; all below it has ended then, too."""
        below = family(self.process.pid)
        self.process.send_signal(number)
        assert self.process.wait(timeout=90) == code, self.said.read_text()[-3000:]
        _, alive = psutil.wait_procs(below, timeout=5)
        assert not alive


def command_line(words: str) -> list[str]:
    return [sys.executable, "-m", "capibara_assets.cli", *words.split()]


@contextmanager
def in_the_background(words: str, home: Path, **variables: str) -> Iterator[Started]:
    """A command as a script starts it with `&`: SIGINT is ignored then."""
    said = home / "said"
    own = {"CAPIBARA_HOME": str(home / "home"), "DAGSTER_HOME": "", "PYTHONUNBUFFERED": "1", **variables}
    with said.open("wb") as output:
        process = subprocess.Popen(
            [*IGNORING_SIGINT, *command_line(words)],
            env={**os.environ, **own},
            cwd=home,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield Started(process, said)
        finally:
            for one in family(process.pid):
                one.kill()
            process.wait()


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize(
    ("words", "ready"),
    [
        ("consensus serve . --port {port}", "http://127.0.0.1:{port}"),
        pytest.param("dashboard logs --port {port}", "TensorBoard on http://127.0.0.1:{port}", marks=LONG),
        pytest.param("ui --port {port}", "Serving dagster-webserver on http://127.0.0.1:{port}", marks=LONG),
    ],
    ids=["consensus_serve", "dashboard", "ui"],
)
def test_a_server_ends_and_its_port_is_free(words: str, ready: str, number: signal.Signals, tmp_path: Path) -> None:
    if words.startswith("dashboard"):
        pytest.importorskip("tensorboard")
        write_log(tmp_path / "logs" / "voter-0", training([(3, 0)]))
    port = free_port()
    words = words.format(port=port)
    with in_the_background(words, tmp_path, CAPIBARA_AUTOMATION="off") as server:
        server.wait_for(ready.format(port=port))
        if number == signal.SIGINT:  # once is enough
            until(lambda: any(one.laddr.port == port for one in psutil.net_connections("tcp") if one.laddr), 90)
            second = subprocess.run(command_line(words), cwd=tmp_path, capture_output=True, text=True, check=False)
            assert second.returncode == 2
            assert f"port {port} of 127.0.0.1 is not free (process " in second.stderr
            assert "choose another with --port" in second.stderr
        server.ends_by(number, 0)
    require_free("127.0.0.1", port)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_followed_log_ends_and_its_job_goes_on(number: signal.Signals, tmp_path: Path) -> None:
    jobs = Jobs(tmp_path / "home")
    job = jobs.start_background([sys.executable, "-S", "-c", "import time; print('on', flush=True); time.sleep(600)"])
    try:
        with in_the_background("jobs logs latest --follow", tmp_path) as followed:
            followed.wait_for("on")
            followed.ends_by(number, 130)
        assert job.process is not None and job.process.is_alive()
    finally:
        stop(jobs, jobs.find(job.id), 1.0)


WORKS = {"run": "--domains sql --profile demo", "backfill": "--domains sql --profile demo"}


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("name", sorted(WORKS))
def test_the_graph_ends_while_it_is_computed(name: str, number: signal.Signals, tmp_path: Path) -> None:
    with in_the_background(f"{name} {WORKS[name]}", tmp_path) as work:
        work.wait_for("ace_playbooks in")
        work.ends_by(number, 130)

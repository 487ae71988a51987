"""`capibara dashboard` with a real TensorBoard, asked over HTTP; what it shows is what the log says."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from click.testing import CliRunner

from capibara_assets.cli.training.dashboard import dashboard, newest_logs
from capibara_assets.deployment.environment import Deployment
from capibara_assets.errors import InputError
from capibara_assets.training.monitoring.views import current_view, points_of, series_of
from capibara_assets_tests.commands import command_of
from capibara_assets_tests.served import free_port
from capibara_assets_tests.training.exporters.test_exporters import ABSENT, write_log
from capibara_assets_tests.training.monitoring.test_views import training


def scalars(url: str, run: str, tag: str) -> list[tuple[int, float]]:
    query = urllib.parse.urlencode({"run": run, "tag": tag})
    try:
        with urllib.request.urlopen(f"{url}/data/plugin/scalars/scalars?{query}", timeout=5) as answer:
            return [(step, value) for _, step, value in json.load(answer)]
    except OSError:  # not up yet, or the run is not there yet
        return []


def expected(events: list[dict[str, Any]]) -> list[tuple[int, float]]:
    line = series_of(points_of(current_view(events)))["train/loss"]
    return [(step, float(np.float32(value))) for step, value in line]


def started(tmp_path: Path) -> tuple["subprocess.Popen[bytes]", int]:
    """The dashboard on the logs of a folder, and its port."""
    port = free_port()
    command = [
        *(sys.executable, "-m", "capibara_assets.cli", "dashboard", "--port", str(port)),
        *("--refresh", "2", str(tmp_path / "logs")),
    ]
    with (tmp_path / "said").open("w") as said:
        # what a killed dashboard leaves goes with the test's folder
        environment = os.environ | {"TMPDIR": str(tmp_path)}
        process = subprocess.Popen(
            command, env=environment, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
        return process, port


def test_tensorboard_shows_a_log_that_grows_and_goes_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason=ABSENT.format("tensorboard"))
    whole = training([(7, 4)])
    first = [event for event in whole if event["attempt"] == 1]
    write_log(tmp_path / "logs" / "voter-0", first)
    process, port = started(tmp_path)
    try:
        for events in (first, whole):
            write_log(tmp_path / "logs" / "voter-0", events)
            deadline = time.monotonic() + 240  # TensorBoard takes seconds to start, and minutes on a busy machine
            while (seen := scalars(f"http://127.0.0.1:{port}", "voter-0", "train/loss")) != expected(events):
                assert time.monotonic() < deadline and process.poll() is None, (seen, (tmp_path / "said").read_text())
                time.sleep(0.3)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/data/plugin/custom_scalars/layout", timeout=30) as answer:
            categories = json.load(answer)["category"]
        assert [len(category["chart"]) for category in categories] == [6, 4]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as answer:
            assert b"capibara-live.js" in answer.read()
    finally:
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(timeout=300) == 0
    assert f"TensorBoard on http://127.0.0.1:{port} with 1 logs" in (tmp_path / "said").read_text()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=2)


@pytest.mark.parametrize("victim", ["dashboard", pytest.param("tensorboard", marks=pytest.mark.extended)])
def test_neither_outlives_the_other_when_it_is_killed(tmp_path: Path, victim: str) -> None:
    pytest.importorskip("tensorboard", reason=ABSENT.format("tensorboard"))
    write_log(tmp_path / "logs" / "voter-0", training([(3, 0)]))
    process, _ = started(tmp_path)
    try:
        deadline = time.monotonic() + 60
        while not (family := [each for each in psutil.Process(process.pid).children() if is_tensorboard(each)]):
            assert time.monotonic() < deadline and process.poll() is None, (tmp_path / "said").read_text()
            time.sleep(0.05)
        (process if victim == "dashboard" else family[0]).kill()
        _, alive = psutil.wait_procs(family, timeout=30)
        assert process.wait(30) == (-signal.SIGKILL if victim == "dashboard" else 2) and not alive
    finally:
        process.kill()
    if victim == "tensorboard":
        assert "TensorBoard ended with exit code -9: see its output above" in (tmp_path / "said").read_text()


def is_tensorboard(process: psutil.Process) -> bool:
    return "capibara_assets.training.exporters.board" in command_of(process)


def test_a_busy_port_and_absent_logs_are_one_sentence_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capibara_assets.cli.training.dashboard.require", lambda library: None)
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        failure = CliRunner().invoke(dashboard, ["--port", str(port), str(tmp_path)]).exception
    assert isinstance(failure, InputError)
    assert str(failure).startswith(f"port {port} of 127.0.0.1 is not free (process {os.getpid()} listens there: ")
    assert str(failure).endswith("choose another with --port")

    deployment = Deployment.from_environment({"CAPIBARA_HOME": str(tmp_path)})
    with pytest.raises(InputError, match=r"no training log below .*: train first"):
        newest_logs(deployment)
    folder = deployment.work / "trained_adapters" / "sql" / "inputs" / "voter-1"
    write_log(folder, training([]))
    published = write_log(
        Path(deployment.store) / "artifacts" / "trained_adapters" / "sql" / "d" / "voters" / "v", training([(3, 0)])
    )
    assert [log.path for log in newest_logs(deployment)] == [published], "two copies of one run: the longer one"


def test_without_tensorboard_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    failure = CliRunner().invoke(dashboard, [str(tmp_path)]).exception
    assert isinstance(failure, InputError) and "pip install 'capibara-assets[metrics]'" in str(failure)

"""The training process with everything that listens: TensorBoard while it trains, lines for `capibara jobs logs`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.errors import InputError
from capibara_assets.training.__main__ import main
from capibara_assets.training.monitoring.events import read_events
from capibara_assets.training.monitoring.logs import RunInfo
from capibara_assets.training.monitoring.views import MetricPoint
from capibara_assets.training.supervisor.reporting import PROGRESS, reporting
from capibara_assets.training.supervisor.run import train_domain
from capibara_assets.training.supervisor.signals import StopSignal
from capibara_assets_tests.training.conftest import MakeRequest
from capibara_assets_tests.training.exporters.test_exporters import ABSENT, same
from capibara_assets_tests.training.monitoring.test_progress import did, started

TWO = [{"name": f"voter-{number}", "seed": number, "shard": number} for number in range(2)]


def test_the_training_process_exports_while_it_trains_and_tees_its_lines(
    make_request: MakeRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    accumulators = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason=ABSENT.format("tensorboard")
    )
    request = make_request(max_steps=4, voters=TWO, exporters=["tensorboard"])
    (tmp_path / "request.json").write_text(request.model_dump_json())
    monkeypatch.setenv("CAPIBARA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CAPIBARA_JOB_LOG", str(tmp_path / "job.log"))
    monkeypatch.setattr(StopSignal, "listen", lambda self: None)  # signals stay the tests'
    code, said = main(["--request", str(tmp_path / "request.json")]), capsys.readouterr()
    assert code == 0, said.err
    assert (tmp_path / "job.log").read_text() == said.out
    assert "python: 2 voters in" in said.out
    summary = json.loads((request.out / "summary.json").read_text())
    assert summary["finished"] == ["voter-0", "voter-1"]
    assert {"status", "steps", "validation_loss", "seconds", "curve"} <= summary["voters"]["voter-0"].keys()
    for voter in ("voter-0", "voter-1"):
        files = tmp_path / "home" / "metrics" / "tensorboard" / "python" / voter
        accumulator = accumulators.EventAccumulator(str(files), size_guidance={"scalars": 0})
        accumulator.Reload()
        seen = {
            tag: [(point.step, point.value) for point in accumulator.Scalars(tag)]
            for tag in accumulator.Tags()["scalars"]
        }
        assert same("tensorboard", seen, read_events(request.out / "voters" / voter / "events.jsonl"))


def test_the_table_is_published_at_most_every_ten_seconds_and_at_the_end(
    make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("capibara_assets.training.supervisor.reporting.time.monotonic", lambda: clock[0])
    published, said = list[dict[str, Any]](), list[str]()
    with reporting(make_request(), said.append, published.append) as report:
        report(started())
        for step in range(1, 31):
            clock[0] = float(step)
            report(did(step, 100.0 + step))
        assert [one["voters"][0]["step"] for one in published] == [10, 20, 30]
    assert len(published) == 4 and published[-1]["kind"] == PROGRESS
    json.dumps(published)
    assert len([line for line in said if " loss " in line]) == 3


class Raising:
    """An exporter of a full disk."""

    def begin(self, info: RunInfo) -> None:
        raise OSError(28, "No space left on device")

    def write(self, points: Sequence[MetricPoint]) -> None:
        raise AssertionError("begin() comes first")

    def close(self, finished: bool) -> None:
        """Nothing to close."""


def test_an_exporter_that_fails_leaves_the_result_as_it_is(
    make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capibara_assets.training.supervisor.reporting.make_exporter", lambda *_: Raising)
    said = list[str]()
    request = make_request(max_steps=2, voters=TWO[:1], exporters=["wandb"])
    with reporting(request, said.append, environment={}) as report:
        outcome = train_domain(request, report)
    assert outcome.finished == ("voter-0",)
    assert any(
        "export to wandb failed: OSError: [Errno 28] No space left on device; training goes on" in x for x in said
    )


def test_an_exporter_that_is_not_installed_is_said_before_anything_runs(
    make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    request = make_request(exporters=["mlflow"])
    with pytest.raises(InputError, match="mlflow is not installed"), reporting(request, print):
        raise AssertionError("nothing may run")

"""Exporters beside a training: one that raises and one that hangs cost it nothing, a healthy one loses nothing."""

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from capibara_assets.training.exporters import Exporter
from capibara_assets.training.exporters.live import LiveExport, Make
from capibara_assets.training.monitoring.logs import RunInfo
from capibara_assets.training.monitoring.views import MetricPoint, current_view, points_of
from capibara_assets_tests.training.exporters.test_exporters import write_log
from capibara_assets_tests.training.monitoring.test_views import training
from capibara_assets_tests.waiting import until


class Kept:
    """Keeps what it is given; does something first."""

    def __init__(self, before: "list[Exception] | threading.Event | None" = None):
        self.points: list[MetricPoint] = []
        self.closed: list[bool] = []
        self._before = before

    def begin(self, info: RunInfo) -> None:
        self.points.clear()

    def write(self, points: Sequence[MetricPoint]) -> None:
        if isinstance(self._before, threading.Event):
            self._before.wait()
        elif self._before:
            self.points += points[:1]  # half written
            raise self._before.pop()
        self.points += points

    def close(self, finished: bool) -> None:
        self.closed.append(finished)


def making(exporter: Exporter) -> Make:
    return lambda: exporter


EVENTS = [event | {"voter": "voter-0"} for event in training([(5, 2)])]
EXPECTED = points_of(current_view(EVENTS))


def test_a_hanging_and_a_raising_exporter_hold_nothing_up_and_the_other_gets_everything(tmp_path: Path) -> None:
    said, release = list[str](), threading.Event()
    healthy, hanging, raising = Kept(), Kept(release), Kept([OSError(28, "No space left on device")] * 99)
    live = LiveExport(
        {"voter-0": tmp_path / "voter-0" / "events.jsonl"},
        {"tensorboard": making(healthy), "wandb": making(hanging), "mlflow": making(raising)},
        said.append,
        every_s=0.01,
    )
    for number in range(1, len(EVENTS) + 1):
        write_log(tmp_path / "voter-0", EVENTS[:number])
        live.notice(EVENTS[number - 1])  # handed over: who waited for the one that hangs would wait for ever
        time.sleep(0.005)
    hung = live.close(wait_s=0.5)
    assert not release.is_set()
    release.set()

    assert hung == ["wandb"]
    assert healthy.points == EXPECTED and healthy.closed == [False]
    full = [line for line in said if "mlflow failed: OSError: [Errno 28] No space left" in line]
    assert len(full) == 1 and "`capibara metrics export OUTPUT --to mlflow`" in full[0]
    assert live.failures["mlflow"] >= 1 and live.failures["tensorboard"] == 0
    assert any("export to wandb hangs and was abandoned" in line for line in said)


def test_what_failed_halfway_is_written_again_from_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capibara_assets.training.exporters.live._FIRST_WAIT_S", 0.01)
    finished = [*EVENTS, EVENTS[-1] | {"event": "finished", "seconds": 1.0}]
    write_log(tmp_path / "voter-0", finished)
    said, exporter = list[str](), Kept([ConnectionError("gone"), ConnectionError("gone")])
    logs = {"voter-0": tmp_path / "voter-0" / "events.jsonl"}
    live = LiveExport(logs, {"wandb": making(exporter)}, said.append, every_s=0.01)
    live.notice(finished[-1])
    until(lambda: exporter.points == EXPECTED, 120)
    assert live.close() == []
    assert exporter.points == EXPECTED and exporter.closed == [True]
    assert said == [line for line in said if "failed" in line] and len(said) == 2  # the first one, and the count
    assert "failed 2 times" in said[1]


def test_a_log_that_is_not_there_is_said(tmp_path: Path) -> None:
    """A training once wrote its log elsewhere, and its exporters ended in silence."""
    said, file = list[str](), tmp_path / "elsewhere" / "events.jsonl"
    live = LiveExport({"voter-0": file}, {"tensorboard": making(Kept())}, said.append, every_s=0.01)
    live.notice(EVENTS[-1])
    assert live.close() == []
    assert said == [f"export to tensorboard found nothing to write in {file}"]

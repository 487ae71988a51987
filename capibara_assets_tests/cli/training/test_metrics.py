"""`capibara metrics export` on the files of a training."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from capibara_assets.cli.training.metrics import metrics
from capibara_assets.errors import InputError
from capibara_assets.training.monitoring.metrics import metrics_of
from capibara_assets_tests.training.exporters.test_exporters import ABSENT, same, tensorboard_series, write_log
from capibara_assets_tests.training.monitoring.test_views import training


def test_json_and_csv_of_a_folder_go_to_standard_output_or_a_file(tmp_path: Path) -> None:
    events = training([(4, 1)])
    log = write_log(tmp_path / "out" / "voters" / "voter-0", events)
    told = CliRunner().invoke(metrics, ["export", str(tmp_path / "out"), "--to", "json"])
    assert json.loads(told.output) == {"voter-0": json.loads(json.dumps(metrics_of(events)))}
    told = CliRunner().invoke(metrics, ["export", str(log), "--to", "csv", "--out", str(tmp_path)])
    assert told.output == f"{tmp_path / 'metrics.csv'}\n"
    rows = (tmp_path / "metrics.csv").read_text().splitlines()
    assert len([row for row in rows if ",train/loss," in row]) == 12


def test_tensorboard_files_lie_in_the_deployments_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard", reason=ABSENT.format("tensorboard"))
    monkeypatch.setenv("CAPIBARA_HOME", str(tmp_path / "home"))
    events = training([(4, 1)])
    write_log(tmp_path / "voter-0", events)
    told = CliRunner().invoke(metrics, ["export", str(tmp_path / "voter-0"), "--to", "tensorboard"])
    assert told.output == f"1 runs to tensorboard in {tmp_path / 'home' / 'metrics'}\n"
    assert same("tensorboard", tensorboard_series(tmp_path / "home" / "metrics"), events)


def test_what_is_no_log_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "curve.json").write_text("[]")
    for place, problem in (("absent", "does not exist"), ("curve.json", "is no training log"), ("", "no training log")):
        failure = CliRunner().invoke(metrics, ["export", str(tmp_path / place), "--to", "json"]).exception
        assert isinstance(failure, InputError) and problem in str(failure)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    write_log(tmp_path / "v", training([]))
    failure = CliRunner().invoke(metrics, ["export", str(tmp_path / "v"), "--to", "wandb", "--online"]).exception
    assert isinstance(failure, InputError) and "WANDB_API_KEY" in str(failure)

"""What a finished training says of its plan's prediction: nothing, where it ended on other hardware."""

import json
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.planning.cost import TimedTraining
from capibara_assets.planning.hardware.targets import find_target
from capibara_assets.training.standalone import materials
from capibara_assets.training.standalone.materials import FinishedTraining
from capibara_assets_tests.cluster.launched import request_in


def test_a_training_that_went_on_elsewhere_corrects_no_prediction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = TimedTraining(target="h100-8", model="nano", flops=1.0, predicted=None, measured=1.0)
    monkeypatch.setattr(materials, "recorded_outcome", lambda plan, summary: timed)
    monkeypatch.setattr(materials, "write_scripts", lambda folder, request, target: folder)
    request = request_in(tmp_path)
    request.out.mkdir()
    (request.out / "summary.json").write_text(json.dumps({"voters": {}}))
    planned, other, plan = find_target("h100-8"), find_target("h200-1"), Any
    assert FinishedTraining.read(request, plan, planned, planned).outcome == timed  # type: ignore[arg-type]
    assert FinishedTraining.read(request, plan, planned, other).outcome is None  # type: ignore[arg-type]

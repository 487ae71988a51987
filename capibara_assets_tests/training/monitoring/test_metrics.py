"""metrics.json holds the log's figures, once per step, and totals that follow from them."""

import csv
import io
import json

from capibara_assets.training.data.voter_run import VoterRun
from capibara_assets.training.loop.train import train_voter
from capibara_assets.training.monitoring.events import read_events
from capibara_assets.training.monitoring.logs import RunInfo
from capibara_assets.training.monitoring.metrics import metrics_of, table
from capibara_assets.training.monitoring.views import MetricPoint
from capibara_assets_tests.training.conftest import MakeRequest
from capibara_assets_tests.training.monitoring.test_views import event, training


def test_series_and_totals_of_a_log_with_two_attempts() -> None:
    events = training([(5, 2)])
    for one in events:
        if one["event"] == "step":
            one |= {"tokens": 10, "micro_steps": 2, "tokens_per_s": float(one["step"]), "memory_mib": 7.0}
    events.insert(3, event("skipped", 1, 2, of=12, loss="nan", examples=["e7"]))
    metrics = metrics_of(events)
    assert (metrics["run"], metrics["attempts"], metrics["steps"], metrics["steps_planned"]) == ("r", 2, 12, 12)
    assert metrics["series"]["train/loss"] == {
        "steps": list(range(1, 13)),
        "values": [4.0 - step / 10 for step in range(1, 13)],
    }
    assert metrics["series"]["validation/loss"]["steps"] == [0, 3, 6, 9, 12]
    assert metrics["totals"] == {
        "seconds": 5.0 + 9.0,  # attempt 1 did steps 0 to 5, attempt 2 steps 3 to 12; a step is a second here
        "tokens": 120,
        "micro_steps": 24,
        "median_tokens_per_s": 6.5,
        "peak_memory_mib": 7.0,
    }
    assert metrics["skipped_steps"] == [{"step": 2, "examples": ["e7"]}] and not metrics["finished"]
    assert metrics_of([])["series"] == {}


def test_a_trained_voter_leaves_them_with_its_adapter(make_request: MakeRequest) -> None:
    request = make_request(max_steps=4)
    folder = request.work / "voter-0"
    result = train_voter(VoterRun(request, request.recipe.voters[0], folder, lambda event: None, lambda: None))
    metrics = json.loads((result / "metrics.json").read_text())
    steps = [one for one in read_events(result / "events.jsonl") if one["event"] == "step"]
    assert metrics["finished"] and metrics["steps"] == 4
    for key, name in (("loss", "train/loss"), ("gradient_norm", "train/gradient_norm"),
                      ("learning_rate", "train/learning_rate"), ("tokens_per_s", "speed/tokens_per_s"),
                      ("samples_per_s", "speed/samples_per_s"), ("memory_mib", "hardware/memory_mib"),
                      ("cpu_percent", "hardware/cpu_percent")):  # fmt: skip
        assert metrics["series"][name]["values"] == [one[key] for one in steps]
    assert metrics["totals"]["tokens"] == sum(one["tokens"] for one in steps) > 0
    assert metrics["totals"]["supervised"] == json.loads((result / "manifest.json").read_text())["supervised_tokens"]
    assert metrics["totals"]["mean_cpu_percent"] > 0
    curve = json.loads((result / "curve.json").read_text())
    assert metrics["series"]["validation/loss"]["values"] == [
        point["validation_loss"] for point in curve if "validation_loss" in point
    ]


def test_a_csv_row_per_figure_keeps_every_bit() -> None:
    text = table([(RunInfo("r", "python/voter-0", 1), [MetricPoint(3, 1.5, {"train/loss": 0.1 + 0.2})])])
    (row,) = csv.DictReader(io.StringIO(text))
    assert row == {"run": "r", "name": "python/voter-0", "step": "3", "time": "1.5", "metric": "train/loss",
                   "value": "0.30000000000000004"}  # fmt: skip

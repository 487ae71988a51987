"""What a materialization of adapters shows: a row and a line per voter, small enough for an event."""

import base64
import json
from pathlib import Path
from statistics import fmean

import dagster as dg

from capibara_assets.metadata.training_entries import thinned, training_page
from capibara_assets.training.monitoring.metrics import metrics_of
from capibara_assets_tests.training.monitoring.test_views import event


def test_each_voter_has_a_row_and_a_line_in_every_chart(tmp_path: Path) -> None:
    voters = {}
    for name in ("voter-0", "voter-1"):
        events = [event("started", 1, 0, steps=5000)]
        for step in range(1, 5001):
            figures = {"loss": 9 / step, "learning_rate": 1e-3, "gradient_norm": 0.5, "tokens_per_s": 100.0}
            events.append(event("step", 1, step, of=5000, **figures))
        events += [event("skipped", 1, 5001, examples=["e1"]), event("validation", 1, 5000, validation_loss=1.25)]
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.json").write_text(json.dumps(metrics_of(events)))
        voters[name] = {"status": "finished", "steps": 5000, "validation_loss": 1.25, "seconds": 12.0}
        voters[name]["base_validation_loss"] = 1.5
    summary = {"voters": voters, "seconds": 30.0, "quorum": 2, "missing": {}}
    metadata = training_page(summary, tmp_path).entries()
    table = metadata["voters"]
    assert isinstance(table, dg.MarkdownMetadataValue)
    assert "| voter-1 | finished | 5000 | 1.2500 | 1 | 100 | 0 | 1 | 12.0 |" in (table.md_str or "")
    for title in ("curves", "training loss", "learning rate", "gradient norm"):
        chart = metadata[title]
        assert isinstance(chart, dg.MarkdownMetadataValue)
        svg = base64.b64decode((chart.md_str or "").split("base64,")[1].rstrip(")")).decode()
        assert svg.count("<polyline") == 2 and ">voter-1<" in svg
        assert len(chart.md_str or "") < 10_000


def test_a_thinned_line_keeps_its_mean_and_its_ends_near() -> None:
    line = [(float(step), float(step * step)) for step in range(600)]
    short = thinned(line)
    assert len(short) == 60
    assert fmean(value for _, value in short) == fmean(value for _, value in line)
    assert thinned(line[:7]) == line[:7] and thinned([]) == []

"""The figures that the specification names: as series in exports and on the dashboard, and live in Dagster."""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from capibara_assets.checkpoints.artifacts import open_artifacts
from capibara_assets.cli.training.dashboard import dashboard
from capibara_assets.launching.live import progress_metadata
from capibara_assets.metadata.consensus_entries import certificate_page, mixture_page
from capibara_assets.training.monitoring.events import read_events
from capibara_assets.training.monitoring.metrics import metrics_of
from capibara_assets.training.monitoring.progress import VoterTable
from capibara_assets.training.monitoring.usage import smi_reader
from capibara_assets.training.standalone.materials import planned_speed
from capibara_assets_tests.home import MadeHome, command_here
from capibara_assets_tests.modeling.tiny import save_tiny
from capibara_assets_tests.training.conftest import request_maker, save_dataset
from capibara_assets_tests.training.strategy_runs import train


def exported(home: MadeHome) -> dict[str, Any]:
    whole: dict[str, Any] = json.loads(command_here(home.environment, "metrics", "export", "--to", "json"))
    return whole


def score_of(certificate: dict[str, Any]) -> float:
    """Mean quality of the accepted voters, by the ballots of everybody else."""
    accepted = [voter["name"] for voter in certificate["voters"] if voter["accepted"]]
    given = {name: [b["quality"] for b in certificate["ballots"] if b["candidate"] == name] for name in accepted}
    return fmean(fmean(own) for own in given.values())


def test_votes_and_experts_are_series_beside_the_trainings(own_home: MadeHome, tmp_path: Path) -> None:
    store = open_artifacts(own_home.deployment.store, own_home.deployment.work)
    vote = store.latest("consensus_checkpoint", "sql")
    mixture = store.latest("moe_checkpoint", None)
    assert vote is not None and mixture is not None
    certificate, losses = vote.document("certificate"), vote.document("losses")
    found = exported(own_home)
    score = found["consensus/sql"]["series"]["consensus_score"]
    assert (score["steps"], score["values"]) == ([1], [pytest.approx(score_of(certificate))])
    assert 0 <= score["values"][0] <= 1
    assert (
        certificate_page(certificate, losses).contents["consensus_score"] == score["values"][0]
    )  # Dagster draws numbers
    assert any(name.startswith("sql/voter-0") for name in found)  # trainings, from the store as it is laid out

    experts = found[f"moe_checkpoint/{mixture.digest[:8]}"]["series"]
    shares = [experts[f"expert_utilization/{name}"]["values"] for name in mixture.document("report")["experts"]]
    assert [sum(step) for step in zip(*shares, strict=True)] == [pytest.approx(1.0)] * len(shares[0])
    assert experts["expert_utilization/sql"]["steps"][-1] == mixture.document("report")["training"]["steps"]
    assert "expert_utilization sql" in mixture_page(mixture.document("report")).contents

    for ballot in certificate["ballots"]:
        ballot["quality"] /= 2
    store.publish("consensus_checkpoint", "sql", documents={"certificate": certificate, "losses": losses})
    command_here(own_home.environment, "metrics", "export", "--to", "tensorboard", "--out", str(tmp_path / "board"))
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    drawn = EventAccumulator(str(tmp_path / "board" / "tensorboard" / "consensus" / "sql"))
    drawn.Reload()
    seen = [(one.step, one.value) for one in drawn.Scalars("consensus_score")]
    assert seen == [(1, pytest.approx(score["values"][0])), (2, pytest.approx(score["values"][0] / 2))]


class Plan:
    """Documents of a LoRA plan, as an artifact has them."""

    def __init__(self, seconds: tuple[float, float, float] | None) -> None:
        cost = {"seconds": seconds, "seconds_note": "", "usd": None, "usd_note": ""}
        self._documents: dict[str, Any] = {
            "cost": {
                **dict.fromkeys(("adapter_raw", "adapter", "domain", "backfill"), cost),
                "target": "h100-2",
                "model": "m",
                "flops": 1.0,
                "voters": 4,
                "backfill_note": "",
                "correction": {"runs": 0, "factor": 1.0, "spread": 0.35, "note": ""},
            },
            "plan": {"estimates": {"tokens_at_most": 6000}},
        }

    def document(self, name: str) -> Any:
        return self._documents[name]


def test_speed_is_shown_against_the_plan(nano: Path, tmp_path: Path) -> None:
    """From the plan's documents through a real training to the log, the exports and Dagster's table."""
    speed = planned_speed(Plan((1.0, 2.0, 3.0)))  # type: ignore[arg-type]
    assert speed == 3000.0
    assert planned_speed(Plan(None)) is None  # type: ignore[arg-type]
    make = request_maker(save_tiny(tmp_path / "base", tokenizer_of=nano), save_dataset(tmp_path), tmp_path)
    request = make(max_steps=3).model_copy(update={"planned_tokens_per_s": speed})
    heard: list[dict[str, Any]] = []
    train(request, events=heard)
    series = metrics_of(read_events(request.work / "voter-0" / "events.jsonl"))["series"]
    measured = series["speed/tokens_per_s"]["values"]
    assert series["speed/of_plan"]["values"] == [pytest.approx(value / 3000.0) for value in measured]
    table = VoterTable()
    for event in heard:
        table.notice({"voter": "voter-0", "domain": "python"} | event)
        if event["event"] == "step":
            break
    live = progress_metadata(table.rows())
    assert live["tokens per second, share of the plan's voter-0"] == pytest.approx(measured[0] / 3000.0, abs=1e-3)
    assert live["processor (% of a core) voter-0"] > 0
    assert "of plan" in live["voters"].value and "| CPU " in live["voters"].value
    chip = progress_metadata([{"voter": "v", "state": "training", "share_of_peak": 0.43, "cpu_percent": 100.0}])
    assert "43% of peak" in chip["voters"].value and chip["share of the chips' peak v"] == 0.43


def test_a_gpus_load_is_read_without_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the driver's own program, of which a script with its output stands here."""
    program = tmp_path / "nvidia-smi"
    program.write_text('#!/bin/sh\n[ "$1" = "--id=GPU-1" ] && echo "87, 40123" || echo "[N/A], [N/A]"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for uuid, figures in (("GPU-1", {"gpu_percent": 87.0, "gpu_memory_mib": 40123.0}), ("GPU-2", {})):
        read = smi_reader(uuid)
        assert read is not None and read() == figures
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    assert smi_reader("GPU-1") is None


def test_the_dashboards_refresh_is_a_setting() -> None:
    """Ten seconds; `test_dashboard.py` has a real TensorBoard that is refreshed every two."""
    (refresh,) = (option for option in dashboard.params if option.name == "refresh")
    assert (refresh.default, refresh.opts) == (10.0, ["--refresh"])

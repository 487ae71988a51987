"""The bench `gpu` without a GPU: what it refuses, what a part that fails or has no time does, and when a part is ok."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from benchmarks.command import benches
from benchmarks.training.gpu import bench, parts
from benchmarks.training.gpu.setting import Setting
from benchmarks.training.runs import OutOfTime, Trained, TrainingFailed
from capibara_assets.errors import InputError

GPUS = ("0", "1", "2")
Make = Callable[..., Trained]


def trained(
    *, loss: float = 1.0, memory: float = 100.0, precision: str = "bf16", adapter: bytes = b"a", resumed: bool = False,
    seconds: float = 10.0, groups: list[list[str]] | None = None, voters: int = 1, folder: Path = Path(),
) -> Trained:  # fmt: skip
    """A finished training of made-up figures; its loss was 2 before."""
    names = [f"voter-{number}" for number in range(voters)]
    row = {"precision": precision, "steps": 8, "skipped_steps": 0, "base_validation_loss": 2.0, "validation_loss": loss}
    step = {"event": "step", "step": 1, "tokens_per_s": 50.0, "memory_mib": memory}
    events = [step, *([{"event": "resumed", "step": 4}] if resumed else [])]
    for name in names:
        (folder / "voters" / name).mkdir(parents=True, exist_ok=True)
        (folder / "voters" / name / "adapter_model.safetensors").write_bytes(adapter)
    summary = {
        "voters": dict.fromkeys(names, row), "finished": names, "seconds": seconds,
        "placement": {"gpus": groups or [], "at_once": 1, "note": None},
    }  # fmt: skip
    return Trained(cast(Any, SimpleNamespace(out=folder)), summary, dict.fromkeys(names, events))


def played(tmp_path: Path, **runs: dict[str, Any]) -> Setting:
    """A setting in which nothing trains: run name -> the figures of what it trained."""
    setting = Setting(tmp_path, GPUS, steps=8, deadline=time.monotonic() + 60)

    def train(name: str, _changes: Any, **_more: Any) -> Trained:
        return trained(folder=tmp_path / name, **runs[name.replace("-", "_")])

    object.__setattr__(setting, "train", train)
    return setting


def test_without_a_gpu_it_says_what_to_do() -> None:
    done = CliRunner().invoke(benches, ["gpu", "--json"])
    assert isinstance(done.exception, InputError)
    assert "no GPU here" in str(done.exception) and "--shape tiny" in str(done.exception)


def test_one_part_that_fails_or_has_no_time_leaves_the_others_their_figures(tmp_path: Path) -> None:
    def fails(_setting: Setting) -> dict[str, Any]:
        raise TrainingFailed("cut ended with 3: why")

    def waits(_setting: Setting) -> dict[str, Any]:
        raise OutOfTime("whole was not finished after 3 s")

    def lacks(_setting: Setting) -> dict[str, Any]:
        raise InputError("run `make bench-env` first")

    wanted = {"a": fails, "b": lambda _setting: {"ok": True, "x": 1}, "c": waits, "d": lacks}
    found = bench.measure(wanted, Setting(tmp_path, GPUS, 8, time.monotonic() + 60))
    assert [one["ok"] for one in found.values()] == [False, True, None, None]
    assert found["a"]["failed"] == "cut ended with 3: why" and found["b"]["x"] == 1
    assert found["c"]["missing"] == "whole was not finished after 3 s" and "bench-env" in found["d"]["missing"]

    late = bench.measure(wanted, Setting(tmp_path, GPUS, 8, time.monotonic() - 1))
    assert {one["missing"] for one in late.values()} == {"the time of the bench is over"}


@pytest.mark.parametrize(
    ("part", "runs", "ok"),
    [
        ("precisions", {"plain": {}, "fp16": {"precision": "fp16"}}, True),
        ("precisions", {"plain": {}, "fp16": {"precision": "bf16"}}, False),
        ("precisions", {"plain": {}, "fp16": {"precision": "fp16", "loss": float("nan")}}, False),
        ("nf4", {"nf4": {"memory": 40.0}, "plain": {}}, True),
        ("nf4", {"nf4": {"memory": 140.0}, "plain": {}}, False),
        ("zero2", {"zero2": {"loss": 1.01}, "zero2_beside": {}}, True),
        ("zero2", {"zero2": {"loss": 1.5}, "zero2_beside": {}}, False),
        ("resume", {"plain": {}, "cut": {"resumed": True}}, True),
        ("resume", {"plain": {}, "cut": {"resumed": True, "adapter": b"b"}}, False),
        ("resume", {"plain": {}, "cut": {}}, False),
        ("voters", {"voters": {"voters": 3, "groups": [["0"], ["1"], ["2"]]}, "voters_beside": {"voters": 3}}, True),
        ("voters", {"voters": {"voters": 3, "groups": [["0", "1", "2"]]}, "voters_beside": {"voters": 3}}, False),
    ],
)
def test_a_part_is_ok_only_where_what_was_promised_came_out(
    part: str, runs: dict[str, dict[str, Any]], ok: bool, tmp_path: Path
) -> None:
    assert parts.PARTS[part](played(tmp_path, **runs))["ok"] is ok


def test_the_faster_setting_of_the_peer_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = iter([400.0, 500.0])

    def peer(_bench: Any, _base: Path, setting: dict[str, Any], **_more: Any) -> dict[str, Any]:
        if setting["packing"]:
            raise RuntimeError("...\nno flash attention")
        return {"tokens": next(speeds), "wall_s": 1.0, "gpu_peak_mib": 200.0}

    monkeypatch.setattr(parts.Bench, "ours", lambda *_, **__: {"tokens": 600.0, "wall_s": 1.0, "gpu_peak_mib": 100.0})
    monkeypatch.setattr(parts.Bench, "peer", peer)
    monkeypatch.setattr(parts, "peer_versions", dict)
    found = parts.speed(Setting(tmp_path, GPUS, 8, time.monotonic() + 60))
    assert (found["ratio"], found["memory_ratio"], found["peer_settings_tried"]) == (1.5, 0.5, 2)
    assert found["peer_setting"]["grouped"] and found["ok"]
    assert (found["large_batch"]["ratio"], found["large_batch"]["global_batch"]) == (1.2, 64)


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("part", ["voters", "precisions", "jax"])
def test_a_rehearsal_on_the_processor_trains_and_writes_its_file(part: str, tmp_path: Path) -> None:
    """fp16 learns only where the processor has it; what a part says is in the file either way."""
    file = tmp_path / "gpu.json"
    given = ["gpu", "--part", part, "--shape", "tiny", "--steps", "8", "--examples", "24", "--minutes", "25"]
    done = CliRunner().invoke(benches, [*given, "--out", str(file), "--json"])
    result = json.loads(file.read_text("utf-8"))
    assert result == json.loads(done.stdout.strip().splitlines()[-1])
    assert result["machine"]["usable"] == 0 and result["parts"][part]["ok"] is True, result["parts"]

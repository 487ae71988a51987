"""The bench `privacy` on two clients, gone on from, and its plot."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.command import benches
from benchmarks.consensus.privacy.plot import privacy_svg
from capibara_assets.deployment.locations import resources_root


def point(*losses: float) -> dict[str, object]:
    return {"loss": losses[0], "losses": list(losses)}


def test_the_plot_has_a_line_for_each_arm_and_a_dot_for_each_draw() -> None:
    arms = {
        name: {"base_loss": 3.0, "dimensions": 10, "points": {"1.0": point(5.0, 6.0, 4.0), "inf": point(2.5)}}
        for name in ("b_only", "scales < 2")
    }
    root = ET.fromstring(privacy_svg({"arms": arms}))
    of = "{http://www.w3.org/2000/svg}"
    lines, dots = root.findall(f"{of}polyline"), root.findall(f"{of}circle")
    assert len(lines) == 2 and len(dots) == 8
    first, last = (pair.split(",") for pair in (lines[0].get("points") or "").split())
    assert float(first[0]) < float(last[0]) and float(first[1]) < float(last[1])  # a lower loss is further down
    texts = [text.text for text in root.iter(f"{of}text")]
    assert "scales < 2 (10)" in texts and "∞" in texts and "base 3 (dashed)" in texts


@pytest.mark.extended
def test_two_clients_end_to_end_and_again_from_what_is_there(tmp_path: Path) -> None:
    command = ["privacy", "--experience", str(resources_root() / "experience"), "--arm", "scales, rank 1"]
    command += ["--clients", "2", "--examples", "8", "--draws", "1", "--work", str(tmp_path / "work"), "--json"]
    outputs = []
    for _ in range(2):
        done = CliRunner().invoke(benches, [*command, "--svg", str(tmp_path / "plot.svg")], catch_exceptions=False)
        outputs.append(json.loads(done.stdout.strip().splitlines()[-1]))
    first, second = outputs
    assert first["arms"] == second["arms"] and second["seconds"] < first["seconds"]
    arm = first["arms"]["scales, rank 1"]
    assert arm["dimensions"] == 42 and arm["trained"] == "scales" and arm["clip"] > 0
    assert list(arm["points"]) == ["0.5", "1.0", "2.0", "4.0", "8.0", "inf"]
    noises = [one["noise_multiplier"] for one in arm["points"].values()]
    assert noises == sorted(noises, reverse=True) and noises[-1] == 0.0
    assert arm["clients_for_snr_1_at_epsilon_1"] == 25 and "<polyline" in (tmp_path / "plot.svg").read_text()


@pytest.mark.extended
def test_examples_without_clients_by_dp_sgd(tmp_path: Path) -> None:
    command = ["privacy", "--experience", str(resources_root() / "experience"), "--arm", "scales, rank 1, DP-SGD"]
    command += ["--examples", "8", "--draws", "1", "--epsilon", "1", "--epsilon", "inf", "--work", str(tmp_path)]
    done = CliRunner().invoke(benches, [*command, "--json"], catch_exceptions=False)
    arm = json.loads(done.stdout.strip().splitlines()[-1])["arms"]["scales, rank 1, DP-SGD"]
    assert (arm["unit"], arm["dimensions"], arm["steps"]) == ("example", 42, 16)
    assert 0 < arm["lengths"][0] <= arm["clip"] <= arm["lengths"][1]
    private, free = arm["points"]["1.0"], arm["points"]["inf"]
    assert private["noise_multiplier"] > 1 and 0 < private["predicted_snr"] < 1 < arm["base_loss"]
    assert free["predicted_snr"] is None and free["loss"] < private["loss"]

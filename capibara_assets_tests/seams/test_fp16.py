"""`--precision fp16` on the base that ships: the fused layers multiply in the precision that was asked for."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from capibara_assets.cli.training.train import train
from capibara_assets.training.monitoring.events import read_events
from capibara_assets.training.standalone.output_folder import read_info


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("data") / "data.jsonl"
    rows = [{"prompt": f"What is {n} + {n}?", "completion": f"It is {2 * n}."} for n in range(60)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def trained(data: Path, output: Path, precision: str, steps: int) -> list[float]:
    """Losses of the steps and validations of the recipe `nano_cpu` on its own base."""
    result = CliRunner().invoke(
        train,
        [
            *("--data", str(data), "--output", str(output), "--precision", precision, "--max-length", "64"),
            *("--set", f"training.max_steps={steps}", "--set", f"training.evaluate_every={steps}"),
            *("--set", "data.max_validation_examples=4", "--set", "hardware.threads=1"),
        ],
        catch_exceptions=False,
    )
    assert result.exit_code == 0, result.output
    info = read_info(output)
    assert info["precision"] == precision and info["skipped_steps"] == 0
    log = read_events(output / "events.jsonl")
    return [event["loss"] for event in log if event["event"] == "step"] + [info["validation_loss"]]


def test_it_trains_on_the_default_base(data: Path, tmp_path: Path) -> None:
    assert trained(data, tmp_path / "out", "fp16", 2)[-1] < 20


@pytest.mark.extended
def test_its_losses_are_those_of_float32(data: Path, tmp_path: Path) -> None:
    half, whole = (trained(data, tmp_path / precision, precision, 12) for precision in ("fp16", "fp32"))
    assert half == pytest.approx(whole, rel=5e-3)
    assert half[-1] < half[0]

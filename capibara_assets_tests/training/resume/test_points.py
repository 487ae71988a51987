"""Resume points: whole or not there, the newest good one wins, other inputs are refused."""

from pathlib import Path

import pytest
import torch

from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.training.resume.points import Progress, ResumePoints, drop_points, load_point, state_of


def save(folder: Path, step: int, inputs: str = "these") -> Path:
    weights = {"b": torch.full((2, 3), float(step)), "a": torch.arange(4)}
    state = state_of(
        Progress(step=step),
        LoraAdapter({"r": 1}, weights),
        optimizer={"a.step": torch.tensor(float(step))},
        best=weights,
    )
    return folder / ResumePoints(folder, {"base": inputs}, {"threads": 1}, [7], keep=2).save(state, step, "voter-0")


def test_the_newest_comes_back_exactly_and_old_ones_go(tmp_path: Path) -> None:
    for step in (2, 10, 100):
        save(tmp_path, step)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["checkpoint-10", "checkpoint-100"]
    point, damaged = load_point(tmp_path, inputs={"base": "these"})
    assert point is not None and point.progress == Progress(step=100) and not damaged
    assert torch.equal(point.tensors["weights"]["b"], torch.full((2, 3), 100.0))
    assert torch.equal(point.tensors["optimizer"]["a.step"], torch.tensor(100.0))
    assert point.fingerprint == {"threads": 1}
    drop_points(tmp_path)
    assert load_point(tmp_path, inputs={"base": "these"}) == (None, [])


@pytest.mark.parametrize(
    "name",
    ["adapter_model.safetensors", "adapter_config.json", "optimizer.safetensors", "best.safetensors", "state.json"],
)
@pytest.mark.parametrize("damage", ["gone", "cut", "changed"])
def test_a_damaged_one_is_passed_over_for_the_one_before(tmp_path: Path, name: str, damage: str) -> None:
    save(tmp_path, 1)
    file = save(tmp_path, 2) / name
    data = bytearray(file.read_bytes())
    if damage == "gone":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(data[:-3])
    else:
        data[-2 if name == "state.json" else -1] ^= 1
        file.write_bytes(data)
    point, damaged = load_point(tmp_path, inputs={"base": "these"})
    assert point is not None and point.progress.step == 1
    assert damaged == ["checkpoint-2"]


def test_other_inputs_are_refused(tmp_path: Path) -> None:
    save(tmp_path, 1, inputs="others")
    with pytest.raises(InputError, match="made from another base: remove"):
        load_point(tmp_path, inputs={"base": "these"})


def test_a_half_written_one_is_never_seen(tmp_path: Path) -> None:
    (tmp_path / ".checkpoint-5.part").mkdir()
    assert load_point(tmp_path, inputs={"base": "these"}) == (None, [])
    save(tmp_path, 5)
    point, _ = load_point(tmp_path, inputs={"base": "these"})
    assert point is not None and point.progress.step == 5

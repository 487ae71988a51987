"""The bench of checkpoints measures what it says, and goes on where it stopped."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from benchmarks.checkpoints import checkpoint, crashes, memory
from benchmarks.checkpoints.crashes import measure_crashes
from benchmarks.checkpoints.memory import measure_memory
from benchmarks.checkpoints.space import base_weights, epochs_of, measure_compression
from benchmarks.checkpoints.speed import measure_speed, peer_load, peer_save, spread
from capibara_assets_tests.checkpoints.drills.states import disk_bytes, large_state, same, small_state, tensors_of

MIB = 1 << 20


@pytest.mark.extended
def test_speed_has_every_promised_key(tmp_path: Path) -> None:
    found = measure_speed(tmp_path, 4 * MIB, 2)
    for key in ("save_ratio", "load_ratio", "warm_load_ratio", "encrypted_ratio", "default_save_ratio"):
        low, high = found[f"{key}_range"]
        assert 0 < low <= found[key] <= high
    assert found["disk_mib"]["zstd"] < found["disk_mib"]["none"] < 4.2
    assert list(tmp_path.iterdir()) == []


def test_the_peers_hash_what_they_say(tmp_path: Path) -> None:
    state = large_state(3 * MIB)
    path = tmp_path / "model.safetensors"
    assert peer_save("reread", path, state) == peer_load("whole", path)[1] == peer_load("pieces", path)[1]
    assert peer_save("memory", path, state) == peer_save("threads", path, state)


def test_ratios_are_of_pairs() -> None:
    theirs = [{"wall_s": 2.0, "cpu_s": 1.0}, {"wall_s": 9.0, "cpu_s": 1.0}, {"wall_s": 4.0, "cpu_s": 1.0}]
    ours = [{"wall_s": 1.0, "cpu_s": 2.0}, {"wall_s": 3.0, "cpu_s": 2.0}, {"wall_s": 4.0, "cpu_s": 2.0}]
    assert spread("x", theirs, ours) == {"x": 2.0, "x_range": [1.0, 3.0], "x_cpu": 0.5}


def test_large_states_have_their_size_and_no_two_tensors_alike() -> None:
    state = large_state(70 * MIB)
    assert sum(tensor.nbytes for tensor in state.values()) == 70 * MIB
    first, second, _ = state.values()
    assert not torch.equal(first, second) and 0.015 < float(second.float().std()) < 0.025


def test_small_states_follow_from_seed_and_step() -> None:
    assert same(small_state(1, 12), small_state(1, 12))
    assert not same(small_state(1, 12), small_state(2, 12)) and not same(small_state(1, 12), small_state(1, 13))


def test_same_looks_at_bits_and_types() -> None:
    nan = torch.tensor([float("nan"), -0.0])
    assert same({"a": nan}, {"a": nan.clone()})
    assert not same(torch.tensor([-0.0]), torch.tensor([0.0]))
    assert not same(torch.zeros(2), torch.zeros(2, 1)) and not same(1, 1.0) and not same([1], (1,))


def test_epochs_change_every_adapter_and_keep_the_base() -> None:
    base = base_weights()
    states = epochs_of(0, 2, base)
    first = {key: value.clone() for key, value in next(states)["adapter"].items()}
    second = next(states)
    assert all(tensor is base[name] for name, tensor in second["base"].items())
    assert all(float((second["adapter"][name] != first[name]).float().mean()) > 0.9 for name in first)
    adapter = sum(tensor.nbytes for tensor in first.values())
    moments = sum(tensor.nbytes for tensor in tensors_of(second["optimizer"]))
    assert moments == pytest.approx(2 * adapter, rel=0.01)


@pytest.mark.extended
def test_compression_is_measured_on_trained_and_drawn_weights(tmp_path: Path) -> None:
    found = measure_compression(tmp_path, 16 * MIB, 1)
    assert found["compression"] == min(found["compression_trained"], found["compression_drawn"]) > 1.3
    assert found["planes_compression"] == pytest.approx(found["compression_drawn"], rel=0.01)
    assert found["restore_ratio"] > 0 and found["restore_ratio_two_threads"] > 0


@pytest.mark.extended
@pytest.mark.parametrize(
    "settings", [("_encrypted",), pytest.param(tuple(memory._SETTINGS), marks=pytest.mark.extended)]
)
def test_memory_is_counted_over_the_tensors(
    settings: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes a setting: one that needs most of all of them, and all in `make test-all`."""
    all_settings = memory._SETTINGS
    monkeypatch.setattr(memory, "_SETTINGS", {name: all_settings[name] for name in settings})
    found = measure_memory(tmp_path, (64 * MIB,))
    assert 0 <= found["memory_over_tensors_mib"] < 256
    assert 30 < found["interpreter_mib"] < 1000


@pytest.mark.extended
@pytest.mark.parametrize("settings", [1, pytest.param(len(crashes.SETTINGS), marks=pytest.mark.extended)])
def test_crashes_add_up_and_go_on_where_they_stopped(
    settings: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bits are flipped in a process for each setting: the first of them, and all in `make test-all`."""
    monkeypatch.setattr(crashes, "SETTINGS", crashes.SETTINGS[:settings])
    (tmp_path / "scratch").mkdir()
    found = measure_crashes(tmp_path / "scratch", 16, 3, tmp_path / "keep", 10)
    assert (found["crashes"], found["kills"], found["full_disks"], found["power_losses"]) == (16, 8, 2, 6)
    assert (found["corrupt_reads"], found["lost_checkpoints"]) == (0, 0), found["problems"]
    assert found["flips_detected"] == found["flips"] > 30
    assert sum(found["kills_while"].values()) == 8

    monkeypatch.setattr(crashes, "_in_process", None)  # not measured again
    assert measure_crashes(tmp_path / "scratch", 16, 3, tmp_path / "keep", 10) == found


def test_finished_parts_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def measured(folder: Path, settings: dict[str, Any], keep: Path | None) -> dict[str, Any]:
        calls.append(settings["mib"])
        return {"save_ratio": len(calls)}

    monkeypatch.setattr(checkpoint, "_measures", lambda: {"save": measured})
    arguments = ["--part", "save", "--keep", str(tmp_path), "--json"]
    for mib, expected in ((64, 1), (64, 1), (128, 2)):
        done = CliRunner().invoke(checkpoint.checkpoint, [*arguments, "--mib", str(mib)])
        assert json.loads(done.stdout.splitlines()[-1]) == {"save_ratio": expected}, done.output
    assert calls == [64, 128]


def test_disk_counts_blocks_and_a_file_of_two_names_once(tmp_path: Path) -> None:
    empty = disk_bytes(tmp_path)
    (tmp_path / "a").write_bytes(b"x")
    one = disk_bytes(tmp_path)
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    assert one > empty and one % 512 == 0 and disk_bytes(tmp_path) == one

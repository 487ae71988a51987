"""The bench `train`, small: every part gives its keys; the kernels' loops compute what the kernels do."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.command import benches
from benchmarks.peers import ROOT
from benchmarks.training.cpu_kernels import measure_kernels, sparse_softmax

PEERS = Path(os.environ.get("CAPIBARA_BENCH_ENV") or ROOT / ".benchmarks-venv") / "bin" / "python"
KEYS = {
    "overhead": {"loop_overhead"},
    "voters": {"voters_ratio"},
    "speed": {"ratio", "loss_gap"},
    "memory": {"memory_ratio"},
    "start": {"start_ratio"},
}


def test_sparse_softmax_is_over_the_kept_entries() -> None:
    assert sparse_softmax([[0.0, 5.0, 0.0]], [[True, False, True]]) == [[0.5, 0.0, 0.5]]


@pytest.mark.extended
def test_kernels_are_compared_with_loops_that_compute_the_same() -> None:
    found = measure_kernels(repeats=1, size=16)
    assert min(found["attention"], found["matmul"], found["sparse_softmax"]) > 1


def test_the_peers_environment_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from benchmarks.peers import peer_environment
    from capibara_assets.errors import InputError

    monkeypatch.setenv("CAPIBARA_BENCH_ENV", str(tmp_path))
    with pytest.raises(InputError, match="make bench-env"):
        peer_environment("training/peer_train.py")


@pytest.mark.extended
@pytest.mark.parametrize("part", KEYS)
def test_each_part_gives_its_figures(part: str) -> None:
    if part in ("speed", "memory", "start") and not PEERS.is_file():
        pytest.skip("no environment of the peers: make bench-env")
    arguments = ["train", "--quick", "--threads", "1", "--part", part, "--json"]
    done = CliRunner().invoke(benches, arguments, catch_exceptions=False)
    result = json.loads(done.stdout.strip().splitlines()[-1])
    for key in KEYS[part]:
        assert isinstance(result[key], float)

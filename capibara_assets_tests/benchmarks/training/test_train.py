"""The bench `train`, small: every part gives its keys; the kernels' loops compute what the kernels do."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.command import benches
from benchmarks.peers import ROOT

PEERS = Path(os.environ.get("CAPIBARA_BENCH_ENV") or ROOT / ".benchmarks-venv") / "bin" / "python"
KEYS = {
    "overhead": {"loop_overhead"},
    "voters": {"voters_ratio"},
    "speed": {"ratio", "loss_gap"},
    "memory": {"memory_ratio"},
    "start": {"start_ratio"},
}


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

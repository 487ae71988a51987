"""The bench of merges: ours alone, and how ratios are made of seconds."""

from pathlib import Path

import pytest

from benchmarks.consensus.merge import _ratios, measure
from capibara_assets.errors import InputError


def test_the_ratio_is_the_smallest_of_the_medians() -> None:
    seconds = {
        "linear": {"ours": [1.0, 9.0, 1.1], "peer": [3.3, 3.3, 3.3], "peer_synced": [4.4] * 3, "copy": [1.0] * 3},
        "ties": {"ours": [2.0] * 3, "peer": [20.0] * 3, "peer_synced": [22.0] * 3},
        "slerp": {"ours": [2.0] * 3, "peer": [12.0] * 3, "peer_synced": [13.0] * 3},
    }
    found = _ratios(seconds)
    assert (found["ratio"], found["ratio_ties"], found["linear_ratio"]) == (6.0, 10.0, 3.0)
    assert found["copy_ratio"] == 1.1 and found["synced_ratio"] == 6.5


@pytest.mark.extended
def test_alone_measures_ours_and_the_copy(tmp_path: Path) -> None:
    found = measure(1, True, "bfloat16", ["linear", "model_stock"], True, str(tmp_path))
    assert found["checkpoint_mb"] > 30 and found["peak_rss_mb"] < found["peak_rss_allowed_mb"]
    assert found["copy_ratio"] > 0 and found["ratio"] is None
    assert not any(tmp_path.iterdir())


def test_a_missing_peer_is_said_before_the_clock_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPIBARA_BENCH_ENV", str(tmp_path / "none"))
    with pytest.raises(InputError, match="make bench-env"):
        measure(1, True, "float32", ["linear"], False, str(tmp_path))

"""DeepSpeed ZeRO-2 in one process: training gives what plain training gives."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.checkpoints.store.store import CheckpointStore
from capibara_assets_tests.late import late
from capibara_assets_tests.training.conftest import MakeRequest

late("deepspeed", reason="deepspeed is an extra")

TRAIN = """
import json, sys
from pathlib import Path
from capibara_assets.training.loop.train import train_voter
from capibara_assets.training.data.voter_run import Interrupted, VoterRun
from capibara_assets.training.request import read_request
request = read_request(Path(sys.argv[1]))
voter, left = request.recipe.voters[0], [int(sys.argv[2])]
def poll():
    left[0] -= 1
    if left[0] == 0:
        raise Interrupted
try:
    train_voter(VoterRun(request, voter, request.work / voter.name, lambda event: None, poll))
except Interrupted:
    sys.exit(75)
"""


def train(request: Any, stop_at: int = 0) -> int:
    """Train voter-0 in a process of its own: DeepSpeed keeps a process group for as long as a process lives."""
    request.work.mkdir(parents=True, exist_ok=True)
    file: Path = request.work / "request.json"
    file.write_text(request.model_dump_json())
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TRAIN, str(file), str(stop_at)],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 75), done.stderr[-3000:]
    return done.returncode


def curve(request: Any) -> list[dict[str, float]]:
    found: list[dict[str, float]] = json.loads((request.work / "voter-0" / "result" / "curve.json").read_text())
    return found


@pytest.mark.extended
@pytest.mark.resume
def test_zero2_gives_the_losses_of_plain_training_and_resumes_to_the_bit(
    make_request: MakeRequest, tmp_path: Path
) -> None:
    plain = make_request(work="plain", threads=1)
    with_moments = {"backend": "zero2", "epoch_checkpoints": {"optimizer": True, "keep_last": 99}}
    zero = make_request(work="zero", checkpoints=tmp_path / "zero-store", **with_moments)
    stopped = make_request(work="stopped", checkpoints=tmp_path / "stopped-store", **with_moments)
    assert train(plain) == train(zero) == 0
    for one, other in zip(curve(plain), curve(zero), strict=True):
        assert one == pytest.approx(other, rel=1e-4)
    assert train(stopped, stop_at=20) == 75
    assert train(stopped) == 0
    assert curve(stopped) == curve(zero)
    names = ("adapter_model.safetensors", "manifest.json")
    results = [
        [(request.work / "voter-0" / "result" / name).read_bytes() for name in names] for request in (zero, stopped)
    ]
    assert results[0] == results[1]
    # Its state goes through the checkpoint store: the same checkpoints, moments of DeepSpeed's included.
    stores = [CheckpointStore(tmp_path / f"{name}-store") for name in ("zero", "stopped")]
    assert [one.id for one in stores[0].list()] == [one.id for one in stores[1].list()]
    assert [one.manifest.about.step for one in stores[0].list()] == [3, 6, 8]
    state = stores[0].open("python/voter-0").state()
    moments = [value for name, value in state["optimizer"].items() if name.endswith(".exp_avg_sq")]
    assert len(moments) == len(state["adapter"]) and all(bool(value.any()) for value in moments)
    assert stores[0].verify() == stores[1].verify() == []

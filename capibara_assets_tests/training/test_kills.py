"""Killed at any moment and started again, a training ends as if nothing had been: weights, optimizer and curve."""

import json
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from capibara_assets.training.request import TrainingRequest
from capibara_assets_tests.training.conftest import MakeRequest
from capibara_assets_tests.training.kills import GONE_S, Kill, Supervised, Tally, drawn, run_killed

# In `make test`, `test_run` kills voters and compares the bits, and ends the supervisor with its whole group;
# `test_agent` kills the supervisor.
pytestmark = pytest.mark.resume


Make = Callable[..., TrainingRequest]


@pytest.fixture
def one_voter(make_request: MakeRequest) -> Make:
    """A training of one voter, with everything in its state that there can be."""

    def make(work: str, epochs: int = 9, max_steps: int = 30) -> TrainingRequest:
        request = make_request(
            work=work, voters=[{"name": "voter-0", "seed": 0, "shard": 0}], epochs=epochs, max_steps=max_steps,
            evaluate_every=5, checkpoint_every=3, ema={"decay": 0.9}, spike={"window": 8, "snapshot_every": 4},
            max_restarts=10_000,
        )  # fmt: skip
        return request.model_copy(update={"keep_points": True})

    return make


def unharmed(tally: Tally, kills: int) -> None:
    assert tally.kills == kills
    assert tally.equal == tally.trainings >= 1
    assert tally.orphans == 0 and tally.slowest_s < GONE_S


@pytest.mark.extended
def test_killed_while_loading_saving_and_stopped_in_a_validation(one_voter: Make) -> None:
    kills = [
        Kill("save", "supervisor", signal.SIGKILL),
        Kill("start", "voter", signal.SIGKILL, delay_s=0.2),
        Kill("validation", "supervisor", signal.SIGTERM),
    ]
    unharmed(run_killed(one_voter, kills), 3)


@pytest.mark.extended
def test_ten_kills_at_random_moments(one_voter: Make) -> None:
    unharmed(run_killed(one_voter, drawn(10, seed=10)), 10)


@pytest.mark.extended
def test_a_dozen_signals_at_random_moments_each_gone_in_time(one_voter: Make) -> None:
    """From the interpreter's start on: while it imports, loads, trains, validates and saves."""
    source, worst = random.Random(12), 0.0
    for moment in range(12):
        request = one_voter("signalled", max_steps=4000, epochs=4000)
        with Supervised(request) as training:
            number = source.choice([signal.SIGINT, signal.SIGTERM])
            when = ("imports", "start", "step", "validation", "save")[moment % 5]
            kill = Kill(when, "supervisor", number, source.randint(1, 20), source.uniform(0.5, 3.0))
            if when != "imports":
                assert training.await_moment(kill)
            time.sleep(kill.delay_s)
            begun, family = time.monotonic(), training.strike(kill)
            assert family is not None and training.await_end(family) == 0
            took = time.monotonic() - begun
            assert training.wait() in {128 + number, -number}
        worst = max(worst, took)
        print(f"signal {moment + 1}: {when}, {number.name}, gone in {took:.2f} s, worst {worst:.2f} s", flush=True)
    assert worst < GONE_S
    assert list((request.work / "voter-0").glob("checkpoint-*"))


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_two_hundred_kills_at_random_moments(one_voter: Make, pytestconfig: pytest.Config) -> None:
    """`make soak-resume`; the result lies in .capibara/soak-resume.json."""
    tally = run_killed(one_voter, drawn(200, seed=200), say=lambda line: print(line, flush=True))
    out = Path(pytestconfig.rootpath) / ".capibara" / "soak-resume.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(vars(tally), indent=2) + "\n")
    print(json.dumps(vars(tally)), flush=True)
    unharmed(tally, 200)

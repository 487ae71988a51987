"""The supervisor with real processes: killed voters come back, bad ones are named, nothing outlives it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import read_adapter
from capibara_assets.training import run
from capibara_assets.training.events import read_events
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.resume import load_point
from capibara_assets.training.run import TooFewVoters, TrainingInterrupted, train_domain
from capibara_assets_tests.training.conftest import MakeRequest
from capibara_assets_tests.training.test_loop import digests

VOTERS = [f"voter-{number}" for number in range(4)]


class Killer:
    """Listens to events; kills (or asks to stop) when a voter reports a step."""

    def __init__(self, victims: dict[str, int], at_step: int, number: int = signal.SIGKILL):
        self.victims, self.at_step, self.number = dict(victims), at_step, number
        self.events: list[dict[str, Any]] = []
        self.pids: dict[str, int] = {}

    def __call__(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        voter = event["voter"]
        if event["event"] == "started":
            self.pids[voter] = event["pid"]
        if event["event"] == "step" and event["step"] >= self.at_step and self.victims.get(voter, 0) > 0:
            self.victims[voter] -= 1
            os.kill(self.pids[voter], self.number)

    def of(self, kind: str) -> list[str]:
        return [event["voter"] for event in self.events if event["event"] == kind]


def all_digests(request: TrainingRequest) -> dict[str, dict[str, str]]:
    return {path.name: digests(path) for path in sorted((request.out / "voters").iterdir())}


@pytest.mark.resume
def test_killed_voters_come_back_and_end_the_same_to_the_bit(make_request: MakeRequest) -> None:
    undisturbed = make_request(work="undisturbed", max_steps=12, epochs=3, parallel=2)
    outcome = train_domain(undisturbed, lambda event: None)
    assert outcome.finished == tuple(VOTERS) and not outcome.missing

    killer = Killer({"voter-1": 2, "voter-3": 1}, at_step=5)
    disturbed = make_request(work="disturbed", max_steps=12, epochs=3, parallel=2)
    outcome = train_domain(disturbed, killer)
    assert outcome.finished == tuple(VOTERS)
    assert sorted(killer.of("restarted")) == ["voter-1", "voter-1", "voter-3"]
    assert sorted(killer.of("resumed")) == ["voter-1", "voter-1", "voter-3"]
    assert all_digests(disturbed) == all_digests(undisturbed)

    # The same again: nothing is trained twice.
    again = Killer({}, 0)
    train_domain(disturbed, again)
    assert sorted(again.of("reused")) == VOTERS and not again.of("started")
    assert all_digests(disturbed) == all_digests(undisturbed)


def test_one_voter_that_cannot_be_kept_alive_is_named_and_two_are_too_many(make_request: MakeRequest) -> None:
    request = make_request(max_restarts=1)
    killer = Killer({"voter-2": 99}, at_step=1)
    outcome = train_domain(request, killer)
    assert outcome.finished == ("voter-0", "voter-1", "voter-3")
    assert outcome.missing == {"voter-2": "killed by signal 9, after 1 restarts"}
    assert outcome.summary["missing"] == outcome.missing
    assert sorted(path.name for path in (request.out / "voters").iterdir()) == ["voter-0", "voter-1", "voter-3"]

    request = make_request(work="two", max_restarts=0, parallel=2)
    with pytest.raises(
        TooFewVoters, match=r"of 4 voters finished, 3 needed: voter-0: killed by signal 9.*voter-1: killed"
    ):
        train_domain(request, Killer({"voter-0": 1, "voter-1": 1}, at_step=1))
    assert not request.out.exists()


def test_what_would_fail_again_is_not_tried_again(make_request: MakeRequest) -> None:
    killer = Killer({}, 0)
    with pytest.raises(InputError, match="train examples can be used with max_length 8"):
        train_domain(make_request(max_length=8), killer)
    assert not killer.of("restarted")
    with pytest.raises(InputError, match="does not exist"):
        train_domain(make_request(data=Path("/no/such/examples.parquet")), killer)


@pytest.mark.resume
def test_asked_to_stop_every_voter_leaves_a_resume_point_and_the_next_run_goes_on(make_request: MakeRequest) -> None:
    request, killer = make_request(parallel=2, max_steps=200, epochs=99, checkpoint_every=1000), Killer({}, 0)
    started = time.monotonic()

    def stop() -> int | None:
        return signal.SIGTERM if len(set(killer.of("step"))) == 2 else None

    with pytest.raises(TrainingInterrupted) as stopped:
        train_domain(request, killer, stop)
    assert stopped.value.signal == signal.SIGTERM
    assert len(set(killer.of("interrupted"))) == 2
    assert not any(psutil.pid_exists(pid) for pid in killer.pids.values())
    assert not request.out.exists()
    assert time.monotonic() - started < 120
    resumed = Killer({}, 0)
    with pytest.raises(TrainingInterrupted):
        train_domain(request, resumed, lambda: signal.SIGINT if len(resumed.of("resumed")) == 2 else None)
    steps = {event["voter"]: event["step"] for event in resumed.events if event["event"] == "resumed"}
    assert all(step > 0 for step in steps.values())


@pytest.mark.resume
def test_in_a_hurry_a_voter_that_does_not_leave_is_ended_at_once(
    make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_STOP_GRACE_S", 180.0)
    request = make_request(max_steps=99, epochs=99, parallel=1)
    stopper = Killer({"voter-0": 1}, at_step=3, number=signal.SIGSTOP)
    asked: list[float] = []

    def stop() -> int | None:
        if not stopper.of("step")[2:]:
            return None
        asked.append(time.monotonic())
        return signal.SIGTERM

    with pytest.raises(TrainingInterrupted):
        train_domain(request, stopper, stop, hurry=lambda: True)
    assert time.monotonic() - asked[0] < 60  # and not the three minutes it would have
    point, damaged = load_point(request.work / "voter-0", inputs=request.inputs(request.recipe.voters[0]))
    assert point is not None and not damaged


@pytest.mark.parametrize(("fault", "factor"), [("sign_flip", -3.0), ("norm_100x", 100.0), ("nan", float("nan"))])
def test_injected_faults_change_the_copy_that_is_published_and_say_so(
    make_request: MakeRequest, fault: str, factor: float
) -> None:
    request = make_request(fault={"voter-1": fault}, max_steps=2)
    outcome = train_domain(request, lambda event: None)
    assert outcome.summary["injected"] == {"voter-1": fault}
    assert outcome.summary["voters"]["voter-1"]["status"] == "injected"
    assert outcome.summary["voters"]["voter-0"]["status"] == "finished"
    honest = read_adapter(request.work / "voter-1" / "result")
    injected = read_adapter(request.out / "voters" / "voter-1")
    for module in honest.modules:
        torch.testing.assert_close(injected.delta(module), factor * honest.delta(module), equal_nan=True)


def spawn(request: TrainingRequest) -> subprocess.Popen[str]:
    request.work.mkdir(parents=True, exist_ok=True)
    file = request.work / "request.json"
    file.write_text(request.model_dump_json())
    return subprocess.Popen(
        [sys.executable, "-m", "capibara_assets.training", "--request", str(file)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def until(process: subprocess.Popen[str], text: str) -> None:
    """Read the process's lines up to one that holds the text."""
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"it ended before {text!r}: {process.communicate()[1]}")


@pytest.mark.resume
def test_as_a_process_of_its_own_killed_stopped_and_run_to_the_end(make_request: MakeRequest) -> None:
    """Ends at SIGKILL, SIGINT and a whole group's SIGTERM without orphans; the next start goes on; then it finishes."""
    changes: dict[str, Any] = {"parallel": 2, "report_every": 1, "epochs": 99, "max_steps": 150}
    request = make_request(**changes)
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        process = spawn(request)
        family = psutil.Process(process.pid)
        until(process, "tokens/s")
        while len(list(request.work.glob("voter-*/events.jsonl"))) < 2:  # on a busy machine one is late
            assert process.poll() is None
            time.sleep(0.05)
        children = family.children(recursive=True)
        assert len(children) >= 3  # fork server, two voters
        begun = time.monotonic()
        if number == signal.SIGTERM:  # as service managers do: the fork server gets it, too
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        process.communicate()
        assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number)
        _, alive = psutil.wait_procs(children, timeout=20)
        assert not alive and time.monotonic() - begun < 20
        assert list(request.work.glob("voter-*/checkpoint-*"))
        if number != signal.SIGKILL:
            logs = [read_events(file) for file in sorted(request.work.glob("voter-*/events.jsonl"))]
            assert [log[-1]["event"] for log in logs] == ["interrupted", "interrupted"]
    quick = make_request(**(changes | {"max_steps": 2}), work="quick")
    process = spawn(quick)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "python: 4 voters in" in output
    summary = json.loads((quick.out / "summary.json").read_text())
    assert summary["finished"] == VOTERS
    assert {"status", "steps", "validation_loss", "seconds", "curve"} <= summary["voters"]["voter-0"].keys()


def test_bad_input_is_one_sentence_and_exit_code_2(make_request: MakeRequest, tmp_path: Path) -> None:
    request = make_request().model_copy(update={"base_model": tmp_path / "nowhere"})
    _, errors = (process := spawn(request)).communicate()
    assert process.returncode == 2
    assert (
        errors.strip()
        == f"base model folder {tmp_path / 'nowhere'} does not exist: give a folder in transformers' format"
    )

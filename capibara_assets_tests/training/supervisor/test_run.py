"""The supervisor with real processes: killed voters come back, bad ones are named, nothing outlives it."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pytest
import torch

from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import read_adapter
from capibara_assets.training import __main__ as training_main
from capibara_assets.training.data.order import validation_shard
from capibara_assets.training.monitoring.events import read_events
from capibara_assets.training.plan.plan import plan_training
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.resume.points import load_point
from capibara_assets.training.supervisor import run
from capibara_assets.training.supervisor.run import TooFewVoters, TrainingInterrupted, train_domain, train_voters
from capibara_assets.training.supervisor.signals import StopSignal
from capibara_assets_tests.training import stub_voters
from capibara_assets_tests.training.conftest import MakeRequest, request_maker
from capibara_assets_tests.training.loop.test_train import digests

VOTERS = [f"voter-{number}" for number in range(4)]
SIX: dict[str, Any] = {"max_steps": 6, "epochs": 3, "parallel": 2}


class Killer:
    """Listens to events; kills (or asks to stop) when a voter reports a step, each of its processes once.

    Steps that it reported before it died are heard after it, and the next process is the next victim.
    """

    def __init__(self, victims: dict[str, int], at_step: int, number: int = signal.SIGKILL):
        self.victims, self.at_step, self.number = dict(victims), at_step, number
        self.events: list[dict[str, Any]] = []
        self.pids: dict[str, int] = {}
        self.killed: set[int] = set()

    def __call__(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        voter = event["voter"]
        if event["event"] == "started":
            self.pids[voter] = event["pid"]
        due = event["event"] == "step" and event["step"] >= self.at_step and self.victims.get(voter, 0) > 0
        if due and self.pids[voter] not in self.killed:
            self.victims[voter] -= 1
            self.killed.add(self.pids[voter])
            os.kill(self.pids[voter], self.number)

    def of(self, kind: str) -> list[str]:
        return [event["voter"] for event in self.events if event["event"] == kind]


def all_digests(request: TrainingRequest) -> dict[str, dict[str, str]]:
    return {path.name: digests(path) for path in sorted((request.out / "voters").iterdir())}


@pytest.fixture(scope="module")
def undisturbed(two_layers: Path, dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainingRequest:
    """A training of four voters that was done, and nothing disturbed it. To be read, never trained in again."""
    make = request_maker(two_layers, dataset, tmp_path_factory.mktemp("undisturbed"))
    request = make(**SIX)
    outcome = train_domain(request, lambda event: None)
    assert outcome.finished == tuple(VOTERS) and not outcome.missing
    return request


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Voters that train nothing (`stub_voters`)."""
    monkeypatch.setattr(run, "_enter", stub_voters.enter)


@pytest.mark.resume
def test_killed_voters_come_back_and_end_the_same_to_the_bit(
    make_request: MakeRequest, undisturbed: TrainingRequest
) -> None:
    killer = Killer({"voter-1": 2, "voter-3": 1}, at_step=3)
    disturbed = make_request(work="disturbed", base=undisturbed.base_model, **SIX)
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


@pytest.mark.usefixtures("stubs")
def test_one_voter_that_cannot_be_kept_alive_is_named_and_two_are_too_many(make_request: MakeRequest) -> None:
    request, events = make_request(max_restarts=1), Killer({}, 0)
    stub_voters.tell(request, voter_2="dies")
    outcome = train_domain(request, events)
    assert outcome.finished == ("voter-0", "voter-1", "voter-3")
    assert outcome.missing == {"voter-2": "killed by signal 9, after 1 restarts"}
    assert outcome.summary["missing"] == outcome.missing
    assert events.of("restarted") == ["voter-2"] and events.of("started").count("voter-2") == 2
    assert sorted(path.name for path in (request.out / "voters").iterdir()) == ["voter-0", "voter-1", "voter-3"]

    request = make_request(work="two", max_restarts=0, parallel=2)
    stub_voters.tell(request, voter_0="dies", voter_1="dies")
    with pytest.raises(
        TooFewVoters, match=r"of 4 voters finished, 3 needed: voter-0: killed by signal 9.*voter-1: killed"
    ):
        train_domain(request, Killer({}, 0))
    assert not request.out.exists()


@pytest.mark.usefixtures("stubs")
def test_what_dies_at_times_is_started_until_it_lives_and_what_fails_is_not_tried_again(
    make_request: MakeRequest,
) -> None:
    request, events = make_request(max_restarts=5), Killer({}, 0)
    stub_voters.tell(request, voter_1="dies 3", voter_3="fails")
    outcome = train_domain(request, events)
    assert outcome.finished == ("voter-0", "voter-1", "voter-2")
    assert outcome.missing == {"voter-3": "it would come again"}
    assert events.of("restarted") == ["voter-1"] * 3
    assert [event["attempt"] for event in events.events if event["event"] == "finished"].count(4) == 1


def test_what_would_fail_again_is_not_tried_again(make_request: MakeRequest) -> None:
    killer = Killer({}, 0)
    with pytest.raises(InputError, match="train examples can be used with max_length 8"):
        train_domain(make_request(max_length=8), killer)
    assert not killer.of("restarted")
    with pytest.raises(InputError, match="does not exist"):
        train_domain(make_request(data=Path("/no/such/examples.parquet")), killer)


@pytest.mark.usefixtures("stubs")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_stop_every_running_voter_is_asked_and_none_is_left(
    make_request: MakeRequest, number: signal.Signals
) -> None:
    request, events = make_request(parallel=2), Killer({}, 0)
    stub_voters.tell(request, voter_0="waits", voter_1="waits")
    with pytest.raises(TrainingInterrupted) as stopped:
        train_domain(request, events, lambda: number if len(events.of("step")) == 2 else None)
    assert stopped.value.signal == number
    assert sorted(events.of("interrupted")) == sorted(events.of("started")) == ["voter-0", "voter-1"]
    assert not any(psutil.pid_exists(pid) for pid in events.pids.values())
    assert not request.out.exists()


@pytest.mark.resume
@pytest.mark.timeout(300)  # where nobody hurries, a voter that stands still is waited for without end
def test_in_a_hurry_a_voter_that_does_not_leave_is_ended_at_once(
    make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_STOP_GRACE_S", math.inf)
    request = make_request(max_steps=99, epochs=99, parallel=1)
    stopper, questions = Killer({"voter-0": 1}, at_step=3, number=signal.SIGSTOP), list[None]()

    def hurry() -> bool:
        questions.append(None)
        return True

    with pytest.raises(TrainingInterrupted):
        train_domain(request, stopper, lambda: signal.SIGTERM if stopper.of("step")[2:] else None, hurry=hurry)
    assert len(questions) == 1  # and at once is when it was first asked
    assert not psutil.pid_exists(stopper.pids["voter-0"])
    point, damaged = load_point(request.work / "voter-0", inputs=request.inputs(request.recipe.voters[0]))
    assert point is not None and not damaged


@pytest.mark.usefixtures("stubs")
def test_a_voter_that_does_not_leave_is_ended_when_its_time_is_over(
    make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_STOP_GRACE_S", 0.2)
    request, events = make_request(parallel=1), Killer({}, 0)
    stub_voters.tell(request, voter_0="stays")
    with pytest.raises(TrainingInterrupted):
        train_domain(request, events, lambda: signal.SIGTERM if events.of("step") else None)
    assert events.of("started") == ["voter-0"] and not psutil.pid_exists(events.pids["voter-0"])


@pytest.mark.parametrize(("fault", "factor"), [("sign_flip", -3.0), ("norm_100x", 100.0), ("nan", float("nan"))])
def test_injected_faults_change_the_copy_that_is_published_and_say_so(
    undisturbed: TrainingRequest, tmp_path: Path, fault: str, factor: float
) -> None:
    work = Path(shutil.copytree(undisturbed.work, tmp_path / "work", ignore=shutil.ignore_patterns("out")))
    request = undisturbed.model_copy(update={"work": work, "out": work / "out", "fault": {"voter-1": fault}})
    outcome = train_domain(request, lambda event: None)
    assert outcome.summary["injected"] == {"voter-1": fault}
    assert outcome.summary["voters"]["voter-1"]["status"] == "injected"
    assert outcome.summary["voters"]["voter-0"]["status"] == "finished"
    honest = read_adapter(request.work / "voter-1" / "result")
    injected = read_adapter(request.out / "voters" / "voter-1")
    for module in honest.modules:
        torch.testing.assert_close(injected.delta(module), factor * honest.delta(module), equal_nan=True)


def test_voters_that_trained_apart_are_put_together_and_nothing_is_trained(
    undisturbed: TrainingRequest, tmp_path: Path
) -> None:
    work = Path(shutil.copytree(undisturbed.work, tmp_path / "work", ignore=shutil.ignore_patterns("out")))
    request = undisturbed.model_copy(update={"work": work, "out": work / "out"})
    file, events = str(request.write()), Killer({}, 0)
    train_voters(request, ["voter-1"], events)
    assert events.of("reused") == ["voter-1"] and not request.out.exists()
    with pytest.raises(InputError, match="no voter voter-9"):
        train_voters(request, ["voter-1", "voter-9"], events)
    shutil.rmtree(work / "voter-2" / "result")
    assert training_main.main(["--request", file, "--assemble"]) == 0
    summary = json.loads((request.out / "summary.json").read_text())
    assert summary["finished"] == ["voter-0", "voter-1", "voter-3"] and "voter-2" in summary["missing"]
    whole = all_digests(undisturbed)
    assert all_digests(request) == {name: whole[name] for name in summary["finished"]}
    shutil.rmtree(work / "voter-1" / "result")
    assert training_main.main(["--request", file, "--assemble"]) == 1  # fewer than the quorum


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


def stepping(request: TrainingRequest) -> list[Path]:
    """Logs of the voters that have made a step."""
    logs = request.work.glob("voter-*/events.jsonl")
    return [log for log in logs if any(event["event"] == "step" for event in read_events(log))]


@pytest.mark.resume
@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        # A killed supervisor is also in `test_kills` and `test_agent`, and SIGINT asks as SIGTERM does.
        pytest.param(signal.SIGKILL, marks=pytest.mark.extended),
        pytest.param(signal.SIGINT, marks=pytest.mark.extended),
    ],
)
def test_as_a_process_of_its_own_it_ends_without_orphans_and_the_next_start_goes_on(
    make_request: MakeRequest, number: signal.Signals
) -> None:
    request = make_request(parallel=2, report_every=1, epochs=99, max_steps=200)
    process = spawn(request)
    family = psutil.Process(process.pid)
    until(process, "tokens/s")
    while len(stepping(request)) < 2:  # on a busy machine one is late
        assert process.poll() is None
        time.sleep(0.05)
    children = family.children(recursive=True)
    assert len(children) >= 3  # fork server, two voters
    if number == signal.SIGTERM:  # as service managers do: the fork server gets it, too
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    process.communicate()
    assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    _, alive = psutil.wait_procs(children, timeout=120)
    assert not alive
    assert list(request.work.glob("voter-*/checkpoint-*"))
    if number != signal.SIGKILL:
        logs = [read_events(file) for file in sorted(request.work.glob("voter-*/events.jsonl"))]
        assert [log[-1]["event"] for log in logs] == ["interrupted", "interrupted"]
    resumed = Killer({}, 0)
    with pytest.raises(TrainingInterrupted):
        train_domain(request, resumed, lambda: signal.SIGINT if len(resumed.of("resumed")) == 2 else None)
    assert all(event["step"] > 0 for event in resumed.events if event["event"] == "resumed")


@pytest.mark.extended
def test_as_a_process_of_its_own_it_runs_to_the_end(make_request: MakeRequest) -> None:
    quick = make_request(parallel=2, report_every=1, epochs=99, max_steps=2)
    process = spawn(quick)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "python: 4 voters in" in output
    summary = json.loads((quick.out / "summary.json").read_text())
    assert summary["finished"] == VOTERS
    assert {"status", "steps", "validation_loss", "seconds", "curve"} <= summary["voters"]["voter-0"].keys()


def test_bad_input_is_one_sentence_and_exit_code_2(
    make_request: MakeRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StopSignal, "listen", lambda self: None)  # this process is not its own
    request = make_request().model_copy(update={"base_model": tmp_path / "nowhere"})
    (tmp_path / "request.json").write_text(request.model_dump_json())
    assert training_main.main(["--request", str(tmp_path / "request.json")]) == 2
    assert (
        capsys.readouterr().err.strip()
        == f"base model folder {tmp_path / 'nowhere'} does not exist: give a folder in transformers' format"
    )


@pytest.mark.parametrize(
    ("ends", "code"),
    [(TooFewVoters("2 of 4 voters finished"), 1), (TrainingInterrupted(signal.SIGINT), 130),
     (TrainingInterrupted(signal.SIGTERM), 143)],
    ids=["too few", "SIGINT", "SIGTERM"],
)  # fmt: skip
def test_each_way_to_end_has_an_exit_code(
    make_request: MakeRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    ends: Exception, code: int,
) -> None:  # fmt: skip
    def training(*_: Any, **__: Any) -> None:
        raise ends

    monkeypatch.setattr(StopSignal, "listen", lambda self: None)
    monkeypatch.setattr(training_main, "train_domain", training)
    (tmp_path / "request.json").write_text(make_request().model_dump_json())
    assert training_main.main(["--request", str(tmp_path / "request.json")]) == code
    assert capsys.readouterr().err == f"{ends}\n"


@pytest.mark.usefixtures("stubs")
def test_a_voter_whose_validation_examples_are_all_too_long_is_missing(
    make_request: MakeRequest, dataset: Path, tmp_path: Path
) -> None:
    def with_long_shards(*numbers: int) -> TrainingRequest:
        table = pl.read_parquet(dataset)
        ids = [name for number in numbers for name in validation_shard(table, number, 4)["example_id"]]
        longer = pl.col("messages").str.replace("adds", "adds " + "and adds " * 200)
        messages = pl.when(pl.col("example_id").is_in(ids)).then(longer).otherwise(pl.col("messages"))
        file = tmp_path / f"long-{len(numbers)}.parquet"
        table.with_columns(messages=messages).write_parquet(file)
        return make_request(work=file.stem, data=file)

    request = with_long_shards(2)
    stub_voters.tell(request, voter_2="fails")
    outcome = train_domain(request, Killer({}, 0))
    assert outcome.finished == ("voter-0", "voter-1", "voter-3")
    plan = plan_training(request)
    assert [voter.name for voter in plan.voters] == ["voter-0", "voter-1", "voter-3"]
    assert plan.examples_left_out == len(validation_shard(pl.read_parquet(dataset), 2, 4))
    (warning,) = [line for line in plan.warnings if "will be missing" in line]
    assert warning.startswith("voter voter-2 will be missing: none of the validation examples can be used")
    with pytest.raises(InputError, match="2 of 4 voters have examples, 3 needed: voter voter-1: none of"):
        train_domain(with_long_shards(1, 2), Killer({}, 0))

"""A voter of two processes under its supervisor: whatever is killed, it comes back, and nothing is left behind."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from capibara_assets.errors import InputError
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.supervisor.agent import _RankGroup
from capibara_assets.training.supervisor.run import train_domain
from capibara_assets.training.supervisor.signals import StopSignal
from capibara_assets.training.supervisor.voter_process import FAILED
from capibara_assets_tests.commands import command_of
from capibara_assets_tests.training.conftest import MakeRequest
from capibara_assets_tests.training.supervisor.test_run import Killer, spawn, until

SPLIT: dict[str, Any] = {
    "voters": [{"name": "voter-0", "seed": 0, "shard": 0}],
    "backend": "ddp",
    "processes": 2,
    "report_every": 1,
    "max_restarts": 3,
    "epochs": 99,
    "evaluate_every": 50,
    "checkpoint_every": 5,
}


def eventually(question: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := question():
            return answer
        time.sleep(0.05)
    raise AssertionError("it never happened")


def failed(error: str, *, bad_input: bool = False) -> dict[str, Any]:
    return {"event": "failed", "error": error, "bad_input": bad_input}


BROKEN, BAD = failed("connection reset by peer"), failed("no examples", bad_input=True)
FULL = failed("out of memory") | {"out_of_memory": True}


@pytest.mark.parametrize(
    ("signals", "killed", "failures", "exit_codes", "code", "reported"),
    [
        ([], False, [], [0, 0], 0, None),
        ([signal.SIGINT], False, [], [130, 130], 130, None),
        ([signal.SIGTERM], True, [BROKEN], [3], 143, None),  # killed when its time was over
        ([], True, [], [0], 137, None),  # one was killed: it is started again
        ([], True, [BROKEN], [3], 137, None),  # the other's failure is its consequence
        ([], False, [BROKEN], [3, 143], FAILED, BROKEN),
        ([], True, [BROKEN, FULL], [3, 3], FAILED, FULL),  # the supervisor knows what to do about memory
        ([], True, [BROKEN, BAD], [3, 3], FAILED, BAD),  # would come again
        ([], False, [], [143, 143], 143, None),  # stopped from outside: they are started again
        ([], False, [], [], FAILED, failed("torchrun ended with exit code 7 before any process had begun")),
    ],
)
def test_how_several_processes_ended_becomes_how_the_voter_ended(
    signals: list[int],
    killed: bool,
    failures: list[dict[str, Any]],
    exit_codes: list[int],
    code: int,
    reported: Any,
) -> None:
    said = list[dict[str, Any]]()
    torchrun = subprocess.Popen([sys.executable, "-S", "-c", "raise SystemExit(7)"])
    torchrun.wait()
    stop_signal = StopSignal()
    for number in signals:
        stop_signal.note(number)
    ranks = _RankGroup(torchrun, said.append, stop_signal, exit_codes=exit_codes, failures=failures, killed=killed)
    assert ranks.exit_code() == code
    assert said == ([reported] if reported else [])


class Family:
    """A supervisor's process and all that it ever started."""

    def __init__(self, request: TrainingRequest):
        self.process = spawn(request)
        self.root = psutil.Process(self.process.pid)
        self.seen = list[psutil.Process]()

    def of_kind(self, words: str) -> list[psutil.Process]:
        """Those whose command line begins with these words, after the interpreter."""
        self.seen.extend(found := self.root.children(recursive=True))
        return [child for child in found if words in " ".join(command_of(child)[:5])]

    @property
    def ranks(self) -> list[psutil.Process]:
        return self.of_kind("-m capibara_assets.training.rank")

    @property
    def torchrun(self) -> psutil.Process:
        (found,) = self.of_kind("-m torch.distributed.run")
        return found

    def comes_back(self) -> None:
        for text in ("killed by signal 9, started again", "goes on from step", "tokens/s"):
            until(self.process, text)

    def ended_by(self, number: int) -> int:
        """Send a signal; fails unless all go; the exit code."""
        self.seen.extend(self.root.children(recursive=True))
        self.process.send_signal(number)
        self.process.communicate()
        _, alive = psutil.wait_procs(self.seen, timeout=120)
        assert not alive
        return self.process.returncode


@pytest.mark.extended
@pytest.mark.resume
def test_a_killed_process_comes_back_and_a_stop_leaves_a_resume_point_and_nobody(make_request: MakeRequest) -> None:
    request = make_request(max_steps=60, **SPLIT)
    family = Family(request)
    until(family.process, "tokens/s")
    eventually(lambda: list(request.work.glob("voter-0/checkpoint-*")))
    family.ranks[-1].kill()
    family.comes_back()
    assert len(family.ranks) == 2
    assert family.ended_by(signal.SIGTERM) == 143
    states = [json.loads(path.read_text()) for path in request.work.glob("voter-0/checkpoint-*/state.json")]
    stopped_at = max(state["progress"]["step"] for state in states)

    events = Killer({}, 0)
    outcome = train_domain(request, events)
    assert outcome.finished == ("voter-0",)
    (resumed,) = (event for event in events.events if event["event"] == "resumed")
    assert resumed["step"] == stopped_at > 0 and resumed["continuation"] == "exact"


@pytest.mark.extended
@pytest.mark.resume
@pytest.mark.parametrize("victim", ["torchrun", "agent", "supervisor"])
def test_whoever_looks_after_them_is_killed(make_request: MakeRequest, victim: str) -> None:
    request = make_request(max_steps=400, **SPLIT)
    family = Family(request)
    until(family.process, "tokens/s")
    eventually(lambda: list(request.work.glob("voter-0/checkpoint-*")))
    if victim == "supervisor":
        assert family.ended_by(signal.SIGKILL) == -9
        return
    agent = family.torchrun.parent()
    assert agent is not None
    (family.torchrun if victim == "torchrun" else agent).kill()
    family.comes_back()
    assert family.ended_by(signal.SIGINT) == 130


def test_a_supervisor_killed_while_torchrun_starts_leaves_nobody(make_request: MakeRequest) -> None:
    family = Family(make_request(max_steps=60, **SPLIT))
    eventually(lambda: family.of_kind("-m torch.distributed.run"))
    assert family.ended_by(signal.SIGKILL) == -9


@pytest.mark.extended
def test_bad_input_found_by_the_processes_is_reported_once_and_not_tried_again(
    make_request: MakeRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (temporary := tmp_path / "t").mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    events = Killer({}, 0)
    # The digest of the base is no matter of the checks before the start.
    another = make_request(**SPLIT).model_copy(update={"base_digest": "0" * 64})
    with pytest.raises(InputError, match="its files have changed"):
        train_domain(another, events)
    assert events.of("failed") == ["voter-0"] and not events.of("restarted")
    assert not [path for path in temporary.iterdir() if "torch" in path.name]

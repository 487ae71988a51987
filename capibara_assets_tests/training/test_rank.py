"""Processes that a person starts with torchrun over several hosts, and what is refused there."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from capibara_assets.errors import InputError
from capibara_assets.training.rank import main
from capibara_assets.training.ranks import Ranks, join_ranks
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.resume.points import require_shared
from capibara_assets.training.supervisor.run import train_domain
from capibara_assets_tests.served import free_port
from capibara_assets_tests.training.conftest import MakeRequest
from capibara_assets_tests.training.supervisor.test_agent import SPLIT
from capibara_assets_tests.training.supervisor.test_run import Killer, until


def write(request: TrainingRequest) -> Path:
    request.work.mkdir(parents=True, exist_ok=True)
    (request.work / "request.json").write_text(request.model_dump_json())
    return request.work / "request.json"


def host(port: int, request: Path) -> "subprocess.Popen[str]":
    """torchrun of one of two hosts, with one process each."""
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"),
            *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{port}", "--rdzv-id", "test"),
            *("-m", "capibara_assets.training.rank", "--request", str(request), "--voter", "voter-0"),
        ],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def speaker(hosts: "list[subprocess.Popen[str]]") -> "subprocess.Popen[str]":
    """The host that has the first process: only that one prints. Hosts are numbered as they come."""
    (ready, *_), _, _ = select.select([one.stdout for one in hosts], [], [], 120)
    return next(one for one in hosts if one.stdout is ready)


@pytest.mark.extended
@pytest.mark.resume
def test_one_of_two_hosts_is_asked_to_stop_and_both_leave_with_a_resume_point(
    make_request: MakeRequest,
) -> None:
    request = make_request(**(SPLIT | {"processes": 1}), max_steps=60)
    file = write(request)
    port = free_port()
    hosts = [host(port, file) for _ in range(2)]
    first = speaker(hosts)
    until(first, "tokens/s")
    hosts[1 - hosts.index(first)].send_signal(signal.SIGTERM)
    for one in hosts:
        one.communicate(timeout=120)
        assert one.returncode != 0
    assert list(request.work.glob("voter-0/checkpoint-*"))

    port = free_port()
    hosts = [host(port, file) for _ in range(2)]
    until(speaker(hosts), "goes on from step")
    for one in hosts:
        _, errors = one.communicate()
        assert one.returncode == 0, errors[-3000:]
    events = Killer({}, 0)
    assert train_domain(request, events).finished == ("voter-0",)  # as the launch scripts do at the end
    assert events.of("reused") == ["voter-0"]


def test_a_supervisor_started_by_torchrun_is_pointed_to_the_ranks(
    make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "8")
    with pytest.raises(InputError, match=r"one of 8.*capibara_assets\.training\.rank"):
        train_domain(make_request(), lambda event: None)


def test_a_process_that_torchrun_did_not_start_says_so() -> None:
    with pytest.raises(InputError, match="start this module with torchrun"):
        join_ranks()


def test_a_voter_that_the_recipe_does_not_have_is_bad_input(
    make_request: MakeRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--request", str(write(make_request())), "--voter", "voter-9"]) == 2
    assert "no voter voter-9: voter-0, voter-1" in capsys.readouterr().err


class Disagreeing(Ranks):
    def same(self, value: float) -> bool:
        return False


def test_hosts_that_do_not_share_the_work_folder_are_told_so(tmp_path: Path) -> None:
    require_shared(tmp_path, None, Ranks())
    with pytest.raises(InputError, match="on a file system that all hosts share"):
        require_shared(tmp_path, None, Disagreeing())


def test_alone_a_process_agrees_with_itself() -> None:
    ranks = Ranks()
    assert ranks.sum([0.5, 2.0]) == [0.5, 2.0] and ranks.any(True) and not ranks.any(False) and ranks.same(3)
    ranks.wait()

"""Trains voter-0 of several requests one after the other, in the same processes.

A job is a request and `stop_at`: at this question whether to go on the last process alone is asked to stop (0: never).
The processes are forks of the supervisor's fork server, in the environment that torchrun would give them: importing is
most of what a process costs, and tests of the supervisor need the same server.
"""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import torch
from pytest import MonkeyPatch

from capibara_assets.consensus.merging.experts_merge import write_merged
from capibara_assets.modeling.base import load_base
from capibara_assets.training.data.voter_run import Interrupted, VoterRun
from capibara_assets.training.loop import train as loop
from capibara_assets.training.loop.tactics import Tactic
from capibara_assets.training.loop.train import train_voter
from capibara_assets.training.ranks import ALONE, Ranks, join_ranks
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.supervisor.run import _fork_server

Job = tuple[TrainingRequest, int]


class Shrinking(Tactic):
    """Changes the weights in place after every step, as proximal steps do."""

    def after_step(self, learning_rate: float, gradient_norm: float) -> None:
        with torch.no_grad():
            for value in self.subject.trainable.values():
                value.mul_(0.9)


def train(request: TrainingRequest, poll: Callable[[], None] = lambda: None, ranks: Ranks = ALONE) -> None:
    """Train voter-0 with a tactic that changes weights in place."""
    with MonkeyPatch.context() as patch:
        patch.setattr(loop, "tactic_of", lambda _strategy, subject, _stepper, _training: Shrinking(subject))
        voter = request.recipe.voters[0]
        train_voter(VoterRun(request, voter, request.work / voter.name, lambda event: None, poll, ranks=ranks))


def asking(ranks: Ranks, stop_at: int) -> Callable[[], None]:
    """A question that the last process answers with a stop, once."""
    left = [stop_at if ranks.rank == ranks.world - 1 else 0]

    def poll() -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Interrupted

    return poll


def work_off(jobs: Sequence[Job]) -> None:
    ranks = join_ranks()
    for request, stop_at in jobs:
        try:
            train(request, asking(ranks, stop_at), ranks)
            interrupted = False
        except Interrupted:
            interrupted = True
        assert interrupted == bool(stop_at), request.work


def in_processes(processes: int, jobs: Sequence[Job], environment: dict[str, str], folder: Path) -> None:
    """Work in so many processes, until all of them are done; one that fails leaves its traceback in the folder."""
    request = jobs[0][0]
    one = request.recipe.hardware.model_copy(update={"processes": 1})  # whose server imports all that trains
    context = _fork_server(request.model_copy(update={"recipe": request.recipe.model_copy(update={"hardware": one})}))
    alone = context.Process(target=entered, args=(check_imports, (request,), {}, folder / "imports"), daemon=True)
    ranks = [
        context.Process(
            target=entered, daemon=True,
            args=(work_off, (jobs,), environment | {"RANK": str(rank), "LOCAL_RANK": str(rank),
                                                    "WORLD_SIZE": str(processes)}, folder / f"rank-{rank}"),
        )
        for rank in range(processes)
    ]  # fmt: skip
    for process in (started := [alone, *ranks]):
        process.start()
    for process in started:
        process.join()
    said = [file.read_text() for name in ("imports", *(f"rank-{rank}" for rank in range(processes)))
            if (file := folder / name).is_file()]  # fmt: skip
    assert [process.exitcode for process in started] == [0] * len(started), "\n".join(said)


def entered(work: Callable[..., None], arguments: tuple[Any, ...], environment: dict[str, str], said: Path) -> None:
    """First function of each process."""
    os.environ |= environment
    torch.set_num_threads(1)
    try:
        work(*arguments)
    except BaseException:
        said.write_text(traceback.format_exc())
        raise


def check_imports(request: TrainingRequest) -> None:
    """What trains and merges imports no library that it does not use; seen here, where nothing else is imported."""
    with TemporaryDirectory() as folder:
        nothing: Any = SimpleNamespace(deltas={})
        write_merged(load_base(request.base_model), nothing, Path(folder) / "merged")
    heavy = {"bitsandbytes", "deepspeed"} & sys.modules.keys()
    assert not heavy, f"imported for nothing: {heavy}"

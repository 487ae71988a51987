"""Trains voter-0 of several requests one after the other, in the same processes.

The arguments are the number of processes and a JSON list of jobs: `request`, the file of a request, and `stop_at`: at
this question whether to go on the last process alone is asked to stop (0: never). The processes are forks of one that
has imported everything, in the environment that torchrun would give them: importing is most of what a process costs.
"""

import json
import os
import sys
from collections.abc import Callable
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
from capibara_assets.training.loop.tactics import BestValidation
from capibara_assets.training.loop.train import train_voter
from capibara_assets.training.ranks import ALONE, Ranks, join_ranks
from capibara_assets.training.request import TrainingRequest, read_request


class Shrinking(BestValidation):
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


def main(jobs: list[dict[str, Any]]) -> None:
    ranks = join_ranks()
    for job in jobs:
        try:
            train(read_request(Path(job["request"])), asking(ranks, job["stop_at"]), ranks)
            interrupted = False
        except Interrupted:
            interrupted = True
        assert interrupted == bool(job["stop_at"]), job


def in_forks(processes: int, jobs: list[dict[str, Any]]) -> bool:
    """Work in so many forks, until all of them are done; whether all did their jobs."""
    children = []
    for rank in range(processes):
        if child := os.fork():
            children.append(child)
            continue
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes)}
        main(jobs)
        sys.exit()
    done = all(status == 0 for status in [os.waitpid(child, 0)[1] for child in children])  # waits for each
    check_imports(read_request(Path(jobs[0]["request"])))
    return done


def check_imports(request: TrainingRequest) -> None:
    """What trains and merges imports no library that it does not use; seen here, where nothing else is imported."""
    with TemporaryDirectory() as folder:
        nothing: Any = SimpleNamespace(deltas={})
        write_merged(load_base(request.base_model), nothing, Path(folder) / "merged")
    heavy = {"bitsandbytes", "deepspeed"} & sys.modules.keys()
    assert not heavy, f"imported for nothing: {heavy}"


if __name__ == "__main__":
    sys.exit(not in_forks(int(sys.argv[1]), json.loads(sys.argv[2])))

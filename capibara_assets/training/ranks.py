"""The processes that train one voter together: who this one is, and what all of them agree on."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import distributed

from capibara_assets.errors import InputError

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Ranks:
    """One process among `world`.

    What they agree on are numbers of Python, exchanged through gloo also where gradients go through NCCL: a device
    that is busy is not waited for.

    Attributes:
        rank: 0 writes the log, the resume points and the result.
        world: processes.
        device: on which this one computes.
    """

    rank: int = 0
    world: int = 1
    device: torch.device = _CPU

    @property
    def main(self) -> bool:
        """Whether this process writes."""
        return self.rank == 0

    def sum(self, values: Sequence[float]) -> list[float]:
        """The sums over all processes, in float64; every process gets the same bits."""
        if self.world == 1:
            return list(values)
        summed = torch.tensor(values, dtype=torch.float64)
        distributed.all_reduce(summed)
        found: list[float] = summed.tolist()
        return found

    def any(self, flag: bool) -> bool:
        """Whether it is so on any of them: so that all stop, or none does."""
        return self.sum([float(flag)])[0] > 0

    def same(self, value: float) -> bool:
        """Whether it is the same number on all of them."""
        return not self.any(self.sum([value])[0] != value * self.world)

    def wait(self) -> None:
        """Until all are here."""
        if self.world > 1:
            self.sum([0.0])


ALONE = Ranks()


def join_ranks() -> Ranks:
    """Meet the other processes that `torchrun` started, here and on other hosts; each has a GPU of its own, or none.

    Raises:
        InputError: not started by `torchrun`, or with more processes than this host has GPUs.
    """
    try:
        rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    except KeyError as error:
        raise InputError(f"{error.args[0]} is not set: start this module with torchrun") from error
    if not torch.cuda.is_available():
        distributed.init_process_group("gloo")
        return Ranks(rank, world)
    if local >= torch.cuda.device_count():
        raise InputError(
            f"process {local} of this host has no GPU: set hardware.processes to {torch.cuda.device_count()} or less"
        )
    torch.cuda.set_device(local)
    distributed.init_process_group("cpu:gloo,cuda:nccl")
    return Ranks(rank, world, torch.device("cuda", local))


def group_of_one() -> None:
    """A process group for libraries that want one also for a single process; without a port."""
    if not distributed.is_initialized():
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        distributed.init_process_group(backend, store=distributed.HashStore(), rank=0, world_size=1)

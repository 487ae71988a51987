"""The processes (ranks) that train one voter together: this process's place among them, and their collectives."""

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

    Collectives exchange Python numbers through gloo, also where gradients go through NCCL, so that they do not wait for
    a busy device.

    Attributes:
        rank: number of this process; rank 0 writes the log, the resume points and the result.
        world: number of processes.
        device: of this process.
    """

    rank: int = 0
    world: int = 1
    device: torch.device = _CPU

    @property
    def main(self) -> bool:
        """Whether this is rank 0, which writes."""
        return self.rank == 0

    def sum(self, values: Sequence[float]) -> list[float]:
        """The sums over all processes, in float64; every process gets the same bits."""
        if self.world == 1:
            return list(values)
        summed = torch.tensor(values, dtype=torch.float64)
        distributed.all_reduce(summed)
        sums: list[float] = summed.tolist()
        return sums

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any process; the same answer on all."""
        return self.sum([float(flag)])[0] > 0

    def same(self, value: float) -> bool:
        """Whether the number is the same on all processes."""
        return not self.any(self.sum([value])[0] != value * self.world)

    def wait(self) -> None:
        """Wait until all processes have called this."""
        if self.world > 1:
            self.sum([0.0])


ALONE = Ranks()


def join_ranks() -> Ranks:
    """Join the process group that `torchrun` started, on one or several hosts; each process has its own GPU, or none.

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
    """Initialize a process group without a port, for libraries that need one even for a single process."""
    if not distributed.is_initialized():
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        distributed.init_process_group(backend, store=distributed.HashStore(), rank=0, world_size=1)

"""This machine's GPUs and their assignment to voters. Imports no torch, because the supervisor uses it."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.training.recipe import HardwareChoice
from capibara_assets.training.request import TrainingRequest

VISIBLE = "CUDA_VISIBLE_DEVICES"
_DRIVER, _NODES = Path("/proc/driver/nvidia/gpus"), Path("/dev")

Gpus = tuple[str, ...]
"""GPUs by the names by which CUDA_VISIBLE_DEVICES selects them: numbers, UUIDs, or MIG instances."""


def gpus_here(environment: Mapping[str, str] = os.environ, *, driver: Path = _DRIVER, nodes: Path = _NODES) -> Gpus:
    """The GPUs available to this process; empty without any, or if torch was built without CUDA.

    Args:
        driver: folder in which the NVIDIA driver lists its GPUs; some containers only have their device `nodes`.
    """
    listed = len(list(driver.iterdir())) if driver.is_dir() else len(list(nodes.glob("nvidia[0-9]*")))
    if not listed or version("torch").endswith("+cpu"):
        return ()
    if VISIBLE not in environment:
        return tuple(map(str, range(listed)))
    names = [name.strip() for name in environment[VISIBLE].split(",")]
    ends = [at for at, name in enumerate(names) if name in ("", "-1", "NoDevFiles")]  # CUDA reads no further
    return tuple(names[: ends[0]] if ends else names)


@dataclass(frozen=True)
class Placement:
    """Assignment of a domain's voters to this machine's GPUs.

    Attributes:
        groups: of GPUs, each of which trains one voter at a time; those left over by whole groups stay idle. Empty
            where voters train on processors.
        at_once: voters at a time.
        note: what a person should know about it, if anything.
    """

    groups: tuple[Gpus, ...]
    at_once: int
    note: str | None = None

    def next_group(self, taken: Sequence[Gpus]) -> Gpus:
        """GPU group for the next voter: a free one or, if the recipe runs more at a time, the least used.

        Args:
            taken: GPU groups of the running voters.
        """
        uses = Counter(taken)
        return min(self.groups, key=lambda group: uses[group], default=())

    def document(self) -> dict[str, Any]:
        return {"gpus": [list(group) for group in self.groups], "at_once": self.at_once, "note": self.note}


def place(request: TrainingRequest, gpus: Gpus, cores: int) -> Placement:
    """Distribute the available GPUs over the voters, one per process.

    Raises:
        InputError: a voter has more processes than there are GPUs.
    """
    if request.tpu is not None:
        return Placement((), 1)  # the chips of a host belong to one process at a time
    hardware, planned = request.recipe.hardware, request.planned
    each = hardware.processes
    at_once = voters_at_once(hardware, len(gpus), cores)
    if not gpus and planned is not None and planned.kind == "gpu":
        where = "one process" if each == 1 else f"{each} processes"
        note = f"planned for the GPUs of {planned.target}, and here is none: {where} a voter on the processor"
        return Placement((), at_once, note)
    if not gpus:
        return Placement((), at_once)
    if each > len(gpus):
        raise InputError(
            f"{request.domain}: each voter has {each} processes, and this machine has {len(gpus)} GPUs: plan for "
            "its target (--target, CAPIBARA_TARGET), or set hardware.backend and hardware.processes in the recipe"
        )
    return Placement(tuple(gpus[at : at + each] for at in range(0, len(gpus) - each + 1, each)), at_once)


def voters_at_once(hardware: HardwareChoice, gpus: int, cores: int) -> int:
    """Number of concurrent voters: as the recipe says, else one per GPU group, else by the cores."""
    if hardware.parallel:
        return hardware.parallel
    if gpus:
        return max(1, gpus // hardware.processes)
    return 1 if hardware.processes > 1 else max(1, cores // hardware.threads)

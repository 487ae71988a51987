"""Causes and remedies of failures outside this program: memory, TPUs, CUDA, NCCL, InfiniBand, the rendezvous.

Told by what libraries write into their errors; imports none of them.
"""

import re
from dataclasses import dataclass

_OUT_OF_MEMORY = re.compile(
    r"out of memory|can't allocate memory|CUBLAS_STATUS_ALLOC_FAILED|RESOURCE_EXHAUSTED", re.IGNORECASE
)


@dataclass(frozen=True)
class Cause:
    """A failure that has a known remedy.

    Attributes:
        told_by: found in the error's type or text.
        name: what is wrong.
        remedy: what to do.
    """

    told_by: re.Pattern[str]
    name: str
    remedy: str


def _cause(told_by: str, name: str, remedy: str) -> Cause:
    return Cause(re.compile(told_by, re.IGNORECASE), name, remedy)


TPU = _cause(
    r"initialize backend 'tpu'|no TPU|TPU (platform|device|system)[^.]{0,40}(not found|unavailable|not available)"
    r"|libtpu\.so|/dev/(accel|vfio)",
    "TPU not found",
    "run on a TPU VM, install libtpu (`pip install libtpu`), and end other programs that hold the TPU "
    "(`sudo lsof /dev/accel* /dev/vfio/*`: one process at a time can have it)",
)

# The first that fits counts: what is more particular stands before what is more general.
CAUSES = (
    TPU,
    _cause(
        r"(ibv_|NET/IB|infiniband|mlx5).*(cannot allocate|ENOMEM|memlock)|ibv_reg_mr|ibv_create_(qp|cq)",
        "InfiniBand may not lock memory",
        "raise the limit (`ulimit -l unlimited`; docker --ulimit memlock=-1 --cap-add IPC_LOCK), or take TCP: "
        "NCCL_IB_DISABLE=1",
    ),
    _cause(
        r"ibv_|NET/IB|infiniband|mlx5|NCCL_IB_",
        "InfiniBand fails",
        "`ibstat` has to show an active port on every host; name the adapter (NCCL_IB_HCA) and, over RoCE, its address "
        "(NCCL_IB_GID_INDEX), or take TCP: NCCL_IB_DISABLE=1",
    ),
    _cause(
        r"duplicate GPU",
        "NCCL: two processes have the same GPU",
        "a process needs a GPU of its own: lower hardware.processes, or let CUDA_VISIBLE_DEVICES name as many",
    ),
    _cause(
        r"no socket interface found|NCCL_SOCKET_IFNAME",
        "NCCL finds no network card",
        "export NCCL_SOCKET_IFNAME with the card that joins the hosts (`ip -brief address` lists them)",
    ),
    _cause(
        r"(nccl|gloo).*(/dev/shm|no space left|shared memory)|/dev/shm/nccl",
        "NCCL has too little shared memory",
        "raise /dev/shm (docker --shm-size=8g; in Kubernetes an emptyDir of medium Memory)",
    ),
    _cause(
        r"watchdog.*timeout|ncclTimeout|collective operation timeout|NCCL.*timed? ?out",
        "NCCL waited too long for another process",
        "the process that did not come is slower, stuck or gone: look for the first error in all processes' output; "
        "NCCL_DEBUG=INFO says which collective it was",
    ),
    _cause(
        r"ncclRemoteError|remote process (has )?exited",
        "NCCL lost another process",
        "its own output has the cause: the failure here is a consequence",
    ),
    _cause(
        r"nccl(System|Internal|UnhandledCuda|InvalidUsage|InvalidArgument)\w*|NCCL (error|failure)|ProcessGroupNCCL",
        "NCCL fails",
        "start again with NCCL_DEBUG=INFO; the usual causes are a driver older than NCCL wants (`nvidia-smi`), a "
        "network card that does not reach the other hosts (NCCL_SOCKET_IFNAME), and little shared memory (/dev/shm)",
    ),
    _cause(
        r"driver version is insufficient|no kernel image is available|no CUDA-capable device|CUDA driver init",
        "CUDA does not fit this machine",
        "install a driver as new as this torch's CUDA (`nvidia-smi` beside `python -m torch.utils.collect_env`), or a "
        "torch that was built for this GPU",
    ),
    _cause(
        r"EADDRINUSE|address already in use",
        "the port of the rendezvous is taken",
        "export MASTER_PORT with a free one, the same on all hosts",
    ),
    _cause(
        r"DistNetworkError|DistStoreError|RendezvousTimeout|client socket has timed out"
        r"|connection (refused|reset by peer)|connection closed by peer",
        "the processes do not reach each other",
        "MASTER_ADDR has to be the first host's address, MASTER_PORT open between all of them; where a process ended "
        "before, its own output has the cause",
    ),
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the device or the machine had too little memory."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and bool(_OUT_OF_MEMORY.search(f"{type(error).__name__} {error}"))
    )


def explained(error: BaseException) -> str:
    """Describe an error in a sentence: known cause and remedy, and the library's message."""
    own = f"{type(error).__name__}: {error}"
    if is_out_of_memory(error):
        return f"out of memory ({_first_line(own)})"
    for cause in CAUSES:
        if cause.told_by.search(own):
            return f"{cause.name}: {cause.remedy} ({_first_line(own)})"
    return own


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:300]

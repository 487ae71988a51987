"""Resource usage of a training process: memory, processor time, and the GPU's load."""

import resource
import shutil
import subprocess
import time
from collections.abc import Callable

import psutil
import torch

_GPU_EVERY_S = 1.0  # reading the driver costs up to milliseconds
_SMI_EVERY_S = 10.0  # starting its program costs tens of them
_SMI_WAIT_S = 5.0


class ResourceUsage:
    """Measures memory and processor time of this process, and the GPU's load: by pynvml, else by `nvidia-smi`."""

    def __init__(self, device: torch.device):
        self._device = device
        self._wall, self._cpu = time.monotonic(), time.process_time()
        self._gpu, self._every_s = _gpu(device)
        self._read_at, self._load = 0.0, dict[str, float]()

    def figures(self) -> dict[str, float]:
        """Figures since the last call.

        `cpu_percent` (100 = one core) and `memory_mib` (peak so far); on a GPU also `gpu_percent` and `gpu_memory_mib`,
        both of the whole GPU, and at most a second old (by `nvidia-smi` ten).
        """
        wall, cpu = time.monotonic(), time.process_time()
        spent = max(wall - self._wall, 1e-9)
        percent = round(100 * (cpu - self._cpu) / spent, 1)
        self._wall, self._cpu = wall, cpu
        if self._gpu is not None and wall - self._read_at >= self._every_s:
            self._read_at, self._load = wall, self._gpu()
        return {"memory_mib": memory_mib(self._device), "cpu_percent": percent, **self._load}


Read = Callable[[], dict[str, float]]


def _gpu(device: torch.device) -> tuple[Read | None, float]:
    """A function that reads the GPU's load, and the least seconds between two calls; None where nothing can."""
    if device.type != "cuda":
        return None, _GPU_EVERY_S
    uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except ImportError:
        return smi_reader(uuid), _SMI_EVERY_S
    except pynvml.NVMLError:  # no driver for it here, such as in a container without one
        return None, _GPU_EVERY_S

    def read() -> dict[str, float]:
        try:
            load, memory = pynvml.nvmlDeviceGetUtilizationRates(handle), pynvml.nvmlDeviceGetMemoryInfo(handle)
        except pynvml.NVMLError:  # shown to people only: no reason to end a training
            return {}
        return {"gpu_percent": float(load.gpu), "gpu_memory_mib": round(memory.used / 2**20, 1)}

    return read, _GPU_EVERY_S


def smi_reader(uuid: str) -> Read | None:
    """A function that reads a GPU's load from the driver's program; None if there is no such program."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    fields = "--query-gpu=utilization.gpu,memory.used"
    command = [program, f"--id={uuid}", fields, "--format=csv,noheader,nounits"]

    def read() -> dict[str, float]:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SMI_WAIT_S, check=True)
            percent, memory = map(float, done.stdout.split(","))
        except (OSError, subprocess.SubprocessError, ValueError):  # "[N/A]", too: shown to people only
            return {}
        return {"gpu_percent": percent, "gpu_memory_mib": memory}

    return read


def held_mib(device: torch.device) -> float:
    """Memory that this process holds now, in MiB: the GPU's allocations, else resident memory."""
    if device.type == "cuda":
        return round(float(torch.cuda.memory_allocated(device)) / 2**20, 1)
    return round(psutil.Process().memory_info().rss / 2**20, 1)


def memory_mib(device: torch.device) -> float:
    """Peak memory of this process, in MiB: the GPU's allocations, else resident memory."""
    if device.type == "cuda":
        return round(float(torch.cuda.max_memory_allocated(device)) / 2**20, 1)
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10, 1)

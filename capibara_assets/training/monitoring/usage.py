"""Resource usage of a training process: memory, processor time, and the GPU's load."""

import resource
import time
from typing import Any

import psutil
import torch

_GPU_EVERY_S = 1.0  # reading the driver costs up to milliseconds


class ResourceUsage:
    """Measures memory and processor time of this process, and the GPU's load where pynvml is installed."""

    def __init__(self, device: torch.device):
        self._device = device
        self._wall, self._cpu = time.monotonic(), time.process_time()
        self._gpu = _gpu(device)
        self._read_at, self._load = 0.0, dict[str, float]()

    def figures(self) -> dict[str, float]:
        """Figures since the last call.

        `cpu_percent` (100 = one core) and `memory_mib` (peak so far); on a GPU also `gpu_percent` and `gpu_memory_mib`,
        both of the whole GPU and at most a second old.
        """
        wall, cpu = time.monotonic(), time.process_time()
        spent = max(wall - self._wall, 1e-9)
        percent = round(100 * (cpu - self._cpu) / spent, 1)
        self._wall, self._cpu = wall, cpu
        if self._gpu is not None and wall - self._read_at >= _GPU_EVERY_S:
            self._read_at, self._load = wall, self._gpu()
        return {"memory_mib": memory_mib(self._device), "cpu_percent": percent, **self._load}


def _gpu(device: torch.device) -> Any:
    """A function that reads the GPU's load from its driver; None without a GPU or without pynvml."""
    if device.type != "cuda":
        return None
    try:
        import pynvml

        pynvml.nvmlInit()
        uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except ImportError:
        return None
    except pynvml.NVMLError:  # no driver for it here, such as in a container without one
        return None

    def read() -> dict[str, float]:
        try:
            load, memory = pynvml.nvmlDeviceGetUtilizationRates(handle), pynvml.nvmlDeviceGetMemoryInfo(handle)
        except pynvml.NVMLError:  # shown to people only: no reason to end a training
            return {}
        return {"gpu_percent": float(load.gpu), "gpu_memory_mib": round(memory.used / 2**20, 1)}

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

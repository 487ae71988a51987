"""What a training process takes of its machine, measured between two calls."""

import time
from typing import Any

import torch

from capibara_assets.training.environment import memory_mib

_GPU_EVERY_S = 1.0  # a question to the driver costs up to milliseconds


class ResourceUsage:
    """Memory and processor time of this process; the GPU's load where NVIDIA's library (pynvml) is installed."""

    def __init__(self, device: torch.device):
        self._device = device
        self._wall, self._cpu = time.monotonic(), time.process_time()
        self._gpu = _gpu(device)
        self._asked, self._load = 0.0, dict[str, float]()

    def figures(self) -> dict[str, float]:
        """Since the last call: `cpu_percent` (100 = one core), `memory_mib` (most so far); on a GPU also
        `gpu_percent` and `gpu_memory_mib` (of the whole GPU, at most a second old)."""
        wall, cpu = time.monotonic(), time.process_time()
        spent = max(wall - self._wall, 1e-9)
        percent = round(100 * (cpu - self._cpu) / spent, 1)
        self._wall, self._cpu = wall, cpu
        if self._gpu is not None and wall - self._asked >= _GPU_EVERY_S:
            self._asked, self._load = wall, self._gpu()
        return {"memory_mib": memory_mib(self._device), "cpu_percent": percent, **self._load}


def _gpu(device: torch.device) -> Any:
    """A function that asks the GPU's driver; None where there is no GPU or nobody to ask."""
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

    def ask() -> dict[str, float]:
        try:
            load, memory = pynvml.nvmlDeviceGetUtilizationRates(handle), pynvml.nvmlDeviceGetMemoryInfo(handle)
        except pynvml.NVMLError:  # a figure for people: training does not end for it
            return {}
        return {"gpu_percent": float(load.gpu), "gpu_memory_mib": round(memory.used / 2**20, 1)}

    return ask
